"""RCPO (Tessler et al., 2019): DDPG on the reward minus a penalty that grows with the cost.

Differences from the paper: see docs/methods/rcpo.md.
"""

from __future__ import annotations

from typing import Any

from advice.agents.agent import Agent
from advice.agents.ddpg import DDPGState, init_ddpg, update_ddpg
from advice.config import MultiplierConfig


class RCPO(Agent):
    """One critic, on r - λc; reward and cost are stored apart and meet under today's λ."""

    @property
    def price(self) -> MultiplierConfig:
        return self.config.rcpo

    def initial_state(self, key: Any) -> DDPGState:
        return init_ddpg(key, self.obs_size, self.action_size, self.config)

    def update(self, state: DDPGState, rows: Any, multiplier: Any) -> DDPGState:
        batch = self.batch(rows)
        return update_ddpg(state, batch, batch.reward - multiplier * batch.cost, self.config)
