"""One look everywhere: the colour, dash and name of every method, and matplotlib's settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

METHOD_COLOURS = {
    "ddpg": "#7d8590",
    "ddpg-lag": "#1f83c4",
    "rcpo": "#009e73",
    "tabular": "#d99a00",
    "csc": "#c06fa0",
    "advice": "#d55e00",
}
"""After Okabe and Ito: told apart by colour-blind readers, legible on white and on near-black."""
SPARE_COLOURS = ("#56b4e9", "#8f7ee7", "#a8a000", "#b0705a", "#4fae4f", "#e5709b")
"""For composed methods, in alphabetical order."""
METHOD_LABELS = {
    "ddpg": "DDPG",
    "ddpg-lag": "DDPG-Lag",
    "rcpo": "RCPO",
    "tabular": "Tabular shield",
    "csc": "CSC",
    "advice": "ADVICE",
}
SAFE, UNSAFE = "#1f83c4", "#d55e00"
INK = "#20262e"
"""Text and axes; the page replaces it by the theme's own."""
GRID = "#8b949e"

_DASHES: dict[str, Any] = {
    "ddpg": (0, (1, 1)),
    "ddpg-lag": (0, (5, 1.5)),
    "rcpo": (0, (6, 1.5, 1, 1.5)),
    "tabular": (0, (3, 1)),
    "csc": (0, (6, 1, 1, 1, 1, 1)),
}


class Look(NamedTuple):
    """How one curve is drawn."""

    colour: str
    dash: Any = "-"
    width: float = 1.6


def method_label(method: str) -> str:
    """The name people read."""
    parts = method.split("+")
    return " + ".join(METHOD_LABELS.get(part, part) for part in parts)


def method_order(methods: Iterable[str]) -> list[str]:
    """The paper's order, then composed methods, ADVICE last so that it is drawn on top."""
    known = [name for name in METHOD_COLOURS if name != "advice"]
    rank = {name: i for i, name in enumerate(known)} | {"advice": len(known) + 1}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(known)), method))


def method_looks(methods: Iterable[str]) -> dict[str, Look]:
    """The look of every method of a report; the same in each of its figures."""
    names = set(methods)
    spare = sorted(names - set(METHOD_COLOURS))
    colours = METHOD_COLOURS | {
        name: SPARE_COLOURS[i % len(SPARE_COLOURS)] for i, name in enumerate(spare)
    }
    return {
        name: Look(colours[name], _DASHES.get(name, "-"), 2.2 if name == "advice" else 1.5)
        for name in names
    }


def variant_looks(labels: Iterable[str]) -> dict[str, Look]:
    """Looks for the variants of a study, from cautious blue to bold orange."""
    colours = ("#1f83c4", "#009e73", "#d99a00", "#d55e00", "#c06fa0", "#8f7ee7", "#7d8590")
    dashes = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
    return {
        label: Look(colours[i % len(colours)], dashes[i % len(dashes)], 1.8)
        for i, label in enumerate(labels)
    }


RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.7,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 3,
    "path.simplify": True,
}
