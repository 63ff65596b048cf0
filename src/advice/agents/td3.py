"""TD3 (Fujimoto et al., 2018): DDPG with two critics, smoothed targets and a delayed actor.

Differences from the paper: see docs/methods/td3-sac.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advice.agents import networks as nn
from advice.agents.agent import Agent
from advice.agents.ddpg import td_target, update_actor
from advice.agents.replay_buffer import Batch
from advice.config import AgentConfig
from advice.types import Array


class TD3State(NamedTuple):
    """Networks with their optimisers and targets, and the clock that random keys come from."""

    actor: nn.Learner
    critics: nn.Learner  # of a pair of networks
    clock: Any


def init_critics(
    key: Any, obs_size: int, action_size: int, hidden: int
) -> tuple[nn.Network, nn.Network]:
    """Two untrained critics with different weights."""
    first, second = (
        nn.init_critic(one, obs_size, action_size, hidden) for one in jax.random.split(key)
    )
    return first, second


def least_value(critics: tuple[nn.Network, nn.Network], obs: Any, action: Any) -> Any:
    """min(Q_1(s, a), Q_2(s, a)), shape (n,)."""
    return jnp.minimum(
        nn.critic_value(critics[0], obs, action), nn.critic_value(critics[1], obs, action)
    )


def update_critics(
    critics: nn.Learner, batch: Batch, next_value: Any, config: AgentConfig
) -> nn.Learner:
    """One step of both critics towards y = r + γ (1 - done) next_value; next_value: (n,)."""
    target = td_target(batch.reward, next_value, batch.terminated, config.gamma)

    def loss(pair: tuple[nn.Network, nn.Network]) -> Any:
        errors = [nn.critic_value(critic, batch.obs, batch.action) - target for critic in pair]
        return jnp.mean(errors[0] ** 2) + jnp.mean(errors[1] ** 2)

    return nn.descend(critics, loss, config.critic_learning_rate)


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

    def update_critics_only() -> TD3State:
        return TD3State(state.actor, critics, clock)

    return jax.lax.cond(clock[1] % td3.policy_delay == 0, update_all, update_critics_only)


class TD3(Agent):
    """Explores with Gaussian noise; the lower of two critics rates actions."""

    init_state = staticmethod(init_td3)
    update_state = staticmethod(update_td3)

    def explore(self, obs: Array) -> Array:
        spread = self.config.td3.exploration_noise
        return self.greedy(obs) + spread * self.rng.standard_normal(self.action_size)

    def rating_critics(self) -> tuple[nn.Network, ...]:
        return self.weights("critics")
