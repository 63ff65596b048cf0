"""TD3 (Fujimoto et al., 2018): DDPG with two critics, smoothed targets and a patient actor.

Differences from the paper: see docs/methods/td3-sac.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents.agent import Agent
from advice.agents.ddpg import td_target
from advice.agents.networks import (
    Learner,
    Network,
    actor_action,
    critic_value,
    descend,
    follow,
    init_actor,
    init_clock,
    init_critic,
    init_learner,
    tick,
)
from advice.types import Array


class TD3State(NamedTuple):
    """What learns, and the clock its draws come from."""

    actor: Learner
    critics: Learner  # of a pair of networks
    clock: Any


def init_critics(key: Any, obs_size: int, action_size: int, hidden: int) -> tuple[Network, Network]:
    """Two fresh critics that differ."""
    first, second = jax.random.split(key)
    return (
        init_critic(first, obs_size, action_size, hidden),
        init_critic(second, obs_size, action_size, hidden),
    )


def least_value(critics: tuple[Network, Network], obs: Any, action: Any) -> Any:
    """min(Q_1(s, a), Q_2(s, a)), shape (n,)."""
    return jnp.minimum(critic_value(critics[0], obs, action), critic_value(critics[1], obs, action))


def twin_loss(critics: tuple[Network, Network], obs: Any, action: Any, target: Any) -> Any:
    """The sum of both critics' mean squared distances to one target (n,)."""
    errors = [critic_value(critic, obs, action) - target for critic in critics]
    return jnp.mean(errors[0] ** 2) + jnp.mean(errors[1] ** 2)


def smoothed_action(key: Any, action: Any, noise: float, limit: float) -> Any:
    """clip(a + clip(N(0, noise²), ±limit), ±1): similar actions get similar targets."""
    drawn = jnp.clip(noise * jax.random.normal(key, action.shape), -limit, limit)
    return jnp.clip(action + drawn, -1, 1)


class TD3(Agent):
    """Twin critics learn at every update, the actor and all targets at every second one."""

    def initial_state(self, key: Any) -> TD3State:
        config = self.config
        actor_key, critic_key, clock_key = jax.random.split(key, 3)
        actor = init_actor(actor_key, self.obs_size, self.action_size, config.hidden_size)
        critics = init_critics(critic_key, self.obs_size, self.action_size, config.hidden_size)
        return TD3State(
            init_learner(actor, config.actor_learning_rate),
            init_learner(critics, config.critic_learning_rate),
            init_clock(clock_key),
        )

    def act(self, obs: Array, explore: bool = True) -> Array:
        action = self.greedy(obs)
        if explore:
            spread = self.config.td3.exploration_noise
            action = action + spread * self.rng.standard_normal(self.action_size)
        return self._outside(np.clip(action, -1, 1))

    def rating_critics(self) -> tuple[Network, ...]:
        return self.weights("critics")

    def update(self, state: TD3State, rows: Any, multiplier: Any) -> TD3State:
        config, td3 = self.config, self.config.td3
        batch = self.batch(rows)
        key, clock = tick(state.clock)

        # both critics move towards the lesser promise of the smoothed target policy
        next_action = smoothed_action(
            key,
            actor_action(state.actor.target, batch.next_obs),
            td3.target_noise,
            td3.target_noise_limit,
        )
        next_value = least_value(state.critics.target, batch.next_obs, next_action)
        target = td_target(batch.reward, next_value, batch.terminated, config.gamma)
        critics = descend(
            state.critics,
            lambda pair: twin_loss(pair, batch.obs, batch.action, target),
            config.critic_learning_rate,
        )

        # now and then the actor climbs the first critic, and the targets follow
        def actor_loss(actor: Network) -> Any:
            action = actor_action(actor, batch.obs)
            return -jnp.mean(critic_value(critics.network[0], batch.obs, action))

        def improve() -> TD3State:
            actor = descend(state.actor, actor_loss, config.actor_learning_rate)
            return TD3State(follow(actor, config.tau), follow(critics, config.tau), clock)

        def wait() -> TD3State:
            return TD3State(state.actor, critics, clock)

        return jax.lax.cond(clock[1] % td3.policy_delay == 0, improve, wait)
