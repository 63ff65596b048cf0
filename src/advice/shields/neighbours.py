"""The nearest points, exactly, by a k-d tree.

The answer is defined by brute force: squared Euclidean distances summed dimension by dimension,
ordered by (distance, index), the first K_max of them. The tree only proposes; where its answer
leaves room for doubt (a tie at the last place), everything within that distance is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from advice.shields.spaces import Floats, Ints

_CLOSE = 1.0 + 1e-9  # the tree may round its distances otherwise than we do


class Nearest(NamedTuple):
    """Neighbours of M queries, nearest first; n = min(K_max, points)."""

    indices: Ints  # (M, n)
    squared: Floats  # (M, n) squared distances


class Neighbours:
    """Exact K_max nearest neighbours among (N, latent) points."""

    def __init__(self, points: Floats, k_max: int) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self._k_max = k_max
        # of points at the same place only the first K_max can ever be among the nearest
        order = np.lexsort(self.points.T)  # stable: equal points stay in the order of their index
        moved = (np.diff(self.points[order], axis=0) != 0).any(axis=1)
        place = np.append(0, np.cumsum(moved))
        rank = np.arange(len(order)) - np.searchsorted(place, place)
        self._kept = np.sort(order[rank < k_max])
        self._tree = cKDTree(self.points[self._kept])

    def __len__(self) -> int:
        return len(self.points)

    def query(self, queries: Floats) -> Nearest:
        """The nearest of (M, latent) queries."""
        proposed = min(self._k_max + 1, len(self._kept))
        distances, found = self._tree.query(queries, k=list(range(1, proposed + 1)))
        nearest = self._first(self._kept[found], queries)
        if proposed < len(self._kept):
            radii = np.sqrt(nearest.squared[:, -1]) * _CLOSE
            for row in np.flatnonzero(radii >= distances[:, -1]).tolist():
                within = self._kept[self._tree.query_ball_point(queries[row], radii[row])]
                closer = self._first(within[None], queries[row, None])
                nearest.indices[row], nearest.squared[row] = closer.indices[0], closer.squared[0]
        return nearest

    def _first(self, indices: Ints, queries: Floats) -> Nearest:
        """The K_max first of (M, ...) indices by (distance, index)."""
        apart = np.square(self.points[indices] - queries[:, None])
        squared = apart.cumsum(axis=-1)[..., -1]  # adds up dimension by dimension
        order = np.lexsort((indices, squared), axis=-1)[:, : self._k_max]
        return Nearest(*(np.take_along_axis(x, order, axis=1) for x in (indices, squared)))

    def sets(self, queries: Floats) -> Ints:
        """(M, n) indices of the nearest in no particular order: all a vote needs, and faster."""
        if self._k_max >= len(self._kept):
            return self.query(queries).indices
        distances, found = self._tree.query(queries, k=self._k_max + 1)
        indices = self._kept[found[:, :-1]]
        doubtful = distances[:, -2] * _CLOSE >= distances[:, -1]
        if doubtful.any():
            indices[doubtful] = self.query(queries[doubtful]).indices
        return indices

    def set_of_one(self, query: Floats) -> Ints:
        """(n,) the same for one query, without the cost of a batch."""
        if self._k_max < len(self._kept):
            distances, found = self._tree.query(query, k=self._k_max + 1)
            if distances[-2] * _CLOSE < distances[-1]:
                return self._kept[found[:-1]]
        return self.query(query[None]).indices[0]
