"""The nearest points, exactly, by a k-d tree.

The answer is defined by brute force: squared Euclidean distances summed dimension by dimension,
ordered by (distance, index), the first K_max of them. The tree only proposes; whenever its answer
leaves room for doubt (a tie at the last place), everything within that distance is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
_CLOSE = 1.0 + 1e-9  # the tree may round its distances otherwise than we do


class Nearest(NamedTuple):
    """Neighbours of M queries, nearest first; n = min(K_max, points)."""

    indices: NDArray[np.int64]
    """(M, n)"""
    squared: Floats
    """(M, n) squared distances."""


class Neighbours:
    """Exact K_max nearest neighbours among (N, latent) points."""

    def __init__(self, points: Floats, k_max: int) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self._k_max = k_max
        # Of points at the same place only the first K_max can ever be among the nearest.
        self._kept = np.flatnonzero(_rank_among_equals(self.points) < k_max)
        self._tree = cKDTree(self.points[self._kept])

    def __len__(self) -> int:
        return len(self.points)

    def query(self, queries: Floats) -> Nearest:
        """The nearest of (M, latent) queries."""
        count = min(self._k_max, len(self.points))
        proposed = min(self._k_max + 1, len(self._kept))
        distances, found = self._tree.query(queries, k=list(range(1, proposed + 1)))
        indices = self._kept[found]
        nearest = _first(count, indices, _squared(self.points[indices], queries[:, None]))
        if proposed < len(self._kept):
            doubtful = np.sqrt(nearest.squared[:, -1]) * _CLOSE >= distances[:, -1]
            for row in np.flatnonzero(doubtful).tolist():
                self._look_closer(queries[row], nearest, row)
        return nearest

    def sets(self, queries: Floats) -> NDArray[np.int64]:
        """(M, n) indices of the nearest in no particular order: all a vote needs, and faster."""
        if self._k_max >= len(self._kept):
            return self.query(queries).indices
        distances, found = self._tree.query(queries, k=self._k_max + 1)
        indices: NDArray[np.int64] = self._kept[found[:, :-1]]
        doubtful = distances[:, -2] * _CLOSE >= distances[:, -1]
        if doubtful.any():
            indices[doubtful] = self.query(queries[doubtful]).indices
        return indices

    def set_of_one(self, query: Floats) -> NDArray[np.int64]:
        """(n,) the same for one query, without the cost of a batch."""
        if self._k_max < len(self._kept):
            distances, found = self._tree.query(query, k=self._k_max + 1)
            if distances[-2] * _CLOSE < distances[-1]:
                indices: NDArray[np.int64] = self._kept[found[:-1]]
                return indices
        return self.query(query[None]).indices[0]

    def _look_closer(self, query: Floats, nearest: Nearest, row: int) -> None:
        """Settle a tie at the last place: rank everything up to that distance."""
        radius = np.sqrt(nearest.squared[row, -1]) * _CLOSE
        indices = self._kept[self._tree.query_ball_point(query, radius)][None]
        count = nearest.indices.shape[1]
        best = _first(count, indices, _squared(self.points[indices], query[None, None]))
        nearest.indices[row], nearest.squared[row] = best.indices[0], best.squared[0]


def _squared(points: Floats, queries: Floats) -> Floats:
    """Squared distances over the last axis, added up dimension by dimension."""
    total = np.square(points[..., 0] - queries[..., 0])
    for dimension in range(1, points.shape[-1]):
        total += np.square(points[..., dimension] - queries[..., dimension])
    return total


def _first(count: int, indices: NDArray[np.int64], squared: Floats) -> Nearest:
    """The ``count`` first of each row by (distance, index)."""
    order = np.lexsort((indices, squared), axis=-1)[:, :count]
    return Nearest(
        np.take_along_axis(indices, order, axis=1), np.take_along_axis(squared, order, axis=1)
    )


def _rank_among_equals(points: Floats) -> NDArray[np.int64]:
    """For each row, how many equal rows come before it."""
    order = np.lexsort(points.T[::-1])  # stable: equal rows stay in the order of their index
    ordered = points[order]
    fresh = np.ones(len(points), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    rank = np.empty(len(points), dtype=np.int64)
    rank[order] = np.arange(len(points)) - np.repeat(starts, np.diff(starts, append=len(points)))
    return rank
