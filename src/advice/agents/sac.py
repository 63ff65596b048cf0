"""SAC (Haarnoja et al., 2018): a stochastic policy that maximises value and entropy.

Differences from the paper: see docs/methods/td3-sac.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents import networks as nn
from advice.agents.agent import Agent
from advice.agents.replay_buffer import Batch
from advice.agents.td3 import init_critics, least_value, update_critics
from advice.config import AgentConfig
from advice.types import Array

LOG_STD = (-5.0, 2.0)
"""Limits of the logarithm of the policy's standard deviation."""


class SACState(NamedTuple):
    """Networks and the logarithm of the temperature, with optimisers and targets, and the clock."""

    actor: nn.Learner
    critics: nn.Learner  # of a pair of networks
    log_temperature: nn.Learner
    clock: Any


def sample_action(actor: nn.Network, obs: Any, key: Any) -> tuple[Any, Any]:
    """a = tanh(u), u ~ N(μ(s), σ(s)²): actions (n, size) and their log-densities (n,).

    log π(a|s) = Σ log N(u; μ, σ²) - Σ log(1 - tanh²(u)), the latter in a form that cannot
    overflow: log(1 - tanh²(u)) = 2 (log 2 - u - softplus(-2u)).
    """
    mean, log_std = jnp.split(nn.apply(actor, obs), 2, axis=-1)
    log_std = jnp.clip(log_std, *LOG_STD)
    drawn = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * drawn
    gaussian = -0.5 * drawn**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    squash = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), jnp.sum(gaussian - squash, axis=-1)


def init_sac(key: Any, obs_size: int, action_size: int, config: AgentConfig) -> SACState:
    """An untrained actor, two critics, the initial temperature and a clock."""
    actor_key, critic_key, clock_key = jax.random.split(key, 3)
    actor = nn.init_actor(actor_key, obs_size, 2 * action_size, config.hidden_size)
    critics = init_critics(critic_key, obs_size, action_size, config.hidden_size)
    log_temperature = jnp.log(jnp.float32(config.sac.initial_temperature))
    return SACState(
        nn.init_learner(actor, target=False),
        nn.init_learner(critics),
        nn.init_learner(log_temperature, target=False),
        nn.init_clock(clock_key),
    )


def update_sac(state: SACState, batch: Batch, config: AgentConfig) -> SACState:
    """One gradient step of both critics, of the actor and of the temperature."""
    key, clock = nn.next_key(state.clock)
    target_key, actor_key = jax.random.split(key)
    temperature = jnp.exp(state.log_temperature.network)

    # critics: towards the lower target value plus the entropy of the next action
    next_action, next_log = sample_action(state.actor.network, batch.next_obs, target_key)
    next_value = least_value(state.critics.target, batch.next_obs, next_action)
    next_value = next_value - temperature * next_log
    critics = update_critics(state.critics, batch, next_value, config)

    # actor: towards more value and more entropy
    def actor_loss(actor: nn.Network) -> Any:
        action, log_density = sample_action(actor, batch.obs, actor_key)
        value = least_value(critics.network, batch.obs, action)
        return jnp.mean(temperature * log_density - value)

    actor = nn.descend(state.actor, actor_loss, config.actor_learning_rate)

    # temperature: up while the entropy is below -(action size), down while it is above
    _, log_density = sample_action(state.actor.network, batch.obs, actor_key)
    surplus = -jnp.mean(log_density) + batch.action.shape[1]
    rate = config.sac.temperature_learning_rate
    log_temperature = nn.descend(state.log_temperature, lambda log: log * surplus, rate)
    return SACState(actor, nn.update_target(critics, config.tau), log_temperature, clock)


class SAC(Agent):
    """Twin critics, a tanh-Gaussian actor, and a temperature that holds the entropy at -size."""

    init_state = staticmethod(init_sac)
    update_state = staticmethod(update_sac)

    def explore(self, obs: Array) -> Array:
        """A draw from the policy."""
        mean, log_std = self._gaussian(obs)
        return np.tanh(mean + np.exp(log_std) * self.rng.standard_normal(self.action_size))

    def greedy(self, obs: Array) -> Array:
        return np.tanh(self._gaussian(obs)[0])

    def _gaussian(self, obs: Array) -> tuple[Array, Array]:
        output = nn.apply_numpy(self.weights("actor"), np.asarray(obs, np.float32).ravel())
        return output[: self.action_size], np.clip(output[self.action_size :], *LOG_STD)

    def rating_critics(self) -> tuple[nn.Network, ...]:
        return self.weights("critics")
