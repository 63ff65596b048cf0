"""The live view of a training, off a terminal: what its lines say."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import write_run
from rich.console import Console

from advice import display
from advice.config import TrainConfig
from advice.display import PairDisplay, TrainingDisplay, pair_status
from advice.runs.checkpoints import Counters
from advice.runs.grid import Cell
from advice.runs.records import RunFolder
from advice.types import EpisodeRecord


def lines_of(folder: Any, config: TrainConfig, resumed_after: int, record: EpisodeRecord) -> str:
    out = io.StringIO()
    with TrainingDisplay(Console(file=out, width=200)) as shown:
        shown.started(config, folder, Counters(resumed_after, 0, 0))
        shown.episode_ended(record, Counters(record.episode, 0, 0))
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(display, "PLAIN_SECONDS", 0.0)
    return write_run(tmp_path, TrainConfig(episodes=150))


def test_it_shows_the_last_hundred_episodes_also_after_a_resume(folder: Any) -> None:
    config, records = folder.read_config(), folder.read_episodes()
    record = records[119]._replace(k=4, steps=1000, interventions=250, no_safe_action=10)
    recent = [*records[20:119], record]
    steps = sum(r.steps for r in recent)
    said = lines_of(folder, config, 119, record)
    assert f"last 100: {sum(r.violation for r in recent)} violations" in said
    assert f"{sum(r.interventions for r in recent) / steps:.0%} of steps replaced" in said
    share = sum(r.no_safe_action for r in recent) / steps
    assert f"{share:.1%} without a safe action, K 4" in said


def test_it_says_nothing_of_a_shield_that_is_not_armed(folder: Any) -> None:
    said = lines_of(folder, folder.read_config(), 0, folder.read_episodes()[0]._replace(k=0))
    assert "last 1: " in said
    assert "replaced" not in said


def test_two_runs_side_by_side(folder: Any, tmp_path: Path) -> None:
    config, records = folder.read_config(), folder.read_episodes()
    out = io.StringIO()
    cells = [Cell(config, folder), Cell(replace(config, method="ddpg"), RunFolder(tmp_path / "x"))]
    with PairDisplay(Console(file=out, width=200), cells) as shown:
        for _ in range(3):  # what has not changed is not said again
            shown._last = 0.0
            shown.update()
    assert out.getvalue().splitlines() == [
        f"ADVICE episode 150/150: {pair_status(records)}",
        "DDPG episode 0/150: 0 violations, 0 goals in 0",
    ]
    assert pair_status(records[:3]).endswith("goals in 3")
    unarmed = [record._replace(k=0) for record in records[:9]]
    armed = records[9]._replace(k=4, violation=True, success=False)
    assert pair_status([*unarmed, armed]) == "armed at 9, since then 1 violations, 0 goals in 1"
