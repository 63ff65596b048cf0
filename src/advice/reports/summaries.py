"""The tables of a report: what each method did, and what may be said about the differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advice.reports.claims import GOOD_SEEDS, MIN_SEEDS, by_seed, not_compared
from advice.reports.curves import total
from advice.reports.load import Run, TaskRuns, Variant, complete, usable
from advice.reports.statistics import (
    UNKNOWN,
    Estimate,
    Interval,
    estimate,
    improvement_probability,
    interquartile_mean,
    mean_interval,
    paired_difference,
    quotient,
    rank_test,
    ratio,
    ratio_of_estimates,
    reduction,
    run_lengths,
    saving,
)
from advice.reports.style import method_label
from advice.reports.tables import Row, Table
from advice.runs.studies import SHIFTS, section
from advice.shields.bounds import DriftAlarm, clopper_pearson, running_bounds

Totals = dict[str, dict[int, float]]
"""method -> seed -> total"""


def totals(task: TaskRuns, column: str, skip: int) -> Totals:
    """Each run's total of one column after the first ``skip`` episodes; complete runs only."""
    return {
        method: {run.config.seed: total(run, column, skip) for run in complete(runs)}
        for method, runs in task.methods.items()
    }


def after(task: TaskRuns) -> int:
    """Episodes to skip so that only the shielded part counts; 0 if no run got that far."""
    runs = [run for group in task.methods.values() for run in usable(group)]
    return task.activation if any(len(run.table) > task.activation for run in runs) else 0


def activation_of(run: Run) -> int:
    """Episodes before this run's shield was due; 0 if it started armed or never got there."""
    due = 0 if run.config.shield_from else run.config.shield.construction_episodes
    if run.config.shield.arm == "early":
        due = min(due, run.armed_after)
    return due if due < len(run.table) else 0


def per_run(runs: Sequence[Run], column: str, skip: int, mean: bool = False) -> Estimate:
    """A column's total (or mean over episodes) per run, over runs."""
    parts = [run.column(column)[skip:] for run in usable(runs)]
    return estimate([float(x.mean() if mean else x.sum()) for x in parts if len(x)])


def violation_probability(runs: Sequence[Run], skip: int) -> Interval:
    """Violations per episode of all runs together, with their confidence sequence."""
    found = [run.column("violation")[skip:] for run in usable(runs)]
    count = sum(map(len, found))
    if not count:
        return UNKNOWN
    total = float(sum(x.sum() for x in found))
    low, high = running_bounds(total, count)
    return Interval(total / count, float(low), float(high))


def timeouts(run: Run, skip: int) -> float:
    """Episodes after the first ``skip`` that the step limit ended."""
    return float(((run.column("violation") == 0) & (run.column("success") == 0))[skip:].sum())


def per_goal(runs: Sequence[Run], skip: int) -> Estimate:
    """Violations per success."""
    return quotient(*([total(run, x, skip) for run in runs] for x in ("violation", "success")))


def goals_and_timeouts(task: TaskRuns, ours: str = "advice", other: str = "ddpg") -> str:
    """A sentence with the goals and timeouts of ADVICE beside DDPG's; empty without both."""
    skip = after(task)
    runs = {method: complete(task.methods.get(method, [])) for method in (ours, other)}
    if not all(runs.values()):
        return ""
    goals = [np.mean([total(run, "success", skip) for run in found]) for found in runs.values()]
    late = [np.mean([timeouts(run, skip) for run in found]) for found in runs.values()]
    episodes = runs[ours][0].config.episodes - skip
    return (
        f" In {episodes} episodes it reaches {goals[0]:.0f} goals "
        f"({method_label(other)} {goals[1]:.0f}) and {late[0]:.0f} end by the step limit "
        f"({late[1]:.0f})."
    )


def seeds_shown(runs: Sequence[Run]) -> str:
    """How many there are, marked if they are few."""
    return f"{len(runs)}{' (few)' * (len(runs) < GOOD_SEEDS)}"


_FEW = f"few: with fewer than {GOOD_SEEDS} seeds an interval is wide and a mean is a first guess. "
_COUNTED = (
    "Timeouts are the episodes with neither a violation nor a success, ended by the step limit. "
)


def summary_table(task: TaskRuns, graded: bool = False) -> Table:
    """One row per method: the part after activation, and violations of the full training.

    ``graded``: an episode's cost says more than whether it was violated.
    """
    skip = after(task)
    rows: list[Row] = []
    for method, runs in task.methods.items():
        whole = complete(runs)
        counted = np.array([total(run, "violation", skip) for run in whole])
        rows.append(
            {
                "method": method_label(method),
                "seeds": seeds_shown(usable(runs)),
                "violations": not_negative(mean_interval(counted)) if whole else UNKNOWN,
                "successes": per_run(whole, "success", skip),
                "timeouts": estimate([timeouts(run, skip) for run in whole]),
                "violations per goal": per_goal(whole, skip),
                "return": per_run(runs, "return", skip, mean=True),
                **({"cost": per_run(runs, "cost", skip, mean=True)} if graded else {}),
                "steps": per_run(runs, "steps", skip, mean=True),
                "interventions": per_run(runs, "interventions", skip, mean=True),
                "violation probability": violation_probability(runs, skip),
                "violations, full training": per_run(whole, "violation", 0),
            }
        )
    part = f"episodes after the first {skip}" if skip else "the full training so far"
    return Table(
        f"{task.slug}-summary",
        f"{task.task}: what each method did",
        rows,
        f"Counts are per run over {part}; return, {'cost, ' * graded}steps and interventions are "
        f"per episode. {_COUNTED}"
        "Brackets are 95 % intervals (Student's t), ± is the standard error over seeds; "
        f"{_FEW}The brackets of the violation probability, per episode and averaged over the runs, "
        "are 95 % confidence sequences, which hold while the policies change and however often one "
        "looks. Incomplete runs are not counted, for they have fewer episodes.",
    )


def not_negative(found: Interval) -> Interval:
    """Of something that cannot be below zero."""
    return found._replace(low=float(np.maximum(found.low, 0.0)))


def comparison_table(task: TaskRuns, ours: str = "advice") -> Table | None:
    """ADVICE against each other method: violations and timeouts after activation."""
    skip = after(task)
    counts = totals(task, "violation", skip)
    others = [method for method, seeds in counts.items() if seeds and method != ours]
    if not counts.get(ours) or not others:
        return None
    rows: list[Row] = []
    mine = by_seed(counts[ours])
    late = {
        method: {run.config.seed: timeouts(run, skip) for run in complete(runs)}
        for method, runs in task.methods.items()
    }
    goals = {m: (per_goal(complete(r), skip), len(complete(r))) for m, r in task.methods.items()}
    for method in others:
        theirs = by_seed(counts[method])
        saved = reduction(mine, theirs) if theirs.mean() > 0 else UNKNOWN
        per = saving(ratio_of_estimates([goals[ours]], [goals[method]]))
        rows.append(
            {
                "against": method_label(method),
                "pairs": len(set(counts[ours]) & set(counts[method])),
                "fewer violations, %": percent(saved),
                "fewer violations per goal, %": percent(per),
                "violations, difference": paired_difference(counts[ours], counts[method])
                or "no common seed",
                "timeouts, difference": paired_difference(late[ours], late[method])
                or "no common seed",
                "probability of fewer": improvement_probability([mine], [theirs]),
                "rank test, p": rank_test(mine, theirs),
            }
        )
    return Table(
        f"{task.slug}-comparison",
        f"{task.task}: {method_label(ours)} against each other method",
        rows,
        "Brackets are 95 % intervals: of percentages by Welch's t on logarithms, of differences by "
        "Student's t. A difference is ADVICE minus the other on the same seeds (same starts); "
        "the probability of fewer is the chance that a run of ADVICE has fewer violations than "
        "one of the other; p is of the exact two-sided Mann-Whitney test." + not_compared(counts),
    )


def percent(found: Interval) -> Interval:
    return Interval(*(100.0 * x for x in found))


def aggregate_table(tasks: Sequence[TaskRuns], ours: str = "advice") -> Table | None:
    """All tasks together: violations relative to plain DDPG's on the same task."""
    found = {
        task.task: {m: complete(runs) for m, runs in task.methods.items() if complete(runs)}
        for task in tasks
    }
    skips = {task.task: after(task) for task in tasks}
    counts = {
        name: {
            m: np.array([total(run, "violation", skips[name]) for run in runs])
            for m, runs in methods.items()
        }
        for name, methods in found.items()
    }
    names = [
        name
        for name, methods in counts.items()
        if "ddpg" in methods
        and min(map(len, methods.values())) >= MIN_SEEDS
        and methods["ddpg"].mean() > 0
    ]
    if len(names) < 2:
        return None
    everywhere = [m for m in counts[names[0]] if all(m in counts[name] for name in names)]
    of = {m: [counts[name][m] for name in names] for m in everywhere}
    goals = {
        m: [(per_goal(found[n][m], skips[n]), len(found[n][m])) for n in names] for m in everywhere
    }
    rows: list[Row] = [
        {
            "method": method_label(method),
            "runs": sum(map(len, of[method])),
            "violations": ratio(of[method], of["ddpg"]) if method != "ddpg" else 1,
            "violations, interquartile mean": interquartile_mean(
                [x / base.mean() for x, base in zip(of[method], of["ddpg"], strict=True)]
            ),
            "violations per goal": ratio_of_estimates(goals[method], goals["ddpg"])
            if method != "ddpg"
            else 1,
            "timeouts": float(
                np.mean([timeouts(run, skips[n]) for n in names for run in found[n][method]])
            ),
            "probability that ADVICE has fewer": improvement_probability(of[ours], of[method])
            if ours in of and method != ours
            else "–",
        }
        for method in everywhere
    ]
    return Table(
        "all-tasks",
        "All tasks together: violations after activation, relative to DDPG",
        rows,
        f"Violations and violations per goal are divided by DDPG's on the same task; geometric "
        f"mean over {len(names)} tasks (those with at least {MIN_SEEDS} seeds of each method), "
        "methods with complete runs on all of them; timeouts are per run. 95 % intervals by "
        "Welch's t on logarithms; the interquartile mean has a bootstrap interval from eight seeds "
        "on.",
    )


def k_table(task: TaskRuns, variants: Sequence[Variant]) -> Table | None:
    """How K changed while the shield was armed: episodes in a row at each K, changes per run."""
    groups = []
    for label, method, runs in (*task.compared, *variants):
        if armed := [run for run in usable(runs) if run.column("k").any()]:
            groups.append((method_label(method) + (f", {label}" if label else ""), armed))
    ks = sorted({int(k) for _, runs in groups for run in runs for k in run.column("k") if k})
    rows: list[Row] = []
    for name, runs in groups:
        armed_k = [run.column("k")[run.column("k") > 0].astype(np.int64) for run in runs]
        lengths = [run_lengths(k) for k in armed_k]
        shield = runs[0].config.shield
        windows = f"{shield.recent_window}, {shield.distant_window}"
        rows.append(
            {
                "runs": name,
                "h_r, h_d": "fixed" if shield.k_rule == "fixed" else windows,
                **{
                    f"episodes in a row at K = {k}": estimate([n.get(k, 0.0) for n in lengths])
                    for k in ks
                },
                "changes of K": estimate([float(np.count_nonzero(np.diff(k))) for k in armed_k]),
                "violations": estimate([total(run, "violation", run.armed_after) for run in runs]),
                "timeouts": estimate([timeouts(run, run.armed_after) for run in runs]),
                "violations per goal": quotient(
                    *([total(r, x, r.armed_after) for r in runs] for x in ("violation", "success"))
                ),
                "seeds": seeds_shown(runs),
            }
        )
    if not rows:
        return None
    return Table(
        f"{task.slug}-k",
        f"{task.task}: consecutive episodes per K, and changes of K",
        rows,
        "From the first episode with an armed shield on; mean ± standard error over seeds; "
        f"{_FEW}{_COUNTED}",
    )


def study_table(task: TaskRuns, name: str, variants: Sequence[Variant]) -> Table:
    """The variants of one section beside the comparison's own runs, after activation."""
    every = section(name).from_start
    methods = {*task.methods} if every else {variant.method for variant in variants}
    usual = [Variant("as compared above", m, task.methods[m]) for m in task.methods if m in methods]
    rows: list[Row] = []
    for label, method, group in (*usual, *variants):
        runs = usable(group)
        skip = 0 if every else activation_of(runs[0])
        rows.append(
            {
                "runs": f"{method_label(method)}, {label}",
                "seeds": seeds_shown(runs),
                "episodes": estimate([float(len(run.table) - skip) for run in runs]),
                "violations": per_run(runs, "violation", skip),
                "violation rate": per_run(runs, "violation", skip, mean=True),
                "successes": per_run(runs, "success", skip),
                "timeouts": estimate([timeouts(run, skip) for run in runs]),
                "violations per goal": per_goal(runs, skip),
                "return": per_run(runs, "return", skip, mean=True),
                "violations, full training": per_run(runs, "violation", 0),
            }
        )
    return Table(
        f"{task.slug}-{name}",
        f"{task.task}: the study's runs{', all episodes' if every else ' after activation'}",
        rows,
        f"Mean ± standard error over seeds; return is per episode; {_FEW}{_COUNTED}",
    )


def drift_table(task: TaskRuns, variants: Sequence[Variant]) -> Table | None:
    """Would the drift alarm have been given? By the second halves of the runs.

    Certified is what the frozen shields show without a shift (Clopper-Pearson, 95 %).
    """
    label = f"{next(iter(SHIFTS))}, frozen"
    calm = [run for variant in variants if variant.label == label for run in usable(variant.runs)]
    halves = [run.column("violation")[len(run.table) // 2 :] for run in calm]
    episodes = sum(map(len, halves))
    if not episodes:
        return None
    certified = clopper_pearson(int(sum(x.sum() for x in halves)), episodes)
    if certified == 1.0:
        return None
    rows: list[Row] = []
    for variant in variants:
        runs = usable(variant.runs)
        delays = []
        for run in runs:
            alarm = DriftAlarm(certified)
            found = [alarm.update(bool(x)) for x in run.column("violation")[len(run.table) // 2 :]]
            delays.append(float(np.argmax(found)) + 1 if any(found) else np.inf)
        given = [x for x in delays if np.isfinite(x)]
        rows.append(
            {
                "runs": variant.label,
                "violation probability": violation_probability(runs, len(runs[0].table) // 2),
                "alarms": f"{len(given)} of {len(runs)}",
                "episodes until the alarm": float(np.median(given)) if given else np.nan,
            }
        )
    return Table(
        f"{task.slug}-drift",
        f"{task.task}: violations after a shift, and whether the drift alarm is given",
        rows,
        f"The second half of each run; certified are {certified:.1%}, from {episodes} episodes "
        "without a shift. Brackets are 95 % confidence sequences; the median of the alarms given.",
    )


def time_table(tasks: Sequence[TaskRuns]) -> Table:
    """Compute time: minutes per run and environment steps per second."""
    rows: list[Row] = []
    for task in tasks:
        for method, runs in task.methods.items():
            spent = [(total(run, "seconds"), total(run, "steps")) for run in usable(runs)]
            rows.append(
                {
                    "task": task.task,
                    "method": method_label(method),
                    "runs": len(spent),
                    "minutes per run": estimate([seconds / 60 for seconds, _ in spent]),
                    "steps per second": estimate([n / s for s, n in spent if s > 0]),
                }
            )
    return Table(
        "compute-time",
        "Compute time per run",
        rows,
        "Mean ± standard error over runs: the episodes with all that is learnt in them, without "
        "the shield's fit and the checkpoints between them.",
    )
