"""DDPG-Lag: a second critic estimates cost, and a multiplier weighs it against the reward.

Differences from the paper: see docs/methods/ddpg-lag.md.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents import networks as nn
from advice.agents.agent import Agent
from advice.agents.ddpg import init_ddpg, update_actor, update_critic
from advice.agents.replay_buffer import Batch
from advice.config import AgentConfig, MultiplierConfig
from advice.types import Array, as_float_vector


def ascend(multiplier: float, cost: float, config: MultiplierConfig) -> float:
    """λ <- clip(λ + α (J_C - limit), 0, λ_max), once per episode of cost J_C."""
    moved = multiplier + config.learning_rate * (cost - config.limit)
    return min(max(moved, 0.0), config.maximum)


class LagrangianAgent(Agent):
    """An agent whose update also takes λ, which rises while episodes cost more than a limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.multiplier = self.multiplier_config.initial

    @property
    @abstractmethod
    def multiplier_config(self) -> MultiplierConfig:
        """How λ starts and moves."""

    def update_inputs(self) -> tuple[Any, ...]:
        return (np.float32(self.multiplier),)

    def end_episode(self, cost: float) -> None:
        self.multiplier = ascend(self.multiplier, cost, self.multiplier_config)

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, document = super().snapshot()
        return arrays, {"multiplier": self.multiplier, **document}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        super().restore(arrays, document)
        self.multiplier = float(as_float_vector([document["multiplier"]], 1, "multiplier")[0])


class LagrangianState(NamedTuple):
    """Networks with their optimisers and targets."""

    actor: nn.Learner
    critic: nn.Learner
    cost_critic: nn.Learner


def lagrangian_loss(value: Any, cost_value: Any, multiplier: Any) -> Any:
    """mean(-Q_R + λ Q_C) / (1 + λ) over a batch; the division keeps the step's size as λ grows."""
    return jnp.mean(multiplier * cost_value - value) / (1 + multiplier)


def init_lagrangian(
    key: Any, obs_size: int, action_size: int, config: AgentConfig
) -> LagrangianState:
    """DDPG's networks and a cost critic."""
    key, cost_key = jax.random.split(key)
    cost_critic = nn.init_critic(cost_key, obs_size, action_size, config.hidden_size)
    ddpg = init_ddpg(key, obs_size, action_size, config)
    return LagrangianState(*ddpg, nn.init_learner(cost_critic))


def update_lagrangian(
    state: LagrangianState, batch: Batch, config: AgentConfig, multiplier: Any
) -> LagrangianState:
    """One gradient step of both critics, then one of the actor."""
    # critics: of the reward, y = r + γQ', and of the cost, y_C = c + γQ_C'
    critic = update_critic(state.critic, state.actor, batch, batch.reward, config)
    cost_critic = update_critic(state.cost_critic, state.actor, batch, batch.cost, config)

    # actor: towards more value and less cost, weighed by λ
    def loss(action: Any) -> Any:
        value = nn.critic_value(critic.network, batch.obs, action)
        cost_value = nn.critic_value(cost_critic.network, batch.obs, action)
        return lagrangian_loss(value, cost_value, multiplier)

    actor = update_actor(state.actor, batch, loss, config)
    return LagrangianState(actor, critic, cost_critic)


class DDPGLagrangian(LagrangianAgent):
    """DDPG whose actor trades value against λ times the expected cost."""

    init_state = staticmethod(init_lagrangian)
    update_state = staticmethod(update_lagrangian)

    @property
    def multiplier_config(self) -> MultiplierConfig:
        return self.config.lagrangian
