"""Maps: the latent space, trajectories in the arena, the places of interventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from scipy.spatial import cKDTree

from advice.reports.plots import Drawn, canvas, legend
from advice.reports.style import GRID, INK, SAFE, UNSAFE, Look, method_label
from advice.reports.tables import Row
from advice.shields.cautiousness import required_votes
from advice.types import Array

if TYPE_CHECKING:
    from advice.runs.resimulate import Replay
    from advice.shields.shield import Shield

_CELLS = 160  # the decision regions' resolution
_DOTS = 1500  # features shown of each class
KIND_COLOURS = dict.fromkeys(("cubes", "pillars"), "#8f7ee7")
KIND_COLOURS |= {"buttons": "#d99a00", "hazards": "#1f83c4", "goal": "#4fae4f", "circle": "#4fae4f"}
_MARKS = {"start": "o", "success": "*", "violation": "X", "time is up": "s", "intervention": "_"}


def plot_latent(axes: Any, shield: Shield) -> list[Row]:
    """Remembered features in the first two latent dimensions, over what K neighbours decide there.

    With more than two dimensions the regions are left out. Returns what is drawn.
    """
    arrays, _ = shield.snapshot()
    points, safe = arrays["points.latent"], arrays["points.safe"]
    flat = points.shape[1] <= 2
    plane = np.pad(points, ((0, 0), (0, 1)))[:, :2]  # 0 where there is one dimension only
    low, high = np.quantile(plane, (0.002, 0.998), axis=0)
    border = 0.08 * np.maximum(high - low, 1e-6)
    low, high = low - border, high + border
    if flat:
        axes.imshow(
            decision_regions(plane, safe, low, high, shield.k, shield.config.k_max),
            extent=(low[0], high[0], low[1], high[1]),
            cmap=ListedColormap([UNSAFE, SAFE]),
            **{"origin": "lower", "aspect": "auto", "interpolation": "nearest"},
            **{"vmin": 0, "vmax": 1, "alpha": 0.22},
        )
    rows: list[Row] = []
    for kind, colour, label in ((safe, SAFE, "safe"), (~safe, UNSAFE, "unsafe")):
        count = int(kind.sum())
        some = plane[kind][:: -(-count // _DOTS) or 1]
        dots = {"marker": "o" if label == "safe" else "^", "color": colour, "alpha": 0.65, "s": 10}
        axes.scatter(*some.T, label=f"{label} ({count})", linewidths=0, rasterized=True, **dots)
        rows += [{"class": label, "latent_1": x, "latent_2": y} for x, y in some.tolist()]
    axes.set(title="Latent space", xlabel="latent 1", ylabel="latent 2")
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.grid(visible=False)
    return rows


def draw_latent(shield: Shield) -> Drawn:
    """The latent space as a figure of its own."""
    with canvas() as (figure, axes):
        rows = plot_latent(axes, shield)
        legend(figure, [axes], 2)
    return rows, figure


def decision_regions(
    plane: Array, safe: Array, low: Array, high: Array, k: int, k_max: int
) -> Array:
    """(cells, cells) bool over the box: would K of the K_max nearest features be safe there?"""
    grid = np.stack(np.meshgrid(*np.linspace(low, high, _CELLS).T), axis=-1)
    nearest = cKDTree(plane).query(grid.reshape(-1, 2), k=range(1, min(k_max, len(plane)) + 1))[1]
    votes = safe[nearest].sum(axis=1).reshape(_CELLS, _CELLS)
    return np.asarray(votes >= required_votes(k, k_max, len(plane)))


def draw_trajectories(replays: Mapping[str, Sequence[Replay]], looks: Mapping[str, Look]) -> Drawn:
    """A column per method, a row per start, which all methods share."""
    starts = len(next(iter(replays.values())))
    size = (max(6.2, 1.9 * len(replays)), 2.1 * starts + 0.6)
    bound = max(_extent(replay) for found in replays.values() for replay in found)
    rows: list[Row] = []
    with canvas(starts, len(replays), size, squeeze=False) as (figure, panels):
        for start in range(starts):
            for axes, (method, found) in zip(panels[start], replays.items(), strict=True):
                _plot_path(axes, found[start], looks[method].colour, bound)
                if start == 0:
                    axes.set_title(method_label(method), fontsize=9)
                rows += [
                    {"start": start + 1, "method": method, "step": step, "x": x, "y": y}
                    for step, (x, y, _) in enumerate(np.array(found[start].poses).tolist())
                ]
        handles = [
            Line2D([], [], color=INK, marker=mark, linestyle="", markersize=5, label=label)
            for label, mark in _MARKS.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=5, handletextpad=0.2)
    return rows, figure


def _plot_path(axes: Any, replay: Replay, colour: str, bound: float) -> None:
    """The car's way through the arena, dark during interventions."""
    _draw_arena(axes, replay, bound)
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


def _extent(replay: Replay) -> float:
    """Half the edge of the square that shows everything."""
    assert replay.poses is not None
    places = [*replay.layout.values(), replay.poses[:, :2]]
    most = (float(np.abs(xy).max()) for xy in places if len(xy))
    return max(replay.sizes.get("arena", 1.0), *most) + 0.15


def _draw_arena(axes: Any, replay: Replay, bound: float) -> None:
    """Objects from above, in the square from -bound to +bound."""
    for kind, places in replay.layout.items():
        colour, size = KIND_COLOURS.get(kind, GRID), replay.sizes.get(kind, 0.1)
        for x, y in places:
            if kind == "cubes":
                corner, edge = (x - size, y - size), 2 * size
                axes.add_patch(Rectangle(corner, edge, edge, color=colour, alpha=0.75))
            else:
                fill = "none" if kind == "circle" else colour
                axes.add_patch(Circle((x, y), size, fc=fill, ec=colour, alpha=0.6, lw=1))
    axes.set(xlim=(-bound, bound), ylim=(-bound, bound), aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=GRID, alpha=0.5)


def draw_interventions(replays: Sequence[Replay]) -> Drawn | None:
    """Where the shield intervened: in the arena, and where the nearest obstacle was then."""
    rows = [row for replay in replays for row in intervention_places(replay)]
    if not rows:
        return None
    _, x, y, right, ahead = np.array([[*row.values()] for row in rows]).T
    dots = {"s": 8, "color": UNSAFE, "alpha": 0.5, "linewidths": 0}
    with canvas(1, 2, (7.6, 3.9)) as (figure, (arena, car)):
        for replay in replays:
            if replay.poses is not None:
                arena.plot(*replay.poses[:, :2].T, color=GRID, linewidth=0.6, alpha=0.5)
        arena.scatter(x, y, **dots)
        bound = max(np.abs([x, y]).max(), replays[0].sizes.get("arena", 1.0)) + 0.2
        arena.set(xlim=(-bound, bound), ylim=(-bound, bound), aspect="equal", title="in the arena")
        arena.set(xlabel="x, m", ylabel="y, m")
        car.scatter(right, ahead, **dots)
        car.plot([0], [0], marker=(3, 0, 0), color=INK, markersize=11)
        car.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
        car.set(xlabel="to the right, m", ylabel="ahead, m")
        car.set_title("nearest obstacle, seen from the car")
    return rows, figure


def intervention_places(replay: Replay) -> list[Row]:
    """Per intervention: episode, the car's place, the nearest obstacle to its right and ahead."""
    if replay.poses is None:
        return []
    kinds = ("cubes", "pillars", "buttons", "hazards")
    obstacles = np.concatenate([replay.layout.get(kind, np.empty((0, 2))) for kind in kinds])
    rows: list[Row] = []
    for x, y, heading in replay.poses[:-1][replay.intervened].tolist():
        dx = dy = np.nan
        if len(obstacles):
            gaps = obstacles - (x, y)
            dx, dy = gaps[np.argmin(np.hypot(gaps[:, 0], gaps[:, 1]))].tolist()
        right = float(dx * np.sin(heading) - dy * np.cos(heading))
        ahead = float(dx * np.cos(heading) + dy * np.sin(heading))
        place = {"x": x, "y": y, "obstacle_right": right, "obstacle_ahead": ahead}
        rows.append({"episode": replay.record.episode, **place})
    return rows
