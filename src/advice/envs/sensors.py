"""Pseudo-lidar as pure functions: the closeness of objects in each direction around the car."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from advice.types import Array


def pseudo_lidar(
    agent_pos: Array, agent_mat: Array, object_xy: Array, bins: int = 16, max_distance: float = 3.0
) -> Array:
    """One lidar over one kind of objects.

    ``agent_pos`` (3,) and ``agent_mat`` (3, 3) are the car's position and rotation, ``object_xy``
    (n, 2) the objects on the floor; returns (bins,) float64 in [0, 1]. Bin i looks along the angle
    2 pi i / bins from the car's x axis and holds the closeness max(0, 1 - distance / max_distance)
    of the nearest object in its sector. Each object also counts in the two neighbouring bins,
    with its closeness split between them by its angle within the sector.
    """
    pos = np.asarray(agent_pos, dtype=np.float64)
    mat = np.asarray(agent_mat, dtype=np.float64).reshape(3, 3)
    places = np.asarray(object_xy, dtype=np.float64).reshape(-1, 2).tolist()
    return np.array(lidars(pos, mat, [(x, y, 0) for x, y in places], 1, bins, max_distance))


def lidars(
    agent_pos: Array,
    agent_mat: Array,
    objects: Iterable[tuple[float, float, int]],
    kinds: int,
    bins: int,
    max_distance: float,
) -> list[float]:
    """The lidars of all kinds, one after the other: ``kinds * bins`` readings.

    ``objects`` are x, y and the bin at which the lidar of the object's kind begins. Plain floats,
    because NumPy takes several times as long for a dozen objects.
    """
    car_x, car_y, car_z = agent_pos.tolist()
    (xx, xy, _), (yx, yy, _), (zx, zy, _) = agent_mat.tolist()
    sectors_per_radian = bins / (2.0 * math.pi)
    readings = [0.0] * (kinds * bins)
    for object_x, object_y, first_bin in objects:
        # The object in the car's frame: [dx, dy, -z] @ rotation, without its z.
        dx, dy = object_x - car_x, object_y - car_y
        x, y = dx * xx + dy * yx - car_z * zx, dx * xy + dy * yy - car_z * zy
        closeness = 1.0 - math.hypot(x, y) / max_distance
        if closeness <= 0.0:
            continue
        sector = math.atan2(y, x) * sectors_per_radian
        middle = math.floor(sector)
        after = (sector - middle) * closeness
        # The nearest object wins in each bin; the bin after the last one is the first.
        for offset, reading in ((0, closeness), (1, after), (-1, closeness - after)):
            place = first_bin + (middle + offset) % bins
            if reading > readings[place]:
                readings[place] = reading
    return readings
