"""RCPO (Tessler et al., 2019): DDPG on the reward minus a penalty that grows with the cost.

Differences from the paper: see docs/methods/rcpo.md.
"""

from __future__ import annotations

from typing import Any

from advice.agents.ddpg import DDPGState, init_ddpg, update_ddpg
from advice.agents.ddpg_lagrangian import LagrangianAgent
from advice.agents.replay_buffer import Batch
from advice.config import AgentConfig, MultiplierConfig


def update_rcpo(state: DDPGState, batch: Batch, config: AgentConfig, multiplier: Any) -> DDPGState:
    """DDPG's update on r - λc. The buffer stores r and c separately, so the current λ applies."""
    penalised = batch.reward - multiplier * batch.cost
    return update_ddpg(state, batch._replace(reward=penalised), config)


class RCPO(LagrangianAgent):
    """DDPG with one critic, of the penalised reward."""

    init_state = staticmethod(init_ddpg)
    update_state = staticmethod(update_rcpo)

    @property
    def multiplier_config(self) -> MultiplierConfig:
        return self.config.rcpo
