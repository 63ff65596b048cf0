"""The paper's claims one by one, answered from the runs.

A claim holds if the whole 95 % interval lies on the claimed side, and differs if it lies on the
other; in between it holds in the mean, or else is not shown. With few seeds nothing is shown. Where
ADVICE had none at all there is no interval, and the rank test decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from advice.reports import statistics as stats
from advice.reports.load import Run, TaskRuns, complete, totals
from advice.reports.statistics import Interval, estimate
from advice.reports.style import method_label
from advice.reports.summaries import GOOD_SEEDS, MIN_SEEDS, best_of
from advice.reports.tables import Exhibit, Row, shown
from advice.runs.studies import FOUR_TASKS, PAPER_TASKS

HOLDS, IN_THE_MEAN, DIFFERS = "holds", "holds in the mean", "differs"
OPEN, MISSING = "not shown", "not measured"
SOMEWHAT = 0.7
"""From this ratio on there are only somewhat fewer."""
BySeed: TypeAlias = Mapping[int, float]


class Answer(NamedTuple):
    """What the runs say about one claim."""

    here: str
    verdict: str = MISSING
    seeds: int = 0


NOTHING = Answer("no complete runs")
_EARLY = "armed early: fewer than DDPG, every violation counted (not in the paper)"


def _verdict(found: Interval, seeds: int, below: float, least: float = -np.inf) -> str:
    """Whether something lies from ``least`` on and ``below`` the other number."""
    if seeds < MIN_SEEDS:
        return OPEN
    if least <= found.low and found.high < below:
        return HOLDS
    if found.low > below or found.high < least:
        return DIFFERS
    return IN_THE_MEAN if least <= found.value < below else OPEN


def _ratio(
    ours: BySeed, theirs: BySeed, below: float = 1.0, least: float = 0.0, name: str = "DDPG"
) -> Answer:
    """ours / theirs, claimed to lie from ``least`` on and ``below`` the other number."""
    if not ours or not theirs:
        return NOTHING
    mine, other = (estimate([*counts.values()]) for counts in (ours, theirs))
    found = stats.ratio([mine], [other])
    here = f"{shown(found)} times {name}'s ({shown(mine.value)} against {shown(other.value)})"
    seeds = min(mine.seeds, other.seeds)
    verdict = _verdict(found, seeds, below, least)
    if verdict == IN_THE_MEAN and mine.value == 0 and least == 0:  # no logarithm, so no interval
        sides = (np.array([*counts.values()]) for counts in (ours, theirs))
        enough = stats.NONE_YET / len(ours) < below * other.value
        verdict = HOLDS if enough and stats.rank_test(*sides) < 0.05 else verdict
    return Answer(here, verdict, seeds)


def _on_common_seeds(ours: BySeed, theirs: BySeed) -> tuple[BySeed, BySeed]:
    """Both with the seeds that both have."""
    common = ours.keys() & theirs.keys()
    return {seed: ours[seed] for seed in common}, {seed: theirs[seed] for seed in common}


def _best(ours: BySeed, others: Mapping[str, BySeed], below: float) -> Answer:
    """The ratio to the lowest of the others."""
    best = best_of(others)
    return _ratio(ours, others[best], below, name=method_label(best)) if best else NOTHING


def _less(ours: BySeed, theirs: BySeed, unit: str) -> Answer:
    """The paired difference ours - theirs, claimed to be below zero."""
    found, seeds = stats.paired_difference(ours, theirs), len(set(ours) & set(theirs))
    here = f"{shown(found)} {unit} (paired)"
    return Answer(here, _verdict(found, seeds, 0.0), seeds) if seeds else NOTHING


def _in_time(runs: list[Run], skip: int) -> Answer:
    if not runs:
        return NOTHING
    share = stats.share_interval([run.column("timeout")[skip:] for run in runs])
    found = Interval(*(1000 * x for x in share))
    return Answer(f"{shown(found)} in 1,000 episodes", _verdict(found, len(runs), 100), len(runs))


def _never_acts(runs: list[Run]) -> Answer:
    if not runs:
        return NOTHING
    count = sum(run.total("interventions") for run in runs)
    episodes = sum(len(run.table) for run in runs)
    here = f"{count:.0f} interventions in {episodes} episodes"
    found = stats.mean_interval([float(run.column("interventions").mean()) for run in runs])
    return Answer(here, _verdict(found, len(runs), 0.01), len(runs))


def _answers(task: TaskRuns) -> list[tuple[str, str, tuple[str, ...], Answer]]:
    """Each claim, the figure that shows it, the tasks it is about, what this task's runs say."""

    def of(method: str, column: str = "violation", skip: int = task.activation) -> BySeed:
        return totals(task.methods.get(method, []), column, skip)

    def variant(
        key: str, label: str = "", column: str = "violation", skip: int | None = None
    ) -> BySeed:
        """ADVICE in a section, counted from each run's own activation or from ``skip``."""
        found = (v for v in task.variants.get(key, []) if v.method == "advice")
        return totals(next((v.runs for v in found if label in ("", v.label)), []), column, skip)

    ours, ddpg, goals = of("advice"), of("ddpg"), of("advice", "success")
    others = [method for method in task.methods if method != "advice"]
    half = _best(ours, {method: of(method) for method in others}, 0.5)
    as_many = _ratio(goals, of("ddpg", "success"), np.inf, 1.0)
    in_time = _in_time(complete(task.methods.get("advice", [])), task.activation)
    never = _never_acts(complete(task.methods.get("tabular", [])))
    cost = _best(of("advice", "cost"), {method: of(method, "cost") for method in others}, 1.0)
    plain = [v for v in task.variants.get("transfer", []) if v.method != "advice"]
    without = {v.method: totals(v.runs, "violation", 0) for v in plain}
    moved = _best(variant("transfer", skip=0), without, 0.5)
    longer = variant("steps", column="success")
    more = _less(goals, longer, "goals with T = 1000 beside T = 2000")
    three, five = (variant("fixed-k", f"K = {k}") for k in (3, 5))
    larger = _less(five, three, "violations of K = 5 beside K = 3")
    early_runs = task.early.runs if task.early else []
    sooner = variant("activation", "E = 250")
    later = _less(ours, sooner, "violations of E = 1000 beside E = 250")
    letter = _ratio(variant("preset"), ddpg, 0.5)
    armed = _ratio(*_on_common_seeds(totals(early_runs, "violation", 0), of("ddpg", skip=0)))
    overview, four, goal = "overview-after", FOUR_TASKS, ("randomised-goal",)
    shown_in = "overview-full" if task.early in task.pictured else "early"
    return [
        ("at most half the best other's violations", overview, four, half),
        ("as many goals as DDPG", overview, four, as_many),
        ("at most 100 timeouts (not in the paper)", overview, four, in_time),
        ("the tabular shield hardly ever acts", "rates-full", four, never),
        ("DDPG-Lag has fewer violations than DDPG", overview, four, _ratio(of("ddpg-lag"), ddpg)),
        ("RCPO has somewhat fewer", overview, four, _ratio(of("rcpo"), ddpg, least=SOMEWHAT)),
        ("CSC has somewhat fewer", overview, four, _ratio(of("csc"), ddpg, least=SOMEWHAT)),
        ("the lowest cost", overview, ("constrained-randomised-goal",), cost),
        ("a transferred shield halves the violations", "transfer", ("semi-random-goal",), moved),
        ("longer episodes give more goals", "steps", goal, more),
        ("a larger K gives fewer violations", "fixed-k", goal, larger),
        ("a later start gives fewer violations after it", "activation", goal, later),
        ("with the paper's settings: half of DDPG's violations", "preset", goal, letter),
        (_EARLY, shown_in, four, armed),
    ]


def paper_table(tasks: Sequence[TaskRuns], missing: bool = False) -> Exhibit | None:
    """Claim by claim, with ``missing`` also those without runs; None if none is answered.

    Only runs of the table of studies answer a claim.
    """
    found = {name: TaskRuns(name, {}, {}, "") for name in PAPER_TASKS}
    for task in tasks:
        if task.task in found and any(run.study for group in task.compared for run in group.runs):
            found[task.task] = task
    rows: list[Row] = []
    for said in zip(*map(_answers, found.values()), strict=True):  # the same claim for all tasks
        for name, (claim, figure, about, answer) in zip(found, said, strict=True):
            few = " (few)" * (0 < answer.seeds < GOOD_SEEDS)
            if name in about and (missing or answer.verdict != MISSING):
                rows.append(
                    {
                        "claim": claim,
                        "task": name,
                        "here": answer.here,
                        "seeds": f"{answer.seeds or '–'}{few}",
                        "verdict": answer.verdict,
                        "figure": f"{name}-{figure}" if answer is not NOTHING else "–",
                    }
                )
    if all(row["verdict"] == MISSING for row in rows):
        return None
    return Exhibit("", "paper-claims", "The paper's claims", "", rows)
