"""Weights & Biases gets the same numbers as TensorBoard, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advice.config import AgentConfig, EnvConfig, TrainConfig
from advice.runs.events import scalars_of
from advice.runs.loop import train
from advice.runs.records import RunFolder

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
    (document,) = logged.rglob("wandb-summary.json")
    summary = json.loads(document.read_text())
    from collections import deque

    *before, last = folder.read_episodes()
    assert summary["episode"] == 3
    for name, value in scalars_of(last, deque(before)).items():
        assert summary[name] == pytest.approx(value), name
