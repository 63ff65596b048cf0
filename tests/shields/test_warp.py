"""Learned curves: they change where danger changes, whatever the scale and direction."""

from __future__ import annotations

import numpy as np
import pytest

from advice.shields.warp import CELLS, Warp, fit_warp


def fitted(observations: np.ndarray, danger: np.ndarray) -> Warp:
    return fit_warp(observations, danger, np.random.default_rng(0))


def uniform(rows: int = 2000, columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, (rows, columns))


def curve(warp: Warp, column: int, at: np.ndarray, columns: int = 3) -> np.ndarray:
    """The curve of one dimension at given places, the others at 0.5."""
    rows = np.full((len(at), columns), 0.5)
    rows[:, column] = at
    (index,) = np.flatnonzero(warp.columns == column)
    return warp(rows)[:, index]


def test_look_up_by_hand():
    """Cells of width 2 from 10 on; 13 lies in the middle of the second cell."""
    table = np.arange(CELLS + 1.0)[None] ** 2
    warp = Warp(np.array([1]), np.array([10.0]), np.array([2.0]), table)
    observations = np.array([[0.0, 13.0], [99.0, 10.0], [0.0, -5.0], [0.0, 1e9]])
    assert warp(observations)[:, 0] == pytest.approx([2.5, 0.0, 0.0, CELLS**2], abs=1e-6)
    assert warp(observations[0]).shape == (1,)


def test_the_curve_rises_where_danger_is():
    x = uniform()
    warp = fitted(x, x[:, 1] > 0.9)
    low, below, above = curve(warp, 1, np.array([0.1, 0.85, 0.95]))
    assert above - below > 5 * abs(below - low)
    assert above - low > 1


def test_a_low_reading_that_means_danger():
    x = uniform()
    warp = fitted(x, x[:, 0] < 0.1)
    near, just_outside, far = curve(warp, 0, np.array([0.05, 0.15, 0.9]))
    assert near - just_outside > 5 * abs(just_outside - far)
    assert near > far + 1


def test_danger_on_both_sides():
    x = uniform()
    left, middle, right = curve(fitted(x, abs(x[:, 2] - 0.5) > 0.4), 2, np.array([0.05, 0.5, 0.95]))
    assert min(left, right) > middle + 1


def test_dimensions_that_say_nothing_stay_flat():
    x = uniform()
    warp = fitted(x, x[:, 1] > 0.9)
    places = np.linspace(0.05, 0.95, 50)
    most = np.ptp(curve(warp, 1, places))
    for column in set(warp.columns) - {1}:
        assert np.ptp(curve(warp, column, places)) < 0.3 * most


def test_constant_columns_have_no_curve():
    x = uniform()
    x[:, 0] = 7.0
    assert 0 not in fitted(x, x[:, 1] > 0.9).columns
    everything = fitted(np.full((50, 3), 2.0), np.arange(50) < 5)
    assert everything(np.zeros((4, 3))).shape == (4, 0)


@pytest.mark.parametrize("danger", [np.zeros(100, bool), np.ones(100, bool)])
def test_one_class_gives_no_curve(danger):
    assert len(fitted(uniform(100), danger).columns) == 0


@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 0.0), (1.0, 1e4), (500.0, -500.0)])
def test_scale_and_offset_do_not_matter(scale, offset):
    x = uniform()
    danger = x[:, 1] > 0.9
    expected = fitted(x, danger)(x)
    np.testing.assert_allclose(
        fitted(scale * x + offset, danger)(scale * x + offset), expected, atol=0.2
    )


def test_the_same_rows_give_the_same_curves():
    x = uniform(30_000)  # more than are looked at
    for one, two in zip(fitted(x, x[:, 1] > 0.9), fitted(x, x[:, 1] > 0.9), strict=True):
        np.testing.assert_array_equal(one, two)
