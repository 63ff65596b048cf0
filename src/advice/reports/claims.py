"""The headline: a sentence computed from the runs, and silence when there are too few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from advice.reports.statistics import Interval, rank_test, reduction
from advice.reports.style import method_label

MIN_SEEDS = 3
"""With fewer seeds on either side nothing is claimed: an interval from two numbers is a guess."""
GOOD_SEEDS = 5
"""The paper's number of seeds; with fewer a claim is called preliminary."""


class Claim(NamedTuple):
    """What can be said about ADVICE on one task."""

    sentence: str
    holds: bool = False
    """True if ADVICE has less and the interval (without one: the rank test) excludes chance."""
    saved: Interval | None = None


def compare(
    task: str,
    totals: Mapping[str, Mapping[int, float]],
    ours: str = "advice",
    what: str = "violations",
) -> Claim:
    """ADVICE against the best other; ``totals`` is method -> seed -> total, less is better.

    A method without totals, for its runs are incomplete, is named and not compared.
    """
    name, fewer = method_label(ours), "less" if what == "cost" else "fewer"
    if ours not in totals:
        return Claim(f"{task}: there is no run of {name} to compare.")
    if not totals[ours]:
        return Claim(f"{task}: the runs of {name} are incomplete, so nothing is claimed.")
    others = {method: seeds for method, seeds in totals.items() if method != ours and seeds}
    left_out = not_compared(totals)
    if not others:
        return Claim(f"{task}: there is no other method to compare {name} with.{left_out}")
    best = min(others, key=lambda method: (_mean(others[method]), method))
    mine, theirs = by_seed(totals[ours]), by_seed(others[best])
    seeds = _seeds(len(mine), len(theirs))
    found = f"{mine.mean():.1f} against {theirs.mean():.1f} of {method_label(best)}, {seeds}"
    if min(len(mine), len(theirs)) < MIN_SEEDS:
        return Claim(
            f"{task}: too few seeds to claim anything about {what} ({found}; "
            f"at least {MIN_SEEDS} seeds of each are needed).{left_out}"
        )
    if theirs.mean() == 0:
        verdict = "as few as" if mine.mean() == 0 else "more than"
        return Claim(
            f"{task}: {name} had {verdict} the best other method, which had none ({found})."
            f"{left_out}"
        )
    saved = reduction(mine, theirs)
    percent, low, high = (100.0 * x for x in saved)
    if percent < 0:
        percent, low, high, fewer = -percent, -high, -low, "more"
    interval = f"95 % interval {low:.0f} to {high:.0f} %"
    if np.isnan(low):
        interval = "no interval, because its runs had none" if mine.mean() == 0 else "no interval"
    preliminary = min(len(mine), len(theirs)) < GOOD_SEEDS
    doubt = low <= 0 <= high
    return Claim(
        f"{name}: {percent:.0f} % {fewer} {what} than the best other method ({method_label(best)}) "
        f"on {task}, {interval}, {seeds}"
        + ("; the interval includes zero, so no difference can be claimed" if doubt else "")
        + ("; preliminary: fewer seeds than the paper's five" if preliminary else "")
        + f".{left_out}",
        bool(saved.low > 0 or (np.isnan(low) and percent > 0 and rank_test(mine, theirs) < 0.05)),
        saved,
    )


def not_compared(totals: Mapping[str, Mapping[int, float]]) -> str:
    """A sentence that names the methods without totals; empty if there are none."""
    names = [method_label(method) for method, seeds in totals.items() if not seeds]
    return f" Not compared, because their runs are incomplete: {', '.join(names)}." if names else ""


def _seeds(mine: int, theirs: int) -> str:
    if mine == theirs:
        return f"{mine} seed{'s' * (mine != 1)}"
    return f"{mine} and {theirs} seeds"


def by_seed(seeds: Mapping[int, float]) -> np.ndarray:
    """The totals in the order of their seeds."""
    return np.array([seeds[seed] for seed in sorted(seeds)], dtype=np.float64)


def _mean(seeds: Mapping[int, float]) -> float:
    return float(by_seed(seeds).mean())
