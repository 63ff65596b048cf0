"""DDPG (Lillicrap et al., 2016): a deterministic actor that climbs its critic.

Differences from the paper: see docs/methods/ddpg.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advice.agents.agent import Agent
from advice.agents.networks import (
    Learner,
    Network,
    actor_action,
    critic_value,
    descend,
    follow,
    init_actor,
    init_critic,
    init_learner,
)
from advice.agents.replay import Batch
from advice.config import AgentConfig


class DDPGState(NamedTuple):
    """What learns."""

    actor: Learner
    critic: Learner


def td_target(reward: Any, next_value: Any, terminated: Any, gamma: float) -> Any:
    """y = r + γ (1 - done) Q'(s', π'(s')), shapes (n,)."""
    return reward + gamma * (1 - terminated) * next_value


def learn_values(
    critic: Learner, actor: Learner, batch: Batch, signal: Any, config: AgentConfig
) -> Learner:
    """One step of Q towards y = signal + γ (1 - done) Q'(s', π'(s')); signal: (n,)."""
    next_action = actor_action(actor.target, batch.next_obs)
    next_value = critic_value(critic.target, batch.next_obs, next_action)
    target = td_target(signal, next_value, batch.terminated, config.gamma)

    def loss(network: Network) -> Any:
        return jnp.mean((critic_value(network, batch.obs, batch.action) - target) ** 2)

    return follow(descend(critic, loss, config.critic_learning_rate), config.tau)


def init_ddpg(key: Any, obs_size: int, action_size: int, config: AgentConfig) -> DDPGState:
    """A fresh actor and critic."""
    actor_key, critic_key = jax.random.split(key)
    actor = init_actor(actor_key, obs_size, action_size, config.hidden_size)
    critic = init_critic(critic_key, obs_size, action_size, config.hidden_size)
    return DDPGState(
        init_learner(actor, config.actor_learning_rate),
        init_learner(critic, config.critic_learning_rate),
    )


def update_ddpg(state: DDPGState, batch: Batch, reward: Any, config: AgentConfig) -> DDPGState:
    """One update from a batch, with ``reward`` (n,) as what is to be maximised."""
    # the critic moves towards what the targets promise
    critic = learn_values(state.critic, state.actor, batch, reward, config)

    # the actor moves to where the critic sees more value
    def actor_loss(actor: Network) -> Any:
        return -jnp.mean(critic_value(critic.network, batch.obs, actor_action(actor, batch.obs)))

    actor = follow(descend(state.actor, actor_loss, config.actor_learning_rate), config.tau)
    return DDPGState(actor, critic)


class DDPG(Agent):
    """Actor and critic of two hidden layers each, one update a step."""

    def initial_state(self, key: Any) -> DDPGState:
        return init_ddpg(key, self.obs_size, self.action_size, self.config)

    def update(self, state: DDPGState, rows: Any, multiplier: Any) -> DDPGState:
        batch = self.batch(rows)
        return update_ddpg(state, batch, batch.reward, self.config)
