"""Small runs for the tests of this folder."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import PRESETS, AgentConfig, ShieldConfig, TrainConfig
from advice.files import read_arrays
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener
from advice.runs.records import RunFolder
from advice.types import EpisodeRecord

SMALL_AGENT = AgentConfig(
    warmup_steps=0, hidden_size=16, batch_size=16, replay_capacity=300, noise_dt=0.5
)
SMALL_SHIELD = dataclasses.replace(
    PRESETS["paper"], construction_episodes=8, hidden_size=16, max_epochs=4
)
LOOK_AHEAD = ShieldConfig(construction_episodes=8, hidden_size=16, fit_steps=60, refit_episodes=3)


class Killed(Exception):
    """The process ends here."""


class DiesAfter(Listener):
    """Ends a run after an episode, before anything is saved."""

    def __init__(self, episode: int) -> None:
        self._episode = episode

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        if record.episode == self._episode:
            raise Killed


def small(method: str = "advice", episodes: int = 14, **settings: Any) -> TrainConfig:
    return TrainConfig(
        method=method,
        episodes=episodes,
        agent=SMALL_AGENT,
        **{"task": "tiny:Corridor", "shield": SMALL_SHIELD, **settings},
    )


def lines_without_seconds(folder: Path) -> list[list[str]]:
    with open(folder / "episodes.csv", newline="") as stream:
        return [row[:-1] for row in csv.reader(stream)]


def assert_same_run(one: Path, other: Path) -> None:
    """Equal records (but for the seconds), actions and everything a checkpoint holds."""
    assert lines_without_seconds(one) == lines_without_seconds(other)
    assert (one / "actions.bin").read_bytes() == (other / "actions.bin").read_bytes()
    states = [
        read_arrays(RunFolder(run).checkpoint / "state.safetensors", "checkpoint", 1)
        for run in (one, other)
    ]
    (arrays, document), (other_arrays, other_document) = states
    assert arrays.keys() == other_arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], other_arrays[name], err_msg=name)
    for part in ("agent", "shield", "counters"):
        assert document[part] == other_document[part]
