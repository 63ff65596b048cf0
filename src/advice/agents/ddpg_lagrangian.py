"""DDPG-Lag: a second critic foresees cost, and a multiplier weighs it against the reward.

Differences from the paper: see docs/methods/ddpg-lag.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advice.agents.agent import Agent
from advice.agents.ddpg import init_ddpg, learn_values
from advice.agents.networks import (
    Learner,
    Network,
    actor_action,
    critic_value,
    descend,
    follow,
    init_critic,
    init_learner,
)
from advice.config import MultiplierConfig


class LagrangianState(NamedTuple):
    """What learns."""

    actor: Learner
    critic: Learner
    cost_critic: Learner


def lagrangian_loss(value: Any, cost_value: Any, multiplier: Any) -> Any:
    """mean(-Q_R + λ Q_C) / (1 + λ) over a batch; the division keeps the step's size as λ grows."""
    return jnp.mean(multiplier * cost_value - value) / (1 + multiplier)


class DDPGLagrangian(Agent):
    """DDPG whose actor trades value against λ times the expected cost."""

    @property
    def price(self) -> MultiplierConfig:
        return self.config.lagrangian

    def initial_state(self, key: Any) -> LagrangianState:
        key, cost_key = jax.random.split(key)
        cost_critic = init_critic(
            cost_key, self.obs_size, self.action_size, self.config.hidden_size
        )
        return LagrangianState(
            *init_ddpg(key, self.obs_size, self.action_size, self.config),
            init_learner(cost_critic, self.config.critic_learning_rate),
        )

    def update(self, state: LagrangianState, rows: Any, multiplier: Any) -> LagrangianState:
        config = self.config
        batch = self.batch(rows)

        # two critics: what the policy earns, y = r + γQ', and what it costs, y_C = c + γQ_C'
        critic = learn_values(state.critic, state.actor, batch, batch.reward, config)
        cost_critic = learn_values(state.cost_critic, state.actor, batch, batch.cost, config)

        # the actor moves to more value and less cost, at the price λ
        def actor_loss(actor: Network) -> Any:
            action = actor_action(actor, batch.obs)
            return lagrangian_loss(
                critic_value(critic.network, batch.obs, action),
                critic_value(cost_critic.network, batch.obs, action),
                multiplier,
            )

        actor = follow(descend(state.actor, actor_loss, config.actor_learning_rate), config.tau)
        return LagrangianState(actor, critic, cost_critic)
