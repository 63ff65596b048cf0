"""TD3 (Fujimoto et al., 2018) and SAC (Haarnoja et al., 2018): the lower of two critics counts.

TD3 is DDPG with smoothed targets and a delayed actor. SAC has a stochastic policy that maximises
value and entropy. Differences from the papers: see docs/methods/td3-sac.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents import networks as nn
from advice.agents.agent import Agent, Batch
from advice.agents.ddpg import td_target, update_actor
from advice.config import AgentConfig
from advice.types import Array

LOG_STD = (-5.0, 2.0)
"""Limits of the logarithm of the standard deviation of SAC's policy."""


def init_critics(key: Any, obs_size: int, action_size: int, hidden: int) -> tuple[nn.Network, ...]:
    """Two untrained critics with different weights."""
    keys = jax.random.split(key)
    return tuple(nn.init_critic(one, obs_size, action_size, hidden) for one in keys)


def least_value(critics: tuple[nn.Network, ...], obs: Any, action: Any) -> Any:
    """min(Q_1(s, a), Q_2(s, a)), shape (n,)."""
    return jnp.minimum(*(nn.critic_value(critic, obs, action) for critic in critics))


def update_critics(
    critics: nn.Learner, batch: Batch, next_value: Any, config: AgentConfig
) -> nn.Learner:
    """One step of both critics towards y = r + γ (1 - done) next_value; next_value: (n,)."""
    target = td_target(batch.reward, next_value, batch.terminated, config.gamma)

    def loss(pair: tuple[nn.Network, ...]) -> Any:
        errors = [nn.critic_value(critic, batch.obs, batch.action) - target for critic in pair]
        return jnp.mean(errors[0] ** 2) + jnp.mean(errors[1] ** 2)

    return nn.descend(critics, loss, config.critic_learning_rate)


class TwinCritics(Agent):
    """The lower of two critics rates actions."""

    def rating_critics(self) -> tuple[nn.Network, ...]:
        return self.weights("critics")


class TD3State(NamedTuple):
    """Networks with their optimisers and targets, and the clock that random keys come from."""

    actor: nn.Learner
    critics: nn.Learner  # of a pair of networks
    clock: Any


def smoothed_action(key: Any, action: Any, noise: float, limit: float) -> Any:
    """clip(a + clip(N(0, noise²), ±limit), ±1): similar actions get similar targets."""
    drawn = jnp.clip(noise * jax.random.normal(key, action.shape), -limit, limit)
    return jnp.clip(action + drawn, -1, 1)


def init_td3(key: Any, obs_size: int, action_size: int, config: AgentConfig) -> TD3State:
    """An untrained actor, two critics and a clock."""
    actor_key, critic_key, clock_key = jax.random.split(key, 3)
    actor = nn.init_actor(actor_key, obs_size, action_size, config.hidden_size)
    critics = init_critics(critic_key, obs_size, action_size, config.hidden_size)
    return TD3State(nn.init_learner(actor), nn.init_learner(critics), nn.init_clock(clock_key))


def update_td3(state: TD3State, batch: Batch, config: AgentConfig) -> TD3State:
    """One gradient step of both critics; one of the actor and the targets at every second call."""
    td3 = config.td3
    key, clock = nn.next_key(state.clock)

    # critics: towards the lower value of the smoothed target policy's action
    next_action = nn.actor_action(state.actor.target, batch.next_obs)
    next_action = smoothed_action(key, next_action, td3.target_noise, td3.target_noise_limit)
    next_value = least_value(state.critics.target, batch.next_obs, next_action)
    critics = update_critics(state.critics, batch, next_value, config)

    # actor: towards actions that the first critic values more, every policy_delay updates
    def actor_loss(action: Any) -> Any:
        return -jnp.mean(nn.critic_value(critics.network[0], batch.obs, action))

    def update_all() -> TD3State:
        actor = update_actor(state.actor, batch, actor_loss, config)
        return TD3State(actor, nn.update_target(critics, config.tau), clock)

    critics_only = TD3State(state.actor, critics, clock)
    return jax.lax.cond(clock[1] % td3.policy_delay == 0, update_all, lambda: critics_only)


class TD3(TwinCritics):
    """Explores with Gaussian noise."""

    init_state = staticmethod(init_td3)
    update_state = staticmethod(update_td3)

    def explore(self, obs: Array) -> Array:
        spread = self.config.td3.exploration_noise
        return self.greedy(obs) + spread * self.rng.standard_normal(self.action_size)


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


class SAC(TwinCritics):
    """A tanh-Gaussian actor, and a temperature that holds the entropy at -size."""

    init_state = staticmethod(init_sac)
    update_state = staticmethod(update_sac)
    stochastic = True

    def explore(self, obs: Array) -> Array:
        """A draw from the policy."""
        output = nn.apply_numpy(self.weights("actor"), np.asarray(obs, np.float32).ravel())
        mean, log_std = output[: self.action_size], output[self.action_size :]
        std = np.exp(np.clip(log_std, *LOG_STD))
        return np.tanh(mean + std * self.rng.standard_normal(self.action_size))
