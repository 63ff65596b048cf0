"""Do the bounds hold? Simulated coverage of each of ``advice.shields.bounds``.

    python benchmarks/bounds_coverage.py

10,000 repetitions each, also where no episode and where every episode has a violation. A confidence
sequence counts as right only if it is right at every time. The last line is a JSON object with
every figure; the program fails if one is worse than promised by more than three standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from advice.shields import bounds

Rule = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]
"""(episode, violations of each repetition so far) -> probabilities of the next violation."""


def clopper_pearson(p: float, episodes: int, reps: int, rng: np.random.Generator) -> float:
    """Share of repetitions whose bound is below p."""
    table = np.array([bounds.clopper_pearson(x, episodes) for x in range(episodes + 1)])
    return float((table[rng.binomial(episodes, p, reps)] < p).mean())


def sequence(rule: Rule, episodes: int, reps: int, rng: np.random.Generator) -> float:
    """Share of repetitions in which the average probability ever leaves the sequence."""
    total, sum_p, wrong = np.zeros(reps), np.zeros(reps), np.zeros(reps, bool)
    for count in range(1, episodes + 1):
        p = np.broadcast_to(rule(count, total), (reps,))
        sum_p, total = sum_p + p, total + (rng.random(reps) < p)
        mean = np.clip(sum_p / count, 0.0, 1.0)
        # equal pairs of total and average are looked at once
        pairs, back = np.unique(np.round(mean, 12) + 1j * total, return_inverse=True)
        for side in (1, -1):
            outside = bounds.excludes(pairs.imag, count, pairs.real, side)
            wrong |= outside[back]
    return float(wrong.mean())


def alarms(
    certified: float, rates: NDArray[np.float64], reps: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(reps,) the episode of the alarm, infinite without one."""
    alarm, when = bounds.DriftAlarm(certified), np.full(reps, math.inf)
    for episode, rate in enumerate(rates, start=1):
        given = alarm.update(rng.random(reps) < rate)
        when[given & np.isinf(when)] = episode
        if np.isfinite(when).all():
            break
    return when


def wrong_choices(rates: list[float], episodes: int, reps: int, rng: np.random.Generator) -> float:
    """Share of repetitions in which Learn-then-Test chooses a setting above 5 %."""
    wrong = 0
    for _ in range(reps):
        losses = rng.random((episodes, 1)) < np.array(rates)
        chosen = bounds.learn_then_test(losses, 0.05, 0.9).chosen
        wrong += chosen is not None and rates[chosen] > 0.05
    return wrong / reps


def exceeded(episodes: int, reps: int, rng: np.random.Generator) -> float:
    """Share of repetitions in which a further score exceeds the conformal threshold."""
    scores = rng.standard_exponential((reps, episodes + 1))
    return float(np.mean([row[-1] > bounds.conformal_threshold(row[:-1]) for row in scores]))


RULES: dict[str, Rule] = {
    "never": lambda count, total: np.zeros(1),
    "1 %": lambda count, total: np.full(1, 0.01),
    "10 %": lambda count, total: np.full(1, 0.1),
    "50 %": lambda count, total: np.full(1, 0.5),
    "always": lambda count, total: np.ones(1),
    "50 % falling to 1 %": lambda count, total: np.full(1, 0.01 + 0.49 * 0.995**count),
    "1 %, 30 % from episode 300": lambda count, total: np.full(1, 0.3 if count > 300 else 0.01),
    "follows the past": lambda count, total: np.where(total < 0.2 * count, 0.3, 0.05),
}


def main(reps: int, episodes: int) -> int:
    rng = np.random.default_rng(0)
    figures: dict[str, float] = {}
    failed = []

    def say(name: str, value: float, promised: float) -> None:
        figures[name] = round(value, 5)
        good = value <= promised + 3 * math.sqrt(promised * (1 - promised) / reps)
        failed.extend([] if good else [name])
        mark = "" if good else "   TOO MANY"
        print(f"{name:<66} {value:8.2%}   promised {promised:.0%}{mark}", flush=True)

    for n in (30, 300):
        for p in (0.0, 0.001, 0.01, 0.1, 0.5, 0.99, 1.0):
            wrong = clopper_pearson(p, n, reps, rng)
            say(f"Clopper-Pearson, {n} episodes, p = {p}: wrong", wrong, 0.05)
    for name, rule in RULES.items():
        adaptive = name == "follows the past"
        wrong = sequence(rule, episodes // 5 if adaptive else episodes, reps, rng)
        say(f"confidence sequence, {name}: ever wrong", wrong, 0.05)
    for certified in (0.01, 0.05, 0.2):
        same = np.full(10_000 if episodes >= 1000 else episodes, certified)
        say(
            f"alarm, certified {certified:.0%}, rate unchanged, {len(same):,} episodes: given",
            float(np.isfinite(alarms(certified, same, reps, rng)).mean()),
            0.05,
        )
        for before in (0, 500):
            rates = np.append(np.full(before, certified), np.full(20_000, 2 * certified))
            when = alarms(certified, rates, max(reps // 20, 20), rng)
            delay = when[when > before] - before
            name = f"alarm, certified {certified:.0%}, doubled after {before}: episodes until it"
            figures[name] = float(np.median(delay))
            print(f"{name:<66} {np.median(delay):8.0f}   90 % within {np.quantile(delay, 0.9):.0f}")
    for rates in ([0.051] * 5, [0.01, 0.03, 0.051, 0.08, 0.2], [0.0, 0.0, 0.0, 0.06, 0.1]):
        for n in (60, 200):
            wrong = wrong_choices(rates, n, reps, rng)
            say(f"Learn-then-Test, {n} episodes, rates {rates}: wrong", wrong, 0.1)
    for n in (19, 50, 200):
        say(f"conformal threshold, {n} episodes: exceeded", exceeded(n, reps, rng), 0.05)
    print(json.dumps(figures))
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=1000, help="length of the sequences")
    options = parser.parse_args()
    sys.exit(main(options.repetitions, options.episodes))
