"""Weights & Biases gets the same numbers as TensorBoard, without a network."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import pytest

from advice.config import AgentConfig, EnvConfig, TrainConfig
from advice.runs.loggers import scalars_of
from advice.runs.loop import train
from advice.runs.records import RunFolder
from advice.types import EpisodeRecord

wandb = pytest.importorskip("wandb")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = TrainConfig(
        task="randomised-goal",
        method="ddpg",
        episodes=3,
        env=EnvConfig(max_episode_steps=5),
        agent=AgentConfig(hidden_size=8, batch_size=4),
    )
    folder = RunFolder(tmp_path)
    train(config, folder, wandb=True)
    (logged,) = (tmp_path / "wandb").glob("offline-run-*")
    assert logged.name.endswith((tmp_path / "wandb-id.txt").read_text())
    (file,) = logged.glob("*.wandb")
    data, recent = file.read_bytes(), deque[EpisodeRecord](maxlen=100)
    for record in folder.read_episodes():
        recent.append(record)
        for name, value in scalars_of(record, recent).items():
            # a name and, in a field of its own, its value as JSON
            found = re.findall(rb"%s\x82\x01.([-+.\de]+)" % name.encode(), data, re.DOTALL)
            assert value in map(float, found), name
