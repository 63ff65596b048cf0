"""The shield's part of the page: latent space, audit, the theorems' quantities, trajectories.

This is the only part of a report that simulates recorded episodes again. It imports the simulator
and the agents when there are recorded actions; all else comes from the records alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from scipy.spatial import cKDTree

from advice.envs.tasks import TASKS, short_name
from advice.reports.load import Run, TaskRuns, usable
from advice.reports.plots import canvas
from advice.reports.style import GRID, INK, SAFE, UNSAFE, Look, method_label
from advice.reports.tables import Exhibit, Row, Section
from advice.runs.actions import has_actions
from advice.runs.records import file_name
from advice.shields.audit import Audit
from advice.shields.cautiousness import required_votes
from advice.shields.shield import Shield
from advice.types import AdviceError

if TYPE_CHECKING:
    from advice.runs.resimulate import Replay

STARTS = 3  # shown in the trajectories' figure
CIRCLED = 20  # episodes of which laps and speed are measured
RATED_EPISODES = 15  # the last ones with interventions, which the critic rates
KIND_COLOURS = dict.fromkeys(("cubes", "pillars"), "#8f7ee7")
KIND_COLOURS |= {"buttons": "#d99a00", "hazards": "#1f83c4", "goal": "#4fae4f", "circle": "#4fae4f"}
_CELLS = 160  # the decision regions' resolution
_DOTS = 1500  # features shown of each class
_ERRORS = (AdviceError, OSError, ValueError, ImportError)
_MARKS = {"start": "o", "success": "*", "violation": "X", "time is up": "s", "intervention": "_"}
Recorded: TypeAlias = Mapping[str, Mapping[int, Run]]  # method -> seed -> run with its actions


def shield_section(task: TaskRuns, looks: Mapping[str, Look]) -> tuple[Section, Shield | None]:
    """What needs more than episodes.csv: the audit and trajectories; and the shield shown."""
    part = Section(f"{file_name(task.task)}-shield", "The shield")
    run, shield = _example(task), None
    if run is None:
        none = "No fitted shield among the runs, so there is no audit and no latent space."
        part.notes.append(none)
    else:
        try:
            shield = Shield.load(run.folder.shield_file)
            audit = shield.audit()
            part.printed = f"{run.name}\n\n{audit}"
            part.exhibits.append(_diagnostics(task, run, audit, _delta_q(run, part.notes)))
        except _ERRORS as error:
            part.notes.append(f"Not shown: the shield of {run.folder.path}. {error}")
    if recorded := _recorded(task, part.notes):
        ways = partial(_trajectories, looks=looks)
        for what, exhibits in (("trajectories", ways), ("laps and speed", _laps)):
            try:
                part.exhibits += exhibits(task, recorded)
            except _ERRORS as error:
                part.notes.append(f"Not shown: {what}. {error}")
    return part, shield


def _example(task: TaskRuns) -> Run | None:
    """The first run with a fitted shield; one with interventions if there is one."""
    runs = [run for group in reversed(task.pictured) for run in usable(group.runs)]
    fitted = [run for run in runs if run.folder.shield_file.exists() and run.column("k").any()]
    busy = [run for run in fitted if run.column("interventions").any()]
    return next(iter(busy or fitted), None)


def _diagnostics(task: TaskRuns, run: Run, audit: Audit, delta_q: float) -> Exhibit:
    """The quantities of the paper's theorems."""
    found = {"spread within classes, σ": audit.sigma}
    for margin in audit.margins:
        which = "minimum" if margin.quantile == 0 else f"{margin.quantile:.0%} quantile"
        found[f"margin γ, {which}"] = margin.gamma
        found[f"γ/σ, {which}"] = margin.gamma_over_sigma
        if not audit.no_bound:
            found[f"bound exp(−γ²/2σ²), {which} (Theorem 1)"] = margin.bound
    if not audit.no_bound:
        found["bound exp(−H/2σ²) (Theorem 2)"] = audit.entropy_bound
    k = run.column("k")[run.column("k") > 0].astype(np.int64)
    found |= {
        "entropy of the features, binned, nats": audit.entropy_binned,
        "entropy, Kozachenko-Leonenko, nats": audit.entropy_continuous,
        "ΔQ: proposed minus executed, mean over interventions (Theorem 3)": delta_q,
        "mean |K_e − K*| over armed episodes, K* the commonest (Theorem 4)": float(
            np.abs(k - np.bincount(k).argmax()).mean()
        ),
    }
    rows = [{"quantity": name, "value": value} for name, value in found.items()]
    why = f"The bounds are not given: {audit.no_bound}." if audit.no_bound else ""
    return Exhibit(task.task, "diagnostics", f"the theorems' quantities ({run.name})", why, rows)


def _delta_q(run: Run, notes: list[str]) -> float:
    """Mean Q(s, proposed) - Q(s, executed) over the last interventions, by the run's last critic.

    NaN if its actions or its agent were not kept, or cannot be used, which ``notes`` then say.
    """
    if not has_actions(run.folder):
        return np.nan
    from advice.runs.resimulate import final_critic, resimulate

    gaps = []
    try:
        rate = final_critic(run.folder)
        if rate is None:
            return np.nan
        for episode in np.flatnonzero(run.column("interventions"))[-RATED_EPISODES:] + 1:
            replay = resimulate(run.folder, int(episode))
            for t in np.flatnonzero(replay.intervened):
                actions = np.stack((replay.proposed[t], replay.executed[t]))
                gaps.append(float(np.subtract(*rate(replay.observations[t], actions))))
    except _ERRORS as error:
        notes.append(f"Not shown: ΔQ of {run.folder.path}. {error}")
        return np.nan
    return float(np.mean(gaps)) if gaps else np.nan


def plot_latent(axes: Any, shield: Shield) -> None:
    """Remembered features in the first two latent dimensions, over what K neighbours decide there.

    With more than two dimensions the regions are left out.
    """
    arrays, _ = shield.snapshot()
    points, safe = arrays["points.latent"], arrays["points.safe"]
    plane = np.pad(points, ((0, 0), (0, 1)))[:, :2]  # 0 where there is one dimension only
    low, high = np.quantile(plane, (0.002, 0.998), axis=0)
    border = 0.08 * np.maximum(high - low, 1e-6)
    low, high = low - border, high + border
    if points.shape[1] <= 2:
        k, k_max = shield.k, min(shield.config.k_max, len(plane))
        cells = np.stack(np.meshgrid(*np.linspace(low, high, _CELLS).T), axis=-1)
        votes = safe[cKDTree(plane).query(cells, k=range(1, k_max + 1))[1]].sum(axis=-1)
        axes.imshow(
            votes >= required_votes(k, shield.config.k_max, len(plane)),
            extent=(low[0], high[0], low[1], high[1]),
            cmap=ListedColormap([UNSAFE, SAFE]),
            **{"origin": "lower", "aspect": "auto", "interpolation": "nearest"},
            **{"vmin": 0, "vmax": 1, "alpha": 0.22},
        )
    for kind, colour, label in ((safe, SAFE, "safe"), (~safe, UNSAFE, "unsafe")):
        count = int(kind.sum())
        some = plane[kind][:: -(-count // _DOTS) or 1]
        dots = {"marker": "o" if label == "safe" else "^", "color": colour, "alpha": 0.65, "s": 10}
        axes.scatter(*some.T, label=f"{label} ({count})", linewidths=0, rasterized=True, **dots)
    axes.set(title="Latent space", xlabel="latent 1", ylabel="latent 2")
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.grid(visible=False)
    legend = {"loc": "upper right", "fontsize": 8, "frameon": True, "facecolor": "white"}
    axes.legend(markerscale=1.4, handletextpad=0.1, framealpha=0.9, labelcolor="#222222", **legend)


def _recorded(task: TaskRuns, notes: list[str]) -> Recorded:
    """The runs with recorded actions; ``notes`` then say which methods have none."""
    runs = {
        group.method: {run.config.seed: run for run in group.runs if has_actions(run.folder)}
        for group in task.pictured
    }
    if none := [method_label(method) for method, found in runs.items() if not found]:
        notes.append(f"No recorded actions of {', '.join(none)}.")
    return {method: found for method, found in runs.items() if found}


def _trajectories(task: TaskRuns, runs: Recorded, looks: Mapping[str, Look]) -> list[Exhibit]:
    """The last episodes that every method has begun from the same place."""
    common = set.intersection(*map(set, runs.values()))
    if not common:
        raise AdviceError("There is no seed of which all methods have recorded actions.")
    seed = min(common)
    last = min(len(found[seed].table) for found in runs.values())
    episodes = range(max(1, last - STARTS + 1), last + 1)
    from advice.runs.resimulate import resimulate

    replays = {
        method: [resimulate(found[seed].folder, episode) for episode in episodes]
        for method, found in runs.items()
    }
    if any(found[0].poses is None for found in replays.values()):
        raise AdviceError("This task has no car to look at from above.")
    title = "Example trajectories from the same starts"
    which = (
        f"Episodes {episodes[0]} to {episodes[-1]} of seed {seed}, the last that all methods have."
    )
    drawn = draw_trajectories(replays, looks)
    return [Exhibit(task.task, "trajectories", title, which, figure=drawn)]


def _laps(task: TaskRuns, runs: Recorded) -> list[Exhibit]:
    """Laps and speed in the last episodes of one run of each method, if there is a circle."""
    spec = TASKS.get(short_name(task.task))
    if spec is None or spec.target != "circle":
        return []
    from advice.runs.resimulate import resimulate

    rows, common = [], set.intersection(*map(set, runs.values()))
    for method, found in runs.items():
        run = found[min(common or found)]
        last = len(run.table)
        first = max(1, last - CIRCLED + 1)
        replays = [resimulate(run.folder, number) for number in range(first, last + 1)]
        row: Row = {"method": method_label(method), "seed": run.config.seed}
        rows.append(row | {"episodes": f"{first} to {last}"} | laps_and_speed(replays))
    which = f"Means over one run each; the circle's radius is {replays[0].sizes['circle']:g} m."
    return [Exhibit(task.task, "laps", "laps and speed", which, rows)]


def laps_and_speed(replays: Sequence[Replay]) -> dict[str, float]:
    """Means over episodes: laps around the circle's centre (clockwise counts as negative), and over
    their steps speed in m/s and distance from the centre in m."""
    laps, steps = [], []
    for replay in replays:
        assert replay.poses is not None
        apart = replay.poses[:, :2] - replay.layout["circle"][0]
        angles = np.unwrap(np.arctan2(apart[:, 1], apart[:, 0]))
        laps.append((angles[-1] - angles[0]) / (2 * np.pi))
        speeds = np.linalg.norm(np.diff(apart, axis=0), axis=1) * replay.fps
        steps.append(np.stack((speeds, np.linalg.norm(apart[1:], axis=1))))
    speed, distance = np.concatenate(steps, axis=1).mean(axis=1)
    return {"laps": float(np.mean(laps)), "speed, m/s": speed, "distance, m": distance}


def draw_trajectories(replays: Mapping[str, Sequence[Replay]], looks: Mapping[str, Look]) -> Figure:
    """A column per method, a row per start, which all methods share."""
    starts = len(next(iter(replays.values())))
    ways = [r.poses[:, :2] for found in replays.values() for r in found if r.poses is not None]
    places = [spots for found in replays.values() for r in found for spots in r.layout.values()]
    wide, high = np.ptp(np.concatenate([*ways, *places]), axis=0) + 0.5
    size = (max(6.2, 1.9 * len(replays)), (1.9 * min(1.0, high / wide) + 0.3) * starts + 0.6)
    shared = {"sharex": True, "sharey": True, "squeeze": False}
    with canvas(starts, len(replays), size, **shared) as (figure, panels):
        for column, (method, found) in enumerate(replays.items()):
            panels[0, column].set_title(method_label(method), fontsize=9)
            for axes, replay in zip(panels[:, column], found, strict=True):
                _draw_arena(axes, replay)
                _plot_path(axes, replay, looks[method].colour)
        handles = [
            Line2D([], [], color=INK, marker=mark, linestyle="", markersize=5, label=label)
            for label, mark in _MARKS.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=5, handletextpad=0.2)
    return figure


def _plot_path(axes: Any, replay: Replay, colour: str) -> None:
    """The car's way through the arena, dark during interventions."""
    assert replay.poses is not None
    path, steps = replay.poses[:, :2], np.flatnonzero(replay.intervened)
    axes.plot(*path.T, color=colour, linewidth=2.4)
    pieces = np.stack((path[steps], path[steps + 1], np.full((len(steps), 2), np.nan)), axis=1)
    axes.plot(*pieces.reshape(-1, 2).T, color=INK, linewidth=0.9)
    end = outcome(replay)
    axes.plot(*path[0], "o", color=INK, markersize=3.5)
    axes.plot(*path[-1], _MARKS.get(end, "s"), color=INK, markersize=5.5)
    axes.set_xlabel(end, fontsize=8)


def outcome(replay: Replay) -> str:
    """How an episode ended, in words."""
    if replay.violations.any():
        return "violation"
    if replay.successes.any():
        return "success"
    return "with cost" if (replay.costs > 0).any() else "time is up"


def _draw_arena(axes: Any, replay: Replay) -> None:
    """Objects from above."""
    for kind, places in replay.layout.items():
        colour, size = KIND_COLOURS.get(kind, GRID), replay.sizes.get(kind, 0.1)
        for x, y in places:
            if kind == "cubes":
                corner, edge = (x - size, y - size), 2 * size
                axes.add_patch(Rectangle(corner, edge, edge, color=colour, alpha=0.75))
            else:
                fill = "none" if kind == "circle" else colour
                axes.add_patch(Circle((x, y), size, fc=fill, ec=colour, alpha=0.6, lw=1))
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=GRID, alpha=0.5)
