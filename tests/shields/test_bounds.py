"""The bounds: worked numbers, and simulated coverage (benchmarks/bounds_coverage.py has more)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from advice.shields.bounds import (
    ConfidenceSequence,
    DriftAlarm,
    clopper_pearson,
    conformal_threshold,
    excludes,
    hoeffding_bentkus,
    learn_then_test,
    running_bounds,
)


def test_clopper_pearson_solves_its_equation() -> None:
    assert clopper_pearson(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))  # 1.0 %
    assert clopper_pearson(7, 7) == 1.0
    for violations, episodes, confidence in ((3, 300, 0.95), (40, 50, 0.9), (1, 2, 0.5)):
        bound = clopper_pearson(violations, episodes, confidence)
        assert binom.cdf(violations, episodes, bound) == pytest.approx(1 - confidence)


@pytest.mark.parametrize("p", [0.0, 0.02, 0.3, 1.0])
def test_clopper_pearson_covers(p: float) -> None:
    counts = np.random.default_rng(0).binomial(100, p, 4000)
    table = np.array([clopper_pearson(x, 100) for x in range(101)])
    assert (table[counts] < p).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"confidence: expected .* between 0 and 1, found 95"):
        clopper_pearson(0, 10, confidence=95)
    with pytest.raises(ValueError, match="found 11 of 10"):
        clopper_pearson(11, 10)
    with pytest.raises(ValueError, match="found 0 of 0"):
        clopper_pearson(0, 0)
    with pytest.raises(ValueError, match=r"x: expected a number from 0 to 1, found 2"):
        ConfidenceSequence().update(2)
    with pytest.raises(ValueError, match="certified"):
        DriftAlarm(0.0)
    with pytest.raises(ValueError, match=r"violations: expected a whole number, found 0\.5"):
        clopper_pearson(0.5, 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="episodes: expected a whole number, found inf"):
        clopper_pearson(0, np.inf)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="totals <= counts, found 5 and 3"):
        running_bounds(5, 3)
    for loss in (np.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="losses: expected numbers from 0 to 1"):
            learn_then_test(np.full((50, 2), loss), 0.05)


def test_sequence_is_the_mixture_solved_for_the_mean() -> None:
    """After three clean episodes the bound m solves sum_a (1 + m (e^-a - 1))^-3 = 24 * 2 / 0.05."""
    sequence = ConfidenceSequence()
    assert sequence.bounds == (0.0, 1.0)
    for _ in range(300):
        low, high = sequence.update(0)
    tilts = np.geomspace(0.01, 8.0, 24)
    mixture = np.sum((1 + high * np.expm1(-tilts)) ** -300)
    assert mixture == pytest.approx(24 * 2 / 0.05, rel=1e-4)
    assert low == 0.0
    assert 0.0099 < high < 0.02  # wider than looking once (Clopper-Pearson: 1.0 %)


def test_sequence_narrows_around_the_average() -> None:
    counts = np.array([10, 100, 1000, 10_000])
    low, high = running_bounds(0.3 * counts, counts)
    assert (low < 0.3).all()
    assert (high > 0.3).all()
    assert (np.diff(high - low) < 0).all()
    assert high[-1] - low[-1] < 0.05


def _ever_excluded(p: np.ndarray, reps: int, inside) -> float:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    totals = np.cumsum(rng.random((reps, len(p))) < p, axis=1)
    counts = np.arange(1.0, len(p) + 1)
    means = np.broadcast_to(np.cumsum(p) / counts, totals.shape)
    return float((~inside(totals, np.broadcast_to(counts, totals.shape), means)).any(1).mean())


def _in_sequence(totals: np.ndarray, counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    outside = [excludes(totals, counts, means, side) for side in (1, -1)]
    return ~(outside[0] | outside[1])


def _in_textbook_interval(totals: np.ndarray, counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    rate = (totals + 2) / (counts + 4)  # Agresti and Coull
    return np.abs(rate - means) <= 1.96 * np.sqrt(rate * (1 - rate) / (counts + 4))


@pytest.mark.parametrize(
    "p",
    [
        np.zeros(200),
        np.ones(200),
        np.full(300, 0.1),
        np.linspace(0.6, 0.0, 300),  # a policy that learns
        np.repeat([0.02, 0.5], 150),
    ],
    ids=["never", "always", "constant", "falling", "jump"],
)
def test_sequence_holds_at_all_times(p: np.ndarray) -> None:
    assert _ever_excluded(p, 600, _in_sequence) <= 0.05


def test_an_interval_for_one_look_fails_at_all_times() -> None:
    """The check above can fail: the usual interval does."""
    assert _ever_excluded(np.full(300, 0.1), 600, _in_textbook_interval) > 0.1


def test_alarm_is_rarely_false_and_comes_when_the_rate_doubles() -> None:
    rng, reps = np.random.default_rng(2), 1000

    def share(rate: float, episodes: int) -> float:
        alarm = DriftAlarm(0.1)
        for _ in range(episodes):
            alarm.update(rng.random(reps) < rate)
        return float(alarm.alarmed.mean())

    assert share(0.1, 1500) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / reps)
    assert share(0.05, 500) <= 0.01
    assert share(0.2, 500) > 0.95


def test_alarm_follows_its_evidence_and_stays() -> None:
    alarm = DriftAlarm(0.1, false_alarms=0.05)
    assert not alarm.update(False)
    assert alarm.evidence < 1.0
    while not alarm.update(True):
        assert alarm.evidence < 20.0
    assert alarm.evidence >= 20.0
    assert alarm.violations == alarm.episodes - 1
    assert all(alarm.update(False) for _ in range(100))


def test_learn_then_test_needs_enough_episodes() -> None:
    """No loss in n episodes shows a rate of at most 5 % at 90 % from 0.95^n <= 0.1 on: 45."""
    few, enough = (learn_then_test(np.zeros((n, 5)), 0.05, 0.9) for n in (44, 45))
    assert few.chosen is None
    assert few.needed == enough.needed == 45
    assert enough.chosen == 4
    assert learn_then_test(np.zeros((0, 5)), 0.05).chosen is None
    # sharing the confidence among five settings would ask for 77
    assert learn_then_test(np.zeros((0, 5)), 0.05, 1 - 0.1 / 5).needed == 77


def test_learn_then_test_stops_at_the_first_failure() -> None:
    losses = np.zeros((200, 4))
    losses[:40, 1] = 1.0  # the second setting fails, though the looser third one would pass
    assert learn_then_test(losses, 0.05, 0.9).chosen == 0


def test_p_values_are_valid() -> None:
    """P(p-value <= u) <= u where the expected loss is just the limit; losses of 0, 1/3, 2/3, 1."""
    rng = np.random.default_rng(3)
    losses = rng.binomial(3, 0.1, (4000, 80)) / 3
    p_values = hoeffding_bentkus(losses.mean(1), 80, 0.1)
    for u in (0.02, 0.1, 0.3):
        assert (p_values <= u).mean() <= u


def test_conformal_threshold_ranks() -> None:
    assert conformal_threshold(range(1, 20)) == 19  # the 19th of 19: 1 in 20 is larger
    assert conformal_threshold(range(1, 19)) == math.inf
    assert conformal_threshold(range(1, 100), 0.1) == 90
