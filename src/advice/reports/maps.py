"""Maps: the latent space, trajectories in the arena, the places of interventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from scipy.spatial import cKDTree

from advice.reports.plots import Drawing, canvas, legend
from advice.reports.style import GRID, INK, SAFE, UNSAFE, Look, method_label
from advice.reports.tables import Value
from advice.shields.cautiousness import required_votes
from advice.types import Array

if TYPE_CHECKING:
    from advice.runs.resimulate import Replay

_CELLS = 160  # the decision regions' resolution
_DOTS = 1500  # features shown of each class
KIND_COLOURS = {
    "cubes": "#8f7ee7",
    "pillars": "#8f7ee7",
    "buttons": "#d99a00",
    "hazards": "#1f83c4",
    "goal": "#4fae4f",
    "circle": "#4fae4f",
}


class Latent(NamedTuple):
    """What a fitted shield remembers: ``points`` (N, latent), ``safe`` (N,), and its K."""

    points: Array
    safe: Array
    k: int
    k_max: int


def plot_latent(axes: Any, found: Latent, title: str = "Latent space") -> list[tuple[Value, ...]]:
    """Remembered features in the first two latent dimensions, over what K neighbours decide there.

    With more than two dimensions the regions are left out. Returns what is drawn.
    """
    points, safe = found.points, found.safe
    plane = points if points.shape[1] > 1 else np.column_stack((points, np.zeros(len(points))))
    low, high = np.quantile(plane[:, :2], 0.002, axis=0), np.quantile(plane[:, :2], 0.998, axis=0)
    border = 0.08 * np.maximum(high - low, 1e-6)
    low, high = low - border, high + border
    if points.shape[1] <= 2:
        axes.imshow(
            decision_regions(points, safe, low, high, found.k, found.k_max),
            extent=(low[0], high[0], low[1], high[1]),
            origin="lower",
            aspect="auto",
            cmap=ListedColormap([UNSAFE, SAFE]),
            vmin=0,
            vmax=1,
            alpha=0.22,
            interpolation="nearest",
        )
    rows: list[tuple[Value, ...]] = []
    for kind, colour, label in ((safe, SAFE, "safe"), (~safe, UNSAFE, "unsafe")):
        some = plane[kind][:: -(-int(kind.sum()) // _DOTS) or 1]
        axes.scatter(
            some[:, 0],
            some[:, 1],
            s=10,
            marker="o" if label == "safe" else "^",
            color=colour,
            alpha=0.65,
            linewidths=0,
            label=f"{label} ({int(kind.sum())})",
            rasterized=True,
        )
        rows += [(label, float(x), float(y)) for x, y in some[:, :2]]
    axes.set(title=title, xlabel="latent 1", ylabel="latent 2")
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.grid(visible=False)
    return rows


def draw_latent(name: str, title: str, caption: str, found: Latent) -> Drawing:
    """The latent space as a figure of its own."""
    with canvas(size=(5.2, 4.6)) as (figure, axes):
        rows = plot_latent(axes, found, title)
        legend(figure, axes)
    return Drawing(name, title, caption, figure, ("class", "latent_1", "latent_2"), rows)


def decision_regions(
    points: Array, safe: Array, low: Array, high: Array, k: int, k_max: int
) -> Array:
    """(cells, cells) bool over the box: would K of the K_max nearest features be safe there?"""
    axes = [np.linspace(low[i], high[i], _CELLS) for i in range(points.shape[1])]
    if points.shape[1] == 1:
        axes.append(np.zeros(_CELLS))
        points = np.column_stack((points, np.zeros(len(points))))
    grid = np.stack(np.meshgrid(*axes), axis=-1)
    nearest = cKDTree(points).query(grid.reshape(-1, 2), k=range(1, min(k_max, len(points)) + 1))[1]
    votes = safe[nearest].sum(axis=1).reshape(_CELLS, _CELLS)
    return np.asarray(votes >= required_votes(k, k_max, len(points)))


def draw_trajectories(
    name: str,
    title: str,
    caption: str,
    replays: Mapping[str, Sequence[Replay]],
    looks: Mapping[str, Look],
) -> Drawing:
    """A column per method, a row per start, which all methods share."""
    starts = len(next(iter(replays.values())))
    size = (max(6.2, 1.9 * len(replays)), 2.1 * starts + 0.6)
    bound = max(_extent(replay) for found in replays.values() for replay in found)
    rows: list[tuple[Value, ...]] = []
    with canvas(starts, len(replays), size, squeeze=False) as (figure, panels):
        for i in range(starts):
            for j, (method, found) in enumerate(replays.items()):
                replay, axes = found[i], panels[i, j]
                draw_arena(axes, replay, bound)
                assert replay.poses is not None
                x, y = replay.poses[:, 0], replay.poses[:, 1]
                axes.plot(x, y, color=looks[method].colour, linewidth=2.4)
                axes.plot(*_where(replay.intervened, x, y), color=INK, linewidth=0.9)
                axes.plot(x[0], y[0], "o", color=INK, markersize=3.5)
                axes.plot(x[-1], y[-1], _END[outcome(replay)], color=INK, markersize=5.5)
                axes.set_xlabel(outcome(replay), fontsize=8)
                if i == 0:
                    axes.set_title(method_label(method), fontsize=9)
                rows += [
                    (i + 1, method, step, float(a), float(b))
                    for step, (a, b) in enumerate(zip(x, y, strict=True))
                ]
        marks = [
            Line2D([], [], color=INK, marker=mark, linestyle="", markersize=5, label=label)
            for mark, label in (
                ("o", "start"),
                ("*", "success"),
                ("X", "violation"),
                ("s", "time is up"),
                ("_", "intervention"),
            )
        ]
        figure.legend(handles=marks, loc="outside lower center", ncols=5, handletextpad=0.2)
    header = ("start", "method", "step", "x", "y")
    return Drawing(name, title, caption, figure, header, rows, wide=True)


def _where(steps: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """The path during those steps, with a gap after each."""
    begins, ends = np.flatnonzero(steps), np.flatnonzero(steps) + 1
    gap = np.full(len(begins), np.nan)
    return tuple(np.stack((v[begins], v[ends], gap), axis=1).ravel() for v in (x, y))  # type: ignore[return-value]


def outcome(replay: Replay) -> str:
    """How an episode ended, in words."""
    if replay.violations.any():
        return "violation"
    if replay.successes.any():
        return "success"
    return "with cost" if (replay.costs > 0).any() else "time is up"


_END = {"violation": "X", "success": "*", "with cost": "s", "time is up": "s"}


def _extent(replay: Replay) -> float:
    """Half the edge of the square that shows everything."""
    places = [np.abs(xy).max() for xy in replay.layout.values() if len(xy)]
    if replay.poses is not None:
        places.append(np.abs(replay.poses[:, :2]).max())
    return float(max([replay.sizes.get("arena", 1.0), *places])) + 0.15


def draw_arena(axes: Any, replay: Replay, bound: float) -> None:
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
    for spine in axes.spines.values():
        spine.set(visible=True, color=GRID, alpha=0.5)


def draw_interventions(
    name: str, title: str, caption: str, replays: Sequence[Replay]
) -> Drawing | None:
    """Where the shield intervened: in the arena, and where the nearest obstacle was then."""
    rows = [row for replay in replays for row in intervention_places(replay)]
    if not rows:
        return None
    with canvas(1, 2, (7.6, 3.9)) as (figure, (arena, car)):
        found = np.array([row[1:] for row in rows], dtype=np.float64)
        for replay in replays:
            if replay.poses is not None:
                arena.plot(*replay.poses[:, :2].T, color=GRID, linewidth=0.6, alpha=0.5)
        arena.scatter(found[:, 0], found[:, 1], s=8, color=UNSAFE, alpha=0.5, linewidths=0)
        bound = max(float(np.abs(found[:, :2]).max()), replays[0].sizes.get("arena", 1.0)) + 0.2
        arena.set(xlim=(-bound, bound), ylim=(-bound, bound), aspect="equal", title="in the arena")
        seen = found[np.isfinite(found[:, 2])]
        car.scatter(seen[:, 2], seen[:, 3], s=8, color=UNSAFE, alpha=0.5, linewidths=0)
        car.plot([0], [0], marker=(3, 0, 0), color=INK, markersize=11)
        car.set(
            xlim=(-1.2, 1.2),
            ylim=(-1.2, 1.2),
            aspect="equal",
            title="nearest obstacle, seen from the car",
        )
        car.set_xlabel("to the right, m")
        car.set_ylabel("ahead, m")
        arena.set_xlabel("x, m")
        arena.set_ylabel("y, m")
    header = ("episode", "x", "y", "obstacle_right", "obstacle_ahead")
    return Drawing(name, title, caption, figure, header, rows, wide=True)


def intervention_places(replay: Replay) -> list[tuple[Value, ...]]:
    """Per intervention: episode, the car's place, the nearest obstacle to its right and ahead."""
    if replay.poses is None:
        return []
    kinds = ("cubes", "pillars", "buttons", "hazards")
    obstacles = np.concatenate([replay.layout.get(kind, np.empty((0, 2))) for kind in kinds])
    rows: list[tuple[Value, ...]] = []
    for x, y, heading in replay.poses[:-1][replay.intervened].tolist():
        right = ahead = float("nan")
        if len(obstacles):
            gaps = obstacles - (x, y)
            dx, dy = gaps[np.argmin(np.hypot(gaps[:, 0], gaps[:, 1]))].tolist()
            ahead = dx * np.cos(heading) + dy * np.sin(heading)
            right = dx * np.sin(heading) - dy * np.cos(heading)
        rows.append((replay.record.episode, x, y, float(right), float(ahead)))
    return rows
