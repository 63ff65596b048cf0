"""The headline: a sentence computed from the runs, and silence when there are too few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from advice.reports.statistics import Interval, estimate, rank_test, saving
from advice.reports.style import method_label

MIN_SEEDS = 3
"""With fewer seeds on either side nothing is claimed: an interval from two numbers is a guess."""
GOOD_SEEDS = 5
"""The paper's number of seeds; with fewer a claim is called preliminary."""

Totals = Mapping[str, Mapping[int, float]]
"""method -> seed -> total"""


class Claim(NamedTuple):
    """What can be said about ADVICE on one task."""

    sentence: str
    holds: bool = False
    """True if ADVICE has less and the interval (without one: the rank test) excludes chance."""
    saved: Interval | None = None


def compare(task: str, totals: Totals, what: str = "violations") -> Claim:
    """ADVICE against the method with the lowest mean of the others.

    A method without totals, for its runs are incomplete, is named and not compared.
    """
    if "advice" not in totals:
        return Claim(f"{task}: there is no run of ADVICE to compare.")
    if not totals["advice"]:
        return Claim(f"{task}: the runs of ADVICE are incomplete, so nothing is claimed.")
    left_out = not_compared(totals)
    best = best_of({method: seeds for method, seeds in totals.items() if method != "advice"})
    if best is None:
        return Claim(f"{task}: there is no other method to compare ADVICE with.{left_out}")
    mine, theirs = (np.array([*totals[method].values()]) for method in ("advice", best))
    few, other = min(len(mine), len(theirs)), method_label(best)
    seeds = f"{len(mine)} and {len(theirs)} seeds"
    if len(mine) == len(theirs):
        seeds = f"{few} seed{'s' * (few != 1)}"
    found = f"{mine.mean():.1f} against {theirs.mean():.1f} of {other}, {seeds}"
    if few < MIN_SEEDS:
        return Claim(
            f"{task}: too few seeds to claim anything about {what} ({found}; "
            f"at least {MIN_SEEDS} seeds of each are needed).{left_out}"
        )
    if theirs.mean() == 0:
        verdict = "as few as" if mine.mean() == 0 else "more than"
        said = f"{task}: ADVICE had {verdict} the best other method, which had none ({found})."
        return Claim(said + left_out)
    saved = saving(estimate(mine), estimate(theirs))
    percent, low, high = (100.0 * x for x in saved)
    fewer = "less" if what == "cost" else "fewer"
    if percent < 0:
        percent, low, high, fewer = -percent, -high, -low, "more"
    interval = f"95 % interval {low:.0f} to {high:.0f} %"
    if np.isnan(low):
        interval = "no interval" + ", because its runs had none" * bool(mine.mean() == 0)
    sentence = (
        f"ADVICE: {percent:.0f} % {fewer} {what} than the best other method ({other}) on {task}, "
        f"{interval}, {seeds}"
    )
    if low <= 0 <= high:
        sentence += "; the interval includes zero, so no difference can be claimed"
    if few < GOOD_SEEDS:
        sentence += "; preliminary: fewer seeds than the paper's five"
    by_rank = np.isnan(low) and percent > 0 and rank_test(mine, theirs) < 0.05
    return Claim(f"{sentence}.{left_out}", bool(saved.low > 0 or by_rank), saved)


def best_of(totals: Totals) -> str | None:
    """The method with the lowest mean; None if none has totals."""
    means = {method: np.mean([*seeds.values()]) for method, seeds in totals.items() if seeds}
    return min(means, key=lambda method: (means[method], method), default=None)


def not_compared(totals: Totals) -> str:
    """A sentence that names the methods without totals; empty if there are none."""
    names = [method_label(method) for method, seeds in totals.items() if not seeds]
    return f" Not compared, because their runs are incomplete: {', '.join(names)}." if names else ""
