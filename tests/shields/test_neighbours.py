from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.shields.neighbours import Neighbours, VoteMap


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


@given(st.data())
def test_a_map_tells_the_votes_or_nothing(data):
    """Wherever the map knows the votes, they are what a search finds."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    count, k_max = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 7))
    points = rng.normal(size=(count, 2)) * data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    if data.draw(st.booleans()):
        points = np.rint(points)  # ties and duplicates
    safe = points[:, 0] + data.draw(st.floats(0, 2)) * rng.normal(size=count) > 0
    map_, neighbours = VoteMap(points, safe, k_max), Neighbours(points, k_max)
    places = np.concatenate([points, points + 0.1 * points.std() * rng.normal(size=points.shape)])
    votes, unknown = map_.many(places)
    found = np.count_nonzero(safe[neighbours.sets(places)], axis=1)
    known = np.setdiff1d(np.arange(len(places)), unknown)
    np.testing.assert_array_equal(votes[known], found[known])
    for row, place in enumerate(places[:20]):
        assert map_.one(place) == (None if row in unknown else votes[row])


def test_a_map_of_two_clouds_knows_most_places():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2000, 2)) + np.repeat([[0.0, 0.0], [8.0, 0.0]], 1000, axis=0)
    map_ = VoteMap(points, np.arange(2000) < 1000, 5)
    votes, unknown = map_.many(points)
    assert len(unknown) < 200
    assert set(votes.tolist()) == {0, 5, 255}
