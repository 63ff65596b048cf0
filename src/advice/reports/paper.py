"""The paper's claims, one by one, against the runs of a report.

A claim about a ratio or a difference holds if the 95 % interval lies on the claimed side, and
differs if it lies on the other; in between nothing is shown. Claims without runs are listed too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advice.reports.claims import MIN_SEEDS
from advice.reports.curves import total
from advice.reports.load import Run, TaskRuns, complete
from advice.reports.statistics import Floats, paired_difference, ratio
from advice.reports.style import method_label
from advice.reports.summaries import activation_of, after, timeouts
from advice.reports.tables import Row, Table, shown
from advice.runs.studies import FOUR_TASKS

HOLDS, DIFFERS, OPEN, MISSING = "holds", "differs", "not shown", "not measured"


class Answer(NamedTuple):
    """What the runs say about one claim."""

    here: str
    verdict: str = MISSING
    seeds: int = 0


NOTHING = Answer("no complete runs")


class Claimed(NamedTuple):
    """One claim of the paper, and how the runs of a task answer it."""

    task: str
    claim: str
    answer: Callable[[TaskRuns], Answer]
    figure: str
    """The report's figure that shows it, without the task's name."""


def _counts(runs: Sequence[Run], column: str, skip: int | None = None) -> dict[int, float]:
    """Seed -> total after ``skip`` episodes, or after each run's own activation."""
    return {
        run.config.seed: total(run, column, activation_of(run) if skip is None else skip)
        for run in complete(runs)
    }


def _values(found: Mapping[int, float]) -> Floats:
    return np.array([found[seed] for seed in sorted(found)], dtype=np.float64)


def _best(task: TaskRuns, column: str, skip: int, but: Sequence[str] = ("advice",)) -> str | None:
    means = {
        method: float(np.mean([*found.values()]))
        for method, runs in task.methods.items()
        if method not in but and (found := _counts(runs, column, skip))
    }
    return min(means, key=lambda method: (means[method], method)) if means else None


def _ratio(
    ours: Mapping[int, float], theirs: Mapping[int, float], name: str, most: float, least: float
) -> Answer:
    """ours / theirs, claimed to lie between ``least`` and ``most``."""
    if not ours or not theirs:
        return NOTHING
    seeds = min(len(ours), len(theirs))
    found = ratio([_values(ours)], [_values(theirs)])
    here = f"{shown(found)} times {name}'s ({shown(float(np.mean([*ours.values()])))} against "
    here += f"{shown(float(np.mean([*theirs.values()])))})"
    inside = least <= found.value <= most
    # an upper claim is about less than 1, a lower one about not losing anything
    sure = found.high < 1 if most < np.inf else inside
    contrary = found.low > 1 if most < np.inf else found.high < least
    verdict = HOLDS if inside and sure else DIFFERS if contrary else OPEN
    return Answer(here, verdict if seeds >= MIN_SEEDS else OPEN, seeds)


def _less(ours: Mapping[int, float], theirs: Mapping[int, float], name: str) -> Answer:
    """The paired difference ours - theirs, claimed to be below zero."""
    found = paired_difference(ours, theirs)
    if found is None or np.isnan(found.low):
        return NOTHING if found is None else Answer(f"{shown(found)} {name}", OPEN, 1)
    seeds = len(set(ours) & set(theirs))
    verdict = HOLDS if found.high < 0 else DIFFERS if found.low > 0 else OPEN
    return Answer(f"{shown(found)} {name} (paired)", verdict, seeds)


def _fewest(task: TaskRuns) -> Answer:
    best = _best(task, "violation", after(task))
    if best is None:
        return NOTHING
    ours, theirs = (
        _counts(task.methods.get(m, []), "violation", after(task)) for m in ("advice", best)
    )
    return _ratio(ours, theirs, method_label(best), 0.5, 0.0)


def _goals(task: TaskRuns) -> Answer:
    ours, theirs = (
        _counts(task.methods.get(m, []), "success", after(task)) for m in ("advice", "ddpg")
    )
    return _ratio(ours, theirs, "DDPG", np.inf, 1.0)


def _in_time(task: TaskRuns) -> Answer:
    runs, skip = complete(task.methods.get("advice", [])), after(task)
    if not runs:
        return NOTHING
    share = np.array([1000 * timeouts(run, skip) / (len(run.table) - skip) for run in runs])
    here = f"{shown(float(share.mean()))} in 1,000 episodes"
    return Answer(here, HOLDS if share.mean() <= 100 else DIFFERS, len(runs))


def _never_acts(task: TaskRuns) -> Answer:
    found = _counts(task.methods.get("tabular", []), "interventions", 0)
    if not found:
        return NOTHING
    count = sum(found.values())
    episodes = sum(len(run.table) for run in complete(task.methods["tabular"]))
    here = f"{count:.0f} interventions in {episodes} episodes"
    return Answer(here, HOLDS if count < 0.01 * episodes else DIFFERS, len(found))


def _reduces(method: str) -> Callable[[TaskRuns], Answer]:
    def answer(task: TaskRuns) -> Answer:
        ours, theirs = (
            _counts(task.methods.get(m, []), "violation", after(task)) for m in (method, "ddpg")
        )
        return _ratio(ours, theirs, "DDPG", 1.0, 0.0)

    return answer


def _cheapest(task: TaskRuns) -> Answer:
    best = _best(task, "cost", after(task))
    if best is None:
        return NOTHING
    ours, theirs = (_counts(task.methods.get(m, []), "cost", after(task)) for m in ("advice", best))
    return _ratio(ours, theirs, method_label(best), 1.0, 0.0)


def _variant(task: TaskRuns, section: str, label: str = "", method: str = "advice") -> list[Run]:
    found = (v for v in task.variants.get(section, []) if v.method == method)
    return next((v.runs for v in found if label in ("", v.label)), [])


def _transfer(task: TaskRuns) -> Answer:
    ours = _counts(_variant(task, "transfer"), "violation", 0)
    others = {
        v.method: _counts(v.runs, "violation", 0)
        for v in task.variants.get("transfer", [])
        if v.method != "advice" and complete(v.runs)
    }
    if not others:
        return NOTHING
    best = min(others, key=lambda m: float(np.mean([*others[m].values()])))
    return _ratio(ours, others[best], method_label(best), 0.5, 0.0)


def _more_time(task: TaskRuns) -> Answer:
    ours = _counts(task.methods.get("advice", []), "success")
    return _less(ours, _counts(_variant(task, "steps"), "success"), "goals with T = 1000")


def _larger_k(task: TaskRuns) -> Answer:
    five, three = (_counts(_variant(task, "fixed-k", f"K = {k}"), "violation") for k in (5, 3))
    return _less(five, three, "violations of K = 5 beside K = 3")


def _later(task: TaskRuns) -> Answer:
    late = _counts(task.methods.get("advice", []), "violation")
    early = _counts(_variant(task, "activation", "E = 250"), "violation")
    return _less(late, early, "violations of E = 1000 beside E = 250")


def _armed_early(task: TaskRuns) -> Answer:
    ours = _counts(_variant(task, "early"), "violation", 0)
    return _ratio(ours, _counts(task.methods.get("ddpg", []), "violation", 0), "DDPG", 1.0, 0.0)


def _to_the_letter(task: TaskRuns) -> Answer:
    ours = _counts(_variant(task, "preset"), "violation")
    theirs = _counts(task.methods.get("ddpg", []), "violation", after(task))
    return _ratio(ours, theirs, "DDPG", 0.5, 0.0)


_GOAL = "randomised-goal"
CLAIMS = (
    *(
        Claimed(t, "at most half the best other's violations", _fewest, "overview-after")
        for t in FOUR_TASKS
    ),
    *(Claimed(t, "as many goals as DDPG", _goals, "overview-after") for t in FOUR_TASKS),
    *(
        Claimed(t, "at most 100 timeouts (not in the paper)", _in_time, "overview-after")
        for t in FOUR_TASKS
    ),
    *(
        Claimed(t, "the tabular shield hardly ever acts", _never_acts, "rates-full")
        for t in FOUR_TASKS
    ),
    *(
        Claimed(
            t, "DDPG-Lag has fewer violations than DDPG", _reduces("ddpg-lag"), "overview-after"
        )
        for t in FOUR_TASKS
    ),
    *(
        Claimed(t, "RCPO has somewhat fewer", _reduces("rcpo"), "overview-after")
        for t in FOUR_TASKS
    ),
    *(Claimed(t, "CSC has somewhat fewer", _reduces("csc"), "overview-after") for t in FOUR_TASKS),
    Claimed("constrained-randomised-goal", "the lowest cost", _cheapest, "overview-after"),
    Claimed(
        "semi-random-goal", "a transferred shield halves the violations", _transfer, "transfer"
    ),
    Claimed(_GOAL, "longer episodes give more goals", _more_time, "steps"),
    Claimed(_GOAL, "a larger K gives fewer violations", _larger_k, "fixed-k"),
    Claimed(_GOAL, "a later start gives fewer violations after it", _later, "activation"),
    Claimed(
        _GOAL, "with the paper's settings: half of DDPG's violations", _to_the_letter, "preset"
    ),
    *(
        Claimed(
            t,
            "armed early: fewer than DDPG, every violation counted (not in the paper)",
            _armed_early,
            "early",
        )
        for t in FOUR_TASKS
    ),
)


def paper_table(tasks: Sequence[TaskRuns], missing: bool = False) -> Table | None:
    """Claim by claim, with ``missing`` also those without runs; None if none is answered.

    Only runs of the table of studies answer a claim.
    """
    tasks = [t for t in tasks if any(run.study for group in t.compared for run in group.runs)]
    found = {task.task: task for task in tasks}
    rows: list[Row] = []
    for task, claim, answer, figure in CLAIMS:
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
    return Table(
        "paper-claims",
        "The paper's claims",
        rows,
        "After activation unless it says otherwise, with 95 % intervals. A claim is not shown "
        f"while its interval includes no difference or there are fewer than {MIN_SEEDS} seeds.",
    )
