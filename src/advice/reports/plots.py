"""Curves over episodes and K of one run: computed from records and drawn.

A figure is drawn once and saved as SVG for the page, as PNG and PDF for elsewhere.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from advice.reports.load import Run, usable
from advice.reports.statistics import Floats, mean_and_error, moving_average
from advice.reports.style import GRID, INK, SAFE, UNSAFE, Look, method_label
from advice.reports.tables import Exhibit, Row, write_csv
from advice.shields.cautiousness import thresholds

STYLE = Path(__file__).parent / "templates" / "figures.mplstyle"
POINTS = 200  # to which a curve is thinned, about, in the figure and in its CSV alike
WINDOW = 100  # episodes of an average, or a tenth of a shorter training


@contextmanager
def canvas(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (5.2, 4.6), **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in the report's style, and its axes."""
    with style.context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def save(drawing: Exhibit, folder: Path) -> Markup:
    """Write PNG, PDF and the rows as CSV; return the SVG for the page."""
    folder.mkdir(parents=True, exist_ok=True)
    if drawing.rows:
        write_csv(folder / f"{drawing.name}.csv", drawing.rows)
    figure, path, stream = drawing.figure, str(folder / drawing.name), io.StringIO()
    with style.context([STYLE, {"svg.hashsalt": drawing.name}]):
        # Find the layout once; every format would do it anew, and draw twice for it.
        with warnings.catch_warnings():  # a crowded figure stays as it is laid out
            warnings.filterwarnings("ignore", "constrained_layout not applied")
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
        figure.savefig(f"{path}.png", facecolor="white", dpi=150)
        figure.savefig(f"{path}.pdf", facecolor="white", metadata={"CreationDate": None})
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return _as_inline_svg(stream.getvalue(), drawing.about, 96 * figure.get_figwidth())


def _as_inline_svg(svg: str, title: str, wide: float) -> Markup:
    """Fit for one page with many others: scalable, in the theme's ink, series marked by class."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    head = re.sub(r' (?:width|height)="[\d.]+pt"', "", head)
    rest = re.sub(r' id="(series-[^"]+)"', r' class="\1"', rest).replace(INK, "currentColor")
    rest = re.sub(r' id="[\w.]+_\d+"', "", rest)  # matplotlib's numbers: the same in each figure
    # The page brings its own fonts; sizes stay matplotlib's.
    rest = re.sub(r"(font: [^;\"]*px) [^;\"]*", r"\1 var(--font)", rest)
    size = f"max-width:{1.15 * wide:.0f}px;--least:{0.75 * wide:.0f}px"
    return Markup(f'{head} style="{size}" role="img" aria-label="{escape(title)}">{rest}')


def series_class(name: str) -> str:
    """The CSS class of a series, by which the page shows and hides it."""
    return "series-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


class Metric(NamedTuple):
    """One thing to plot over episodes."""

    title: str
    column: str
    cumulative: bool = False
    limits: tuple[float, float] = (0.0, np.inf)  # between which its band is drawn


METRICS = {
    "return": Metric("Average episodic return", "return", limits=(-np.inf, np.inf)),
    "violations": Metric("Cumulative violations", "violation", cumulative=True),
    "successes": Metric("Cumulative successes", "success", cumulative=True),
    "steps": Metric("Steps per episode", "steps"),
    "violation-rate": Metric("Violation rate", "violation", limits=(0.0, 1.0)),
    "success-rate": Metric("Success rate", "success", limits=(0.0, 1.0)),
    "cost": Metric("Average cost", "cost"),
    "interventions": Metric("Interventions per episode", "interventions"),
    "interventions-csc": Metric("Interventions of CSC", "interventions"),
}


class Curve(NamedTuple):
    """Mean and standard error over seeds, as drawn and as written."""

    name: str
    label: str
    episodes: Floats
    mean: Floats
    error: Floats
    seeds: int


def curve(
    name: str, label: str, runs: Sequence[Run], metric: Metric, skip: int | None = 0
) -> Curve | None:
    """The metric over the runs' common length after ``skip`` episodes; None if none is left.

    ``skip=None`` means each run's own activation.
    """
    runs = usable(runs)
    columns = [
        run.column(metric.column)[run.activation if skip is None else skip :] for run in runs
    ]
    length = min((len(column) for column in columns), default=0)
    if length == 0:
        return None
    values = np.array([column[:length] for column in columns])
    at = thinned(length)
    if metric.cumulative:
        series = np.cumsum(values, axis=1)
    else:
        window = smoothing(length)
        series = moving_average(values, window)
        at = at[at >= window // 4]  # an average of the first few episodes is noise
    return Curve(name, label, at + 1.0, *mean_and_error(series[:, at]), len(runs))


def panels(
    groups: Sequence[tuple[str, str, Sequence[Run]]], metrics: Iterable[str], skip: int | None
) -> dict[str, list[Curve]]:
    """The curves of (name, label, runs) by metric, without metrics that have none."""
    found = {
        metric: [item for group in groups if (item := curve(*group, METRICS[metric], skip))]
        for metric in metrics
    }
    return {metric: lines for metric, lines in found.items() if lines}


def smoothing(length: int) -> int:
    """Episodes per average in a training of this length."""
    return max(1, min(WINDOW, length // 10))


def thinned(length: int) -> np.ndarray:
    """About POINTS indices below ``length``: evenly spaced, the last one always among them."""
    step = max(1, length // POINTS)
    return np.unique(np.append(np.arange(step - 1, length, step), length - 1))


def draw_row(
    panels: Mapping[str, Sequence[Curve]],
    looks: Mapping[str, Look],
    x_label: str,
    activation: int | None = None,
    last: Callable[[Any], None] | None = None,
) -> tuple[list[Row], Figure]:
    """A panel per metric with one legend: mean lines with a band of one standard error.

    ``last`` draws one more panel at the end.
    """
    rows: list[Row] = []
    count = len(panels) + (last is not None)
    with canvas(1, count, (3.45 * max(count, 2), 3.3), squeeze=False) as (figure, (axes,)):
        for one, (metric, curves) in zip(axes, panels.items(), strict=False):
            one.set(title=METRICS[metric].title, xlabel=x_label)
            for item in curves:
                _plot_curve(one, item, looks[item.name], METRICS[metric].limits)
                points = zip(item.episodes, item.mean, item.error, strict=True)
                for episode, mean, error in points:
                    row = {"metric": metric, "series": item.label, "episode": int(episode)}
                    rows.append(row | {"mean": mean, "standard_error": error})
            if activation and metric != "interventions-csc":  # it is armed from the start
                one.axvline(activation, color=GRID, linewidth=1, linestyle=(0, (2, 2)))
                place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
                one.annotate("armed", (activation, 1), (3, -2), va="top", fontsize=8, **place)
            one.set_xlim(0, max(item.episodes[-1] for item in curves))
            if METRICS[metric].limits[0] == 0:
                one.set_ylim(bottom=0)
            if metric.startswith("interventions"):  # a line at 0, the tabular shield's, is seen too
                one.set_ylim(bottom=-0.02 * one.get_ylim()[1])
            one.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        _legend(figure, *axes[0].get_legend_handles_labels())
        if last:
            last(axes[-1])
    return rows, figure


def _legend(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """One legend below the panels, in as few equal rows as the figure's width has room for."""
    width, rows = figure.get_figwidth() * figure.dpi, 1
    while True:
        columns = -(-len(labels) // rows)
        legend = figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, fontsize=10
        )
        if columns == 1 or legend.get_window_extent().width <= width:
            return
        legend.remove()
        rows += 1


def _plot_curve(axes: Any, item: Curve, look: Look, limits: tuple[float, float]) -> None:
    shared = {"color": look.colour, "gid": series_class(item.name)}
    style = {"linestyle": look.dash, "linewidth": look.width, "label": item.label}
    axes.plot(item.episodes, item.mean, **style, **shared)
    if item.seeds > 1:
        band = np.clip((item.mean - item.error, item.mean + item.error), *limits)
        axes.fill_between(item.episodes, *band, alpha=0.18, linewidth=0, **shared)


def k_history(run: Run) -> dict[str, Floats]:
    """What moves K of a run, by name, in the episodes in which its shield guarded.

    The rate mu_r, its thresholds lower = mu_d - sigma_d and upper = mu_d + sigma_d, and K after the
    episode. K does not count probes, which are single unguarded episodes between guarded ones.
    """
    k, shield = run.column("k"), run.config.shield
    probe = (k == 0) & (np.append(0, k[:-1]) > 0) & (np.append(k[1:], 0) > 0)
    episode, violation, k = (x[~probe] for x in (run.column("episode"), run.column("violation"), k))
    windows, past = (shield.recent_window, shield.distant_window), violation.tolist()
    rows = np.flatnonzero(k)
    moved = [thresholds(past[: row + 1], *windows) for row in rows]
    return {
        "episode": episode[rows],
        "violation": violation[rows],
        **dict(zip(("mu_r", "lower", "upper"), np.array(moved).T, strict=True)),
        "k_after": np.append(k[rows][1:], k[rows][-1]),
    }


def busiest(history: dict[str, Floats], length: int = 80) -> dict[str, Floats]:
    """The ``length`` episodes in which K changes most often; all, if there are no more."""
    changes = np.diff(history["k_after"], prepend=history["k_after"][:1]) != 0
    if len(changes) <= length:
        return history
    start = int(np.argmax(np.convolve(changes, np.ones(length), mode="valid")))
    return {name: column[start : start + length] for name, column in history.items()}


def draw_k_history(history: Mapping[str, Floats], title: str) -> Figure:
    """mu_r between its two thresholds above, K below."""
    x, violations, recent, lower, upper, k = history.values()
    with canvas(2, 1, (7.4, 4.2), sharex=True, height_ratios=(2, 1)) as (figure, (top, bottom)):
        top.fill_between(x, lower, upper, step="post", color=GRID, alpha=0.18, linewidth=0)
        top.step(x, upper, where="post", color=UNSAFE, linewidth=1.1, label="upper, μ_d+σ_d")
        top.step(x, lower, where="post", color=SAFE, linewidth=1.1, label="lower, μ_d−σ_d")
        top.step(x, recent, where="post", color=INK, linewidth=1.3, label="recent, μ_r")
        crashes = x[violations > 0]
        at_top = {"transform": top.get_xaxis_transform(), "clip_on": False}
        marks = {"color": UNSAFE, "markersize": 6, "label": "violation"}
        top.plot(crashes, np.ones(len(crashes)), "|", **marks, **at_top)
        top.set(title=title, ylabel="violation rate")
        top.set_ylim(min(0.0, lower.min()) - 0.05, max(0.6, upper.max(), recent.max()) + 0.08)
        bottom.step(x, k, where="post", color="#009e73", linewidth=1.6)
        bottom.set(xlabel="episode", ylabel="K", xlim=(x[0], max(x[-1], x[0] + 1)))
        bottom.set_ylim(k.min() - 0.6, k.max() + 0.6)
        bottom.set_yticks(range(int(k.min()), int(k.max()) + 1))
        bottom.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        figure.legend(loc="outside lower center", ncols=4)
    return figure


def draw_times(
    minutes: Mapping[str, Sequence[float]], looks: Mapping[str, Look]
) -> tuple[list[Row], Figure]:
    """Compute time per run: one bar per method, a dot per run."""
    rows: list[Row] = []
    with canvas(size=(7.4, 0.42 * len(minutes) + 1.1)) as (figure, axes):
        for height, (method, values) in enumerate(minutes.items()):
            colour, label = looks[method].colour, method_label(method)
            axes.barh(height, np.mean(values), color=colour, alpha=0.45, height=0.62)
            axes.plot(values, [height] * len(values), "o", color=colour, markersize=4)
            rows += [{"method": label, "run": i, "minutes": x} for i, x in enumerate(values)]
        axes.set_yticks(range(len(minutes)), map(method_label, minutes))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(title="Compute time", xlabel="minutes per run")
        axes.set_xlim(left=0)
    return rows, figure
