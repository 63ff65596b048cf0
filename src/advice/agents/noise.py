"""Ornstein-Uhlenbeck exploration noise."""

from __future__ import annotations

import numpy as np

from advice.types import Array


class OrnsteinUhlenbeck:
    """x <- x - theta * x * dt + sigma * sqrt(dt) * N(0, 1), one value per action dimension.

    ``shared`` drives all dimensions with one value, as the authors' release does.
    """

    def __init__(
        self, size: int, theta: float, sigma: float, dt: float, shared: bool = False
    ) -> None:
        self._theta, self._sigma, self._dt = theta, sigma, dt
        self._size = size
        self.value: Array = np.zeros(1 if shared else size)

    def reset(self) -> None:
        self.value = np.zeros_like(self.value)

    def step(self, rng: np.random.Generator) -> Array:
        """Advance once and return the noise, shape (size,)."""
        kick = self._sigma * np.sqrt(self._dt) * rng.standard_normal(len(self.value))
        self.value = self.value - self._theta * self.value * self._dt + kick
        return np.broadcast_to(self.value, (self._size,))
