"""The shield's part of the page: audit, theorem diagnostics, latent space, interventions.

This is the only part of a report that simulates recorded episodes again. It imports the simulator
and the agents when there are recorded actions; all else comes from the records alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from advice.reports.load import Run, TaskRuns, usable
from advice.reports.maps import draw_interventions, draw_latent, draw_trajectories
from advice.reports.style import Look
from advice.reports.tables import Exhibit, Section
from advice.runs.records import file_name
from advice.shields.shield import Shield
from advice.types import AdviceError

if TYPE_CHECKING:
    from advice.runs.resimulate import Replay

STARTS = 3
"""Starts shown in the trajectories' figure."""
MAPPED_EPISODES = 15
"""Episodes whose interventions are mapped: the last ones of the run."""


def shield_section(task: TaskRuns, looks: dict[str, Look]) -> Section:
    """Everything that needs more than episodes.csv: shield files, actions and the simulator."""
    part = Section(f"{file_name(task.task)}-shield", "The shield and its interventions")
    run = _example(task)
    if run is None:
        none = "No fitted shield among the runs, so there is no audit and no latent space."
        part.notes.append(none)
    else:
        replays: list[Replay] = []
        with _noted(part, f"the interventions of {run.folder.path}"):
            busy = np.flatnonzero(run.column("interventions")) + 1
            replays = _simulated(run, busy[-MAPPED_EPISODES:].tolist())
            if not (drawn := draw_interventions(replays)):
                raise AdviceError("None can be placed on a map.")
            title = "Where the shield intervened"
            which = f"{run.name}: the last {len(replays)} episodes with interventions."
            part.exhibits.append(Exhibit(task.task, "interventions", title, which, *drawn))
        with _noted(part, f"the shield of {run.folder.path}"):
            _inspect(part, task, run, replays)
    with _noted(part, "trajectories"):
        _trajectories(part, task, looks)
    return part


@contextmanager
def _noted(part: Section, what: str) -> Iterator[None]:
    """An error becomes a note."""
    try:
        yield
    except (AdviceError, OSError, ValueError, ImportError) as error:
        part.notes.append(f"Not shown: {what}. {error}")


def shield_of(task: TaskRuns) -> Shield | None:
    """The shield of the task's example; None if there is none that can be read."""
    if run := _example(task):
        with suppress(AdviceError, OSError):  # the shield's own part says why
            return Shield.load(run.folder.shield_file)
    return None


def _example(task: TaskRuns) -> Run | None:
    """The first run with a fitted shield; one with interventions if there is one."""
    runs = [run for group in reversed(task.compared) for run in usable(group.runs)]
    fitted = [run for run in runs if run.folder.shield_file.exists() and run.column("k").any()]
    busy = [run for run in fitted if run.column("interventions").any()]
    return next(iter(busy or fitted), None)


def _inspect(part: Section, task: TaskRuns, run: Run, replays: Sequence[Replay]) -> None:
    """Latent space, audit and diagnostics of one fitted shield."""
    shield = Shield.load(run.folder.shield_file)
    caption = (
        f"Features the shield remembers ({run.name}). Blue ground: at least {shield.k} of the "
        f"{shield.config.k_max} nearest are safe, so an action there is endorsed; red ground: "
        "refused."
    )
    drawn = draw_latent(shield)
    part.exhibits.append(Exhibit(task.task, "latent", "Latent space", caption, *drawn))
    audit = shield.audit()
    at_k = [
        {
            "K": row.k,
            "unsafe let through": str(row.false_safe),
            "safe refused": str(row.false_unsafe),
            "balanced accuracy": row.balanced_accuracy,
        }
        for row in audit.at_k
    ]
    about = f"audit of the shield ({run.name})"
    caption = (
        f"On {audit.held_out_safe} safe and {audit.held_out_unsafe} unsafe features of "
        f"{audit.held_out_episodes} episodes held out of the fit; K is {audit.k} now. {audit.line}."
    )
    part.exhibits.append(Exhibit(task.task, "audit", about, caption, at_k))
    if audit.nearness:
        near = [
            {
                "danger of the state": f"{x.low:.0%} to {x.high:.0%}",
                "steps that survived": x.survived,
                "refused of these": x.survived_refused,
                "steps that led to a violation": x.led,
                "refused of those": x.led_refused,
            }
            for x in audit.nearness
        ]
        about = f"refusals by nearness to danger ({run.name})"
        part.exhibits.append(Exhibit(task.task, "nearness", about, "", near))
    rows = [{"quantity": n, "value": v} for n, v in _diagnostics(run, replays).items()]
    about = "the theorems' quantities"
    part.exhibits.append(Exhibit(task.task, "diagnostics", about, "", rows))


def _diagnostics(run: Run, replays: Sequence[Replay]) -> dict[str, float]:
    """What the paper's theorems speak of, by name."""
    k = run.column("k")[run.column("k") > 0].astype(np.int64)
    delta_q = "ΔQ: proposed minus executed, mean over interventions (Theorem 3)"
    distance = "mean |K_e − K*| over armed episodes, K* the commonest (Theorem 4)"
    return {
        delta_q: _delta_q(run, replays),
        distance: float(np.abs(k - np.bincount(k).argmax()).mean()),
    }


def _delta_q(run: Run, replays: Sequence[Replay]) -> float:
    """Mean Q(s, proposed) - Q(s, executed) over interventions, by the run's last critic."""
    if not replays:
        return np.nan
    from advice.runs.resimulate import final_critic

    rate = final_critic(run.folder)
    if rate is None:
        return np.nan
    gaps = [
        float(np.subtract(*rate(replay.observations[t], actions)))
        for replay in replays
        for t, actions in enumerate(np.stack((replay.proposed, replay.executed), axis=1))
        if replay.intervened[t]
    ]
    return float(np.mean(gaps)) if gaps else np.nan


def _simulated(run: Run, episodes: Iterable[int]) -> list[Replay]:
    """Episodes of a run, simulated again; raises AdviceError if their actions were not kept."""
    run.folder.check_actions()
    from advice.runs.resimulate import resimulate

    return [resimulate(run.folder, episode) for episode in episodes]


def _trajectories(part: Section, task: TaskRuns, looks: dict[str, Look]) -> None:
    """The last episodes that every method has begun from the same place."""
    runs = {
        method: {run.config.seed: run for run in found if run.folder.actions_file.exists()}
        for method, found in task.methods.items()
    }
    runs = {method: found for method, found in runs.items() if found}
    if not runs:
        raise AdviceError("There are no recorded actions.")
    common = set.intersection(*(set(found) for found in runs.values()))
    if not common:
        raise AdviceError("There is no seed that all methods share.")
    seed = min(common)
    last = min(len(found[seed].table) for found in runs.values())
    episodes = range(max(1, last - STARTS + 1), last + 1)
    replays = {method: _simulated(found[seed], episodes) for method, found in runs.items()}
    if any(found[0].poses is None for found in replays.values()):
        raise AdviceError("This task has no car to look at from above.")
    title = "Example trajectories from the same starts"
    which = (
        f"Episodes {episodes[0]} to {episodes[-1]} of seed {seed}, the last that all methods have."
    )
    drawn = draw_trajectories(replays, looks)
    part.exhibits.append(Exhibit(task.task, "trajectories", title, which, *drawn))
