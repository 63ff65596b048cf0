from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.envs.signals import Signals
from advice.shields.memory import EpisodeLabels, FeatureStore, label
from advice.types import Outcome


@pytest.mark.parametrize(
    ("first", "violation", "cost", "success", "expected"),
    [
        (True, False, 0.0, False, Outcome.SAFE),
        (False, False, 0.0, True, Outcome.SAFE),
        (False, False, 0.0, False, Outcome.INCONCLUSIVE),
        (False, True, 0.2, False, Outcome.UNSAFE),
        (True, True, 0.0, False, Outcome.UNSAFE),
        (True, False, 0.2, False, Outcome.UNSAFE),
        (False, False, 0.2, True, Outcome.UNSAFE),
    ],
)
def test_label_follows_the_rule(first, violation, cost, success, expected):
    assert label(first, Signals(violation, cost, success)) is expected


def store(capacity: int = 5) -> FeatureStore:
    return FeatureStore(1, np.dtype(np.float32), capacity)


def test_store_keeps_both_classes_in_order_of_arrival_and_forgets_the_inconclusive():
    kept, rng = store(), np.random.default_rng(0)
    for value, outcome in enumerate((1, 0, 2, 1, 0)):
        kept.add(np.array([value]), Outcome(outcome), rng)
        kept.end_episode()
    features, safe, serials, episodes = kept.all()
    assert features[:, 0].tolist() == [0, 1, 3, 4]
    assert safe.tolist() == [True, False, True, False]
    assert serials.tolist() == [0, 1, 2, 3]
    assert episodes.tolist() == [0, 1, 3, 4]


def test_only_the_first_unsafe_steps_of_an_episode_count():
    labels, unsafe = EpisodeLabels(3), Signals(False, 0.2, False)
    outcomes = [labels.next(unsafe) for _ in range(5)]
    assert outcomes == [Outcome.UNSAFE] * 3 + [Outcome.INCONCLUSIVE] * 2
    assert labels.next(unsafe._replace(cost=0.0, success=True)) == Outcome.SAFE
    assert EpisodeLabels(3).next(unsafe._replace(cost=0.0)) == Outcome.SAFE  # the first step
    assert EpisodeLabels(0).next(unsafe) == Outcome.INCONCLUSIVE


def test_features_recorded_without_episodes_are_all_kept():
    kept, rng = store(capacity=100), np.random.default_rng(0)
    for value in range(60):
        kept.add(np.array([value]), Outcome(value % 2), rng)
    assert kept.count(Outcome.UNSAFE) == kept.count(Outcome.SAFE) == 30


def test_a_full_store_keeps_a_fair_sample():
    """Each of 40 features survives in a capacity of 5 with probability 1/8."""
    survivors = np.zeros(40)
    for seed in range(400):
        kept, rng = store(), np.random.default_rng(seed)
        for value in range(40):
            kept.add(np.array([value]), Outcome.SAFE, rng)
        survivors[kept.all()[0][:, 0].astype(int)] += 1
    assert survivors.sum() == 400 * 5
    assert abs(survivors - 50).max() < 6 * np.sqrt(400 / 8 * 7 / 8)


@given(st.lists(st.sampled_from(Outcome), max_size=60), st.integers(0, 60))
def test_a_restored_store_goes_on_alike(outcomes, cut):
    whole, rng = store(), np.random.default_rng(3)
    part, part_rng = store(), np.random.default_rng(3)
    for value, outcome in enumerate(outcomes):
        if value == cut:
            fresh = store()
            fresh.restore(*part.snapshot())
            part = fresh
        for one, its_rng in ((whole, rng), (part, part_rng)):
            one.add(np.array([value]), outcome, its_rng)
            if value % 7 == 6:
                one.end_episode()
    for a, b in zip(whole.all(), part.all(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.snapshot()[1] == part.snapshot()[1]
