"""The live view of a training, off a terminal: what its lines say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up import write_run

from advice import display
from advice.config import TrainConfig
from advice.display import GridDisplay, TrainingDisplay
from advice.runs.checkpoints import Counters
from advice.runs.grid import Cell
from advice.runs.records import RunFolder
from advice.types import EpisodeRecord


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(display, "PLAIN_SECONDS", 0.0)
    return write_run(tmp_path, TrainConfig(episodes=150))


def show(folder: Any, resumed_after: int, record: EpisodeRecord) -> None:
    shown = TrainingDisplay()
    with shown.progress:
        shown.started(folder.read_config(), folder, Counters(resumed_after, 0, 0))
        shown.episode_ended(record, Counters(record.episode, 0, 0))


def test_it_shows_the_last_hundred_episodes_also_after_a_resume(
    folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    records = folder.read_episodes()
    record = records[119]._replace(k=4, steps=1000, interventions=250, no_safe_action=10)
    recent = [*records[20:119], record]
    steps = sum(r.steps for r in recent)
    show(folder, 119, record)
    said = capsys.readouterr().out
    assert f"last 100: {sum(r.violation for r in recent)} violations" in said
    assert f"{sum(r.interventions for r in recent) / steps:.0%} of steps replaced" in said
    share = sum(r.no_safe_action for r in recent) / steps
    assert f"{share:.1%} without a safe action, K 4" in said


def test_it_says_nothing_of_a_shield_that_is_not_armed(
    folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    show(folder, 0, folder.read_episodes()[0]._replace(k=0))
    said = capsys.readouterr().out
    assert "last 1: " in said
    assert "replaced" not in said


def test_a_grid_says_once_what_state_a_run_is_in(
    folder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = folder.read_config()
    with GridDisplay([Cell(config, folder), Cell(config, RunFolder(tmp_path / "x"))], 2) as shown:
        for _ in range(3):
            shown._last = 0.0
            shown.update()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("/seed-0 stopped")
    assert len(lines) == 4
    assert all(
        line.startswith("0 running, 0 failed, 1 stopped, 1 queued, 0 done") for line in lines
    )
