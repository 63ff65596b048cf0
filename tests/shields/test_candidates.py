from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from advice.shields.candidates import Candidates, low_discrepancy
from advice.shields.spaces import read_space


def candidates(space, per_dimension=11, budget=1024) -> Candidates:
    known = read_space(space, "action space", discrete=True)
    return Candidates(known, known.low, known.high, per_dimension, budget)


def test_a_grid_includes_its_ends_and_middle():
    grid = candidates(Box(np.array([-1, 0], "f4"), np.array([1, 2], "f4")), 3).fixed
    assert grid.dtype == np.float32
    expected = [[-1, 0], [-1, 1], [-1, 2], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert grid.tolist() == expected


def test_the_default_grid_has_121_actions_in_two_dimensions():
    assert candidates(Box(-1, 1, (2,), np.float32)).fixed.shape == (121, 2)


def test_a_discrete_space_offers_all_its_values():
    assert candidates(Discrete(4, start=-1)).fixed.tolist() == [-1, 0, 1, 2]


def test_whole_numbers_stay_whole_and_distinct():
    assert candidates(Box(0, 3, (1,), np.int64)).fixed.tolist() == [[0], [1], [2], [3]]


@given(st.integers(3, 8), st.integers(8, 300), st.integers(0, 1000))
def test_many_dimensions_keep_to_budget_and_bounds(size, budget, seed):
    many = candidates(Box(-2, 3, (size,), np.float64), 11, budget)
    proposal = np.random.default_rng(seed).uniform(-2, 3, size)
    everything = np.concatenate([many.fixed, many.near(proposal)])
    assert len(everything) == budget
    assert everything.min() >= -2
    assert everything.max() <= 3
    assert len(many.near(proposal)) == budget // 4
    assert abs(many.near(proposal)[0] - proposal).max() <= 5 / 2 / (budget // 4)


def test_low_discrepancy_fills_the_square_more_evenly_than_chance():
    """Each of 64 equal cells gets 16 of 1,024 points, give or take little (chance: about +-4)."""
    points = low_discrepancy(1024, 2)
    counts = np.histogram2d(points[:, 0], points[:, 1], bins=8, range=[[0, 1], [0, 1]])[0]
    assert counts.min() >= 13
    assert counts.max() <= 19


def test_low_discrepancy_in_one_dimension_is_the_golden_ratio():
    golden = (np.sqrt(5) - 1) / 2
    np.testing.assert_allclose(
        low_discrepancy(3, 1)[:, 0], (0.5 + golden * np.array([1, 2, 3])) % 1
    )
