"""RCPO (Tessler et al., 2019): DDPG on the reward minus a penalty that grows with the cost.

Differences from the paper: see docs/methods/rcpo.md.
"""

from __future__ import annotations

from typing import Any

from advice.agents.agent import Agent
from advice.agents.ddpg import DDPGState, init_ddpg, update_ddpg
from advice.agents.multiplier import ascend
from advice.agents.replay import split
from advice.config import AgentConfig


class RCPO(Agent):
    """One critic, on r - λc; reward and cost are stored apart and meet under today's λ."""

    def __init__(
        self, observation_space: Any, action_space: Any, config: AgentConfig, seed: int
    ) -> None:
        super().__init__(observation_space, action_space, config, seed)
        self.multiplier = config.rcpo.initial

    def initial_state(self, key: Any) -> DDPGState:
        return init_ddpg(key, self.obs_size, self.action_size, self.config)

    def update(self, state: DDPGState, rows: Any, multiplier: Any) -> DDPGState:
        batch = split(rows, self.obs_size, self.action_size)
        return update_ddpg(state, batch, batch.reward - multiplier * batch.cost, self.config)

    def end_episode(self, cost: float) -> None:
        self.multiplier = ascend(self.multiplier, cost, self.config.rcpo)
