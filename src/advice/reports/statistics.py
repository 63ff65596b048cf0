"""Statistics for few seeds. Every interval is a 95 % interval.

Means and paired differences by Student's t, shares likewise but no narrower than Clopper-Pearson,
ratios of means by Welch's t on logarithms, the probability of improvement by Newcombe's score
interval. ``benchmarks/interval_coverage.py`` simulates how often each contains the true value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

NONE_YET = 3.69
"""Nothing happened so far: with 97.5 % certainty at most this was to be expected (Poisson)."""
Floats: TypeAlias = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean over ``seeds`` runs and its standard error."""

    value: float
    error: float
    seeds: int


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval, NaN if there is none."""

    value: float
    low: float = np.nan
    high: float = np.nan


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error s / sqrt(n) over the first axis, (n, ...) -> (...); NaN if n = 1."""
    mean = np.mean(values, axis=0)
    error = stats.sem(values, axis=0) if len(values) > 1 else np.full(np.shape(mean), np.nan)
    return mean, np.asarray(error)


def estimate(values: Sequence[float] | Floats) -> Estimate:
    """Mean and standard error of a few numbers; NaN if there are none."""
    if not len(values):
        return Estimate(np.nan, np.nan, 0)
    mean, error = mean_and_error(np.asarray(values, dtype=np.float64))
    return Estimate(float(mean), float(error), len(values))


def mean_interval(values: Sequence[float] | Floats) -> Interval:
    """The mean over seeds, by Student's t; one seed has no interval."""
    mean, error, seeds = estimate(values)
    half = error * _quantile(seeds - 1)
    return Interval(mean, mean - half, mean + half)


def share_interval(runs: Sequence[Floats]) -> Interval:
    """How often something happens in an episode, from (episodes,) zeros and ones of each seed.

    By Student's t over the seeds' shares, within 0 and 1, and no narrower than the exact interval
    of all episodes together (Clopper-Pearson): of a few rare ones seeds may show the same by
    chance. One seed has no interval.
    """
    value, low, high = mean_interval([float(run.mean()) for run in runs])
    if np.isnan(low):
        return Interval(value)
    count, episodes = float(sum(run.sum() for run in runs)), sum(map(len, runs))
    exact_low, exact_high = stats.beta.ppf(
        (0.025, 0.975), (count, count + 1), (episodes - count + 1, episodes - count)
    )
    low, high = np.fmin(low, exact_low), np.fmax(high, exact_high)  # NaN at the very ends
    return Interval(value, *np.clip((low, high), 0.0, 1.0).tolist())


def _quantile(freedom: float) -> float:
    return float(stats.t.ppf(0.975, freedom))


def ratio(ours: Sequence[Estimate], theirs: Sequence[Estimate]) -> Interval:
    """ours / theirs, its geometric mean over tasks, by Welch's t on logarithms.

    ``ours`` and ``theirs`` hold one estimate per task, in the same order. A logarithm varies by the
    estimate's error over the estimate (delta method). Where an estimate is 0 there is no logarithm,
    and where nothing varies no error: then there is no interval.
    """
    values, errors, seeds = np.array([*ours, *theirs]).T
    mine, other = np.split(values, 2)
    if not np.isfinite(values).all():  # violations per goal, without a goal
        return Interval(np.nan)
    if not (values > 0).all():
        return Interval(0.0 if (other > 0).all() else np.nan)
    value = float(np.exp(np.log(mine / other).mean()))
    variances = (errors / values) ** 2
    total = variances.sum()
    if not total > 0:  # or NaN: one seed
        return Interval(value)
    freedom = total**2 / (variances**2 / (seeds - 1)).sum()
    factor = float(np.exp(_quantile(freedom) * np.sqrt(total) / len(mine)))
    return Interval(value, value / factor, value * factor)


def saving(ours: Sequence[Estimate], theirs: Sequence[Estimate]) -> Interval:
    """100 (1 - ratio), in percent: negative if ours is more."""
    value, low, high = ratio(ours, theirs)
    return Interval(100 * (1 - value), 100 * (1 - high), 100 * (1 - low))


def improvement_probability(ours: Sequence[Floats], theirs: Sequence[Floats]) -> Interval:
    """P(a run of ours is lower than one of theirs), ties half, averaged over tasks.

    ``ours`` and ``theirs`` hold one array of seeds per task, in the same order. Per task Newcombe's
    score interval (2006, method 5) with Student's quantile for few seeds; the tasks' intervals are
    combined by their squared distances from the estimates (MOVER), then with the quantile of the
    fewer seeds alone, without which ten seeds on four tasks cover 0.92.
    """
    several = len(ours) > 1
    found = np.array([_one_task(*pair, several) for pair in zip(ours, theirs, strict=True)])
    value = found[:, 0].mean()
    below, above = (np.linalg.norm(found[:, i] - found[:, 0]) / len(found) for i in (1, 2))
    return Interval(float(value), float(value - below), float(value + above))


def _one_task(ours: Floats, theirs: Floats, several: bool) -> Interval:
    value = float((np.sign(theirs[None, :] - ours[:, None]) / 2.0 + 0.5).mean())
    n, m = len(ours), len(theirs)
    if min(n, m) < 2:
        return Interval(value)
    p = np.linspace(0.0, 1.0, 2001)
    pairs = 1 + ((n + m) / 2 - 1) * ((1 - p) / (2 - p) + p / (1 + p))
    error = np.sqrt(p * (1 - p) * pairs / (n * m))
    width = _quantile(min(n, m) - 1 if several else n + m - 2) * error
    inside = p[np.abs(value - p) <= width + 1e-12]
    return Interval(value, min(float(inside[0]), value), max(float(inside[-1]), value))


def quotient(above: Sequence[float] | Floats, below: Sequence[float] | Floats) -> Estimate:
    """sum(above) / sum(below) of the same runs with its standard error (the ratio estimator)."""
    top, bottom = np.array(above, dtype=np.float64), np.array(below, dtype=np.float64)
    if not bottom.sum() > 0:
        return Estimate(np.inf if top.sum() > 0 else np.nan, np.nan, len(top))
    value = top.sum() / bottom.sum()
    error = estimate(top - value * bottom).error / bottom.mean()
    return Estimate(float(value), float(error), len(top))


def rank_test(ours: Floats, theirs: Floats) -> float:
    """Two-sided p of the Mann-Whitney test; NaN with one run on a side.

    Exact, also with ties, if there are at most 20,000 ways to divide the runs.
    """
    if min(len(ours), len(theirs)) < 2:
        return np.nan
    permutations = stats.PermutationMethod(n_resamples=20_000, rng=0)
    return float(stats.mannwhitneyu(ours, theirs, method=permutations).pvalue)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval:
    """Mean of ours - theirs over common seeds, by Student's t; NaN if there are none."""
    return mean_interval([ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))])


def moving_average(values: Floats, window: int) -> Floats:
    """Mean of the last ``window`` values (of all so far at the beginning), along the last axis."""
    total = np.cumsum(values, axis=-1, dtype=np.float64)
    total[..., window:] -= total[..., :-window].copy()
    return np.asarray(total / np.minimum(np.arange(1, values.shape[-1] + 1), window))
