"""Shields for a simple rule: the first observation plus the action must stay above 0."""

from __future__ import annotations

import dataclasses

import numpy as np
from gymnasium.spaces import Box, Space

from advice import PRESETS, Outcome, Shield, ShieldConfig

SMALL = dataclasses.replace(
    PRESETS["paper"], hidden_size=32, max_epochs=30, construction_episodes=100
)
LOOK_AHEAD = ShieldConfig(hidden_size=32, fit_steps=200, construction_episodes=100, arm="fixed")
OBSERVATIONS = Box(-1, 1, (4,), np.float32)
ACTIONS = Box(-1, 1, (2,), np.float32)


def is_safe(obs: np.ndarray, push: float) -> bool:
    """The rule: the first observation plus the push is above 0."""
    return bool(obs[0] + push > 0)


def record_random(shield: Shield, episodes: int, seed: int = 0) -> None:
    """Record two random features an episode, labelled by the rule."""
    rng = np.random.default_rng(seed)
    for _ in range(episodes):
        for _ in range(2):
            obs = rng.uniform(-1, 1, 4).astype(np.float32)
            action = proposals(shield, rng)
            push = float(action[0]) if isinstance(action, np.ndarray) else float(action) - 1.0
            shield.record(obs, action, Outcome.SAFE if is_safe(obs, push) else Outcome.UNSAFE)
        shield.end_episode(False)


def fitted_on(
    episodes: int, config: ShieldConfig, actions: Space = ACTIONS, seed: int = 1
) -> Shield:
    """A shield fitted on random features."""
    shield = Shield(OBSERVATIONS, actions, config, seed=seed)
    record_random(shield, episodes)
    shield.fit()
    return shield


def with_far_check(shield: Shield, far: str) -> Shield:
    """A copy that also checks whether a proposal is far from all data."""
    twin = copy(shield)
    twin.config = dataclasses.replace(shield.config, far=far)
    twin._arm(twin._fitted(), twin.summary)  # as a fit does
    return twin


def proposals(shield: Shield, rng: np.random.Generator) -> object:
    """A random action of the shield's space."""
    if shield.action_space.kind == "discrete":
        return int(rng.integers(shield.action_space.n))
    return rng.uniform(-1, 1, shield.action_space.shape).astype(np.float32)


def copy(shield: Shield, config: ShieldConfig | None = None) -> Shield:
    """The same shield once more, perhaps with other settings."""
    twin = Shield(
        shield.observation_space, shield.action_space, shield.config if config is None else config
    )
    twin.restore(*shield.snapshot())
    return twin
