"""The memory of steps: bounded, fair, in order, and exactly restored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.shields.memory import PIECE, StepMemory
from advice.types import Outcome

SAFE, UNSAFE, OPEN = Outcome.SAFE, Outcome.UNSAFE, Outcome.INCONCLUSIVE


def memory(capacity: int = 1000, seed: int = 0) -> StepMemory:
    return StepMemory(1, np.dtype(np.float32), capacity, seed)


def add_episode(kept: StepMemory, outcomes: list[Outcome]) -> None:
    """Steps that are numbered by ``kept.seen``."""
    for outcome in outcomes:
        kept.add(np.array([kept.seen]), outcome)
    kept.end_episode()


def test_steps_come_back_in_order_with_their_episodes():
    kept = memory()
    add_episode(kept, [OPEN, OPEN, UNSAFE])
    add_episode(kept, [])
    add_episode(kept, [OPEN, SAFE])
    kept.add(np.array([5]), OPEN)  # of an episode under way
    steps = kept.all()
    assert steps.features[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert steps.features.dtype == np.float32
    assert steps.outcomes.tolist() == [OPEN, OPEN, UNSAFE, OPEN, SAFE, OPEN]
    assert steps.continues.tolist() == [True, True, False, True, False, False]
    assert steps.episodes.tolist() == [0, 0, 0, 2, 2, 3]
    assert (steps.seen, kept.violations, kept.safe, kept.episode) == (6, 1, 1, 3)


def test_an_empty_memory():
    steps = memory().all()
    assert steps.features.shape == (0, 1)
    assert [len(x) for x in steps[:4]] == [0, 0, 0, 0]


def test_a_long_episode_is_kept_in_pieces_and_its_end_together():
    kept = memory(capacity=10_000)
    add_episode(kept, [OPEN] * (3 * PIECE + 9) + [UNSAFE])
    steps = kept.all()
    assert steps.features[:, 0].tolist() == list(range(3 * PIECE + 10))
    ends = np.flatnonzero(~steps.continues)
    assert np.diff(ends, prepend=-1).tolist() == [PIECE, PIECE, PIECE + 10]
    assert set(steps.episodes) == {0}


def test_an_endless_episode_stays_bounded():
    kept = memory(capacity=5 * PIECE)
    for number in range(50 * PIECE):
        kept.add(np.array([number]), OPEN)
    steps = kept.all()
    assert 4 * PIECE <= len(steps.outcomes) <= 5 * PIECE + 2 * PIECE
    assert steps.seen == 50 * PIECE
    assert (np.diff(steps.features[:, 0]) > 0).all()
    gaps = np.diff(steps.features[:, 0])[steps.continues[:-1]]
    assert (gaps == 1).all()  # a row that continues is followed by the next step


@given(st.lists(st.tuples(st.integers(1, 200), st.booleans()), max_size=30), st.integers(1, 300))
def test_each_class_is_bounded_and_pieces_stay_whole(episodes, capacity):
    kept = memory(capacity)
    for length, violated in episodes:
        add_episode(kept, [OPEN] * (length - 1) + [UNSAFE if violated else OPEN])
    steps = kept.all()
    rows = np.split(np.arange(len(steps.outcomes)), np.flatnonzero(~steps.continues)[:-1] + 1)
    sizes = [0, 0]
    for piece in rows:
        if len(piece):
            assert (np.diff(steps.features[piece, 0]) == 1).all()
            assert len(set(steps.episodes[piece])) == 1
            sizes[int((steps.outcomes[piece] == UNSAFE).any())] += len(piece)
    for size in sizes:  # the last piece of a class is never dropped
        assert size <= max(capacity, 2 * PIECE)
    assert steps.seen == sum(length for length, _ in episodes)
    if any(violated for _, violated in episodes):
        assert UNSAFE in steps.outcomes


def test_every_episode_is_equally_likely_to_be_kept():
    """Of 40 episodes of two steps a capacity of 10 steps keeps five: each with probability 1/8."""
    kept_how_often = np.zeros(40)
    for seed in range(400):
        kept = memory(capacity=10, seed=seed)
        for _ in range(40):
            add_episode(kept, [OPEN, OPEN])
        episodes = np.unique(kept.all().episodes)
        assert len(episodes) == 5
        kept_how_often[episodes] += 1
    assert abs(kept_how_often - 50).max() < 6 * np.sqrt(400 / 8 * 7 / 8)


def test_quiet_episodes_do_not_displace_those_with_violations():
    kept = memory(capacity=20)
    add_episode(kept, [OPEN, UNSAFE])
    for _ in range(100):
        add_episode(kept, [OPEN] * 4)
    steps = kept.all()
    assert steps.outcomes.tolist()[:2] == [OPEN, UNSAFE]
    assert len(steps.outcomes) == 22


@given(
    st.lists(st.tuples(st.sampled_from(Outcome), st.booleans()), max_size=150),
    st.integers(0, 150),
    st.integers(1, 60),
)
def test_a_restored_memory_goes_on_alike(steps, cut, capacity):
    whole, part = memory(capacity, seed=3), memory(capacity, seed=3)
    for number, (outcome, ends) in enumerate(steps):
        if number == cut:
            fresh = memory(capacity)
            fresh.restore(*part.snapshot())
            part = fresh
        for one in (whole, part):
            one.add(np.array([number]), outcome)
            if ends and number % 5 == 4:
                one.end_episode()
    for a, b in zip(whole.all(), part.all(), strict=True):
        np.testing.assert_array_equal(a, b)
    (arrays, document), (others, other_document) = whole.snapshot(), part.snapshot()
    assert document == other_document
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name])


def test_a_restore_that_raises_leaves_the_memory_unchanged():
    kept, other = memory(), memory()
    add_episode(kept, [OPEN, UNSAFE])
    add_episode(other, [SAFE])
    arrays, document = kept.snapshot()
    with pytest.raises(ValueError, match="stored pieces"):
        other.restore(arrays | {"lengths": np.array([3])}, document)
    assert other.all().outcomes.tolist() == [SAFE]
