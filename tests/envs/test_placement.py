"""Placement: no overlaps, all inside the arena, and an error if there is no room."""

from __future__ import annotations

import contextlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import advice
from advice.envs import TASKS
from advice.envs.model import PlacementError, Spot, place

spots = st.floats(0.0, 0.4).map(Spot)
seeds = st.integers(0, 2**32 - 1)


@given(st.lists(spots, max_size=8), seeds)
def test_random_discs_do_not_overlap_and_are_inside(things, seed):
    places = place(things, 2.0, np.random.default_rng(seed))
    assert places.shape == (len(things), 2)
    for (a, spot_a), (b, spot_b) in itertools.combinations(zip(places, things, strict=True), 2):
        assert math.dist(a, b) >= spot_a.keepout + spot_b.keepout - 1e-12
    for xy, spot in zip(places, things, strict=True):
        assert np.abs(xy).max() + spot.keepout <= 2.0 + 1e-12


@given(st.integers(0, 20), st.floats(0.05, 1.0), st.floats(0.2, 2.0), seeds)
def test_every_search_ends_in_a_layout_or_a_clear_error(count, keepout, arena, seed):
    rng = np.random.default_rng(seed)
    if math.pi * keepout**2 * count > (2 * arena) ** 2:  # the discs are larger than the arena
        with pytest.raises(PlacementError, match=f"{count} objects.*larger arena"):
            place([Spot(keepout)] * count, arena, rng)
    else:
        with contextlib.suppress(PlacementError):
            assert len(place([Spot(keepout)] * count, arena, rng)) == count


def test_impossible_layouts_raise():
    rng = np.random.default_rng(0)
    with pytest.raises(PlacementError, match="larger arena"):
        place([Spot(0.6)] * 9, 1.0, rng)
    with pytest.raises(PlacementError, match="larger arena"):
        place([Spot(1.2)], 1.0, rng)
    with pytest.raises(PlacementError, match="2 objects"):
        place([Spot(0.5, fixed=(0.0, 0.0)), Spot(0.5, ring=(0.1, 0.2))], 1.0, rng)
    with pytest.raises(PlacementError, match="42 objects"):
        advice.make("randomised-goal", cubes=40, arena=0.8).reset(seed=0)


def test_rings_and_fixed_spots():
    things = [Spot(0.2, fixed=(1.0, 0.0)), *[Spot(0.2, ring=(0.8, 1.2))] * 5]
    places = place(things, 1.5, np.random.default_rng(0))
    assert places[0].tolist() == [1.0, 0.0]
    assert ((np.hypot(*places[1:].T) >= 0.8) & (np.hypot(*places[1:].T) <= 1.2)).all()


@pytest.mark.parametrize("task", TASKS)
def test_no_initial_layout_of_any_task_overlaps(task):
    env = advice.make(task)
    row = TASKS[task]
    keepouts = {
        "car": row.car_keepout,
        "goal": row.goal_keepout,
        "cubes": row.cube_keepout,
        "buttons": row.button_keepout,
        "pillars": row.pillar_keepout,
        "hazards": row.hazard_keepout,
    }
    for seed in range(50):
        env.reset(seed=seed)
        start = {kind: env.start[kind] for kind in keepouts if kind in env.start}
        discs = [(x, y, keepouts[kind]) for kind, rows in start.items() for x, y, _ in rows]
        for (ax, ay, a), (bx, by, b) in itertools.combinations(discs, 2):
            assert math.hypot(ax - bx, ay - by) >= a + b - 1e-12
        for x, y, _ in discs:
            assert max(abs(x), abs(y)) <= row.arena + row.cube_band / 2
        touched = {env.model.geom(geom).name for geom in env.data.contact.geom.ravel()}
        assert touched <= {"floor", "left", "right", "rear"}


def test_semi_random_cubes_are_where_the_table_says():
    env = advice.make("semi-random-goal")
    for seed in range(3):
        env.reset(seed=seed)
        cubes = {tuple(xy) for xy in env.layout["cubes"].tolist()}
        assert cubes == {(x, y) for x in (-0.4, 0.4) for y in (-0.75, 0.0, 0.75)}


def test_the_circumference_goes_through_every_cube_of_the_circle():
    env = advice.make("randomised-circle")
    for seed in range(20):
        env.reset(seed=seed)
        radii = np.hypot(*env.layout["cubes"].T)
        assert len(radii) == 3
        assert (abs(radii - 1.5) <= 0.05).all()
