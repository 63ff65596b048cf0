"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import small

from advice.runs.loop import train


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of ``small()``, for comparison; never change it."""
    folder = tmp_path_factory.mktemp("whole")
    train(small(), folder)
    return folder
