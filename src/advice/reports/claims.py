"""The headline: a sentence computed from the runs, and silence when there are too few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from advice.reports.statistics import Interval, reduction
from advice.reports.style import method_label

MIN_SEEDS = 3
"""With fewer seeds on either side nothing is claimed: an interval from two numbers is a guess."""
GOOD_SEEDS = 5
"""The paper's number of seeds; with fewer a claim is called preliminary."""


class Claim(NamedTuple):
    """What can be said about ADVICE on one task."""

    sentence: str
    holds: bool
    """True if the interval excludes zero and ADVICE has less."""
    ours: str
    best_other: str | None = None
    saved: Interval | None = None


def compare(
    task: str,
    totals: Mapping[str, Mapping[int, float]],
    ours: str = "advice",
    what: str = "violations",
) -> Claim:
    """ADVICE against the best other; ``totals`` is method -> seed -> total, less is better."""
    name, fewer, more = method_label(ours), *_WORDS[what]
    if ours not in totals:
        return Claim(f"{task}: there is no run of {name} to compare.", False, ours)
    others = {method: seeds for method, seeds in totals.items() if method != ours and seeds}
    if not others:
        return Claim(f"{task}: there is no other method to compare {name} with.", False, ours)
    best = min(others, key=lambda method: (_mean(others[method]), method))
    mine, theirs = by_seed(totals[ours]), by_seed(others[best])
    seeds = _seeds(len(mine), len(theirs))
    found = f"{mine.mean():.1f} against {theirs.mean():.1f} of {method_label(best)}, {seeds}"
    if min(len(mine), len(theirs)) < MIN_SEEDS:
        return Claim(
            f"{task}: too few seeds to claim anything about {what} ({found}; "
            f"at least {MIN_SEEDS} seeds of each are needed).",
            False,
            ours,
            best,
        )
    if theirs.mean() == 0:
        verdict = "as few as" if mine.mean() == 0 else "more than"
        return Claim(
            f"{task}: {name} had {verdict} the best other method, which had none ({found}).",
            False,
            ours,
            best,
        )
    saved = reduction(mine, theirs)
    percent, low, high = (100.0 * x for x in saved)
    if percent < 0:
        percent, low, high, fewer = -percent, -high, -low, more
    preliminary = min(len(mine), len(theirs)) < GOOD_SEEDS
    doubt = low <= 0 <= high
    return Claim(
        f"{name}: {percent:.0f} % {fewer} {what} than the best other method ({method_label(best)}) "
        f"on {task}, 95 % interval {low:.0f} to {high:.0f} %, {seeds}"
        + ("; the interval includes zero, so no difference can be claimed" if doubt else "")
        + ("; preliminary: fewer seeds than the paper's five" if preliminary else "")
        + ".",
        saved.low > 0,
        ours,
        best,
        saved,
    )


_WORDS = {"violations": ("fewer", "more"), "cost": ("less", "more")}


def _seeds(mine: int, theirs: int) -> str:
    if mine == theirs:
        return f"{mine} seed{'s' * (mine != 1)}"
    return f"{mine} and {theirs} seeds"


def by_seed(seeds: Mapping[int, float]) -> np.ndarray:
    """The totals in the order of their seeds."""
    return np.array([seeds[seed] for seed in sorted(seeds)], dtype=np.float64)


def _mean(seeds: Mapping[int, float]) -> float:
    return float(by_seed(seeds).mean())
