"""RCPO: reward and cost are stored apart, so that the current multiplier applies to both."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from advice.agents.rcpo import RCPO
from advice.agents.replay_buffer import as_batch
from advice.config import AgentConfig
from advice.types import Transition

OBS, ACT = Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)


def test_reward_and_cost_are_stored_separately() -> None:
    agent = RCPO(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=4), seed=0)
    agent.multiplier = 7.0
    agent.observe(Transition(np.zeros(3), np.zeros(2), 1.0, 0.2, np.zeros(3), True))
    batch = as_batch(agent.replay.rows(0, 1), 3)
    assert batch.reward[0] == 1.0
    assert batch.cost[0] == np.float32(0.2)


def test_the_multiplier_follows_the_episodes_cost() -> None:
    agent = RCPO(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=4), seed=0)
    assert agent.multiplier == 0.0
    agent.end_episode(0.2)
    assert agent.multiplier == pytest.approx(0.0002)
    agent.end_episode(1e9)
    assert agent.multiplier == 10.0
