"""The Lagrangian multiplier: the price of cost, raised while the limit is exceeded."""

from __future__ import annotations

from advice.config import MultiplierConfig


def ascend(multiplier: float, cost: float, config: MultiplierConfig) -> float:
    """λ <- clip(λ + α (J_C - limit), 0, λ_max), once per episode of cost J_C."""
    moved = multiplier + config.learning_rate * (cost - config.limit)
    return min(max(moved, 0.0), config.maximum)
