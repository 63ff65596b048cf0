"""Grids whose environments exit or hang, and whose parent is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import small

from advice.runs.engines import run_local
from advice.runs.grid import Cell, newest_episodes, status_of
from advice.runs.records import RunFolder
from advice.threads import one_thread

TESTS = Path(__file__).parents[1]
SEARCHED = os.pathsep.join(
    [str(TESTS), str(TESTS / "attacks"), str(TESTS / "runs"), os.environ.get("PYTHONPATH", "")]
)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes find the environments."""
    monkeypatch.setenv("PYTHONPATH", SEARCHED)


def cell(out: Path, name: str) -> Cell:
    config = small("ddpg", episodes=12, task=f"hostile:{name}")
    return Cell(config, RunFolder.of(out, config))


@pytest.mark.slow
def test_a_worker_that_exits_with_0_is_not_done(tmp_path: Path) -> None:
    cells = [cell(tmp_path, "Exits"), cell(tmp_path, "Vanishes")]
    outcome = run_local(cells, lambda: None, processes=2, attempts=1)
    assert sorted(x.name for x in outcome.failed) == sorted(x.name for x in cells)
    reasons = [status_of(x).reason for x in cells]
    assert "SystemExit" in reasons[0]
    assert "exit code 0 before the run was done" in reasons[1]


@pytest.mark.slow
def test_a_run_whose_shield_was_never_finished_is_reported(tmp_path: Path) -> None:
    lender = cell(tmp_path, "Exits")
    config = small(episodes=3, shield_from=str(lender.folder.path))
    borrower = Cell(config, RunFolder.of(tmp_path, config), lender.folder.path)
    outcome = run_local([lender, borrower], lambda: None, processes=2, attempts=1)
    assert outcome.failed == [lender, borrower]
    assert status_of(borrower).reason == "the run whose shield this one starts with has failed"


@pytest.mark.slow
def test_a_worker_that_takes_no_step_is_killed_and_reported(tmp_path: Path) -> None:
    hung = cell(tmp_path, "Hangs")
    outcome = run_local([hung], lambda: None, attempts=1, stall_minutes=0.15)
    assert outcome.failed == [hung]
    assert "no step was taken for 0.15 minutes" in status_of(hung).reason


def test_the_first_signal_is_answered_and_the_second_ends_what_hangs(tmp_path: Path) -> None:
    said: list[str] = []
    hung = cell(tmp_path, "Hangs")

    def on_poll() -> None:
        if said or newest_episodes(hung.folder.episodes_file):
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run_local([hung], on_poll, attempts=1, say=said.append)
    assert outcome.stopped
    assert not outcome.failed
    assert "the same again stops at once" in said[0]
    assert said[1] == "stopping at once"


@pytest.mark.slow
def test_a_hung_worker_ends_with_its_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from test_grids import cell; from advice.runs.engines import *\n"
        "run_local([cell(pathlib.Path(sys.argv[1]), 'Hangs')], lambda: None)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], env=one_thread({**os.environ})
    )
    folder = cell(tmp_path, "Hangs").folder
    try:
        wait_until(folder.is_locked)
        (worker,) = children(parent.pid)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: has_ended(worker))


def has_ended(process: int) -> bool:
    """True also for one that its parent has not asked about yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(true: object) -> None:
    for _ in range(3000):
        if true():  # type: ignore[operator]
            return
        time.sleep(0.05)
    raise AssertionError(f"never true: {true}")


def children(parent: int) -> list[int]:
    words = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True).stdout
    return json.loads("[" + ",".join(words.split()) + "]")
