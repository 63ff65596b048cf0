"""SAC: the squashed Gaussian's density, and a temperature that holds the entropy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from practice import SMALL

from advice.agents.networks import Layer
from advice.agents.td3_sac import SAC, sample_action
from advice.config import AgentConfig
from advice.types import Transition

OBS, ACT = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)


def gaussian(mean: float, log_std: float) -> tuple[Layer]:
    """A policy that ignores the state."""
    return (Layer(jnp.zeros((2, 2)), jnp.array([mean, log_std])),)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (3.0, 0.5), (-9.0, 1.0)])
def test_log_density_of_the_squashed_gaussian(mean: float, log_std: float) -> None:
    """log N(u; μ, σ²) - log(1 - tanh²u), in float64 from the drawn u."""
    key, obs = jax.random.key(3), jnp.zeros((50, 2))
    action, log_density = sample_action(gaussian(mean, log_std), obs, key)
    drawn = np.asarray(jax.random.normal(key, (50, 1)), np.float64)[:, 0]
    std = np.exp(log_std)
    u = mean + std * drawn
    normal = -0.5 * drawn**2 - np.log(std * np.sqrt(2 * np.pi))
    expected = normal - 2 * np.log(1 / np.cosh(u))
    np.testing.assert_allclose(action[:, 0], np.tanh(u), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_density, expected, rtol=1e-4, atol=1e-4)


def test_acting_draws_from_the_same_distribution() -> None:
    agent = SAC(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=8), seed=0)
    agent.state = agent.state._replace(
        actor=agent.state.actor._replace(network=gaussian(0.5, np.log(0.3)))
    )
    obs = np.zeros(2, np.float32)
    drawn = np.arctanh([agent.act(obs)[0] for _ in range(3000)])
    assert drawn.mean() == pytest.approx(0.5, abs=0.03)
    assert drawn.std() == pytest.approx(0.3, rel=0.05)
    assert agent.act(obs, explore=False)[0] == pytest.approx(np.tanh(0.5))


@pytest.mark.parametrize(("log_std", "rises"), [(-4.0, True), (0.0, False)])
def test_the_temperature_holds_the_entropy(log_std: float, rises: bool) -> None:
    """Entropy below -1 (a narrow policy) raises the temperature, above it lowers it."""
    agent = SAC(ACT, ACT, SMALL, seed=0)  # as in test_learning.py: compiled once
    rate = SMALL.sac.temperature_learning_rate
    last = Layer(jnp.zeros((SMALL.hidden_size, 2)), jnp.array([0.0, log_std]))
    actor = agent.state.actor
    agent.state = agent.state._replace(actor=actor._replace(network=(*actor.network[:-1], last)))
    for _ in range(SMALL.batch_size):
        agent.observe(Transition(np.zeros(1), np.zeros(1), 0.0, 0.0, np.zeros(1), True))
    agent.learn()
    after = float(jnp.exp(agent.state.log_temperature.network))
    # Adam's first step on the logarithm
    assert after == pytest.approx(0.2 * np.exp(rate if rises else -rate), rel=rate / 100)
