"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advice.reports.statistics import (
    Estimate,
    estimate,
    improvement_probability,
    mean_and_error,
    mean_interval,
    moving_average,
    paired_difference,
    quotient,
    rank_test,
    ratio,
    saving,
    share_interval,
)

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_standard_error_by_hand() -> None:
    # 2, 4, 9: mean 5, variance (9 + 1 + 16) / 2 = 13, error sqrt(13 / 3)
    mean, error = mean_and_error(np.array([[2.0], [4.0], [9.0]]))
    assert mean[0] == 5
    assert error[0] == pytest.approx(np.sqrt(13 / 3))
    assert np.isnan(mean_and_error(np.array([3.0]))[1])  # one seed has no spread


def test_improvement_probability_by_hand() -> None:
    # Pairs (1,2) (1,3) (1,1) (4,2) (4,3) (4,1): 2 wins, 1 tie, 3 losses.
    ours, theirs = np.array([1.0, 4.0]), np.array([2.0, 3.0, 1.0])
    assert improvement_probability([ours], [theirs]).value == pytest.approx(2.5 / 6)
    # The second task is won for certain: the mean of 2.5 / 6 and 1.
    both = improvement_probability([ours, np.zeros(2)], [theirs, np.ones(2)])
    assert both.value == pytest.approx((2.5 / 6 + 1) / 2)
    assert improvement_probability([theirs], [theirs]).value == 0.5


def test_a_certain_win_of_few_seeds_is_not_certain() -> None:
    three = improvement_probability([np.zeros(3)], [np.ones(3)])
    five = improvement_probability([np.arange(5.0)], [10 + np.arange(5.0)])
    assert three.value == five.value == three.high == five.high == 1
    assert three.low < 0.5 < five.low < 0.9  # as the rank test: 2 of 20 orders, 2 of 252


def test_student_by_hand() -> None:
    # 2, 4, 9: mean 5, error sqrt(13 / 3), t of 2 degrees of freedom 4.303.
    value, low, high = mean_interval(np.array([2.0, 4.0, 9.0]))
    half = 4.302653 * np.sqrt(13 / 3)
    assert (value, low, high) == pytest.approx((5, 5 - half, 5 + half))
    # Differences -1 and -3: mean -2, error 1, t of 1 degree of freedom 12.706.
    paired = paired_difference({0: 5, 1: 7, 4: 100}, {1: 10, 0: 6, 9: 0})
    assert paired == pytest.approx((-2, -2 - 12.7062, -2 + 12.7062), abs=1e-4)
    assert np.isnan(paired_difference({0: 1}, {1: 1}).value)


def test_shares_stay_between_0_and_1() -> None:
    runs = [np.repeat([1.0, 0.0], (n, 1000 - n)) for n in (100, 500)]
    assert share_interval(runs) == pytest.approx((0.3, 0, 1))
    runs = [np.repeat([1.0, 0.0], (n, 1000 - n)) for n in (400, 500, 600)]
    half = 4.302653 * 0.1 / np.sqrt(3)
    assert share_interval(runs) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    # equal shares do not vary, but two in 1,000 say little: exact, 6 of 3,000
    runs = [np.repeat([1.0, 0.0], (2, 998))] * 3
    assert share_interval(runs) == pytest.approx((0.002, 0.000734, 0.004348), abs=2e-6)
    # none in 3,000: the upper end p has (1 - p)^3000 = 0.025
    none = share_interval([np.zeros(1000)] * 3)
    assert none == pytest.approx((0, 0, 1 - 0.025 ** (1 / 3000)))
    assert np.isnan(share_interval([np.zeros(1000)]).low)


def test_ratios_by_hand() -> None:
    # 10 / 40. Relative errors 0.1 and 0.05 (of three seeds each): variance 0.0125 on the log,
    # f = 0.0125^2 / (0.01^2 / 2 + 0.0025^2 / 2) = 2.941, t = 3.218: a factor exp(3.218 * 0.1118).
    ours = 10 + np.array([-1.0, 0, 1]) * np.sqrt(3)  # error 1
    theirs = 40 + np.array([-2.0, 0, 2]) * np.sqrt(3)  # error 2
    mine, other = estimate(ours), estimate(theirs)
    value, low, high = ratio([mine], [other])
    factor = np.exp(3.2185 * np.sqrt(0.0125))
    assert (value, low, high) == pytest.approx((0.25, 0.25 / factor, 0.25 * factor), rel=1e-3)
    assert saving([mine], [other]) == pytest.approx(
        (100 - 100 * value, 100 - 100 * high, 100 - 100 * low)
    )
    # Over two tasks the geometric mean: ratios 1/4 and 1.
    assert ratio([mine, other], [other, other]).value == pytest.approx(0.5)


def test_a_ratio_without_an_interval() -> None:
    some = np.array([4.0, 5.0, 6.0])
    for ours, theirs, value in ((np.zeros(3), some, 0.0), (some, np.zeros(3), np.nan)):
        found = ratio([estimate(ours)], [estimate(theirs)])
        assert found.value == pytest.approx(value, nan_ok=True)
        assert np.isnan([found.low, found.high]).all()
    assert np.isnan(
        ratio([estimate(np.ones(3))], [estimate(np.full(3, 4.0))]).low
    )  # nothing varies


def test_violations_per_goal_by_hand() -> None:
    # 6 / 12 in all; residuals 1 - 1, 5 - 3, 0 - 2: error sqrt(4 / 3) over the mean of 4 goals.
    assert quotient([1, 5, 0], [2, 6, 4]) == pytest.approx((0.5, np.sqrt(4 / 3) / 4, 3))
    assert quotient([3, 1], [0, 0]) == pytest.approx((np.inf, np.nan, 2), nan_ok=True)
    assert quotient([2, 2], [4, 4]) == Estimate(0.5, 0.0, 2)


def test_one_seed_has_no_interval() -> None:
    saved = saving([estimate([10.0, 20.0])], [estimate([60.0])])
    assert saved.value == 75
    assert np.isnan([saved.low, saved.high]).all()
    assert np.isnan(rank_test(np.array([1.0, 2.0]), np.array([3.0])))


def test_rank_test_by_hand() -> None:
    # Five all below five: 2 of the 10! / (5! 5!) = 252 orders are as extreme.
    assert rank_test(np.arange(5.0), 10 + np.arange(5.0)) == pytest.approx(2 / 252)
    # 1, 1 below 1, 3: ranks 2, 2, 2, 4; of the 6 pairs of ranks 3 have the sum 4, 3 the sum 6.
    assert rank_test(np.array([1.0, 1.0]), np.array([1.0, 3.0])) == 1.0
    # Many runs: random permutations, here of two similar samples.
    assert rank_test(np.arange(0.0, 40, 2), np.arange(1.0, 41, 2)) > 0.5


def coverage_benchmark() -> Any:
    path = BENCHMARKS / "interval_coverage.py"
    spec = importlib.util.spec_from_file_location("interval_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_cover_as_promised(seeds: int) -> None:
    """A small version of the benchmark: 95 % intervals hold the truth, with three seeds too."""
    benchmark = coverage_benchmark()
    assert len(benchmark.INTERVALS) == 9
    for name, check in benchmark.INTERVALS.items():
        found = benchmark.coverage(check, benchmark.WORLDS[3], seeds, repeats=200)
        assert found >= benchmark.GOAL - 0.05, name  # 200 repeats vary by 0.018


def test_the_invented_runs_are_those_of_their_world(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark, drawn = coverage_benchmark(), []
    normal, *_, counts = benchmark.WORLDS
    # the other 12 more, with standard deviations of 6 and 7.2
    assert benchmark._fewer(normal, 72.0) == pytest.approx(0.8998, abs=0.005)
    assert benchmark._fewer(counts, 60.0) > 0.52  # the more skewed one is mostly lower
    monkeypatch.setattr(benchmark, "improvement_probability", lambda *pairs: drawn.extend(pairs))
    benchmark._improvement(counts, np.random.default_rng(0), 5, tasks=2)
    assert all(x == round(x) for side in drawn for runs in side for x in runs)


def test_moving_average_by_hand() -> None:
    assert moving_average(np.array([2.0, 4, 6, 8]), 2).tolist() == [2, 3, 5, 7]
    assert moving_average(np.array([2.0, 4]), 9).tolist() == [2, 3]
