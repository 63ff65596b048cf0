"""DDPG-Lag: a second critic estimates cost, and a multiplier weighs it against the reward.

Differences from the paper: see docs/methods/ddpg-lag.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advice.agents.ddpg import init_ddpg, update_critic
from advice.agents.lagrangian import LagrangianAgent
from advice.agents.networks import (
    Learner,
    Network,
    actor_action,
    critic_value,
    descend,
    init_critic,
    init_learner,
    update_target,
)
from advice.agents.replay_buffer import Batch
from advice.config import AgentConfig, MultiplierConfig


class LagrangianState(NamedTuple):
    """Networks with their optimisers and targets."""

    actor: Learner
    critic: Learner
    cost_critic: Learner


def lagrangian_loss(value: Any, cost_value: Any, multiplier: Any) -> Any:
    """mean(-Q_R + λ Q_C) / (1 + λ) over a batch; the division keeps the step's size as λ grows."""
    return jnp.mean(multiplier * cost_value - value) / (1 + multiplier)


def init_lagrangian(
    key: Any, obs_size: int, action_size: int, config: AgentConfig
) -> LagrangianState:
    """DDPG's networks and a cost critic."""
    key, cost_key = jax.random.split(key)
    cost_critic = init_critic(cost_key, obs_size, action_size, config.hidden_size)
    return LagrangianState(
        *init_ddpg(key, obs_size, action_size, config),
        init_learner(cost_critic, config.critic_learning_rate),
    )


def update_lagrangian(
    state: LagrangianState, batch: Batch, config: AgentConfig, multiplier: Any
) -> LagrangianState:
    """One gradient step of both critics, then one of the actor."""
    # critics: of the reward, y = r + γQ', and of the cost, y_C = c + γQ_C'
    critic = update_critic(state.critic, state.actor, batch, batch.reward, config)
    cost_critic = update_critic(state.cost_critic, state.actor, batch, batch.cost, config)

    # actor: towards more value and less cost, weighed by λ
    def actor_loss(actor: Network) -> Any:
        action = actor_action(actor, batch.obs)
        return lagrangian_loss(
            critic_value(critic.network, batch.obs, action),
            critic_value(cost_critic.network, batch.obs, action),
            multiplier,
        )

    actor = descend(state.actor, actor_loss, config.actor_learning_rate)
    return LagrangianState(update_target(actor, config.tau), critic, cost_critic)


class DDPGLagrangian(LagrangianAgent):
    """DDPG whose actor trades value against λ times the expected cost."""

    init_state = staticmethod(init_lagrangian)
    update_state = staticmethod(update_lagrangian)

    @property
    def multiplier_config(self) -> MultiplierConfig:
        return self.config.lagrangian
