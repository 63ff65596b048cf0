"""What the other folders' tests share: small runs, made-up records and shields."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("runs", "reports", "shields")]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a fitted shield, on a task of a module; never change it."""
    from helpers import small

    from advice.runs.loop import train

    path = tmp_path_factory.mktemp("trained") / "run"
    train(small(episodes=10), path)
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "run"))
