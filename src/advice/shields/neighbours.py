"""The nearest points, exactly, by a k-d tree.

The answer is defined by brute force: squared Euclidean distances summed dimension by dimension,
ordered by (distance, index), the first K_max of them. The tree only proposes; where its answer
leaves room for doubt (a tie at the last place), everything within that distance is looked at.
In a plane, a map made beforehand tells where the nearest are all safe or all unsafe.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from advice.shields.spaces import Bools, Floats, Ints

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
        self.kept = np.sort(order[rank < k_max])
        """Rows of the points that can be among the nearest of some query."""
        self._tree = cKDTree(self.points[self.kept])

    def __len__(self) -> int:
        return len(self.points)

    def query(self, queries: Floats) -> Nearest:
        """The nearest of (M, latent) queries."""
        proposed = min(self._k_max + 1, len(self.kept))
        distances, found = self._tree.query(queries, k=list(range(1, proposed + 1)))
        nearest = self._first(self.kept[found], queries)
        if proposed < len(self.kept):
            radii = np.sqrt(nearest.squared[:, -1]) * _CLOSE
            for row in np.flatnonzero(radii >= distances[:, -1]).tolist():
                within = self.kept[self._tree.query_ball_point(queries[row], radii[row])]
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
        if self._k_max >= len(self.kept):
            return self.query(queries).indices
        distances, found = self._tree.query(queries, k=self._k_max + 1)
        indices = self.kept[found[:, :-1]]
        doubtful = distances[:, -2] * _CLOSE >= distances[:, -1]
        if doubtful.any():
            indices[doubtful] = self.query(queries[doubtful]).indices
        return indices

    def set_of_one(self, query: Floats) -> Ints:
        """(n,) the same for one query, without the cost of a batch."""
        if self._k_max < len(self.kept):
            distances, found = self._tree.query(query, k=self._k_max + 1)
            if distances[-2] * _CLOSE < distances[-1]:
                return self.kept[found[:-1]]
        return self.query(query[None]).indices[0]


_SIDE = 128  # cells of a map along each axis
_UNKNOWN = 255


class VoteMap:
    """The votes of a plane's places whose nearest points are all safe or all unsafe.

    A cell's places are at most h, half a diagonal, from its centre c, so their nearest points are
    at most d + 2h from c, where d is the distance from c to its own K_max-th. If the nearest point
    of the other class is farther than that, the votes are the same throughout the cell.
    """

    def __init__(self, points: Floats, safe: Bools, k_max: int) -> None:
        self._low, high = np.quantile(points, [0.002, 0.998], axis=0)
        size = np.maximum(high - self._low, 1e-9) / _SIDE
        self._scale = 1 / size
        across = (np.arange(_SIDE) + 0.5) * size[:, None] + self._low[:, None]
        centres = np.stack(np.meshgrid(*across, indexing="ij"), axis=-1).reshape(-1, 2)
        votes, apart = min(k_max, len(points)), float(np.hypot(*size)) * _CLOSE + 1e-9
        within = _distances(points, centres, votes) * _CLOSE + apart
        table = np.full(len(centres), _UNKNOWN, np.uint8)
        table[_distances(points[~safe], centres, 1) > within] = votes
        table[_distances(points[safe], centres, 1) > within] = 0
        self._table, self._bytes = table, table.tobytes()
        self._plain = (*self._low.tolist(), *self._scale.tolist())

    def one(self, place: Floats) -> int | None:
        """The votes at one place; None if the map does not know."""
        x0, y0, sx, sy = self._plain
        x, y = place.tolist()
        x, y = (x - x0) * sx, (y - y0) * sy
        if not (0.0 <= x < _SIDE and 0.0 <= y < _SIDE):
            return None
        votes = self._bytes[int(x) * _SIDE + int(y)]
        return None if votes == _UNKNOWN else votes

    def many(self, places: Floats) -> tuple[Ints, Ints]:
        """(M,) votes at (M, 2) places, and the rows for which the map does not know them."""
        cells = (places - self._low) * self._scale
        inside = ((cells >= 0) & (cells < _SIDE)).all(axis=1)
        x, y = np.where(inside, cells.T, 0).astype(np.int64)
        votes = np.where(inside, self._table[x * _SIDE + y], _UNKNOWN).astype(np.int64)
        return votes, np.flatnonzero(votes == _UNKNOWN)


def _distances(points: Floats, places: Floats, count: int) -> Floats:
    """(M,) distances of places to the ``count``-th nearest of the points; infinite if fewer."""
    if len(points) == 0:
        return np.full(len(places), np.inf)
    return np.asarray(cKDTree(points).query(places, k=[count])[0][:, 0])
