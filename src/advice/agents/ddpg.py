"""DDPG (Lillicrap et al., 2016) and two variants that weigh cost against reward.

DDPG-Lag has a second critic, of the cost; RCPO (Tessler et al., 2019) subtracts a penalty from the
reward. Differences from the papers: see ddpg.md, ddpg-lag.md and rcpo.md in docs/methods.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents import networks as nn
from advice.agents.agent import Agent, Batch
from advice.config import AgentConfig, MultiplierConfig
from advice.types import Array, as_float_vector


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


def ascend(multiplier: float, cost: float, config: MultiplierConfig) -> float:
    """λ <- clip(λ + α (J_C - limit), 0, λ_max), once per episode of cost J_C."""
    moved = multiplier + config.learning_rate * (cost - config.limit)
    return min(max(moved, 0.0), config.maximum)


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


class DDPGLagrangian(Agent):
    """DDPG whose actor trades value against λ times the expected cost.

    λ rises while episodes cost more than a limit.
    """

    init_state: ClassVar[Callable[..., Any]] = staticmethod(init_lagrangian)
    update_state: ClassVar[Callable[..., Any]] = staticmethod(update_lagrangian)

    multiplier_config = property(attrgetter("config.lagrangian"))
    """How λ starts and moves."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.multiplier = self.multiplier_config.initial

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


def update_rcpo(state: DDPGState, batch: Batch, config: AgentConfig, multiplier: Any) -> DDPGState:
    """DDPG's update on r - λc. The buffer stores r and c separately, so the current λ applies."""
    penalised = batch.reward - multiplier * batch.cost
    return update_ddpg(state, batch._replace(reward=penalised), config)


class RCPO(DDPGLagrangian):
    """DDPG with one critic, of the penalised reward."""

    init_state = staticmethod(init_ddpg)
    update_state = staticmethod(update_rcpo)
    multiplier_config = property(attrgetter("config.rcpo"))
