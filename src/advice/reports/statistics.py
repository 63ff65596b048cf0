"""Statistics for few seeds. Every interval is a 95 % interval.

Means and paired differences by Student's t, ratios of means by Welch's t on logarithms, the
probability of improvement by Newcombe's score interval. Only the interquartile mean is
bootstrapped, from eight seeds on. ``benchmarks/interval_coverage.py`` simulates how often each
interval contains the true value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats: TypeAlias = NDArray[np.float64]

DRAWS = 20_000
BOOTSTRAP_SEEDS = 8
"""With fewer seeds nothing is bootstrapped: a resampled mean cannot leave the range of the few."""
TAIL = 0.975


class Estimate(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    """NaN, as ``high``, if there is no interval."""
    high: float


UNKNOWN = Interval(np.nan, np.nan, np.nan)


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error s / sqrt(n) over the first axis, (n, ...) -> (...); NaN if n = 1."""
    mean = np.mean(values, axis=0)
    if len(values) < 2:
        return mean, np.full(np.shape(mean), np.nan)
    return mean, np.asarray(stats.sem(values, axis=0))


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of a few numbers; NaN if there are none."""
    if not len(values):
        return Estimate(np.nan, np.nan)
    mean, error = mean_and_error(np.asarray(values, dtype=np.float64))
    return Estimate(float(mean), float(error))


def mean_interval(values: Floats) -> Interval:
    """The mean over seeds, by Student's t; one seed has no interval."""
    mean, error = estimate(values.tolist())
    half = error * _quantile(len(values) - 1) if len(values) > 1 else np.nan
    return Interval(mean, mean - half, mean + half)


def _quantile(freedom: float) -> float:
    return float(stats.t.ppf(TAIL, freedom))


def ratio(ours: Sequence[Floats], theirs: Sequence[Floats]) -> Interval:
    """mean(ours) / mean(theirs), its geometric mean over tasks.

    ``ours`` and ``theirs`` hold one array of seeds per task, in the same order.
    """
    pairs = (([(estimate(x.tolist()), len(x)) for x in found]) for found in (ours, theirs))
    return ratio_of_estimates(*pairs)


def ratio_of_estimates(
    ours: Sequence[tuple[Estimate, int]], theirs: Sequence[tuple[Estimate, int]]
) -> Interval:
    """The same for positive estimates, each with its number of seeds: Welch's t on logarithms.

    A logarithm varies by the estimate's error over the estimate (delta method). Where an estimate
    is 0 there is no logarithm, and where nothing varies no error: then the interval is NaN.
    """
    mine, other = (np.array([x.value for x, _ in found]) for found in (ours, theirs))
    if not np.isfinite(np.append(mine, other)).all():  # violations per goal, without a goal
        return Interval(np.nan, np.nan, np.nan)
    if not (np.append(mine, other) > 0).all():
        value = 0.0 if (other > 0).all() else np.nan
        return Interval(value, np.nan, np.nan)
    value = float(np.exp(np.log(mine / other).mean()))
    variances = np.array([(x.error / x.value) ** 2 for x, _ in (*ours, *theirs)])
    seeds = np.array([n for _, n in (*ours, *theirs)])
    total = variances.sum()
    if not total > 0:  # or NaN: one seed
        return Interval(value, np.nan, np.nan)
    freedom = total**2 / (variances**2 / (seeds - 1)).sum()
    factor = float(np.exp(_quantile(freedom) * np.sqrt(total) / len(mine)))
    return Interval(value, value / factor, value * factor)


def reduction(ours: Floats, theirs: Floats) -> Interval:
    """1 - mean(ours) / mean(theirs): negative if ours has more."""
    return saving(ratio([ours], [theirs]))


def saving(found: Interval) -> Interval:
    """1 - ratio."""
    return Interval(1 - found.value, 1 - found.high, 1 - found.low)


def improvement_probability(ours: Sequence[Floats], theirs: Sequence[Floats]) -> Interval:
    """P(a run of ours is lower than one of theirs), ties half, averaged over tasks.

    ``ours`` and ``theirs`` hold one array of seeds per task, in the same order. Per task Newcombe's
    score interval (2006, method 5) with Student's quantile for few seeds; the tasks' intervals are
    combined by their squared distances from the estimates (MOVER).
    """
    found = np.array([_one_task(*pair) for pair in zip(ours, theirs, strict=True)])
    value = found[:, 0].mean()
    below, above = (np.linalg.norm(found[:, i] - found[:, 0]) / len(found) for i in (1, 2))
    return Interval(float(value), float(value - below), float(value + above))


def _one_task(ours: Floats, theirs: Floats) -> Interval:
    value = float((np.sign(theirs[None, :] - ours[:, None]) / 2.0 + 0.5).mean())
    n, m = len(ours), len(theirs)
    if min(n, m) < 2:
        return Interval(value, np.nan, np.nan)
    p = np.linspace(0.0, 1.0, 2001)
    pairs = 1 + ((n + m) / 2 - 1) * ((1 - p) / (2 - p) + p / (1 + p))
    error = np.sqrt(p * (1 - p) * pairs / (n * m))
    inside = p[np.abs(value - p) <= _quantile(n + m - 2) * error + 1e-12]
    return Interval(value, min(float(inside[0]), value), max(float(inside[-1]), value))


def quotient(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """sum(above) / sum(below) of the same runs with its standard error (the ratio estimator)."""
    top, bottom = np.array(above, dtype=np.float64), np.array(below, dtype=np.float64)
    if not bottom.sum() > 0:
        return Estimate(np.inf if top.sum() > 0 else np.nan, np.nan)
    value = top.sum() / bottom.sum()
    _, error = estimate((top - value * bottom).tolist())
    return Estimate(float(value), float(error / bottom.mean()))


def interquartile_mean(strata: Sequence[Floats], seed: int = 0) -> Interval:
    """The interquartile mean over all runs of all strata together.

    From eight seeds per stratum on with its bootstrap interval, resampled within each stratum.
    """
    data = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    value = float(stats.trim_mean(np.concatenate(data), 0.25))
    least = min(map(len, data))
    if least < BOOTSTRAP_SEEDS:
        return Interval(value, np.nan, np.nan)
    generator = np.random.default_rng(seed)
    draws = [x[generator.integers(len(x), size=(DRAWS, len(x)))] for x in data]
    # Hesterberg's expanded percentiles: as wide as Student's t for the smallest stratum
    share = stats.norm.cdf(-np.sqrt(least / (least - 1)) * _quantile(least - 1))
    resampled = stats.trim_mean(np.concatenate(draws, axis=1), 0.25, axis=1)
    low, high = np.quantile(resampled, (share, 1.0 - share))
    return Interval(value, float(low), float(high))


_PERMUTATIONS = stats.PermutationMethod(n_resamples=20_000, rng=0)


def rank_test(ours: Floats, theirs: Floats) -> float:
    """Two-sided p of the Mann-Whitney test; NaN with one run on a side.

    Exact, also with ties, if there are at most 20,000 ways to divide the runs.
    """
    if min(len(ours), len(theirs)) < 2:
        return np.nan
    return float(stats.mannwhitneyu(ours, theirs, method=_PERMUTATIONS).pvalue)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Mean of ours - theirs over common seeds, by Student's t."""
    common = sorted(set(ours) & set(theirs))
    differences = np.array([ours[seed] - theirs[seed] for seed in common])
    return mean_interval(differences) if common else None


def moving_average(values: Floats, window: int) -> Floats:
    """Mean of the last ``window`` values (of all so far at the beginning), along the last axis."""
    total = np.cumsum(values, axis=-1, dtype=np.float64)
    lagged = np.zeros_like(total)
    lagged[..., window:] = total[..., :-window]
    counts = np.minimum(np.arange(1, values.shape[-1] + 1), window)
    return np.asarray((total - lagged) / counts)


def run_lengths(values: NDArray[np.int64]) -> dict[int, float]:
    """Mean number of times that each value occurs in a row."""
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    lengths = np.diff(starts, append=len(values))
    return {
        int(value): float(lengths[values[starts] == value].mean())
        for value in np.unique(values[starts])
    }
