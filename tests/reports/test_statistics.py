"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from advice.reports.statistics import (
    bootstrap,
    improvement_probability,
    iqm_interval,
    mean_and_error,
    mean_interval,
    moving_average,
    paired_difference,
    rank_test,
    reduction,
    run_lengths,
    tail,
)


def test_standard_error_by_hand() -> None:
    # 2, 4, 9: mean 5, variance (9 + 1 + 16) / 2 = 13, error sqrt(13 / 3)
    mean, error = mean_and_error(np.array([[2.0], [4.0], [9.0]]))
    assert mean[0] == 5
    assert error[0] == pytest.approx(np.sqrt(13 / 3))
    assert np.isnan(mean_and_error(np.array([3.0]))[1])  # one seed has no spread


def interquartile_mean(*values: float) -> float:
    return iqm_interval([np.array(values)]).value


def test_interquartile_mean_by_hand() -> None:
    # Of eight, two are cut at each end: (3 + 4 + 5 + 6) / 4.
    assert interquartile_mean(100.0, 1, 2, 3, 4, 5, 6, -50) == 3.5
    # Of five, one at each end: (2 + 3 + 10) / 3; of three, none.
    assert interquartile_mean(99.0, 1, 2, 3, 10) == 5
    assert interquartile_mean(1.0, 2, 6) == 3
    # All runs of all strata together, not a mean of means.
    assert iqm_interval([np.array([0.0, 1.0]), np.array([2.0, 9.0])]).value == 1.5


def test_improvement_probability_by_hand() -> None:
    # Pairs (1,2) (1,3) (1,1) (4,2) (4,3) (4,1): 2 wins, 1 tie, 3 losses.
    ours, theirs = np.array([1.0, 4.0]), np.array([2.0, 3.0, 1.0])
    assert improvement_probability([ours], [theirs]).value == pytest.approx(2.5 / 6)
    # The second task is won for certain: the mean of 2.5 / 6 and 1.
    both = improvement_probability([ours, np.zeros(2)], [theirs, np.ones(2)])
    assert both.value == pytest.approx((2.5 / 6 + 1) / 2)
    assert improvement_probability([theirs], [theirs]).value == 0.5


def test_reduction_and_pairs_by_hand() -> None:
    assert reduction(np.array([10.0, 20.0]), np.array([50.0, 70.0])).value == 0.75
    paired = paired_difference({0: 5, 1: 7, 4: 100}, {1: 10, 0: 6, 9: 0})
    assert paired is not None
    assert paired == (-2, -3, -1)  # (5 - 6) and (7 - 10)
    assert paired_difference({0: 1}, {1: 1}) is None


def test_draws_in_which_the_other_has_none_count() -> None:
    # 8 of 27 draws of the other are all 0: one violation of ours is then infinitely more.
    saved = reduction(np.ones(3), np.array([0.0, 0.0, 6.0]))
    assert (saved.value, saved.low) == (0.5, -np.inf)
    assert 0.5 < saved.high < 1
    # If ours has none either, nothing is saved.
    assert reduction(np.zeros(3), np.array([0.0, 0.0, 6.0])) == (1, 0, 1)


def test_bootstrap_of_two_values_is_the_binomial() -> None:
    # Means of two draws from {0, 1}: 0, 1/2, 1 with chances 1/4, 1/2, 1/4: the tails are the ends.
    interval = mean_interval(np.array([0.0, 1.0]))
    assert interval == (0.5, 0.0, 1.0)
    assert mean_interval(np.full(4, 7.0)) == (7, 7, 7)


def test_strata_are_resampled_apart() -> None:
    # However runs are drawn within each stratum, the mean of the strata's means stays the same.
    strata = [np.full(3, 1.0), np.full(5, 11.0)]
    interval = bootstrap(lambda drawn: (drawn[0].mean(-1) + drawn[1].mean(-1)) / 2, strata)
    assert interval == (6, 6, 6)


def test_the_tails_by_hand() -> None:
    def of(sizes: list[int], variances: list[float]) -> float:
        return tail(np.array(sizes), np.array(variances))

    # Five seeds: f = 4, t = 2.776, so Phi(-sqrt(5/4) 2.776) = Phi(-3.104) = 0.00095.
    assert of([5], [7.0]) == pytest.approx(0.00095, abs=5e-6)
    # Two strata of five that vary alike: f = 8, t = 2.306, Phi(-sqrt(5/4) 2.306) = 0.00497.
    assert of([5, 5], [3.0, 3.0]) == pytest.approx(0.00497, abs=5e-6)
    # All variance in one of them: the other's seeds do not count.
    assert of([5, 5], [3.0, 0.0]) == of([5], [7.0])
    # Welch: 3:1 gives f = 16 / (9 / 4 + 1 / 4) = 6.4, t = 2.410, Phi(-sqrt(5/4) 2.410) = 0.00353.
    assert of([5, 5], [3.0, 1.0]) == pytest.approx(0.00353, abs=2e-5)
    assert of([100_000], [1.0]) == pytest.approx(0.025, abs=1e-5)
    assert of([5], [0.0]) == pytest.approx(0.025)


def test_one_seed_has_no_interval() -> None:
    saved = reduction(np.array([10.0, 20.0]), np.array([60.0]))
    assert saved.value == 0.75
    assert np.isnan([saved.low, saved.high]).all()
    assert np.isnan(rank_test(np.array([1.0, 2.0]), np.array([3.0])))


def test_rank_test_by_hand() -> None:
    # Five all below five: 2 of the 10! / (5! 5!) = 252 orders are as extreme.
    assert rank_test(np.arange(5.0), 10 + np.arange(5.0)) == pytest.approx(2 / 252)
    # 1, 1 below 1, 3: ranks 2, 2, 2, 4; of the 6 pairs of ranks 3 have the sum 4, 3 the sum 6.
    assert rank_test(np.array([1.0, 1.0]), np.array([1.0, 3.0])) == 1.0
    # Many runs: random permutations, here of two similar samples.
    assert rank_test(np.arange(0.0, 40, 2), np.arange(1.0, 41, 2)) > 0.5


@pytest.mark.parametrize(("seeds", "spread"), [(5, 10.0), (5, 25.0), (30, 10.0)])
def test_intervals_cover_as_promised(seeds: int, spread: float) -> None:
    """The 95 % interval of a saving holds the truth about 95 times in 100, with few seeds too."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        ours, theirs = generator.normal(80, spread, seeds), generator.normal(160, 20, seeds)
        low, high = reduction(ours, theirs)[1:]
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 300 <= 0.99


def test_moving_average_and_stretches_by_hand() -> None:
    assert moving_average(np.array([2.0, 4, 6, 8]), 2).tolist() == [2, 3, 5, 7]
    assert moving_average(np.array([2.0, 4]), 9).tolist() == [2, 3]
    # 4 4 5 4 5 5 5: stretches of 4 are 2 and 1 long, of 5 they are 1 and 3 long.
    assert run_lengths(np.array([4, 4, 5, 4, 5, 5, 5])) == {4: 1.5, 5: 2.0}
