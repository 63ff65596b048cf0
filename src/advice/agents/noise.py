"""Ornstein-Uhlenbeck exploration noise."""

from __future__ import annotations

import numpy as np

from advice.types import Array


class OrnsteinUhlenbeck:
    """x <- x - theta * x * dt + sigma * sqrt(dt) * N(0, 1), one value per action dimension."""

    def __init__(self, size: int, theta: float, sigma: float, dt: float) -> None:
        self._theta, self._sigma, self._dt = theta, sigma, dt
        self.value: Array = np.zeros(size)

    def reset(self) -> None:
        self.value = np.zeros_like(self.value)

    def step(self, rng: np.random.Generator) -> Array:
        """Advance once and return the noise, shape (size,)."""
        kick = self._sigma * np.sqrt(self._dt) * rng.standard_normal(len(self.value))
        self.value = self.value - self._theta * self.value * self._dt + kick
        return self.value
