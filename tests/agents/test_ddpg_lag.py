"""DDPG-Lag against numbers worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st
from practice import updated

from advice.agents.ddpg import DDPGLagrangian, ascend, lagrangian_loss
from advice.agents.networks import Layer, init_learner
from advice.config import AgentConfig, MultiplierConfig
from advice.types import Transition

OBS, ACT = Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)


def test_lagrangian_step_by_hand() -> None:
    config = MultiplierConfig(initial=0.1, learning_rate=0.01, limit=0.5, maximum=0.2)
    assert ascend(0.1, 3.5, config) == pytest.approx(0.13)  # 0.1 + 0.01 * (3.5 - 0.5)
    assert ascend(0.13, 0.0, config) == pytest.approx(0.125)  # cheaper than the limit: down
    assert ascend(0.19, 100.0, config) == 0.2
    assert ascend(0.001, 0.0, config) == 0.0


def test_the_default_multiplier_is_the_papers() -> None:
    agent = DDPGLagrangian(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=4), seed=0)
    assert agent.multiplier == 0.1
    agent.end_episode(0.2)
    assert agent.multiplier == pytest.approx(0.102)
    agent.end_episode(0.0)
    assert agent.multiplier == pytest.approx(0.102)


@given(st.floats(0, 10), st.floats(0, 1e6), st.floats(0, 5))
def test_the_multiplier_rises_exactly_beyond_the_limit(
    multiplier: float, cost: float, limit: float
) -> None:
    moved = ascend(multiplier, cost, MultiplierConfig(limit=limit))
    assert 0 <= moved <= 10
    assert moved >= multiplier if cost >= limit else moved <= multiplier


def test_actor_loss_by_hand() -> None:
    value, cost_value = jnp.array([1.0, 3.0]), jnp.array([0.5, 0.1])
    # mean of -1 + 4 * 0.5 = 1 and -3 + 4 * 0.1 = -2.6, over 1 + 4
    assert float(lagrangian_loss(value, cost_value, 4.0)) == pytest.approx(-0.16)
    assert float(lagrangian_loss(value, cost_value, 0.0)) == pytest.approx(-2.0)


@pytest.mark.parametrize(("terminated", "through"), [(False, False), (True, False), (True, True)])
def test_cost_target_by_hand(terminated: bool, through: bool) -> None:
    """Q_C' is 1 everywhere: y_C = 0.2 + 0.95 unless the crash ends it; Adam's step has its sign.

    A constant Q_C between the two possible targets goes up for one and down for the other.
    """
    config = AgentConfig(
        warmup_steps=0, hidden_size=4, batch_size=1, bootstrap_through_terminal=through
    )
    agent = DDPGLagrangian(OBS, ACT, config, seed=0)
    blank = jax.tree.map(jnp.zeros_like, agent.state.cost_critic.network)
    constant = init_learner((*blank[:-1], Layer(blank[-1].weight, jnp.array([0.5]))))
    one = (*blank[:-1], Layer(blank[-1].weight, jnp.ones(1)))
    state = agent.state._replace(cost_critic=constant._replace(target=one))
    agent.observe(Transition(np.zeros(3), np.zeros(2), -1.0, 0.2, np.zeros(3), terminated))
    after = updated(agent, state)
    up = not terminated or through  # 1.15 > 0.5 > 0.2
    expected = 0.5 + (1e-3 if up else -1e-3)
    assert float(after.cost_critic.network[-1].bias[0]) == pytest.approx(expected, abs=1e-6)
