"""What each method did, as tables, and what may be said about the differences.

The headline of a task is a sentence computed from the runs, and silence when there are too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from advice.reports import statistics as stats
from advice.reports.load import Run, TaskRuns, Variant, complete, totals, usable
from advice.reports.statistics import Estimate, Floats, Interval, estimate
from advice.reports.style import method_label, method_order
from advice.reports.tables import Exhibit, Row, shown
from advice.runs.studies import SHIFTS, section
from advice.shields.bounds import DriftAlarm, clopper_pearson, running_bounds

MIN_SEEDS = 3
"""With fewer seeds on either side nothing is claimed: an interval from two numbers is a guess."""
GOOD_SEEDS = 5  # the paper's number; with fewer a claim is called preliminary
Totals: TypeAlias = Mapping[str, Mapping[int, float]]  # method -> seed -> total


class Claim(NamedTuple):
    """What can be said about ADVICE on one task."""

    sentence: str
    holds: bool = False  # ADVICE has less, and the interval or else the rank test excludes chance
    saved: Interval | None = None


def compare(task: str, counts: Totals, what: str = "violations") -> Claim:
    """ADVICE, or another agent behind its shield, against the lowest mean of the others.

    A method without totals, for its runs are incomplete, is named and not compared.
    """
    shielded = [method for method in counts if method.split("+")[-1] == "advice"]
    if not shielded:
        return Claim(f"{task}: there is no run of ADVICE to compare.")
    own = min(shielded, key=len)
    label = method_label(own)
    if not counts[own]:
        return Claim(f"{task}: the runs of {label} are incomplete, so nothing is claimed.")
    left_out = not_compared(method for method, seeds in counts.items() if not seeds)
    best = best_of({method: seeds for method, seeds in counts.items() if method != own})
    if best is None:
        return Claim(f"{task}: there is no other method to compare {label} with.{left_out}")
    mine, theirs = (np.array([*counts[method].values()]) for method in (own, best))
    few, other = min(len(mine), len(theirs)), method_label(best)
    seeds = f"{len(mine)} and {len(theirs)} seeds"
    if len(mine) == len(theirs):
        seeds = f"{few} seed{'s' * (few != 1)}"
    found = f"{shown(mine.mean())} against {shown(theirs.mean())} of {other}, {seeds}"
    if few < MIN_SEEDS:
        return Claim(
            f"{task}: too few seeds to claim anything about {what} ({found}; "
            f"at least {MIN_SEEDS} seeds of each are needed).{left_out}"
        )
    if theirs.mean() == 0:
        verdict = "as few as" if mine.mean() == 0 else "more than"
        said = f"{task}: {label} had {verdict} the best other method, which had none ({found})."
        return Claim(said + left_out)
    saved = stats.saving([estimate(mine)], [estimate(theirs)])
    percent, low, high = saved
    fewer = "less" if what == "cost" else "fewer"
    if percent < 0:
        percent, low, high, fewer = -percent, -high, -low, "more"
    interval = f"95 % interval {low:.0f} to {high:.0f} %"
    if np.isnan(low):
        interval = "no interval" + ", because its runs had none" * bool(mine.mean() == 0)
    sentence = (
        f"{label}: {percent:.0f} % {fewer} {what} than the best other method ({other}) on {task}, "
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


def not_compared(methods: Iterable[str]) -> str:
    """A sentence that names the methods with incomplete runs; empty if there are none."""
    names = ", ".join(map(method_label, methods))
    return f" Not compared, because their runs are incomplete: {names}." if names else ""


def per_run(runs: Sequence[Run], column: str, skip: int, mean: bool = False) -> Estimate:
    """A column's total (or mean over episodes) per run, over runs."""
    parts = [run.column(column)[skip:] for run in usable(runs)]
    return estimate([float(x.mean() if mean else x.sum()) for x in parts if len(x)])


def per_goal(runs: Sequence[Run], skip: int) -> Estimate:
    """Violations per success."""
    return stats.quotient(*([run.total(x, skip) for run in runs] for x in ("violation", "success")))


def violation_probability(violations: Sequence[Floats]) -> Interval:
    """Violations per episode, averaged over runs; of a single run with its confidence sequence."""
    runs = [found for found in violations if len(found)]
    shares = stats.share_interval(runs)
    if len(runs) != 1:
        return shares
    low, high = running_bounds(runs[0].sum(), len(runs[0]))
    return Interval(shares.value, float(low), float(high))


def timeout_rates(runs: Sequence[Run], skip: int) -> dict[int, float]:
    """Seed -> timeouts in 1,000 episodes."""
    return {run.config.seed: 1000 * float(run.column("timeout")[skip:].mean()) for run in runs}


def goals_and_timeouts(methods: Mapping[str, Sequence[Run]], skip: int) -> str:
    """Goals and timeouts of ADVICE beside DDPG's after ``skip`` episodes; empty without both."""
    ours, theirs = (complete(methods.get(method, [])) for method in ("advice", "ddpg"))
    if not ours or not theirs:
        return ""
    goals, late, goals_of_ddpg, late_of_ddpg = (
        round(per_run(runs, column, skip).value)
        for runs in (ours, theirs)
        for column in ("success", "timeout")
    )
    return (
        f" In {ours[0].config.episodes - skip} episodes it reaches {goals} goals "
        f"(DDPG {goals_of_ddpg}) and {late} end by the step limit ({late_of_ddpg})."
    )


def summary_table(task: TaskRuns) -> Exhibit:
    """One row per method: the part after activation, and what concerns the full training."""
    skip = task.counted_from
    early = [task.early] if task.early and task.early not in task.pictured else []
    rows = [_outcomes(group, skip) for group in (*task.pictured, *early)]
    which = f"the episodes after the first {skip}" if skip else "all episodes"
    caption = f"Counts are per run over {which}."
    return Exhibit(task.task, "summary", "what each method did", caption, rows)


def study_table(task: TaskRuns, name: str) -> Exhibit:
    """The variants of one section beside the comparison's own runs, after activation."""
    every, variants = section(name).from_start, task.variants[name]
    methods = [m for m in task.methods if every or m in {variant.method for variant in variants}]
    usual = [Variant("as compared above", m, task.methods[m]) for m in methods]
    of_k = name in ("windows", "fixed-k")
    rows = [
        _outcomes(group, 0 if every else usable(group.runs)[0].activation)
        | (_stretches(group) if of_k else {})
        for group in (*usual, *variants)
    ]
    about = f"the study's runs{', all episodes' if every else ' after activation'}"
    caption = "In a row: consecutive armed episodes with this K, of the runs that had it." * of_k
    return Exhibit(task.task, name, about, caption, rows)


def _stretches(group: Variant) -> Row:
    """The mean number of consecutive armed episodes at each K of the paper."""
    found: dict[int, list[float]] = {3: [], 4: [], 5: []}
    for k in (run.column("k") for run in usable(group.runs)):
        pieces = np.split(k[k > 0], np.flatnonzero(np.diff(k[k > 0])) + 1)
        for level, means in found.items():
            if lengths := [len(piece) for piece in pieces if level in piece]:
                means.append(float(np.mean(lengths)))
    return {f"in a row at K = {level}": estimate(x) for level, x in found.items()}


def _outcomes(group: Variant, skip: int) -> Row:
    """What some runs did after ``skip`` episodes."""
    runs, whole = usable(group.runs), complete(group.runs)
    violations = stats.mean_interval([run.total("violation", skip) for run in whole])
    armed = [k[k > 0] for k in (run.column("k") for run in runs) if k.any()]
    return {
        "runs": group.name,
        "seeds": f"{len(runs)}{' (few)' * (len(runs) < GOOD_SEEDS)}",
        "episodes": estimate([len(run.table[skip:]) for run in runs]),
        "violations": violations._replace(low=float(np.maximum(violations.low, 0.0))),
        "successes": per_run(whole, "success", skip),
        "timeouts": per_run(whole, "timeout", skip),
        "violations per goal": per_goal(whole, skip),
        "return": per_run(runs, "return", skip, mean=True),
        "cost": per_run(runs, "cost", skip, mean=True),
        "steps": per_run(runs, "steps", skip, mean=True),
        "interventions": per_run(runs, "interventions", skip, mean=True),
        "K": estimate([k.mean() for k in armed]),
        "changes of K": estimate([float((np.diff(k) != 0).sum()) for k in armed]),
        "violation probability": violation_probability(
            [run.column("violation")[skip:] for run in runs]
        ),
        "violations, full training": per_run(whole, "violation", 0),
        "minutes, full training": estimate([run.minutes for run in runs]),
    }


def drift_table(task: TaskRuns) -> Exhibit | None:
    """Would the drift alarm have been given? By the second halves of the runs.

    Certified is what the frozen shields show without a shift (Clopper-Pearson, 95 %).
    """
    halves = {  # label -> the second halves of the runs
        v.label: [run._replace(table=run.table[len(run.table) // 2 :]) for run in usable(v.runs)]
        for v in task.variants.get("shift", [])
    }
    calm = halves.get(f"{next(iter(SHIFTS))}, frozen", [])
    episodes = sum(len(run.table) for run in calm)
    violated = int(sum(run.total("violation") for run in calm))
    certified = clopper_pearson(violated, episodes) if episodes else 1.0
    if certified == 1.0:
        return None
    rows: list[Row] = []
    for label, runs in halves.items():
        delays = []
        violations = [run.column("violation") for run in runs]
        for one in violations:
            alarm = DriftAlarm(certified)
            found = [alarm.update(bool(x)) for x in one]
            delays += [float(np.argmax(found)) + 1] if any(found) else []
        rows.append(
            {
                "runs": label,
                "violation probability": violation_probability(violations),
                "violations per goal": per_goal(runs, 0),
                "timeouts in 1,000 episodes": estimate([*timeout_rates(runs, 0).values()]),
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


def comparison_table(tasks: Sequence[TaskRuns]) -> Exhibit | None:
    """ADVICE against each other method after activation, on one task or on several together."""
    one = len(tasks) == 1
    rows: list[Row] = []
    incomplete = []
    every = [
        (task, {group.method: group.runs for group in (task.pictured if one else task.compared)})
        for task in tasks
    ]
    for method in method_order(m for _, runs in every for m in runs if m != "advice"):
        found = []  # per task: complete runs of ADVICE and of the other, and episodes to skip
        for task, runs in every:
            pair = [complete(runs.get(m, [])) for m in ("advice", method)]
            if min(map(len, pair)) >= (1 if one else MIN_SEEDS):
                found.append((pair, task.counted_from if one else task.activation))
        if len(found) >= min(2, len(tasks)):
            rows.append({"against": method_label(method), **_differences(found, one)})
        else:
            incomplete.append(method)
    if not rows:
        return None
    if one:
        early = tasks[0].counted_from != tasks[0].activation
        about = f"ADVICE{', armed early,' * early} against each other method"
        return Exhibit(tasks[0].task, "comparison", about, not_compared(incomplete), rows)
    caption = (
        "Geometric means of ratios and mean probabilities over the tasks on which both have at "
        f"least {MIN_SEEDS} complete runs."
    )
    about = "All tasks together: ADVICE against each other method, after activation"
    return Exhibit("", "all-tasks", about, caption, rows)


def _differences(found: Sequence[tuple[list[list[Run]], int]], one: bool) -> Row:
    """How ADVICE differs from another method; ``one``: on one task, so that seeds pair."""
    ours, theirs = (
        [np.array([run.total("violation", skip) for run in pair[side]]) for pair, skip in found]
        for side in (0, 1)
    )
    means = ([estimate(counts) for counts in side] for side in (ours, theirs))
    goals = ([per_goal(pair[side], skip) for pair, skip in found] for side in (0, 1))
    row: Row = {
        "tasks": len(found),
        "fewer violations, %": stats.saving(*means),
        "fewer violations per goal, %": stats.saving(*goals),
        "probability of fewer": stats.improvement_probability(ours, theirs),
    }
    if one:
        ((pair, skip),) = found
        for name, column in (("violations", "violation"), ("timeouts", "timeout")):
            counts = (totals(runs, column, skip) for runs in pair)
            row[f"{name}, difference"] = stats.paired_difference(*counts)
        row["rank test, p"] = stats.rank_test(ours[0], theirs[0])
    else:
        row["timeouts in 1,000 episodes, difference"] = stats.paired_difference(
            *(_mean_timeouts([(pair[side], skip) for pair, skip in found]) for side in (0, 1))
        )
    return row


def _mean_timeouts(tasks: Sequence[tuple[list[Run], int]]) -> dict[int, float]:
    """Seed -> timeouts in 1,000 episodes, averaged over tasks, of the seeds that all have."""
    found = [timeout_rates(runs, skip) for runs, skip in tasks]
    seeds = set.intersection(*map(set, found))
    return {seed: float(np.mean([rates[seed] for rates in found])) for seed in seeds}
