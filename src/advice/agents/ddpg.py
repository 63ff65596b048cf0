"""DDPG (Lillicrap et al., 2016): a deterministic actor that climbs its critic.

Differences from the paper: see docs/methods/ddpg.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advice.agents.agent import Agent
from advice.agents.networks import (
    Network,
    actor_action,
    adam,
    critic_value,
    descend,
    init_actor_critic,
    soft_update,
)
from advice.agents.replay import split


class DDPGState(NamedTuple):
    """Networks, their targets, and Adam's memory."""

    actor: Network
    critic: Network
    target_actor: Network
    target_critic: Network
    actor_optimiser: Any
    critic_optimiser: Any


def td_target(reward: Any, next_value: Any, terminated: Any, gamma: float) -> Any:
    """y = r + γ (1 - done) Q'(s', π'(s')), shapes (n,)."""
    return reward + gamma * (1 - terminated) * next_value


class DDPG(Agent):
    """Actor and critic of two hidden layers each, one update a step."""

    def initial_state(self, key: Any) -> DDPGState:
        actor, critic = init_actor_critic(
            key, self.obs_size, self.action_size, self.config.hidden_size
        )
        return DDPGState(
            actor,
            critic,
            jax.tree.map(jnp.copy, actor),
            jax.tree.map(jnp.copy, critic),
            adam(self.config.actor_learning_rate).init(actor),
            adam(self.config.critic_learning_rate).init(critic),
        )

    def update(self, state: DDPGState, rows: Any, multiplier: Any) -> DDPGState:
        config = self.config
        batch = split(rows, self.obs_size, self.action_size)
        done = batch.terminated * (not config.bootstrap_through_terminal)

        # the critic moves towards what the targets promise
        next_action = actor_action(state.target_actor, batch.next_obs)
        next_value = critic_value(state.target_critic, batch.next_obs, next_action)
        target = td_target(batch.reward, next_value, done, config.gamma)

        def critic_loss(critic: Network) -> Any:
            return jnp.mean((critic_value(critic, batch.obs, batch.action) - target) ** 2)

        critic, critic_optimiser = descend(
            critic_loss, state.critic, state.critic_optimiser, config.critic_learning_rate
        )

        # the actor moves to where the critic sees more value
        def actor_loss(actor: Network) -> Any:
            return -jnp.mean(critic_value(critic, batch.obs, actor_action(actor, batch.obs)))

        actor, actor_optimiser = descend(
            actor_loss, state.actor, state.actor_optimiser, config.actor_learning_rate
        )
        return DDPGState(
            actor,
            critic,
            soft_update(state.target_actor, actor, config.tau),
            soft_update(state.target_critic, critic, config.tau),
            actor_optimiser,
            critic_optimiser,
        )
