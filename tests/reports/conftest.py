"""Two driven runs that all tests of this folder share."""

from __future__ import annotations

import pytest
from driven import drive

from advice.runs.records import RunFolder


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """One run of DDPG and one of ADVICE, below the same folder; not to be changed."""
    root = tmp_path_factory.mktemp("driven")
    return {method: drive(root, method) for method in ("ddpg", "advice")}
