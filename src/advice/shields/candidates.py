"""Which actions to consider instead: a grid, or in many dimensions a low-discrepancy sample."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advice.shields.spaces import Space
from advice.types import Array


class Candidates:
    """The alternatives of one action space.

    ``fixed`` never changes, so the encoder's share for it is computed once. Where the grid would
    exceed the budget, a quarter of the budget is spent near each proposal (:meth:`near`).
    """

    def __init__(
        self,
        space: Space,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        per_dimension: int,
        budget: int,
    ) -> None:
        self.space = space
        self._low, self._high = low, high
        size = len(low)
        self.offsets = np.zeros((0, size))
        if space.kind == "discrete":
            self.fixed: Array = np.arange(space.start, space.start + space.n, dtype=space.dtype)
        elif per_dimension**size <= budget:
            axes = [np.linspace(a, b, per_dimension) for a, b in zip(low, high, strict=True)]
            self.fixed = self._as_actions(np.array(list(itertools.product(*axes))))
        else:
            local = budget // 4
            spread = low + (high - low) * low_discrepancy(max(budget - local - 1, 0), size)
            self.fixed = self._as_actions(np.vstack([(low + high) / 2, spread]))
            # Radii grow evenly from nothing to half the range, directions from the same sequence.
            radius = (np.arange(local) + 1)[:, None] / max(local, 1)
            self.offsets = (low_discrepancy(local, size) - 0.5) * (high - low) * radius

    def near(self, proposal: Array) -> Array:
        """Alternatives around the proposal (flat numbers), within the bounds; often none."""
        around = np.clip(proposal + self.offsets, self._low, self._high)
        return self._as_actions(around)

    def _as_actions(self, numbers: NDArray[np.float64]) -> Array:
        if self.space.dtype.kind in "iu":
            numbers = np.unique(np.rint(numbers), axis=0)
        return numbers.astype(self.space.dtype).reshape(-1, *self.space.shape)


def checked_ratings(ratings: Any, count: int) -> NDArray[np.float64]:
    """A critic's ratings of ``count`` actions, or a ValueError if there are others or NaN."""
    checked = np.asarray(ratings, dtype=np.float64)
    if checked.shape != (count,):
        raise ValueError(
            f"rate_actions: expected {count} values, one per action, found shape {checked.shape}"
        )
    if np.isnan(checked).any():
        raise ValueError(f"rate_actions: expected numbers, found {np.isnan(checked).sum()} NaN")
    return checked


def low_discrepancy(count: int, dimensions: int) -> NDArray[np.float64]:
    """``count`` points that fill [0, 1)^dimensions evenly: the additive recurrence
    x_i = (1/2 + i (1/g, 1/g^2, ...)) mod 1 with g the positive root of g^(d+1) = g + 1."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    points: NDArray[np.float64] = (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
    return points
