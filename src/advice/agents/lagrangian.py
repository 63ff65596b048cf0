"""The Lagrangian multiplier: the weight of cost, raised while episodes cost more than a limit."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from advice.agents.agent import Agent
from advice.config import AgentConfig, MultiplierConfig
from advice.types import Array


def ascend(multiplier: float, cost: float, config: MultiplierConfig) -> float:
    """λ <- clip(λ + α (J_C - limit), 0, λ_max), once per episode of cost J_C."""
    moved = multiplier + config.learning_rate * (cost - config.limit)
    return min(max(moved, 0.0), config.maximum)


class LagrangianAgent(Agent):
    """An agent whose update also takes a multiplier λ."""

    def __init__(
        self, observation_space: Any, action_space: Any, config: AgentConfig, seed: int
    ) -> None:
        super().__init__(observation_space, action_space, config, seed)
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
        self.multiplier = document["multiplier"]
