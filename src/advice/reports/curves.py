"""Series over episodes: a metric's mean and standard error over seeds, and K of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from advice.reports.load import Run, usable
from advice.reports.statistics import Floats, mean_and_error, moving_average
from advice.shields.cautiousness import thresholds

POINTS = 200
"""A curve is thinned to about this many points, in the figure and in its CSV alike."""
WINDOW = 100
"""Averages are over this many episodes, or a tenth of a shorter training."""


Skip: TypeAlias = int | Callable[[Run], int]
"""Episodes of a run that do not count: the same number for all runs, or a function of the run."""


class Metric(NamedTuple):
    """One thing to plot over episodes."""

    name: str
    title: str
    column: str
    cumulative: bool = False
    limits: tuple[float, float] = (0.0, np.inf)
    """Between these its band is drawn."""


_METRICS = (
    Metric("return", "Average episodic return", "return", limits=(-np.inf, np.inf)),
    Metric("violations", "Cumulative violations", "violation", cumulative=True),
    Metric("successes", "Cumulative successes", "success", cumulative=True),
    Metric("violation-rate", "Violation rate", "violation", limits=(0.0, 1.0)),
    Metric("success-rate", "Success rate", "success", limits=(0.0, 1.0)),
    Metric("cost", "Average cost", "cost"),
    Metric("interventions", "Interventions per episode", "interventions"),
)
METRICS = {metric.name: metric for metric in _METRICS}


class Curve(NamedTuple):
    """Mean and standard error over seeds, as drawn and as written."""

    name: str
    label: str
    episodes: Floats
    mean: Floats
    error: Floats
    seeds: int


def curve(
    name: str, label: str, runs: Sequence[Run], metric: Metric, skip: Skip = 0
) -> Curve | None:
    """The metric over the runs' common length after ``skip``; None if no episode is left."""
    runs = usable(runs)
    skips = [skip if isinstance(skip, int) else skip(run) for run in runs]
    columns = [run.column(metric.column)[s:] for run, s in zip(runs, skips, strict=True)]
    length = min((len(column) for column in columns), default=0)
    if length == 0:
        return None
    values = np.array([column[:length] for column in columns])
    at = thinned(length)
    if metric.cumulative:
        series = np.cumsum(values, axis=1)
    else:
        window = smoothing(length)
        series = moving_average(values, window)
        at = at[at >= window // 4]  # an average of the first few episodes is noise
    mean, error = mean_and_error(series[:, at])
    return Curve(name, label, at + 1.0, mean, error, len(runs))


def of_groups(
    groups: Iterable[tuple[str, str, Sequence[Run]]], metric: Metric, skip: Skip
) -> list[Curve]:
    """The curves of (name, label, runs), without those that are None."""
    found = (curve(name, label, runs, metric, skip) for name, label, runs in groups)
    return [item for item in found if item]


def smoothing(length: int) -> int:
    """Episodes per average in a training of this length."""
    return max(1, min(WINDOW, length // 10))


def thinned(length: int) -> np.ndarray:
    """About POINTS indices below ``length``: evenly spaced, the last one always among them."""
    step = max(1, length // POINTS)
    return np.unique(np.append(np.arange(step - 1, length, step), length - 1))


def total(run: Run, column: str, skip: int = 0) -> float:
    """Sum of one column after the first ``skip`` episodes."""
    return float(run.column(column)[skip:].sum())


def has_graded_cost(runs: Sequence[Run]) -> bool:
    """True for constrained tasks: an episode's cost says more than whether it was violated."""
    return any(
        len(np.unique(run.column("cost")[run.column("cost") > 0].round(6))) > 1 for run in runs
    )


class KHistory(NamedTuple):
    """K of one run and what moves it, from the episode in which the shield was armed."""

    episodes: Floats
    violations: Floats
    recent: Floats
    """mu_r"""
    lower: Floats
    """mu_d - sigma_d"""
    upper: Floats
    """mu_d + sigma_d"""
    k: Floats
    """K after the episode."""


def k_history(run: Run) -> KHistory | None:
    """mu_r and the thresholds, from the violations and the run's windows; None if never armed."""
    k, violations, shield = run.column("k"), run.column("violation"), run.config.shield
    if not k.any():
        return None
    part = slice(int(np.argmax(k > 0)), None)
    windows, past = (shield.recent_window, shield.distant_window), violations.tolist()
    rows = [
        thresholds(past[max(0, i - max(windows)) : i], *windows)
        for i in range(part.start + 1, len(past) + 1)
    ]
    recent, lower, upper = np.array(rows).T
    k_after = np.append(k[1:], k[-1])
    return KHistory(
        run.column("episode")[part], violations[part], recent, lower, upper, k_after[part]
    )


def busiest(history: KHistory, length: int = 80) -> slice:
    """The ``length`` episodes in which K changes most often."""
    changes = np.abs(np.diff(history.k, prepend=history.k[:1])) > 0
    if len(changes) <= length:
        return slice(0, len(changes))
    start = int(np.argmax(np.convolve(changes, np.ones(length), mode="valid")))
    return slice(start, start + length)
