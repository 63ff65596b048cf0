"""Properties of the pseudo-lidar, and one reading worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from advice.envs.sensors import lidars, pseudo_lidar

HERE, UPRIGHT = np.zeros(3), np.eye(3)
coordinates = st.floats(-5, 5, allow_subnormal=False)
objects = st.integers(0, 8).flatmap(lambda n: arrays(np.float64, (n, 2), elements=coordinates))


def turned(yaw: float) -> np.ndarray:
    return np.array(
        [[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]]
    )


def test_by_hand():
    # 4 bins of 90 degrees. One object at 1.5 m of 3 m, 30 degrees into the first sector: it reads
    # 1/2 there, 1/3 of that in the next bin, 2/3 of that in the one before.
    at_30_degrees = [[1.5 * math.cos(math.pi / 6), 1.5 * math.sin(math.pi / 6)]]
    reading = pseudo_lidar(HERE, UPRIGHT, at_30_degrees, bins=4, max_distance=3.0)
    np.testing.assert_allclose(reading, [1 / 2, 1 / 6, 0, 1 / 3], atol=1e-12)


def test_height_counts_towards_the_distance_only_when_the_car_tilts():
    level = pseudo_lidar(np.array([0, 0, 0.1]), UPRIGHT, [[1.0, 0.0]])
    assert level[0] == pytest.approx(2 / 3)


def test_an_object_just_below_the_x_axis_is_seen():
    reading = pseudo_lidar(HERE, UPRIGHT, [[1.0, -1e-18]])
    assert reading.max() == pytest.approx(2 / 3)


@given(objects)
def test_readings_are_between_0_and_1_and_far_objects_read_0(xy):
    reading = pseudo_lidar(HERE, UPRIGHT, xy)
    assert reading.shape == (16,)
    assert ((reading >= 0) & (reading <= 1)).all()
    if len(xy) == 0 or np.linalg.norm(xy, axis=1).min() >= 3:
        assert not reading.any()


@given(objects)
def test_the_largest_reading_is_the_nearest_object(xy):
    nearest = np.linalg.norm(xy, axis=1).min(initial=3.0)
    reading = pseudo_lidar(HERE, UPRIGHT, xy)
    assert reading.max() == pytest.approx(max(0, 3 - nearest) / 3, abs=1e-12)


@given(objects, st.permutations(range(8)))
def test_the_order_of_the_objects_does_not_matter(xy, order):
    shuffled = xy[[i for i in order if i < len(xy)]]
    np.testing.assert_array_equal(
        pseudo_lidar(HERE, UPRIGHT, xy), pseudo_lidar(HERE, UPRIGHT, shuffled)
    )


@given(objects, st.integers(0, 15))
def test_turning_the_car_by_whole_bins_turns_the_reading(xy, bins):
    # Away from the sectors' borders, where rounding may choose either bin.
    sectors = np.arctan2(xy[:, 1], xy[:, 0]) / (2 * math.pi / 16)
    near = np.linalg.norm(xy, axis=1) < 1e-6
    xy = xy[(np.abs(sectors - np.round(sectors)) > 1e-6) & ~near]
    still = pseudo_lidar(HERE, UPRIGHT, xy)
    moved = pseudo_lidar(HERE, turned(2 * math.pi * bins / 16), xy)
    np.testing.assert_allclose(moved, np.roll(still, -bins), atol=1e-9)


@given(objects, objects)
def test_lidars_of_two_kinds_are_the_two_lidars(first, second):
    seen = [(x, y, 0) for x, y in first.tolist()] + [(x, y, 16) for x, y in second.tolist()]
    both = lidars(HERE, UPRIGHT, seen, 2, 16, 3.0)
    alone = [pseudo_lidar(HERE, UPRIGHT, xy) for xy in (first, second)]
    np.testing.assert_array_equal(both, np.concatenate(alone))
