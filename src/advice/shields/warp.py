"""A learned curve per observation dimension: where danger changes fast, the input changes fast.

The curves are the shape functions of boosted stumps that predict danger. They are additive, so
they stretch each dimension by itself; what the action does is left to the encoder.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advice.shields.spaces import Bools, Floats, Ints

CELLS = 64
"""Cells of equal width per dimension; the curve is linear in each."""
_ROUNDS, _RATE, _MOST_ROWS = 150, 0.3, 20_000


class Warp(NamedTuple):
    """Piecewise linear curves of ``q`` observation dimensions, constant outside their range."""

    columns: Ints  # (q,) which dimensions
    low: Floats  # (q,) where a curve starts
    width: Floats  # (q,) width of a cell
    table: Floats  # (q, CELLS + 1) values at the edges of the cells

    def __call__(self, observations: Floats) -> Floats:
        """(..., q) curve values of (..., p) observations."""
        place = (observations[..., self.columns] - self.low) / self.width
        place = np.minimum(np.maximum(place, 0.0), CELLS - 1e-9)
        cell = place.astype(np.int64)
        place -= cell
        cell += _ROWS[: len(self.columns)]
        table = self.table.ravel()
        left = table.take(cell)
        cell += 1
        right = table.take(cell)
        right -= left
        right *= place
        right += left
        return right


_ROWS = np.arange(4096) * (CELLS + 1)


def no_warp() -> Warp:
    """No curve at all."""
    empty = np.zeros(0)
    return Warp(np.zeros(0, np.int64), empty, empty, np.zeros((0, CELLS + 1)))


def fit_warp(observations: Floats, danger: Bools, rng: np.random.Generator) -> Warp:
    """Curves for the dimensions that boosted stumps use to tell (N,) ``danger`` in (N, p) rows.

    Logistic loss with both classes of equal weight; each round adds the stump of largest gain.
    """
    dangerous = at_most(_MOST_ROWS // 3, np.flatnonzero(danger), rng)
    rows = np.append(dangerous, at_most(_MOST_ROWS, np.flatnonzero(~danger), rng))
    x, y = observations[rows], danger[rows].astype(np.float64)
    low, high = np.quantile(x, [0.001, 0.999], axis=0)
    usable = np.flatnonzero(high - low > 1e-9)[: len(_ROWS)]
    if len(usable) == 0 or len(np.unique(y)) < 2:
        return no_warp()
    low, width = low[usable], (high - low)[usable] / CELLS
    cells = np.clip((x[:, usable] - low) / width, 0, CELLS - 1).astype(np.int64)
    flat = (cells + np.arange(len(usable)) * CELLS).ravel()
    weight = np.where(y > 0, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    score = np.zeros(len(y))
    steps = np.zeros((len(usable), CELLS))
    for _ in range(_ROUNDS):
        p = 1 / (1 + np.exp(-score))
        gradient, hessian = (
            np.bincount(flat, np.repeat(each, len(usable)), steps.size)
            .reshape(steps.shape)
            .cumsum(1)
            for each in (weight * (y - p), weight * p * (1 - p))
        )
        rest, rest_hessian = gradient[:, -1:] - gradient, hessian[:, -1:] - hessian
        gain = gradient**2 / (hessian + 1) + rest**2 / (rest_hessian + 1)
        column, cell = divmod(int(np.argmax(gain[:, :-1])), CELLS - 1)
        at = column, cell
        below = _RATE * gradient[at] / (hessian[at] + 1)
        above = _RATE * rest[at] / (rest_hessian[at] + 1)
        steps[column, : cell + 1] += below
        steps[column, cell + 1 :] += above
        score += np.where(cells[:, column] <= cell, below, above)
    used = np.flatnonzero(np.ptp(steps, axis=1) > 1e-9)
    values = np.take_along_axis(steps.T, cells, axis=0)[:, used]
    spread = max(float(np.sqrt(values.var(axis=0).mean())), 1e-9)
    centred = (steps[used] - values.mean(axis=0)[:, None]) / spread
    edges = np.pad(centred, ((0, 0), (1, 1)), mode="edge")
    table = (edges[:, 1:] + edges[:, :-1]) / 2
    return Warp(usable[used], low[used], width[used], table)


def at_most(most: int, rows: Ints, rng: np.random.Generator) -> Ints:
    """The rows, or as many random ones of them, in order."""
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))
