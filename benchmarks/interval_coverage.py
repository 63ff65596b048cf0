"""How often each printed 95 % interval contains the true value, with 3, 5 and 10 seeds.

Runs are invented: violations and goals per run, normal or as counts (Poisson around a gamma, which
is skewed), with the spread between seeds of the recorded runs: 10 % for the other methods, 40 % for
ADVICE. A last column has a much more skewed ADVICE (80 %), as a warning of what few seeds cannot
show; it is not part of the promise. Nor is the saving beside the best of several methods that are
alike, since the same runs choose it. ``python benchmarks/interval_coverage.py [--repeats 2000]``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from advice.reports.statistics import (
    Floats,
    Interval,
    estimate,
    improvement_probability,
    mean_interval,
    paired_difference,
    quotient,
    ratio,
    saving,
    share_interval,
)

GOAL = 0.93
OURS, THEIRS, GOALS = 60.0, 240.0, 700.0
TASKS = 4
NEAR = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4)  # from OURS to the other's mean, in standard deviations


class World(NamedTuple):
    """How the runs of ADVICE and of another method vary from seed to seed."""

    name: str
    counts: bool
    ours: float
    theirs: float = 0.1

    def runs(
        self, generator: np.random.Generator, mean: float, spread: float, seeds: int
    ) -> Floats:
        """Totals of ``seeds`` runs with this mean and relative spread."""
        if not self.counts:
            return generator.normal(mean, spread * mean, seeds)
        rates = generator.gamma(spread**-2, mean * spread**2, seeds)
        return generator.poisson(rates).astype(np.float64)

    def pair(
        self, generator: np.random.Generator, seeds: int, theirs: float = THEIRS
    ) -> tuple[Floats, Floats]:
        return (
            self.runs(generator, OURS, self.ours, seeds),
            self.runs(generator, theirs, self.theirs, seeds),
        )


WORLDS = (
    World("normal", counts=False, ours=0.1),
    World("normal, ADVICE varies more", counts=False, ours=0.35, theirs=0.06),
    World("counts", counts=True, ours=0.1),
    World("counts, ADVICE varies more", counts=True, ours=0.4),
)
SKEWED = World("counts, ADVICE very skewed", counts=True, ours=0.8)


def _mean(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    return mean_interval(world.pair(generator, seeds)[0]), OURS


def _paired(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    ours, theirs = (dict(enumerate(x)) for x in world.pair(generator, seeds))
    return paired_difference(ours, theirs), OURS - THEIRS


def _saved(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    ours, theirs = map(estimate, world.pair(generator, seeds))
    return saving([ours], [theirs]), 100 * (1 - OURS / THEIRS)


def _all_tasks(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    pairs = [map(estimate, world.pair(generator, seeds)) for _ in range(TASKS)]
    return ratio(*zip(*pairs, strict=True)), OURS / THEIRS


def _per_goal(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    parts = []
    for crashes in world.pair(generator, seeds):
        goals = world.runs(generator, GOALS, 0.05, seeds)
        parts.append([quotient(crashes, goals)])
    return ratio(*parts), OURS / THEIRS


@cache
def _fewer(world: World, mean: float) -> float:
    """P(a run of ADVICE has fewer than one of the other with this mean), by Monte Carlo."""
    ours, theirs = world.pair(np.random.default_rng(0), 200_000, mean)
    return float((np.sign(theirs - ours) / 2 + 0.5).mean())  # ties count half


def _improvement(
    world: World, generator: np.random.Generator, seeds: int, tasks: int = 1
) -> tuple[Interval, float]:
    """The other's mean is so near that ADVICE has fewer in some 50 to 99 of 100 pairs of runs."""
    spread = OURS * float(np.hypot(world.ours, world.theirs))
    means = OURS + spread * generator.choice(NEAR, tasks)
    pairs = [world.pair(generator, seeds, mean) for mean in means]
    truth = float(np.mean([_fewer(world, mean) for mean in means]))
    return improvement_probability(*zip(*pairs, strict=True)), truth


def _rare(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    """Two violations in 1,000 episodes."""
    counts = world._replace(counts=True).runs(generator, 2.0, world.ours, seeds)
    return share_interval([np.arange(1000) < count for count in counts]), 0.002


def _best(world: World, generator: np.random.Generator, seeds: int) -> tuple[Interval, float]:
    """The saving beside the lowest mean of five others that are alike."""
    ours, theirs = world.pair(generator, seeds)
    others = [theirs, *(world.pair(generator, seeds)[1] for _ in range(4))]
    best = min(map(estimate, others), key=lambda other: other.value)
    return saving([estimate(ours)], [best]), 100 * (1 - OURS / THEIRS)


Check = Callable[[World, np.random.Generator, int], tuple[Interval, float]]
INTERVALS: dict[str, Check] = {
    "mean (Student's t)": _mean,
    "paired difference (Student's t)": _paired,
    "saving (Welch on logarithms)": _saved,
    "saving beside the best of five alike": _best,
    "violation probability, 2 in 1,000": _rare,
    "ratio over four tasks": _all_tasks,
    "violations per goal, ratio": _per_goal,
    "probability of improvement": _improvement,
    "probability over four tasks": lambda w, g, n: _improvement(w, g, n, TASKS),
}


def coverage(check: Check, world: World, seeds: int, repeats: int) -> float:
    """Share of the intervals that contain the true value; NaN where none is printed."""
    generator = np.random.default_rng([seeds, repeats])
    inside = printed = 0
    for _ in range(repeats):
        (_, low, high), truth = check(world, generator, seeds)
        printed += not np.isnan(low)
        inside += low <= truth <= high
    return inside / printed if printed else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    repeats = parser.parse_args().repeats
    figures: dict[str, float] = {}
    least = 1.0
    print(f"| interval | seeds | {' | '.join(w.name for w in (*WORLDS, SKEWED))} |")
    print("| --- " * (3 + len(WORLDS)) + "|")
    for name, check in INTERVALS.items():
        for seeds in (3, 5, 10):
            found = [coverage(check, world, seeds, repeats) for world in (*WORLDS, SKEWED)]
            least = least if check is _best else min(least, *found[:-1])
            figures[f"{name}, {seeds} seeds"] = min(found[:-1])
            print(f"| {name} | {seeds} | {' | '.join(f'{x:.3f}' for x in found)} |")
    print(f"lowest: {least:.3f}, the goal is {GOAL}")
    print(json.dumps({"lowest_coverage": least, "goal": GOAL, **figures}))


if __name__ == "__main__":
    main()
