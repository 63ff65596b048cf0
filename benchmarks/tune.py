"""Equal tuning: the same number of trials for every method, one rule that chooses.

    python benchmarks/tune.py --out runs/tuning            # runs what is missing, then prints
    python benchmarks/tune.py --out runs/tuning --dry-run  # only says what there is

Each trial is a method with some settings on seeds 100, 101 and 102 of randomised-goal. The rule,
fixed before the first trial: of a method's trials whose successes are at least 0.95 of DDPG's
(with its defaults) take the one with the fewest violations; if there is none, the one with most
successes. All counts are of all episodes of all seeds; nothing is chosen before all are there.
Stopped trials continue when run again. The reported trials are in results-tuning/trials.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from advice.config import TrainConfig
from advice.display import GridDisplay
from advice.runs.branching import share_beginnings
from advice.runs.engines import run_local
from advice.runs.grid import Cell, status_of
from advice.runs.studies import Study, cells_of

SEEDS = (100, 101, 102)
EPISODES = 400
ENOUGH = 0.95
"""Share of DDPG's successes that a trial must reach."""
TRIALS: dict[str, tuple[Mapping[str, Any], ...]] = {
    "ddpg": (
        {},
        {"agent.warmup_steps": 2000},
        {"agent.actor_learning_rate": 2e-4},
        {"agent.noise_dt": 0.1},
    ),
    "ddpg-lag": tuple(
        {"agent.lagrangian.learning_rate": rate, "agent.lagrangian.maximum": most}
        for rate, most in ((0.03, 10.0), (0.1, 10.0), (0.3, 100.0), (1.0, 100.0))
    ),
    "rcpo": tuple(
        {"agent.rcpo.learning_rate": rate, "agent.rcpo.maximum": 100.0}
        for rate in (0.003, 0.03, 0.1, 0.3)
    ),
    "csc": (
        {"agent.csc.conservative_weight": 0.005},
        {"agent.csc.conservative_weight": 0.005, "agent.csc.uniform_actions": False},
        {"agent.csc.conservative_weight": 0.05, "agent.csc.uniform_actions": False},
        {
            "agent.csc.conservative_weight": 0.05,
            "agent.csc.uniform_actions": False,
            "agent.csc.threshold_rule": "adaptive",
        },
    ),
    "tabular": (
        {},
        {"tabular.within": True},
        {"tabular.within": True, "shield.intervention_penalty": 0.1},
        {"tabular.within": True, "shield.candidates_per_dimension": 3},
    ),
    "advice": (
        {},
        {"shield.learn_from": "executed"},
        {"shield.intervention_penalty": 0.1},
        {"shield.hold": 1},
    ),
}
COUNTS = ("violations", "successes", "timeouts", "violations per success")
COLUMNS = ("method", "trial", "settings", "seeds", *COUNTS, "chosen")


class Trial(NamedTuple):
    """One method with some settings."""

    method: str
    number: int
    settings: Mapping[str, Any]

    @property
    def study(self) -> Study:
        name = f"{self.method}-{self.number}"
        return Study(name, methods=(self.method,), settings=self.settings, method_settings={})


class Counts(NamedTuple):
    """Episodes per 100, over all seeds."""

    violations: float
    successes: float
    timeouts: float

    @property
    def in_words(self) -> tuple[str, ...]:
        """Its numbers, and violations per success."""
        per = self.violations / self.successes if self.successes else math.inf
        return (*(f"{number:.1f}" for number in self), f"{per:.2f}")


def count(cells: list[Cell]) -> Counts:
    """What the finished runs of a trial add up to."""
    rows = [row for cell in cells for row in cell.folder.read_episodes()]
    share = 100 / len(rows)
    violations = share * sum(row.violation for row in rows)
    successes = share * sum(row.success for row in rows)
    return Counts(violations, successes, 100 - violations - successes)


def choose(counts: Mapping[int, Counts], reference: float) -> int:
    """The rule of this page for the trials of one method; ``reference``: DDPG's successes."""
    enough = [trial for trial, found in counts.items() if found.successes >= ENOUGH * reference]
    if enough:
        return min(enough, key=lambda trial: counts[trial].violations)
    return max(counts, key=lambda trial: counts[trial].successes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/tuning"))
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--methods", nargs="*", default=list(TRIALS), choices=list(TRIALS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS), choices=SEEDS)
    parser.add_argument("--dry-run", action="store_true", help="run nothing")
    args = parser.parse_args()
    trials = [
        Trial(method, number, settings)
        for method in dict.fromkeys(["ddpg", *args.methods])
        for number, settings in enumerate(TRIALS[method], start=1)
    ]
    base = TrainConfig(episodes=args.episodes)
    cells = [cells_of([trial.study], args.seeds, args.out, base) for trial in trials]
    if not args.dry_run:
        # seed by seed, so that an early stop leaves something to compare
        in_order = share_beginnings([runs[i] for i in range(len(args.seeds)) for runs in cells])
        todo = [cell for cell in in_order if not cell.folder.done_file.exists()]
        with GridDisplay(in_order, args.parallel) as display:
            run_local(todo, display.update, args.parallel)
    done = [[cell for cell in runs if status_of(cell).state == "done"] for runs in cells]
    counts = [count(found) if found else None for found in done]
    rows = []
    for method in dict.fromkeys(trial.method for trial in trials):
        numbers = [i for i, trial in enumerate(trials) if trial.method == method]
        own = {i: found for i in numbers if (found := counts[i])}
        complete = all(len(done[i]) == len(args.seeds) for i in (0, *numbers))
        chosen = choose(own, counts[0].successes) if counts[0] and complete else None
        for i, found in own.items():
            trial = trials[i]
            settings = " ".join(f"{name}={value}" for name, value in trial.settings.items())
            mark = "yes" if i == chosen else ""
            rows.append(
                (method, trial.number, settings or "defaults", len(done[i]), *found.in_words, mark)
            )
    for row in (COLUMNS, *rows):
        print(" | ".join(map(str, row)))
    if rows:
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / "trials.csv", "w", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
