"""Series over episodes: a metric's mean and standard error over seeds, and K of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from advice.reports.load import Run, usable
from advice.reports.statistics import Floats, mean_and_error, moving_average
from advice.shields.cautiousness import thresholds

POINTS = 200
"""A curve is thinned to about this many points, in the figure and in its CSV alike."""
WINDOW = 100
"""Averages are over this many episodes, or a tenth of a shorter training."""


class Metric(NamedTuple):
    """One thing to plot over episodes."""

    title: str
    column: str
    cumulative: bool = False
    limits: tuple[float, float] = (0.0, np.inf)
    """Between these its band is drawn."""


METRICS = {
    "return": Metric("Average episodic return", "return", limits=(-np.inf, np.inf)),
    "violations": Metric("Cumulative violations", "violation", cumulative=True),
    "successes": Metric("Cumulative successes", "success", cumulative=True),
    "violation-rate": Metric("Violation rate", "violation", limits=(0.0, 1.0)),
    "success-rate": Metric("Success rate", "success", limits=(0.0, 1.0)),
    "cost": Metric("Average cost", "cost"),
    "interventions": Metric("Interventions per episode", "interventions"),
}


class Curve(NamedTuple):
    """Mean and standard error over seeds, as drawn and as written."""

    name: str
    label: str
    episodes: Floats
    mean: Floats
    error: Floats
    seeds: int


def curve(
    name: str, label: str, runs: Sequence[Run], metric: Metric, skip: int | None = 0
) -> Curve | None:
    """The metric over the runs' common length after ``skip`` episodes; None if none is left.

    ``skip=None`` means each run's own activation.
    """
    runs = usable(runs)
    columns = [
        run.column(metric.column)[run.activation if skip is None else skip :] for run in runs
    ]
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
    return Curve(name, label, at + 1.0, *mean_and_error(series[:, at]), len(runs))


def panels(
    groups: Iterable[tuple[str, str, Sequence[Run]]], metrics: Iterable[str], skip: int | None
) -> dict[str, list[Curve]]:
    """The curves of (name, label, runs) by metric, without metrics that have none."""
    groups = list(groups)
    found = {
        metric: [item for group in groups if (item := curve(*group, METRICS[metric], skip))]
        for metric in metrics
    }
    return {metric: lines for metric, lines in found.items() if lines}


def smoothing(length: int) -> int:
    """Episodes per average in a training of this length."""
    return max(1, min(WINDOW, length // 10))


def thinned(length: int) -> np.ndarray:
    """About POINTS indices below ``length``: evenly spaced, the last one always among them."""
    step = max(1, length // POINTS)
    return np.unique(np.append(np.arange(step - 1, length, step), length - 1))


class KHistory(NamedTuple):
    """K of one run and what moves it, from the episode in which the shield was armed."""

    episode: Floats
    violation: Floats
    mu_r: Floats
    lower: Floats
    """mu_d - sigma_d"""
    upper: Floats
    """mu_d + sigma_d"""
    k_after: Floats
    """K after the episode."""


def k_history(run: Run) -> KHistory:
    """mu_r and the thresholds, from the violations and the windows of a run that was armed."""
    k, violations, shield = run.column("k"), run.column("violation"), run.config.shield
    part = slice(run.armed_after, None)
    windows, past = (shield.recent_window, shield.distant_window), violations.tolist()
    ends = range(part.start + 1, len(past) + 1)
    moved = [thresholds(past[max(0, i - max(windows)) : i], *windows) for i in ends]
    recent, lower, upper = np.array(moved).T
    k_after = np.append(k[1:], k[-1])
    episodes = run.column("episode")[part]
    return KHistory(episodes, violations[part], recent, lower, upper, k_after[part])


def busiest(history: KHistory, length: int = 80) -> KHistory:
    """The ``length`` episodes in which K changes most often."""
    changes = np.abs(np.diff(history.k_after, prepend=history.k_after[:1])) > 0
    if len(changes) <= length:
        return history
    start = int(np.argmax(np.convolve(changes, np.ones(length), mode="valid")))
    return KHistory(*(column[start : start + length] for column in history))
