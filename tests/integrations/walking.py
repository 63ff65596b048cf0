"""Careless walks through the corridor, and settings that fit in a moment."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np

import advice

QUICK = dataclasses.replace(
    advice.PRESETS["paper"], construction_episodes=30, hidden_size=32, max_epochs=10
)
# sizes and steps of the runs' shields, so that its fit is compiled once for both
LOOK_AHEAD = advice.ShieldConfig(
    construction_episodes=30, hidden_size=16, fit_steps=60, arm="fixed"
)


def sideways(rng: np.random.Generator) -> Any:
    """A careless walk: to the goal, or over one of the cliffs."""
    return np.array([rng.uniform(-0.2, 1), rng.choice([-1.0, 0.0, 1.0])], np.float32)


def run(env: gym.Env[Any, Any], episodes: int, seed: int = 0) -> list[dict[str, Any]]:
    """Walk carelessly; the infos of every step."""
    rng = np.random.default_rng(seed)
    infos = []
    for episode in range(episodes):
        env.reset(seed=seed + episode)
        ended = False
        while not ended:
            *_, terminated, truncated, info = env.step(sideways(rng))
            infos.append(info)
            ended = terminated or truncated
    return infos
