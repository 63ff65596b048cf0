"""Tables and figures of a report, and how their numbers are shown and written."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from advice.reports.statistics import Estimate, Interval
from advice.runs.records import file_name

Row: TypeAlias = dict[str, Any]
"""Column title -> str, int, float, Estimate or Interval; all rows of a table have the same."""


class Exhibit(NamedTuple):
    """A table, or a figure with the rows it shows."""

    task: str  # empty if it is about all tasks
    kind: str  # chooses the explanation that the page adds to the caption
    about: str  # its title, without the task
    caption: str
    rows: Sequence[Row] = ()
    figure: Any = None  # of matplotlib; None for a table
    phase: str = ""  # "full" or "after" where the page switches between the two

    @property
    def name(self) -> str:
        """File name without its ending."""
        return f"{file_name(self.task)}-{self.kind}" if self.task else self.kind

    @property
    def text(self) -> list[list[str]]:
        """The values as the page shows them, below the columns' titles."""
        return [[*self.rows[0]], *([shown(value) for value in row.values()] for row in self.rows)]


@dataclass
class Section:
    """One part of the page."""

    anchor: str
    title: str
    exhibits: list[Exhibit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    printed: str = ""  # text with line breaks, shown below the exhibits


def shown(value: Any) -> str:
    """A number to three significant digits; NaN is a dash."""
    if isinstance(value, str):
        return value
    if isinstance(value, Estimate):
        if not value.error > 1e-9 * abs(value.value):  # one seed has no error, equal seeds none
            return shown(value.value)
        places = _places(value.value, value.error)
        error = f"{value.error:.{places}f}"
        if not float(error):
            error = f"<{10.0**-places:.{places}f}"
        return f"{value.value:.{places}f} ± {error}"
    if isinstance(value, Interval):
        if math.isnan(value.low):  # one seed has no interval
            return shown(value.value)
        if not math.isfinite(value.high - value.low):
            return f"{shown(value.value)} [{shown(value.low)}, {shown(value.high)}]"
        places = _places(value.value, (value.high - value.low) / 2)
        return "{:.{p}f} [{:.{p}f}, {:.{p}f}]".format(*value, p=places)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value)}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _places(value: float, error: float) -> int:
    """Decimals for two digits of the error, but at most four digits of the value."""
    if not error > 0:
        return 0 if float(value).is_integer() else 2
    digits = 3 - math.floor(math.log10(max(abs(value), error)))
    return max(0, min(1 - math.floor(math.log10(error)), digits))


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Full precision, where an estimate or an interval takes a column for each of its parts."""
    lines = []
    for row in rows:
        cells: Row = {}
        for title, value in row.items():
            if isinstance(value, Estimate | Interval):
                cells |= {f"{title} ({part})": x for part, x in value._asdict().items()}
            else:
                cells[title] = value
        lines.append(cells)
    titles = dict.fromkeys(title for cells in lines for title in cells)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, titles, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
