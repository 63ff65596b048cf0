from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.shields.neighbours import Neighbours


def brute_force(points: np.ndarray, query: np.ndarray, k: int) -> tuple[list[int], list[float]]:
    squared = np.zeros(len(points))
    for dimension in range(points.shape[1]):
        squared += (points[:, dimension] - query[dimension]) ** 2
    ranked = sorted(range(len(points)), key=lambda i: (squared[i], i))[:k]
    return ranked, squared[ranked].tolist()


def check(points: np.ndarray, queries: np.ndarray, k: int) -> None:
    neighbours = Neighbours(points, k)
    found = neighbours.query(queries)
    for row, query in enumerate(queries):
        indices, squared = brute_force(points, query, k)
        assert found.indices[row].tolist() == indices
        assert found.squared[row].tolist() == squared
        assert sorted(neighbours.set_of_one(query).tolist()) == sorted(indices)
        assert sorted(neighbours.sets(queries)[row].tolist()) == sorted(indices)


@given(st.data())
def test_equal_to_brute_force_with_ties_duplicates_and_few_points(data):
    """Coordinates from a handful of values make ties and duplicates the rule."""
    size = data.draw(st.integers(1, 4))
    rows = st.lists(st.integers(-2, 2), min_size=size, max_size=size)
    points = np.array(data.draw(st.lists(rows, min_size=1, max_size=60)), float)
    queries = np.array(data.draw(st.lists(rows, min_size=1, max_size=4)), float) / 2
    check(points, queries, data.draw(st.integers(1, 7)))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_equal_to_brute_force_on_random_clouds(size):
    rng = np.random.default_rng(size)
    points = rng.normal(size=(500, size))
    queries = np.concatenate([points[:20], rng.normal(size=(20, size)), 1e4 * np.ones((1, size))])
    check(points, queries, 5)


def test_equidistant_points_are_ranked_by_index():
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    check(ring, np.zeros((1, 2)), 5)


def test_a_thousand_copies_of_one_point():
    points = np.concatenate([np.zeros((1000, 2)), np.ones((3, 2))])
    found = Neighbours(points, 5).query(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert found.indices.tolist() == [[0, 1, 2, 3, 4], [1000, 1001, 1002, 0, 1]]
