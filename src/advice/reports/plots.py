"""Figures from records: drawn once, saved as SVG for the page, PNG and PDF for elsewhere."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from advice.reports.curves import Curve, KHistory, Metric
from advice.reports.style import GRID, INK, RC, SAFE, UNSAFE, Look, method_label
from advice.reports.tables import Value, write_csv

SIZE = (4.8, 3.5)
_PHYSICAL_SIZE = re.compile(r' (?:width|height)="[\d.]+pt"')
_ID = re.compile(r' id="([^"]+)"')


class Drawing(NamedTuple):
    """One figure with the data it shows."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    figure: Figure
    header: Sequence[str]
    rows: Sequence[Sequence[Value]]
    wide: bool = False
    phase: str = ""
    """"full" or "after" where the page switches between the two."""


@contextmanager
def canvas(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in the report's style, and its axes."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def save(drawing: Drawing, folder: Path) -> str:
    """Write PNG, PDF and CSV; return the SVG for the page."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(RC | {"svg.hashsalt": drawing.name}):
        # Find the layout once; every format would do it anew, and draw twice for it.
        with warnings.catch_warnings():  # a crowded figure stays as it is laid out
            warnings.filterwarnings("ignore", "constrained_layout not applied")
            drawing.figure.draw_without_rendering()
        drawing.figure.set_layout_engine("none")
        for ending, options in (
            ("png", {"dpi": 150}),
            ("pdf", {"metadata": {"CreationDate": None}}),
        ):
            drawing.figure.savefig(
                folder / f"{drawing.name}.{ending}", facecolor="white", **options
            )
        stream = io.StringIO()
        drawing.figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    write_csv(folder / f"{drawing.name}.csv", drawing.header, drawing.rows)
    return as_inline_svg(stream.getvalue(), drawing.title)


def as_inline_svg(svg: str, title: str) -> str:
    """Fit for one page with many others: scalable, in the theme's ink, series marked by class."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    width = re.search(r' width="([\d.]+)pt"', head)
    wide = float(width.group(1)) * 4 / 3 if width else 640.0  # points to CSS pixels
    head = _PHYSICAL_SIZE.sub("", head)
    referenced = set(re.findall(r"#([\w.-]+)", rest))

    def mark(found: re.Match[str]) -> str:
        name = found.group(1)
        if name.startswith("series-"):
            return f' class="{name}"'
        return found.group(0) if name in referenced else ""

    rest = _ID.sub(mark, rest).replace(INK, "currentColor")
    # The page brings its own fonts; sizes stay matplotlib's.
    rest = re.sub(r"(font: [^;\"]*px) [^;\"]*", r"\1 var(--font)", rest)
    style = f"max-width:{1.15 * wide:.0f}px;--least:{0.75 * wide:.0f}px"
    return f'{head} style="{style}" role="img" aria-label="{escape(title)}">{rest}'


def series_class(name: str) -> str:
    """The CSS class of a series, by which the page shows and hides it."""
    return "series-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


class Panel(NamedTuple):
    """The curves of one metric."""

    metric: Metric
    curves: Sequence[Curve]


def draw_row(
    name: str,
    title: str,
    caption: str,
    panels: Sequence[Panel],
    looks: Mapping[str, Look],
    x_label: str,
    phase: str = "",
    activation: int | None = None,
    last: Callable[[Any], None] | None = None,
) -> Drawing:
    """Panels side by side with one legend: mean lines with a band of one standard error.

    ``last`` draws one more panel at the end.
    """
    count = len(panels) + (last is not None)
    with canvas(1, count, (3.45 * max(count, 2), 3.3), squeeze=False) as (figure, (axes,)):
        for place, panel in zip(axes, panels, strict=False):
            _plot_curves(place, panel, looks, activation)
            place.set(title=panel.metric.title, xlabel=x_label)
        handles: dict[str, Any] = {}
        for place in axes[: len(panels)]:
            found, labels = place.get_legend_handles_labels()
            handles |= dict(zip(labels, found, strict=True))
        if last:
            last(axes[-1])
        columns = min(len(handles), 6 if count > 2 else 3)
        figure.legend(
            handles.values(),
            handles,
            loc="outside lower center",
            ncols=max(1, columns),
            handlelength=2.4,
            columnspacing=1.2,
            fontsize=10,
        )
    rows = [
        (panel.metric.name, item.label, int(episode), mean, error)
        for panel in panels
        for item in panel.curves
        for episode, mean, error in zip(item.episodes, item.mean, item.error, strict=True)
    ]
    header = ("metric", "series", "episode", "mean", "standard_error")
    return Drawing(name, title, caption, figure, header, rows, wide=True, phase=phase)


def _plot_curves(
    axes: Any, panel: Panel, looks: Mapping[str, Look], activation: int | None
) -> None:
    lowest, highest = panel.metric.limits
    for item in panel.curves:
        look = looks[item.name]
        group = series_class(item.name)
        axes.plot(
            item.episodes,
            item.mean,
            color=look.colour,
            linestyle=look.dash,
            linewidth=look.width,
            label=item.label,
            gid=group,
        )
        if item.seeds > 1:
            axes.fill_between(
                item.episodes,
                np.maximum(item.mean - item.error, lowest),
                np.minimum(item.mean + item.error, highest),
                color=look.colour,
                alpha=0.18,
                linewidth=0,
                gid=group,
            )
    if activation:
        axes.axvline(activation, color=GRID, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            "armed",
            (activation, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            fontsize=8,
        )
    axes.set_xlim(0, max(item.episodes[-1] for item in panel.curves))
    if lowest == 0:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def legend(figure: Figure, axes: Any, columns: int = 3) -> None:
    """Below the axes, where it hides nothing; long labels take two columns at most."""
    handles, labels = axes.get_legend_handles_labels()
    if max(map(len, labels), default=0) > 16:
        columns = min(columns, 2)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(columns, max(1, len(labels))),
        handlelength=2.4,
        columnspacing=1.2,
    )


def draw_k_history(name: str, title: str, caption: str, history: KHistory, part: slice) -> Drawing:
    """mu_r between its two thresholds above, K below."""
    shown = KHistory(*(column[part] for column in history))
    with canvas(2, 1, (7.4, 4.2), sharex=True, height_ratios=(2, 1)) as (figure, (top, bottom)):
        x = shown.episodes
        top.fill_between(x, shown.lower, shown.upper, color=GRID, alpha=0.18, linewidth=0)
        top.plot(x, shown.upper, color=UNSAFE, linewidth=1.1, label="upper, μ_d+σ_d")
        top.plot(x, shown.lower, color=SAFE, linewidth=1.1, label="lower, μ_d−σ_d")
        top.plot(x, shown.recent, color=INK, linewidth=1.3, label="recent, μ_r")
        crashed = shown.violations > 0
        top.plot(
            x[crashed],
            np.ones(crashed.sum()),
            "|",
            color=UNSAFE,
            markersize=6,
            label="violation",
            transform=top.get_xaxis_transform(),
            clip_on=False,
        )
        top.set(title=title, ylabel="violation rate")
        highest = max(0.6, shown.upper.max(), shown.recent.max())
        top.set_ylim(0, highest + 0.08)  # a lower threshold below 0 is never reached
        bottom.step(x, shown.k, where="post", color=METHOD_K, linewidth=1.6)
        bottom.set(xlabel="episode", ylabel="K", xlim=(x[0], max(x[-1], x[0] + 1)))
        bottom.set_ylim(shown.k.min() - 0.6, shown.k.max() + 0.6)
        bottom.set_yticks(range(int(shown.k.min()), int(shown.k.max()) + 1))
        bottom.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        legend(figure, top, columns=4)
    rows = [(int(e), int(z), r, lo, up, int(k)) for e, z, r, lo, up, k in zip(*shown, strict=True)]
    header = ("episode", "violation", "mu_r", "lower", "upper", "k_after")
    return Drawing(name, title, caption, figure, header, rows, wide=True)


METHOD_K = "#009e73"


def draw_times(
    name: str,
    title: str,
    caption: str,
    minutes: Mapping[str, Sequence[float]],
    looks: Mapping[str, Look],
) -> Drawing:
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
        (method_label(method), i, value)
        for method, values in minutes.items()
        for i, value in enumerate(values)
    ]
    return Drawing(name, title, caption, figure, ("method", "run", "minutes"), rows, wide=True)
