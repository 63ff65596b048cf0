"""Statistics for few seeds. Every interval is a 95 % bootstrap interval.

Each stratum (a method, or a method on one task) is resampled on its own, so a draw always has as
many seeds of each as there are. With few seeds the plain percentile interval is too narrow;
:func:`tail` widens it as Student's t would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[[Sequence[Floats]], Floats]
"""From one (draws, seeds) array per stratum to one number per draw."""

DRAWS = 2000
LEVEL = 0.95
_LOWEST = -1e9  # stands for minus infinity where a variance is taken


class Estimate(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    """Minus infinity if nothing bounds it from below."""
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


def bootstrap(statistic: Statistic, strata: Sequence[Floats], seed: int = 0) -> Interval:
    """``statistic`` of the data, with its stratified percentile bootstrap interval.

    The interval is NaN where a stratum has one value only: one seed says nothing about the spread.
    """
    generator = np.random.default_rng(seed)
    data = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    value = float(statistic([x[None] for x in data])[0])
    sizes = np.array([len(x) for x in data])
    if sizes.min() < 2:
        return Interval(value, np.nan, np.nan)
    draws = [x[generator.integers(len(x), size=(DRAWS, len(x)))] for x in data]
    kept = [np.broadcast_to(x, drawn.shape) for x, drawn in zip(data, draws, strict=True)]
    alone = [statistic([*kept[:i], draws[i], *kept[i + 1 :]]) for i in range(len(data))]
    share = tail(sizes, np.array([np.var(np.maximum(x, _LOWEST)) for x in alone]))
    resampled = statistic(draws)
    low, high = np.quantile(
        resampled,
        (share, 1.0 - share),
        # Between minus infinity and a number there is nothing to interpolate.
        method="linear" if np.isfinite(resampled).all() else "nearest",
    )
    return Interval(value, float(low), float(high))


def tail(sizes: NDArray[np.int64], variances: Floats) -> float:
    """Share of the draws to cut off at each end (Hesterberg's expanded percentile interval).

    The usual 2.5 %, made smaller for small strata: Phi(-sqrt(c) t_f). c makes up for resampled
    values varying only (n - 1) / n as much as they should; f are Welch's degrees of freedom, from
    ``variances``, what each stratum alone contributes to the statistic's variance: if nearly all
    comes from one stratum, the seeds of the others are no help.
    """
    if not variances.any():
        return 0.5 - LEVEL / 2.0
    corrected = variances * sizes / (sizes - 1)
    freedom = corrected.sum() ** 2 / (corrected**2 / (sizes - 1)).sum()
    widening = corrected.sum() / variances.sum()
    quantile = stats.t.ppf(0.5 + LEVEL / 2.0, freedom)
    return float(stats.norm.cdf(-np.sqrt(widening) * quantile))


def mean_interval(values: Floats) -> Interval:
    """The mean over seeds."""
    return bootstrap(lambda strata: strata[0].mean(axis=-1), [values])


def iqm_interval(strata: Sequence[Floats]) -> Interval:
    """The interquartile mean over all runs of all strata together."""
    return bootstrap(
        lambda drawn: stats.trim_mean(np.concatenate(drawn, axis=-1), 0.25, axis=-1), strata
    )


def improvement_probability(ours: Sequence[Floats], theirs: Sequence[Floats]) -> Interval:
    """P(a run of ours is lower than one of theirs), ties half, averaged over tasks.

    ``ours`` and ``theirs`` hold one array of seeds per task, in the same order.
    """
    tasks = len(ours)

    def probability(drawn: Sequence[Floats]) -> Floats:
        per_task = [
            (np.sign(drawn[tasks + i][:, None, :] - drawn[i][:, :, None]) / 2.0 + 0.5).mean((1, 2))
            for i in range(tasks)
        ]
        return np.asarray(np.mean(per_task, axis=0))

    return bootstrap(probability, [*ours, *theirs])


def reduction(ours: Floats, theirs: Floats) -> Interval:
    """1 - mean(ours) / mean(theirs): negative if ours has more.

    Where theirs is 0 it is minus infinity, or 0 if ours is 0 too: nothing was there to save.
    """

    def saved(drawn: Sequence[Floats]) -> Floats:
        mine, other = (x.mean(axis=-1) for x in drawn)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(mine == other, 0.0, 1.0 - mine / other)

    return bootstrap(saved, [ours, theirs])


_PERMUTATIONS = stats.PermutationMethod(n_resamples=20_000, rng=0)


def rank_test(ours: Floats, theirs: Floats) -> float:
    """Two-sided p of the Mann-Whitney test; NaN with one run on a side.

    Exact, also with ties, if there are at most 20,000 ways to divide the runs.
    """
    if min(len(ours), len(theirs)) < 2:
        return np.nan
    return float(stats.mannwhitneyu(ours, theirs, method=_PERMUTATIONS).pvalue)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Mean of ours - theirs over common seeds; seeds, not single runs, are resampled."""
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
