"""Pseudo-lidar as pure functions: how near are the objects in each direction around the car?"""

from __future__ import annotations

import numpy as np

from advice.types import Array

_TURN = 2.0 * np.pi
_AROUND = np.array([[0], [1], [-1]])


def pseudo_lidar(
    agent_pos: Array, agent_mat: Array, object_xy: Array, bins: int = 16, max_distance: float = 3.0
) -> Array:
    """One lidar over one kind of objects.

    ``agent_pos`` (3,) and ``agent_mat`` (3, 3) are the car's position and rotation, ``object_xy``
    (n, 2) the objects on the floor; returns (bins,) float64 in [0, 1]. Bin i looks along the angle
    2 pi i / bins from the car's x axis and holds the closeness max(0, 1 - distance / max_distance)
    of the nearest object in its sector. Each object also shows in the two neighbouring bins, its
    closeness shared out by how far through the sector its angle is.
    """
    objects = np.asarray(object_xy, dtype=np.float64).reshape(-1, 2)
    first_bin = np.zeros(len(objects), dtype=np.intp)
    return lidars(
        np.asarray(agent_pos, dtype=np.float64),
        np.asarray(agent_mat, dtype=np.float64).reshape(3, 3),
        objects,
        first_bin,
        1,
        bins,
        max_distance,
    )


def lidars(
    agent_pos: Array,
    agent_mat: Array,
    object_xy: Array,
    first_bin: Array,
    kinds: int,
    bins: int,
    max_distance: float,
) -> Array:
    """All lidars in one pass, one after the other: (kinds * bins,) float64.

    ``first_bin`` (n,) says where the lidar of each object's kind begins, a multiple of ``bins``.
    """
    # Where the objects are as seen from the car: ([dx, dy, -z] @ rotation) without its z.
    ego = (object_xy - agent_pos[:2]) @ agent_mat[:2, :2] - agent_pos[2] * agent_mat[2, :2]
    x, y = ego.T
    closeness = np.maximum(0.0, max_distance - np.hypot(x, y)) / max_distance
    sector = np.arctan2(y, x) * (bins / _TURN) % bins
    middle = sector.astype(np.intp)
    # Each object shows in its sector's bin, in the next one, and in the one before.
    readings = np.empty((3, len(closeness)))
    readings[0] = closeness
    np.multiply(sector - middle, closeness, out=readings[1])
    np.subtract(closeness, readings[1], out=readings[2])
    # The nearest object wins in each bin; the bin after the last one is the first.
    flat = np.zeros(kinds * bins)
    np.maximum.at(flat, (middle + _AROUND) % bins + first_bin, readings)
    return flat
