"""DDPG (Lillicrap et al., 2016): a deterministic actor that maximises its critic's value.

Differences from the paper: see docs/methods/ddpg.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advice.agents import networks as nn
from advice.agents.agent import Agent
from advice.agents.replay_buffer import Batch
from advice.config import AgentConfig


class DDPGState(NamedTuple):
    """Networks with their optimisers and targets."""

    actor: nn.Learner
    critic: nn.Learner


def td_target(reward: Any, next_value: Any, terminated: Any, gamma: float) -> Any:
    """y = r + γ (1 - done) Q'(s', π'(s')), shapes (n,)."""
    return reward + gamma * (1 - terminated) * next_value


def update_critic(
    critic: nn.Learner, actor: nn.Learner, batch: Batch, signal: Any, config: AgentConfig
) -> nn.Learner:
    """One step of Q towards y = signal + γ (1 - done) Q'(s', π'(s')); signal: (n,)."""
    next_action = nn.actor_action(actor.target, batch.next_obs)
    next_value = nn.critic_value(critic.target, batch.next_obs, next_action)
    target = td_target(signal, next_value, batch.terminated, config.gamma)

    def loss(network: nn.Network) -> Any:
        return jnp.mean((nn.critic_value(network, batch.obs, batch.action) - target) ** 2)

    return nn.update_target(nn.descend(critic, loss, config.critic_learning_rate), config.tau)


def update_actor(actor: nn.Learner, batch: Batch, loss: Any, config: AgentConfig) -> nn.Learner:
    """One step of the policy down ``loss(action)``, with its actions (n, action size)."""

    def loss_of(network: nn.Network) -> Any:
        return loss(nn.actor_action(network, batch.obs))

    return nn.update_target(nn.descend(actor, loss_of, config.actor_learning_rate), config.tau)


def init_ddpg(key: Any, obs_size: int, action_size: int, config: AgentConfig) -> DDPGState:
    """An untrained actor and critic."""
    actor_key, critic_key = jax.random.split(key)
    return DDPGState(
        nn.init_learner(nn.init_actor(actor_key, obs_size, action_size, config.hidden_size)),
        nn.init_learner(nn.init_critic(critic_key, obs_size, action_size, config.hidden_size)),
    )


def update_ddpg(state: DDPGState, batch: Batch, config: AgentConfig) -> DDPGState:
    """One gradient step of the critic, then one of the actor."""
    # critic: towards the target networks' value
    critic = update_critic(state.critic, state.actor, batch, batch.reward, config)

    # actor: towards actions that the critic values more
    def loss(action: Any) -> Any:
        return -jnp.mean(nn.critic_value(critic.network, batch.obs, action))

    return DDPGState(update_actor(state.actor, batch, loss, config), critic)


class DDPG(Agent):
    """Actor and critic with two hidden layers each."""

    init_state = staticmethod(init_ddpg)
    update_state = staticmethod(update_ddpg)
