"""Which values of a parametrized test are left to ``make test-slow``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(fast: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """All ``values`` as parameters; those that are not ``fast`` are marked as slow.

    A tuple is the values of several parameters.
    """
    listed = list(values)
    assert all(value in listed for value in fast), f"expected some of {listed}, found {fast}"
    return [value if value in fast else _slow(value) for value in listed]


def _slow(value: Any) -> Any:
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.slow)
