"""RCPO: the penalised reward uses the current multiplier, not that of when it was stored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

from advice.agents.agent import as_batch
from advice.agents.ddpg import RCPO
from advice.agents.networks import Layer, init_learner
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


@pytest.mark.parametrize(("multiplier", "up"), [(0.0, True), (4.0, False), (1.0, True)])
def test_penalised_target_with_the_current_multiplier(multiplier: float, up: bool) -> None:
    """y = 1 - λ 0.2 at a terminal step: 1, 0.2 and 0.8, around a critic of 0.5."""
    agent = RCPO(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=4, batch_size=1), seed=0)
    agent.observe(Transition(np.zeros(3), np.zeros(2), 1.0, 0.2, np.zeros(3), True))
    agent.multiplier = multiplier  # after the transition was stored
    blank = jax.tree.map(jnp.zeros_like, agent.state.critic.network)
    constant = (*blank[:-1], Layer(blank[-1].weight, jnp.array([0.5])))
    agent.state = agent.state._replace(critic=init_learner(constant, 1e-3))
    agent.learn()
    expected = 0.5 + (1e-3 if up else -1e-3)
    found = float(agent.state.critic.network[-1].bias[0])
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_multiplier_follows_the_episodes_cost() -> None:
    agent = RCPO(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=4), seed=0)
    assert agent.multiplier == 0.0
    agent.end_episode(0.2)
    assert agent.multiplier == pytest.approx(0.0002)
    agent.end_episode(1e9)
    assert agent.multiplier == 10.0
