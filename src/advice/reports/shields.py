"""The shield's part of the page: audit, theorem diagnostics, latent space, interventions.

This is the only part of a report that simulates recorded episodes again. It imports the simulator
and the agents when there are recorded actions; all else comes from the records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from advice.reports.load import Run, TaskRuns, usable
from advice.reports.maps import Latent, draw_interventions, draw_latent, draw_trajectories
from advice.reports.plots import Drawing
from advice.reports.style import Look, method_label
from advice.reports.tables import Row, Table
from advice.types import AdviceError

if TYPE_CHECKING:
    from advice.runs.resimulate import Replay

STARTS = 3
"""Starts shown in the trajectories' figure."""
MAPPED_EPISODES = 15
"""Episodes whose interventions are mapped: the last ones of the run."""


class ShieldPart(NamedTuple):
    """What can be shown about one task's shields; notes say what cannot, and why."""

    drawings: list[Drawing]
    tables: list[Table]
    notes: list[str]


def shield_part(task: TaskRuns, looks: dict[str, Look]) -> ShieldPart:
    """Everything that needs more than episodes.csv: shield files, actions and the simulator."""
    part = ShieldPart([], [], [])
    run = example(task)
    if run is None:
        part.notes.append(
            "No fitted shield among the runs, so there is no audit and no latent space."
        )
    else:
        replays: list[Replay] = []
        where = run.folder.path
        _attempt(part, f"the interventions of {where}", lambda: _map(part, task, run, replays))
        _attempt(part, f"the shield of {where}", lambda: _inspect(part, task, run, replays))
    _attempt(part, "trajectories", lambda: _trajectories(part, task, looks))
    return part


def _attempt(part: ShieldPart, what: str, draw: Callable[[], None]) -> None:
    """Call ``draw``; an error becomes a note."""
    try:
        draw()
    except (AdviceError, OSError, ValueError, ImportError) as error:
        part.notes.append(f"Not shown: {what}. {error}")


def latent_of(task: TaskRuns) -> Latent | None:
    """The latent space of the task's example; None if there is none that can be read."""
    from advice import Shield

    run = example(task)
    if run is None:
        return None
    try:
        shield = Shield.load(run.folder.shield_file)
    except (AdviceError, OSError):
        return None  # the shield's own part says why
    arrays, _ = shield.snapshot()
    return Latent(arrays["points.latent"], arrays["points.safe"], shield.k, shield.config.k_max)


def example(task: TaskRuns) -> Run | None:
    """The first run with a fitted shield; one with interventions if there is one."""
    runs = [run for group in reversed(task.compared) for run in usable(group.runs)]
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
    k, k_max = shield.k, shield.config.k_max
    latent = Latent(arrays["points.latent"], arrays["points.safe"], k, k_max)
    part.drawings.append(
        draw_latent(
            f"{task.slug}-latent",
            "Latent space",
            f"Features the shield remembers ({_name(run)}). Blue ground: at least {k} of the "
            f"{k_max} nearest are safe, so an action there is endorsed; red ground: refused.",
            latent,
        )
    )
    audit = shield.audit()
    rows: list[Row] = [
        {
            "K": row.k,
            "unsafe let through": _percent(row.false_safe),
            "safe refused": _percent(row.false_unsafe),
            "balanced accuracy": row.balanced_accuracy,
            "safe, endorsed": row.safe_judged_safe,
            "safe, refused": row.safe_judged_unsafe,
            "unsafe, endorsed": row.unsafe_judged_safe,
            "unsafe, refused": row.unsafe_judged_unsafe,
        }
        for row in audit.at_k
    ]
    part.tables.append(
        Table(
            f"{task.slug}-audit",
            f"{task.task}: audit of the shield ({_name(run)})",
            rows,
            f"On {audit.held_out_safe} safe and {audit.held_out_unsafe} unsafe features of "
            f"{audit.held_out_episodes} episodes held out of the fit; K is {audit.k} now. "
            f"{audit.line}.",
        )
    )
    if audit.nearness:
        near: list[Row] = [
            {
                "danger of the state": f"{x.low:.0%} to {x.high:.0%}",
                "steps that survived": x.survived,
                "refused of these": x.survived_refused,
                "steps that led to a violation": x.led,
                "refused of those": x.led_refused,
            }
            for x in audit.nearness
        ]
        part.tables.append(
            Table(
                f"{task.slug}-nearness",
                f"{task.task}: refusals by nearness to danger ({_name(run)})",
                near,
                "Steps of held-out episodes, by the danger of the state in which they were taken: "
                "the probability of a violation within the next few steps.",
            )
        )
    part.tables.append(
        Table(
            f"{task.slug}-diagnostics",
            f"{task.task}: the theorems' quantities",
            [{"quantity": n, "value": v} for n, v in _diagnostics(audit, run, replays).items()],
            "Diagnostics, not guarantees: compare them with the counted rates of the audit."
            + (f" The bounds are not given: {audit.no_bound}." if audit.no_bound else ""),
        )
    )


def _diagnostics(audit: Any, run: Run, replays: Sequence[Replay]) -> dict[str, float]:
    """The quantities of the paper's theorems by name."""
    found = {"spread within classes, σ": audit.sigma}
    for margin in audit.margins:
        which = "minimum" if margin.quantile == 0 else f"{margin.quantile:.0%} quantile"
        found[f"margin γ, {which}"] = margin.gamma
        found[f"γ/σ, {which}"] = margin.gamma_over_sigma
        if not audit.no_bound:
            found[f"bound exp(−γ²/2σ²), {which} (Theorem 1)"] = margin.bound
    if not audit.no_bound:
        found["bound exp(−H/2σ²) (Theorem 2)"] = audit.entropy_bound
    delta_q = "ΔQ: proposed minus executed, mean over interventions (Theorem 3)"
    distance = "mean |K_e − K*| over armed episodes, K* the commonest (Theorem 4)"
    return found | {
        "entropy of the features, binned, nats": audit.entropy_binned,
        "entropy, Kozachenko-Leonenko, nats": audit.entropy_continuous,
        delta_q: _delta_q(run, replays),
        distance: _k_distance(run),
    }


def _percent(rate: object) -> str:
    return " ".join(str(rate).split())


def _k_distance(run: Run) -> float:
    k = run.column("k")[run.column("k") > 0].astype(np.int64)
    return float(np.abs(k - np.bincount(k).argmax()).mean()) if len(k) else float("nan")


def _delta_q(run: Run, replays: Sequence[Replay]) -> float:
    """Mean Q(s, proposed) - Q(s, executed) over interventions, by the run's last critic."""
    if not replays:
        return float("nan")
    from advice.runs.resimulate import final_critic

    rate = final_critic(run.folder)
    if rate is None:
        return float("nan")
    gaps: list[float] = []
    for replay in replays:
        for step in np.flatnonzero(replay.intervened):
            actions = np.stack([replay.proposed[step], replay.executed[step]])
            proposed, executed = rate(replay.observations[step], actions)
            gaps.append(float(proposed - executed))
    return float(np.mean(gaps)) if gaps else float("nan")


def _simulated(run: Run, episodes: Iterable[int]) -> list[Replay]:
    """Episodes of a run, simulated again; raises AdviceError if their actions were not kept."""
    run.folder.check_actions()
    from advice.runs.resimulate import resimulate

    return [resimulate(run.folder, episode) for episode in episodes]


def _map(part: ShieldPart, task: TaskRuns, run: Run, replays: list[Replay]) -> None:
    """Where one run's shield intervened during its last episodes."""
    busy = np.flatnonzero(run.column("interventions")) + 1
    replays += _simulated(run, busy[-MAPPED_EPISODES:].tolist())
    drawing = draw_interventions(
        f"{task.slug}-interventions",
        "Where the shield intervened",
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
    runs = {
        method: {run.config.seed: run for run in found if run.folder.actions_file.exists()}
        for method, found in task.methods.items()
    }
    runs = {method: found for method, found in runs.items() if found}
    if not runs:
        part.notes.append("No recorded actions, so no trajectories.")
        return
    common = set.intersection(*(set(found) for found in runs.values()))
    if not common:
        part.notes.append("No seed that all methods share, so no trajectories from the same start.")
        return
    seed = min(common)
    last = min(len(found[seed].table) for found in runs.values())
    episodes = range(max(1, last - STARTS + 1), last + 1)
    replays = {method: _simulated(found[seed], episodes) for method, found in runs.items()}
    if any(found[0].poses is None for found in replays.values()):
        part.notes.append("This task has no car to look at from above, so no trajectories.")
        return
    part.drawings.append(
        draw_trajectories(
            f"{task.slug}-trajectories",
            "Example trajectories from the same starts",
            f"Episodes {episodes[0]} to {episodes[-1]} of seed {seed}, the last that all methods "
            "have: the same start in each row, simulated again from the recorded actions "
            "(exploration noise included).",
            replays,
            looks,
        )
    )
