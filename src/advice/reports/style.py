"""The colour, dash and name of every method; matplotlib's settings are in templates/."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple


class Look(NamedTuple):
    """How one curve is drawn."""

    colour: str
    dash: Any
    width: float


METHOD_LOOKS = {
    "ddpg": Look("#7d8590", (0, (1, 1)), 3.0),  # seen below a tabular run that equals it
    "ddpg-lag": Look("#1f83c4", (0, (5, 1.5)), 1.5),
    "rcpo": Look("#009e73", (0, (6, 1.5, 1, 1.5)), 1.5),
    "tabular": Look("#d99a00", (0, (3, 1)), 1.5),
    "csc": Look("#c06fa0", (0, (6, 1, 1, 1, 1, 1)), 1.5),
    "advice": Look("#d55e00", "-", 2.2),
}
"""After Okabe and Ito: told apart by colour-blind readers, legible on white and on near-black."""
SPARE_COLOURS = ("#56b4e9", "#8f7ee7", "#a8a000", "#b0705a", "#4fae4f", "#e5709b")
"""For composed methods and for the variants of a study."""
METHOD_LABELS = {"td3": "TD3", "sac": "SAC"} | dict(
    zip(METHOD_LOOKS, ("DDPG", "DDPG-Lag", "RCPO", "Tabular shield", "CSC", "ADVICE"), strict=True)
)
SAFE, UNSAFE = "#1f83c4", "#d55e00"
INK = "#20262e"  # text and axes; the page replaces it by the theme's own
GRID = "#8b949e"


def method_label(method: str) -> str:
    """The name people read."""
    return " + ".join(METHOD_LABELS.get(part, part) for part in method.split("+"))


def method_order(methods: Iterable[str]) -> list[str]:
    """The paper's order, then composed methods, ADVICE last so that it is drawn on top."""
    known = [name for name in METHOD_LOOKS if name != "advice"]
    rank = {name: i for i, name in enumerate(known)} | {"advice": len(known) + 1}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(known)), method))


def method_looks(methods: Iterable[str]) -> dict[str, Look]:
    """The look of every method of a report; the same in each of its figures."""
    return METHOD_LOOKS | variant_looks(sorted(set(methods) - set(METHOD_LOOKS)))


def variant_looks(labels: Iterable[str]) -> dict[str, Look]:
    """Looks for what is none of the paper's methods, in the order of the labels."""
    dashes = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
    looks = zip(labels, cycle(SPARE_COLOURS), cycle(dashes), strict=False)
    return {label: Look(colour, dash, 1.8) for label, colour, dash in looks}
