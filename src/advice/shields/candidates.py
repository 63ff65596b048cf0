"""Which actions to consider instead: a grid, or in many dimensions a low-discrepancy sample."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advice.shields.spaces import Space
from advice.types import Array, SettingError

Floats = NDArray[np.float64]
# in many dimensions a proposal is also tried weaker and reversed, these times its distance from
# the middle, and with noise of these shares of the range around it
FACTORS, RADII = (0.5, 0.0, -0.5, -1.0), (0.05, 0.15, 0.4)
_MOST_NUMBERS, _MOST_HIDDEN = 2**21, 2**23


def check_size(space: Space, per_dimension: int, budget: int, hidden: int) -> None:
    """Raise SettingError if candidates would take more memory than a shield may: some 100 MB."""
    count, size = space.n, 1
    if space.kind == "box":
        size, count = space.size, budget
        if _is_grid(size, per_dimension, budget):
            count = per_dimension**size
    if count * size > _MOST_NUMBERS or count * hidden > _MOST_HIDDEN:
        raise SettingError(
            f"candidate_budget: {count} candidates of {size} numbers with a hidden layer of "
            f"{hidden} are too many; give fewer"
        )


def _is_grid(size: int, per_dimension: int, budget: int) -> bool:
    """True if a grid in ``size`` dimensions is within the budget."""
    return size <= budget.bit_length() and per_dimension**size <= budget


class Candidates:
    """The alternatives of one action space.

    ``fixed`` never changes, so the encoder's share for it is computed once. Where the grid would
    exceed the budget, half of the budget is spent on each proposal (:meth:`near`), and the rest on
    the middle, the ends of each dimension, corners and an even sample, a third each.
    """

    def __init__(
        self, space: Space, low: Floats, high: Floats, per_dimension: int, budget: int
    ) -> None:
        self.space, self._low, self._high, self._middle = space, low, high, (low + high) / 2
        size, half = len(low), budget // 2
        self.offsets = np.zeros((0, size))  # added to each of the points made from a proposal
        if space.kind == "discrete":
            self.fixed: Array = np.arange(space.start, space.start + space.n, dtype=space.dtype)
        elif space.dtype.kind in "iu" and np.prod(high - low + 1) <= budget:
            axes = [np.arange(a, b + 1) for a, b in zip(low, high, strict=True)]
            self.fixed = self._as_actions(np.array(list(itertools.product(*axes))))
        elif _is_grid(size, per_dimension, budget):
            axes = [np.linspace(a, b, per_dimension) for a, b in zip(low, high, strict=True)]
            self.fixed = self._as_actions(np.array(list(itertools.product(*axes))))
        else:
            offsets, self._factors = _around(half, size)
            self.offsets = offsets * (high - low)
            spread = spread_out(budget - half, size)
            self.fixed = self._as_actions(self._middle + spread * (high - low) / 2)

    def near(self, proposal: Array) -> Array:
        """Alternatives made from the proposal (flat numbers), within the bounds; often none."""
        if not len(self.offsets):
            return self.fixed[:0]
        made = self._middle + self._factors * (proposal - self._middle) + self.offsets
        return self._as_actions(np.clip(made, self._low, self._high))

    def _as_actions(self, numbers: Floats) -> Array:
        if self.space.dtype.kind in "iu":
            numbers = np.unique(np.rint(numbers), axis=0)
        return numbers.astype(self.space.dtype).reshape(-1, *self.space.shape)


def checked_ratings(ratings: Any, count: int) -> Floats:
    """A critic's ratings of ``count`` actions, or a ValueError if there are others or NaN."""
    checked = np.asarray(ratings, dtype=np.float64)
    if checked.shape != (count,) or np.isnan(checked).any():
        found = f"shape {checked.shape} with {np.isnan(checked).sum()} NaN"
        raise ValueError(f"rate_actions: expected {count} values, one per action, found {found}")
    return checked


def _around(count: int, size: int) -> tuple[Floats, Floats]:
    """(count, size) offsets, as shares of the range, and (count, 1) factors of a proposal: first
    each of FACTORS without an offset, then offsets with each of RADII in turn."""
    offsets, factors = np.zeros((count, size)), np.ones((count, 1))
    scaled = min(len(FACTORS), count // 2)
    factors[:scaled, 0] = FACTORS[:scaled]
    radius = np.resize(RADII, count - scaled)[:, None]
    offsets[scaled:] = (2 * low_discrepancy(count - scaled, size) - 1) * radius
    return offsets, factors


def spread_out(count: int, size: int) -> Floats:
    """``count`` points of [-1, 1]^size: the middle, up to a third of ends of single dimensions, up
    to a third of corners, and a low-discrepancy sample for the rest."""
    third = (count - 1) // 3
    parts = [np.zeros((1, size))]
    if 2 * size <= third:
        parts += [np.eye(size), -np.eye(size)]
    if _is_grid(size, 2, third):
        parts.append(np.array(list(itertools.product((-1.0, 1.0), repeat=size))))
    else:  # each of them with its opposite
        half = np.where(low_discrepancy(third // 2, size) < 0.5, -1.0, 1.0)
        parts += [half, -half]
    rest = count - sum(map(len, parts))
    return np.concatenate([*parts, 2 * low_discrepancy(rest, size) - 1])


def low_discrepancy(count: int, dimensions: int) -> Floats:
    """``count`` points that fill [0, 1)^dimensions evenly: the additive recurrence
    x_i = (1/2 + i (1/g, 1/g^2, ...)) mod 1 with g the positive root of g^(d+1) = g + 1."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    points: Floats = (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
    return points
