"""The shield's part of the page: audit, theorem diagnostics, latent space, interventions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from advice.reports.load import Run, TaskRuns, usable
from advice.reports.maps import draw_interventions, draw_latent, draw_trajectories
from advice.reports.plots import Drawing
from advice.reports.style import Look, method_label
from advice.reports.tables import Cell, Table
from advice.runs.resimulate import Replay, final_critic, resimulate
from advice.types import AdviceError

STARTS = 3
"""Starts shown in the trajectories' figure."""
MAPPED_EPISODES = 15
"""Episodes whose interventions are mapped: the last ones of the run."""


class ShieldPart(NamedTuple):
    """What there is to show about one task's shields; notes say what there is not, and why."""

    drawings: list[Drawing]
    tables: list[Table]
    notes: list[str]


def shield_part(task: TaskRuns, looks: dict[str, Look]) -> ShieldPart:
    """Everything that needs more than episodes.csv: shield files, actions and the simulator."""
    part = ShieldPart([], [], [])
    run = _example(task)
    if run is None:
        part.notes.append(
            "No fitted shield among the runs, so there is no audit and no latent space."
        )
    else:
        replays: list[Replay] = []
        where = run.folder.path
        _guarded(part, f"the interventions of {where}", lambda: _map(part, task, run, replays))
        _guarded(part, f"the shield of {where}", lambda: _inspect(part, task, run, replays))
    _guarded(part, "trajectories", lambda: _trajectories(part, task, looks))
    return part


def _guarded(part: ShieldPart, what: str, draw: Callable[[], None]) -> None:
    """A picture that cannot be made is a note, not the end of the report."""
    try:
        draw()
    except (AdviceError, OSError, ValueError, ImportError) as error:
        part.notes.append(f"Not shown: {what}. {error}")


def _example(task: TaskRuns) -> Run | None:
    """The first run with a fitted shield, rather one whose shield had something to do."""
    runs = [run for method in reversed(task.methods) for run in usable(task.methods[method])]
    fitted = [run for run in runs if run.folder.shield_file.exists() and run.column("k").any()]
    busy = [run for run in fitted if run.column("interventions").any()]
    return next(iter(busy or fitted), None)


def _name(run: Run) -> str:
    return f"{method_label(run.config.method)}, seed {run.config.seed}"


def _inspect(part: ShieldPart, task: TaskRuns, run: Run, replays: Sequence[Replay]) -> None:
    """Latent space, audit and diagnostics of one fitted shield."""
    from advice import Shield

    shield = Shield.load(run.folder.shield_file)
    arrays, _ = shield.snapshot()
    points, safe = arrays["memory.latent"], arrays["memory.safe"]
    k, k_max = shield.k, shield.config.k_max
    part.drawings.append(
        draw_latent(
            f"{task.slug}-latent",
            "Latent space",
            f"Features the shield remembers ({_name(run)}). Blue ground: at least {k} of the "
            f"{k_max} nearest are safe, so an action there is endorsed; red ground: refused.",
            points,
            safe,
            k,
            k_max,
        )
    )
    audit = shield.audit()
    rows: list[list[Cell]] = [
        [
            row.k,
            _percent(row.false_safe),
            _percent(row.false_unsafe),
            row.balanced_accuracy,
            row.safe_judged_safe,
            row.safe_judged_unsafe,
            row.unsafe_judged_safe,
            row.unsafe_judged_unsafe,
        ]
        for row in audit.at_k
    ]
    part.tables.append(
        Table(
            f"{task.slug}-audit",
            f"{task.task}: audit of the shield ({_name(run)})",
            (
                "K",
                "unsafe let through",
                "safe refused",
                "balanced accuracy",
                "safe, endorsed",
                "safe, refused",
                "unsafe, endorsed",
                "unsafe, refused",
            ),
            rows,
            f"On {audit.held_out_safe} safe and {audit.held_out_unsafe} unsafe features of "
            f"{audit.held_out_episodes} episodes held out of the fit; K is {audit.k} now. "
            + " ".join(audit.warnings),
        )
    )
    diagnostics: list[list[Cell]] = [["spread within classes, σ", audit.sigma]]
    for margin in audit.margins:
        which = "minimum" if margin.quantile == 0 else f"{margin.quantile:.0%} quantile"
        diagnostics += [
            [f"margin γ, {which}", margin.gamma],
            [f"γ/σ, {which}", margin.gamma_over_sigma],
            [f"bound exp(−γ²/2σ²), {which} (Theorem 1)", margin.bound],
        ]
    diagnostics += [
        ["entropy of the features, binned, nats", audit.entropy_binned],
        ["entropy, Kozachenko-Leonenko, nats", audit.entropy_continuous],
        ["bound exp(−H/2σ²) (Theorem 2)", audit.entropy_bound],
        [
            "ΔQ: proposed minus executed, mean over interventions (Theorem 3)",
            _delta_q(run, replays),
        ],
        ["mean |K_e − K*| over armed episodes, K* the commonest (Theorem 4)", _k_distance(run)],
    ]
    part.tables.append(
        Table(
            f"{task.slug}-diagnostics",
            f"{task.task}: the theorems' quantities",
            ("quantity", "value"),
            diagnostics,
            "Diagnostics, not guarantees: the bounds assume Gaussian noise around a margin. "
            "Compare them with the counted rates of the audit.",
        )
    )


def _percent(rate: object) -> str:
    return " ".join(str(rate).split())


def _k_distance(run: Run) -> float:
    k = run.column("k")[run.column("k") > 0].astype(np.int64)
    if not len(k):
        return float("nan")
    return float(np.abs(k - np.bincount(k).argmax()).mean())


def _delta_q(run: Run, replays: Sequence[Replay]) -> float:
    """Mean Q(s, proposed) - Q(s, executed) over interventions, by the run's last critic."""
    rate = final_critic(run.folder) if replays else None
    if rate is None:
        return float("nan")
    gaps: list[float] = []
    for replay in replays:
        for step in np.flatnonzero(replay.intervened):
            actions = np.stack([replay.proposed[step], replay.executed[step]])
            proposed, executed = rate(replay.observations[step], actions)
            gaps.append(float(proposed - executed))
    return float(np.mean(gaps)) if gaps else float("nan")  # an agent may have vetoed by itself


def _map(part: ShieldPart, task: TaskRuns, run: Run, replays: list[Replay]) -> None:
    """Where one run's shield stepped in during its last episodes."""
    busy = np.flatnonzero(run.column("interventions") > 0)[-MAPPED_EPISODES:] + 1
    replays += [resimulate(run.folder, int(episode)) for episode in busy]
    drawing = draw_interventions(
        f"{task.slug}-interventions",
        "Where the shield stepped in",
        f"{_name(run)}: the last {len(replays)} episodes with interventions, simulated again. "
        "Right: the obstacle nearest to the car at each of them; the car looks up.",
        replays,
    )
    if drawing:
        part.drawings.append(drawing)
    else:
        part.notes.append("No intervention could be placed on a map.")


def _trajectories(part: ShieldPart, task: TaskRuns, looks: dict[str, Look]) -> None:
    """The last episodes that every method has begun from the same place."""
    seeds = [
        {run.config.seed for run in runs if run.folder.actions_file.exists()}
        for runs in task.methods.values()
    ]
    methods = [m for m, found in zip(task.methods, seeds, strict=True) if found]
    if not methods:
        part.notes.append("No recorded actions, so no trajectories.")
        return
    common = set.intersection(*(found for found in seeds if found))
    if not common:
        part.notes.append("No seed that all methods share, so no trajectories from the same start.")
        return
    seed = min(common)
    runs = {m: next(r for r in task.methods[m] if r.config.seed == seed) for m in methods}
    last = min(len(run.table) for run in runs.values())
    episodes = range(max(1, last - STARTS + 1), last + 1)
    starts: Sequence[dict[str, Replay]] = [
        {method: resimulate(run.folder, episode) for method, run in runs.items()}
        for episode in episodes
    ]
    if any(replay.poses is None for replay in starts[0].values()):
        part.notes.append("This task has no car to look at from above, so no trajectories.")
        return
    part.drawings.append(
        draw_trajectories(
            f"{task.slug}-trajectories",
            "Example trajectories from the same starts",
            f"Episodes {episodes[0]} to {episodes[-1]} of seed {seed}, the last that all methods "
            "have: the same start in each row, simulated again from the recorded actions "
            "(exploration noise included).",
            starts,
            looks,
        )
    )
