"""Figures from records: drawn once, saved as SVG for the page, PNG and PDF for elsewhere."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from markupsafe import Markup
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from advice.reports.curves import METRICS, Curve, KHistory
from advice.reports.style import GRID, INK, SAFE, UNSAFE, Look, method_label
from advice.reports.tables import Exhibit, Row, write_csv

STYLE = Path(__file__).parent / "templates" / "figures.mplstyle"
Drawn: TypeAlias = tuple[list[Row], Figure]
"""A figure and the data it shows."""


@contextmanager
def canvas(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (5.2, 4.6), **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in the report's style, and its axes."""
    with style.context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def save(drawing: Exhibit, folder: Path) -> Markup:
    """Write PNG, PDF and CSV; return the SVG for the page."""
    folder.mkdir(parents=True, exist_ok=True)
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
    referenced = set(re.findall(r"#([\w.-]+)", rest))

    def mark(found: re.Match[str]) -> str:
        name = found.group(1)
        if name.startswith("series-"):
            return f' class="{name}"'
        return found.group(0) if name in referenced else ""

    rest = re.sub(r' id="([^"]+)"', mark, rest).replace(INK, "currentColor")
    # The page brings its own fonts; sizes stay matplotlib's.
    rest = re.sub(r"(font: [^;\"]*px) [^;\"]*", r"\1 var(--font)", rest)
    size = f"max-width:{1.15 * wide:.0f}px;--least:{0.75 * wide:.0f}px"
    return Markup(f'{head} style="{size}" role="img" aria-label="{escape(title)}">{rest}')


def series_class(name: str) -> str:
    """The CSS class of a series, by which the page shows and hides it."""
    return "series-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def legend(figure: Figure, axes: Sequence[Any], columns: int, **options: Any) -> None:
    """One for all axes, below them, where it hides nothing."""
    handles: dict[str, Any] = {}
    for one in axes:
        handles |= dict(zip(*reversed(one.get_legend_handles_labels()), strict=True))
    options |= {"loc": "outside lower center", "handlelength": 2.4, "columnspacing": 1.2}
    figure.legend(handles.values(), handles, ncols=min(len(handles), columns), **options)


def draw_row(
    panels: Mapping[str, Sequence[Curve]],
    looks: Mapping[str, Look],
    x_label: str,
    activation: int | None = None,
    last: Callable[[Any], None] | None = None,
) -> Drawn:
    """A panel per metric with one legend: mean lines with a band of one standard error.

    ``last`` draws one more panel at the end.
    """
    count = len(panels) + (last is not None)
    with canvas(1, count, (3.45 * max(count, 2), 3.3), squeeze=False) as (figure, (axes,)):
        for one, (metric, curves) in zip(axes, panels.items(), strict=False):
            _plot_curves(one, curves, looks, METRICS[metric].limits, activation)
            one.set(title=METRICS[metric].title, xlabel=x_label)
        legend(figure, axes[: len(panels)], 6 if count > 2 else 3, fontsize=10)
        if last:
            last(axes[-1])
    names = ("metric", "series", "episode", "mean", "standard_error")
    rows = [
        dict(zip(names, (metric, item.label, int(episode), mean, error), strict=True))
        for metric, curves in panels.items()
        for item in curves
        for episode, mean, error in zip(item.episodes, item.mean, item.error, strict=True)
    ]
    return rows, figure


def _plot_curves(
    axes: Any,
    curves: Sequence[Curve],
    looks: Mapping[str, Look],
    limits: tuple[float, float],
    activation: int | None,
) -> None:
    for item in curves:
        colour, dash, width = looks[item.name]
        shared = {"color": colour, "gid": series_class(item.name)}
        axes.plot(item.episodes, item.mean, ls=dash, lw=width, label=item.label, **shared)
        if item.seeds > 1:
            band = np.clip((item.mean - item.error, item.mean + item.error), *limits)
            axes.fill_between(item.episodes, *band, alpha=0.18, linewidth=0, **shared)
    if activation:
        axes.axvline(activation, color=GRID, linewidth=1, linestyle=(0, (2, 2)))
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate("armed", (activation, 1), (3, -2), va="top", fontsize=8, **place)
    axes.set_xlim(0, max(item.episodes[-1] for item in curves))
    if limits[0] == 0:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def draw_k_history(history: KHistory, title: str) -> Drawn:
    """mu_r between its two thresholds above, K below."""
    x, violations, recent, lower, upper, k = history
    with canvas(2, 1, (7.4, 4.2), sharex=True, height_ratios=(2, 1)) as (figure, (top, bottom)):
        top.fill_between(x, lower, upper, color=GRID, alpha=0.18, linewidth=0)
        top.plot(x, upper, color=UNSAFE, linewidth=1.1, label="upper, μ_d+σ_d")
        top.plot(x, lower, color=SAFE, linewidth=1.1, label="lower, μ_d−σ_d")
        top.plot(x, recent, color=INK, linewidth=1.3, label="recent, μ_r")
        crashes = x[violations > 0]
        at_top = {"transform": top.get_xaxis_transform(), "clip_on": False}
        marks = {"color": UNSAFE, "markersize": 6, "label": "violation"}
        top.plot(crashes, np.ones(len(crashes)), "|", **marks, **at_top)
        top.set(title=title, ylabel="violation rate")
        # a lower threshold below 0 is never reached
        top.set_ylim(0, max(0.6, upper.max(), recent.max()) + 0.08)
        bottom.step(x, k, where="post", color="#009e73", linewidth=1.6)
        bottom.set(xlabel="episode", ylabel="K", xlim=(x[0], max(x[-1], x[0] + 1)))
        bottom.set_ylim(k.min() - 0.6, k.max() + 0.6)
        bottom.set_yticks(range(int(k.min()), int(k.max()) + 1))
        bottom.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        legend(figure, [top], 4)
    whole = ("episode", "violation", "k_after")
    rows: list[Row] = [KHistory(*row)._asdict() for row in zip(*history, strict=True)]
    return [row | {name: int(row[name]) for name in whole} for row in rows], figure


def draw_times(
    minutes: Mapping[str, Sequence[float]], looks: Mapping[str, Look], title: str
) -> Drawn:
    """Compute time per run: one bar per method, a dot per run."""
    with canvas(size=(7.4, 0.42 * len(minutes) + 1.1)) as (figure, axes):
        for row, (method, values) in enumerate(minutes.items()):
            axes.barh(row, np.mean(values), color=looks[method].colour, alpha=0.45, height=0.62)
            axes.plot(values, [row] * len(values), "o", color=looks[method].colour, markersize=4)
        axes.set_yticks(range(len(minutes)), [method_label(method) for method in minutes])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(title=title, xlabel="minutes per run")
        axes.set_xlim(left=0)
    rows = [
        {"method": method_label(method), "run": i, "minutes": value}
        for method, values in minutes.items()
        for i, value in enumerate(values)
    ]
    return rows, figure
