"""What each method did, as tables, and what may be said about the differences.

The headline of a task is a sentence computed from the runs, and silence when there are too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from advice.reports import statistics as stats
from advice.reports.load import Run, TaskRuns, Variant, complete, totals, usable
from advice.reports.statistics import Estimate, Interval, estimate
from advice.reports.style import method_label
from advice.reports.tables import Exhibit, Row
from advice.runs.studies import section
from advice.shields.bounds import running_bounds

MIN_SEEDS = 3
"""With fewer seeds on either side nothing is claimed: an interval from two numbers is a guess."""
GOOD_SEEDS = 5
"""The paper's number of seeds; with fewer a claim is called preliminary."""
Totals: TypeAlias = Mapping[str, Mapping[int, float]]
"""method -> seed -> total"""


class Claim(NamedTuple):
    """What can be said about ADVICE on one task."""

    sentence: str
    holds: bool = False
    """True if ADVICE has less and the interval (without one: the rank test) excludes chance."""
    saved: Interval | None = None


def compare(task: str, counts: Totals, what: str = "violations") -> Claim:
    """ADVICE against the method with the lowest mean of the others.

    A method without totals, for its runs are incomplete, is named and not compared.
    """
    if "advice" not in counts:
        return Claim(f"{task}: there is no run of ADVICE to compare.")
    if not counts["advice"]:
        return Claim(f"{task}: the runs of ADVICE are incomplete, so nothing is claimed.")
    left_out = not_compared(counts)
    best = best_of({method: seeds for method, seeds in counts.items() if method != "advice"})
    if best is None:
        return Claim(f"{task}: there is no other method to compare ADVICE with.{left_out}")
    mine, theirs = (np.array([*counts[method].values()]) for method in ("advice", best))
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
    saved = stats.saving(estimate(mine), estimate(theirs))
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
    by_rank = np.isnan(low) and percent > 0 and stats.rank_test(mine, theirs) < 0.05
    return Claim(f"{sentence}.{left_out}", bool(saved.low > 0 or by_rank), saved)


def best_of(counts: Totals) -> str | None:
    """The method with the lowest mean; None if none has totals."""
    means = {method: np.mean([*seeds.values()]) for method, seeds in counts.items() if seeds}
    return min(means, key=lambda method: (means[method], method), default=None)


def not_compared(counts: Totals) -> str:
    """A sentence that names the methods without totals; empty if there are none."""
    names = [method_label(method) for method, seeds in counts.items() if not seeds]
    return f" Not compared, because their runs are incomplete: {', '.join(names)}." if names else ""


def per_run(runs: Sequence[Run], column: str, skip: int, mean: bool = False) -> Estimate:
    """A column's total (or mean over episodes) per run, over runs."""
    parts = [run.column(column)[skip:] for run in usable(runs)]
    return estimate([float(x.mean() if mean else x.sum()) for x in parts if len(x)])


def per_goal(runs: Sequence[Run], skip: int) -> Estimate:
    """Violations per success."""
    return stats.quotient(*([run.total(x, skip) for run in runs] for x in ("violation", "success")))


def violation_probability(runs: Sequence[Run], skip: int) -> Interval:
    """Violations per episode of all runs together, with their confidence sequence."""
    found = np.concatenate([run.column("violation")[skip:] for run in usable(runs)])
    if not len(found):
        return Interval(np.nan)
    low, high = running_bounds(found.sum(), len(found))
    return Interval(float(found.mean()), float(low), float(high))


def goals_and_timeouts(task: TaskRuns) -> str:
    """A sentence with the goals and timeouts of ADVICE beside DDPG's; empty without both."""
    ours, theirs = (complete(task.methods.get(method, [])) for method in ("advice", "ddpg"))
    if not ours or not theirs:
        return ""
    goals, late, goals_of_ddpg, late_of_ddpg = (
        round(per_run(runs, column, task.after).value)
        for runs in (ours, theirs)
        for column in ("success", "timeout")
    )
    return (
        f" In {ours[0].config.episodes - task.after} episodes it reaches {goals} goals "
        f"(DDPG {goals_of_ddpg}) and {late} end by the step limit ({late_of_ddpg})."
    )


def seeds_shown(runs: Sequence[object]) -> str:
    """How many there are, marked if they are few."""
    return f"{len(runs)}{' (few)' * (len(runs) < GOOD_SEEDS)}"


def summary_table(task: TaskRuns, graded: bool = False) -> Exhibit:
    """One row per method: the part after activation, and violations of the full training."""
    skip = task.after
    rows = [_outcomes(group, skip, graded) for group in task.compared]
    part = f"episodes after the first {skip}" if skip else "the full training so far"
    caption = f"Counts are per run over {part}."
    return Exhibit(task.task, "summary", "what each method did", caption, rows)


def study_table(task: TaskRuns, name: str) -> Exhibit:
    """The variants of one section beside the comparison's own runs, after activation."""
    every, variants = section(name).from_start, task.variants[name]
    methods = [m for m in task.methods if every or m in {variant.method for variant in variants}]
    usual = [Variant("as compared above", m, task.methods[m]) for m in methods]
    rows = [
        _outcomes(group, 0 if every else usable(group.runs)[0].activation)
        for group in (*usual, *variants)
    ]
    about = f"the study's runs{', all episodes' if every else ' after activation'}"
    return Exhibit(task.task, name, about, "", rows)


def _outcomes(group: Variant, skip: int, graded: bool = False) -> Row:
    """What some runs did after ``skip`` episodes.

    ``graded``: an episode's cost says more than whether it was violated.
    """
    runs, whole = usable(group.runs), complete(group.runs)
    violations = stats.mean_interval([run.total("violation", skip) for run in whole])
    return {
        "runs": group.name,
        "seeds": seeds_shown(runs),
        "episodes": estimate([len(run.table[skip:]) for run in runs]),
        "violations": violations._replace(low=float(np.maximum(violations.low, 0.0))),
        "successes": per_run(whole, "success", skip),
        "timeouts": per_run(whole, "timeout", skip),
        "violations per goal": per_goal(whole, skip),
        "return": per_run(runs, "return", skip, mean=True),
        **({"cost": per_run(runs, "cost", skip, mean=True)} if graded else {}),
        "steps": per_run(runs, "steps", skip, mean=True),
        "interventions": per_run(runs, "interventions", skip, mean=True),
        "violation probability": violation_probability(runs, skip),
        "violations, full training": per_run(whole, "violation", 0),
    }


def comparison_table(task: TaskRuns) -> Exhibit | None:
    """ADVICE against each other method: violations and timeouts after activation."""
    skip, methods = task.after, task.methods
    counts, late = (
        {method: totals(runs, column, skip) for method, runs in methods.items()}
        for column in ("violation", "timeout")
    )
    goals = {method: per_goal(complete(runs), skip) for method, runs in methods.items()}
    arrays = {method: np.array([*seeds.values()]) for method, seeds in counts.items() if seeds}
    mine = arrays.pop("advice", None)
    if mine is None or not arrays:
        return None
    unpaired = "no common seed"
    rows: list[Row] = [
        {
            "against": method_label(method),
            "pairs": len(set(counts["advice"]) & set(counts[method])),
            "fewer violations, %": _percent(stats.saving(estimate(mine), estimate(theirs))),
            "fewer violations per goal, %": _percent(stats.saving(goals["advice"], goals[method])),
            "violations, difference": stats.paired_difference(counts["advice"], counts[method])
            or unpaired,
            "timeouts, difference": stats.paired_difference(late["advice"], late[method])
            or unpaired,
            "probability of fewer": stats.improvement_probability([mine], [theirs]),
            "rank test, p": stats.rank_test(mine, theirs),
        }
        for method, theirs in arrays.items()
    ]
    about = "ADVICE against each other method"
    return Exhibit(task.task, "comparison", about, not_compared(counts), rows)


def _percent(found: Interval) -> Interval:
    return Interval(*(100.0 * x for x in found))


def aggregate_table(tasks: Sequence[TaskRuns]) -> Exhibit | None:
    """All tasks together: violations relative to plain DDPG's on the same task."""
    found = []  # per task: method -> complete runs, and episodes to skip
    for task in tasks:
        runs = {m: whole for m, every in task.methods.items() if (whole := complete(every))}
        enough = "ddpg" in runs and min(map(len, runs.values())) >= MIN_SEEDS
        if enough and per_run(runs["ddpg"], "violation", task.after).value > 0:
            found.append((runs, task.after))
    if len(found) < 2:
        return None
    methods = [m for m in found[0][0] if all(m in runs for runs, _ in found)]
    counts = {
        m: [np.array([run.total("violation", skip) for run in runs[m]]) for runs, skip in found]
        for m in methods
    }
    goals = {m: [per_goal(runs[m], skip) for runs, skip in found] for m in methods}
    means = {m: [estimate(x) for x in counts[m]] for m in methods}
    base, ours = means["ddpg"], counts.get("advice")
    rows: list[Row] = [
        {
            "method": method_label(m),
            "runs": sum(map(len, counts[m])),
            "violations": stats.ratio(means[m], base) if m != "ddpg" else 1,
            "violations per goal": stats.ratio(goals[m], goals["ddpg"]) if m != "ddpg" else 1,
            "timeouts": float(
                np.mean([run.total("timeout", skip) for runs, skip in found for run in runs[m]])
            ),
            "probability that ADVICE has fewer": stats.improvement_probability(ours, counts[m])
            if ours and m != "advice"
            else "–",
        }
        for m in methods
    ]
    caption = (
        "Violations and violations per goal are divided by DDPG's on the same task; geometric "
        f"mean over {len(found)} tasks (those with at least {MIN_SEEDS} seeds of each method)."
    )
    title = "All tasks together: violations after activation, relative to DDPG"
    return Exhibit("", "all-tasks", title, caption, rows)


def k_table(task: TaskRuns) -> Exhibit | None:
    """How K changed while the shield was armed: episodes in a row at each K, changes per run."""
    groups = {}  # name -> K of each armed episode, by run
    for group in task.groups:
        columns = [run.column("k").astype(np.int64) for run in usable(group.runs)]
        if armed := [k[k > 0] for k in columns if k.any()]:
            groups[group.name] = armed
    every = sorted({int(k) for runs in groups.values() for k in np.concatenate(runs)})
    rows: list[Row] = []
    for name, runs in groups.items():
        lengths = [stats.run_lengths(k) for k in runs]
        at_k = {f"episodes in a row at K = {k}": [n.get(k, 0.0) for n in lengths] for k in every}
        rows.append(
            {
                "runs": name,
                "seeds": seeds_shown(runs),
                **{title: estimate(values) for title, values in at_k.items()},
                "changes of K": estimate([np.count_nonzero(np.diff(k)) for k in runs]),
                "mean |K − K*|": estimate(
                    [np.abs(k - np.bincount(k).argmax()).mean() for k in runs]
                ),
            }
        )
    about = "consecutive episodes per K, and changes of K"
    return Exhibit(task.task, "k", about, "", rows) if rows else None


def time_table(tasks: Sequence[TaskRuns]) -> Exhibit:
    """Compute time: minutes per run and environment steps per second."""
    rows: list[Row] = []
    for task in tasks:
        for method, runs in task.methods.items():
            spent = [(run.total("seconds"), run.total("steps")) for run in usable(runs)]
            rows.append(
                {
                    "task": task.task,
                    "method": method_label(method),
                    "runs": len(spent),
                    "minutes per run": estimate([seconds / 60 for seconds, _ in spent]),
                    "steps per second": estimate([n / s for s, n in spent if s > 0]),
                }
            )
    return Exhibit("", "compute-time", "Compute time per run", "", rows)
