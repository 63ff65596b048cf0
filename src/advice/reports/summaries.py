"""The tables of a report: what each method did, and what may be said about the differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advice.reports import statistics as stats
from advice.reports.claims import GOOD_SEEDS, MIN_SEEDS, not_compared
from advice.reports.load import Run, TaskRuns, Variant, complete, totals, usable
from advice.reports.statistics import Estimate, Floats, Interval, estimate
from advice.reports.style import method_label
from advice.reports.tables import Exhibit, Row
from advice.runs.studies import SHIFTS, section
from advice.shields.bounds import DriftAlarm, clopper_pearson, running_bounds


def per_run(runs: Sequence[Run], column: str, skip: int, mean: bool = False) -> Estimate:
    """A column's total (or mean over episodes) per run, over runs."""
    parts = [run.column(column)[skip:] for run in usable(runs)]
    return estimate([float(x.mean() if mean else x.sum()) for x in parts if len(x)])


def per_goal(runs: Sequence[Run], skip: int) -> Estimate:
    """Violations per success."""
    return stats.quotient(*([run.total(x, skip) for run in runs] for x in ("violation", "success")))


def violation_probability(violations: Sequence[Floats]) -> Interval:
    """Violations per episode of all runs together, with their confidence sequence."""
    found = np.concatenate(violations)
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


def seeds_shown(runs: Sequence[Run]) -> str:
    """How many there are, marked if they are few."""
    return f"{len(runs)}{' (few)' * (len(runs) < GOOD_SEEDS)}"


def summary_table(task: TaskRuns, graded: bool = False) -> Exhibit:
    """One row per method: the part after activation, and violations of the full training.

    ``graded``: an episode's cost says more than whether it was violated.
    """
    skip = task.after
    rows: list[Row] = []
    for method, runs in task.methods.items():
        whole = complete(runs)
        violations = stats.mean_interval([*totals(runs, "violation", skip).values()])
        rows.append(
            {
                "method": method_label(method),
                "seeds": seeds_shown(usable(runs)),
                "violations": violations._replace(low=float(np.maximum(violations.low, 0.0))),
                "successes": per_run(whole, "success", skip),
                "timeouts": per_run(whole, "timeout", skip),
                "violations per goal": per_goal(whole, skip),
                "return": per_run(runs, "return", skip, mean=True),
                **({"cost": per_run(runs, "cost", skip, mean=True)} if graded else {}),
                "steps": per_run(runs, "steps", skip, mean=True),
                "interventions": per_run(runs, "interventions", skip, mean=True),
                "violation probability": violation_probability(
                    [run.column("violation")[skip:] for run in usable(runs)]
                ),
                "violations, full training": per_run(whole, "violation", 0),
            }
        )
    part = f"episodes after the first {skip}" if skip else "the full training so far"
    per = f"return, {'cost, ' * graded}steps and interventions are per episode"
    caption = f"Counts are per run over {part}; {per}."
    return Exhibit(task.task, "summary", "what each method did", caption, rows)


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
            "violations, interquartile mean": stats.interquartile_mean(
                [x / mean.value for x, mean in zip(counts[m], base, strict=True)]
            ),
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
    groups = {}
    for group in task.groups:
        if armed := [run for run in usable(group.runs) if run.column("k").any()]:
            groups[group.name] = armed
    ks = sorted({int(k) for runs in groups.values() for run in runs for k in run.column("k") if k})
    rows: list[Row] = []
    for name, runs in groups.items():
        armed_k = [run.column("k")[run.column("k") > 0].astype(np.int64) for run in runs]
        lengths = [stats.run_lengths(k) for k in armed_k]
        violations, timeouts, goals = (
            [run.total(column, run.armed_after) for run in runs]
            for column in ("violation", "timeout", "success")
        )
        shield = runs[0].config.shield
        windows = f"{shield.recent_window}, {shield.distant_window}"
        at_k = {f"episodes in a row at K = {k}": [n.get(k, 0.0) for n in lengths] for k in ks}
        rows.append(
            {
                "runs": name,
                "h_r, h_d": "fixed" if shield.k_rule == "fixed" else windows,
                **{title: estimate(values) for title, values in at_k.items()},
                "changes of K": estimate([float(np.count_nonzero(np.diff(k))) for k in armed_k]),
                "violations": estimate(violations),
                "timeouts": estimate(timeouts),
                "violations per goal": stats.quotient(violations, goals),
                "seeds": seeds_shown(runs),
            }
        )
    about = "consecutive episodes per K, and changes of K"
    return Exhibit(task.task, "k", about, "", rows) if rows else None


def study_table(task: TaskRuns, name: str) -> Exhibit:
    """The variants of one section beside the comparison's own runs, after activation."""
    every, variants = section(name).from_start, task.variants[name]
    methods = [m for m in task.methods if every or m in {variant.method for variant in variants}]
    usual = [Variant("as compared above", m, task.methods[m]) for m in methods]
    rows: list[Row] = []
    for group in (*usual, *variants):
        runs = usable(group.runs)
        skip = 0 if every else runs[0].activation
        rows.append(
            {
                "runs": group.name,
                "seeds": seeds_shown(runs),
                "episodes": estimate([len(run.table) - skip for run in runs]),
                "violations": per_run(runs, "violation", skip),
                "violation rate": per_run(runs, "violation", skip, mean=True),
                "successes": per_run(runs, "success", skip),
                "timeouts": per_run(runs, "timeout", skip),
                "violations per goal": per_goal(runs, skip),
                "return": per_run(runs, "return", skip, mean=True),
                "violations, full training": per_run(runs, "violation", 0),
            }
        )
    about = f"the study's runs{', all episodes' if every else ' after activation'}"
    return Exhibit(task.task, name, about, "", rows)


def drift_table(task: TaskRuns) -> Exhibit | None:
    """Would the drift alarm have been given? By the second halves of the runs.

    Certified is what the frozen shields show without a shift (Clopper-Pearson, 95 %).
    """
    halves = {  # label -> the second halves of the runs
        v.label: [run.column("violation")[len(run.table) // 2 :] for run in usable(v.runs)]
        for v in task.variants.get("shift", [])
    }
    calm = halves.get(f"{next(iter(SHIFTS))}, frozen", [])
    episodes = sum(map(len, calm))
    certified = clopper_pearson(int(sum(x.sum() for x in calm)), episodes) if episodes else 1.0
    if certified == 1.0:
        return None
    rows: list[Row] = []
    for label, runs in halves.items():
        delays = []
        for violations in runs:
            alarm = DriftAlarm(certified)
            found = [alarm.update(bool(x)) for x in violations]
            delays += [float(np.argmax(found)) + 1] if any(found) else []
        rows.append(
            {
                "runs": label,
                "violation probability": violation_probability(runs),
                "alarms": f"{len(delays)} of {len(runs)}",
                "episodes until the alarm": float(np.median(delays)) if delays else np.nan,
            }
        )
    about = "violations after a shift, and whether the drift alarm is given"
    caption = (
        f"The second half of each run; certified are {certified:.1%}, from {episodes} episodes "
        "without a shift."
    )
    return Exhibit(task.task, "drift", about, caption, rows)


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
