"""Laps and speed on the circle, of whichever runs have recorded actions."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advice.config import EnvConfig, TrainConfig
from advice.reports.page import write_report
from advice.reports.shields import laps_and_speed
from advice.runs.loop import train
from advice.runs.records import RunFolder


def test_laps_and_speed_by_hand() -> None:
    """Three quarters of a circle of 2 m in 30 steps of 1/25 s, then half of one backwards in 10."""

    def driven(angles: Any) -> Any:
        poses = np.stack([2 * np.cos(angles), 2 * np.sin(angles), angles], axis=1)
        return SimpleNamespace(poses=poses, layout={"circle": np.zeros((1, 2))}, fps=25.0)

    there = driven(np.linspace(3, 3 + 1.5 * np.pi, 31))  # passes pi, where atan2 jumps
    back = driven(np.linspace(0, -np.pi, 11))
    found = laps_and_speed([there, back])
    chords = 30 * 4 * np.sin(0.025 * np.pi) + 10 * 4 * np.sin(0.05 * np.pi)
    assert found["laps"] == pytest.approx((0.75 - 0.5) / 2)
    assert found["speed, m/s"] == pytest.approx(chords * 25 / 40)
    assert found["distance, m"] == pytest.approx(2)


@pytest.mark.usefixtures("undrawn")
def test_the_circle_has_laps_and_speed(tmp_path: Path) -> None:
    env = EnvConfig(max_episode_steps=20)
    config = TrainConfig("randomised-circle", "ddpg", episodes=3, env=env)
    other = dataclasses.replace(config, method="rcpo", seed=1)
    bare = dataclasses.replace(config, method="ddpg-lag")
    for one in (config, other, bare):
        train(one, RunFolder.of(tmp_path / "runs", one))
    RunFolder.of(tmp_path / "runs", bare).actions_file.unlink()
    text = write_report([tmp_path / "runs"], tmp_path / "report").page.read_text()
    assert "No recorded actions of DDPG-Lag." in text
    assert "Not shown: trajectories. There is no seed of which all methods" in text
    with open(tmp_path / "report" / "tables" / "randomised-circle-laps.csv") as stream:
        rows = [*csv.DictReader(stream)]
    assert [*rows[0]] == ["method", "seed", "episodes", "laps", "speed, m/s", "distance, m"]
    found = [(row["method"], row["seed"], row["episodes"]) for row in rows]
    assert found == [("DDPG", "0", "1 to 3"), ("RCPO", "1", "1 to 3")]
