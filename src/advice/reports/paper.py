"""The paper's claims, one by one, against the runs of a report.

A claim about a ratio or a difference holds if the 95 % interval lies on the claimed side, and
differs if it lies on the other; in between nothing is shown. Claims without runs are listed too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from advice.reports.claims import MIN_SEEDS, best_of
from advice.reports.load import TaskRuns, complete, totals
from advice.reports.statistics import estimate, paired_difference, ratio
from advice.reports.style import method_label
from advice.reports.tables import Row, Table, shown
from advice.runs.studies import FOUR_TASKS

HOLDS, DIFFERS, OPEN, MISSING = "holds", "differs", "not shown", "not measured"
BEST = "best other method"
BySeed = Mapping[int, float]


class Answer(NamedTuple):
    """What the runs say about one claim."""

    here: str
    verdict: str = MISSING
    seeds: int = 0


NOTHING = Answer("no complete runs")


def _of(task: TaskRuns, name: str, column: str, skip: int | None = None) -> BySeed:
    """Totals of a method of the comparison, or of ADVICE in a "section" or "section: label"."""
    if name in task.methods:
        return totals(task.methods[name], column, task.after if skip is None else skip)
    section, _, label = name.partition(": ")
    found = (v for v in task.variants.get(section, []) if v.method == "advice")
    return totals(next((v.runs for v in found if label in ("", v.label)), []), column, skip)


def _times(
    task: TaskRuns,
    ours: str,
    theirs: str = "ddpg",
    column: str = "violation",
    skip: int | None = None,
    **limits: float,
) -> Answer:
    """The ratio of two totals; theirs is of a method, or of the best other method beside ours."""
    if theirs != BEST:
        others = {theirs: _of(task, theirs, column, skip)}
    else:
        skipped = task.after if skip is None else skip
        groups = [v for v in task.variants.get(ours, task.compared) if v.method != "advice"]
        others = {v.method: totals(v.runs, column, skipped) for v in groups}
    best = best_of(others)
    if best is None:
        return NOTHING
    return _ratio(_of(task, ours, column, skip), others[best], method_label(best), **limits)


def _ratio(
    ours: BySeed, theirs: BySeed, name: str, most: float = 1.0, least: float = 0.0
) -> Answer:
    """ours / theirs, claimed to lie between ``least`` and ``most``."""
    if not ours or not theirs:
        return NOTHING
    mine, other = (estimate([*counts.values()]) for counts in (ours, theirs))
    found = ratio([mine], [other])
    here = f"{shown(found)} times {name}'s ({shown(mine.value)} against {shown(other.value)})"
    inside = least <= found.value <= most
    # an upper claim is about less than 1, a lower one about not losing anything
    sure = found.high < 1 if most < np.inf else inside
    contrary = found.low > 1 if most < np.inf else found.high < least
    verdict = HOLDS if inside and sure else DIFFERS if contrary else OPEN
    seeds = min(mine.seeds, other.seeds)
    return Answer(here, verdict if seeds >= MIN_SEEDS else OPEN, seeds)


def _fewer(task: TaskRuns, ours: str, theirs: str, unit: str, column: str = "violation") -> Answer:
    return _less(_of(task, ours, column), _of(task, theirs, column), unit)


def _less(ours: BySeed, theirs: BySeed, unit: str) -> Answer:
    """The paired difference ours - theirs, claimed to be below zero."""
    found = paired_difference(ours, theirs)
    if found is None or np.isnan(found.low):
        return NOTHING if found is None else Answer(f"{shown(found)} {unit}", OPEN, 1)
    verdict = HOLDS if found.high < 0 else DIFFERS if found.low > 0 else OPEN
    return Answer(f"{shown(found)} {unit} (paired)", verdict, len(set(ours) & set(theirs)))


def _in_time(task: TaskRuns) -> Answer:
    runs, skip = complete(task.methods.get("advice", [])), task.after
    if not runs:
        return NOTHING
    share = np.mean([1000 * run.total("timeout", skip) / (len(run.table) - skip) for run in runs])
    here = f"{shown(float(share))} in 1,000 episodes"
    return Answer(here, HOLDS if share <= 100 else DIFFERS, len(runs))


def _never_acts(task: TaskRuns) -> Answer:
    runs = complete(task.methods.get("tabular", []))
    if not runs:
        return NOTHING
    count, episodes = sum(r.total("interventions") for r in runs), sum(len(r.table) for r in runs)
    here = f"{count:.0f} interventions in {episodes} episodes"
    return Answer(here, HOLDS if count < 0.01 * episodes else DIFFERS, len(runs))


class Claimed(NamedTuple):
    """One claim of the paper, and how the runs of a task answer it."""

    claim: str
    answer: Callable[[TaskRuns], Answer]
    figure: str = "overview-after"
    """The report's figure that shows it, without the task's name."""
    tasks: tuple[str, ...] = FOUR_TASKS


_GOAL = ("randomised-goal",)
_MORE_GOALS = partial(
    _fewer, ours="advice", theirs="steps", column="success", unit="goals with T = 1000"
)
_LARGER_K = partial(
    _fewer,
    ours="fixed-k: K = 5",
    theirs="fixed-k: K = 3",
    unit="violations of K = 5 beside K = 3",
)
_LATER = partial(
    _fewer,
    ours="advice",
    theirs="activation: E = 250",
    unit="violations of E = 1000 beside E = 250",
)
CLAIMS = (
    Claimed(
        "at most half the best other's violations",
        partial(_times, ours="advice", theirs=BEST, most=0.5),
    ),
    Claimed(
        "as many goals as DDPG",
        partial(_times, ours="advice", column="success", most=np.inf, least=1.0),
    ),
    Claimed("at most 100 timeouts (not in the paper)", _in_time),
    Claimed("the tabular shield hardly ever acts", _never_acts, "rates-full"),
    Claimed("DDPG-Lag has fewer violations than DDPG", partial(_times, ours="ddpg-lag")),
    Claimed("RCPO has somewhat fewer", partial(_times, ours="rcpo")),
    Claimed("CSC has somewhat fewer", partial(_times, ours="csc")),
    Claimed(
        "the lowest cost",
        partial(_times, ours="advice", theirs=BEST, column="cost"),
        tasks=("constrained-randomised-goal",),
    ),
    Claimed(
        "a transferred shield halves the violations",
        partial(_times, ours="transfer", theirs=BEST, skip=0, most=0.5),
        "transfer",
        ("semi-random-goal",),
    ),
    Claimed("longer episodes give more goals", _MORE_GOALS, "steps", _GOAL),
    Claimed("a larger K gives fewer violations", _LARGER_K, "fixed-k", _GOAL),
    Claimed("a later start gives fewer violations after it", _LATER, "activation", _GOAL),
    Claimed(
        "with the paper's settings: half of DDPG's violations",
        partial(_times, ours="preset", most=0.5),
        "preset",
        _GOAL,
    ),
    Claimed(
        "armed early: fewer than DDPG, every violation counted (not in the paper)",
        partial(_times, ours="early", skip=0),
        "early",
    ),
)


def paper_table(tasks: Sequence[TaskRuns], missing: bool = False) -> Table | None:
    """Claim by claim, with ``missing`` also those without runs; None if none is answered.

    Only runs of the table of studies answer a claim.
    """
    found = {
        t.task: t for t in tasks if any(run.study for group in t.compared for run in group.runs)
    }
    rows: list[Row] = []
    for claim, answer, figure, names in CLAIMS:
        for task in names:
            said = answer(found[task]) if task in found else NOTHING
            if said.verdict == MISSING and not missing:
                continue
            rows.append(
                {
                    "claim": claim,
                    "task": task,
                    "here": said.here,
                    "seeds": str(said.seeds or "–"),
                    "verdict": said.verdict,
                    "figure": f"{task}-{figure}" if said is not NOTHING else "–",
                }
            )
    if all(row["verdict"] == MISSING for row in rows):
        return None
    return Table("", "paper-claims", "The paper's claims", rows)
