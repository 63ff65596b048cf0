"""Tables as CSV, as LaTeX and for the page, from the same rows."""

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
_PARTS = {Estimate: ("mean", "standard error"), Interval: ("estimate", "low", "high")}


class Exhibit(NamedTuple):
    """A table, or a figure with the rows it shows."""

    task: str
    """Empty if it is about all tasks."""
    kind: str
    """Chooses the explanation that the page adds to the caption."""
    about: str
    """Its title, without the task."""
    caption: str
    rows: Sequence[Row]
    figure: Any = None
    """Of matplotlib; None for a table."""
    phase: str = ""
    """"full" or "after" where the page switches between the two."""

    @property
    def name(self) -> str:
        """File name without its ending."""
        return f"{file_name(self.task)}-{self.kind}" if self.task else self.kind

    @property
    def title(self) -> str:
        return f"{self.task}: {self.about}" if self.task else self.about

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
        if not math.isfinite(value.low) or not math.isfinite(value.high):
            ends = "" if math.isnan(value.low) else f" [{shown(value.low)}, {shown(value.high)}]"
            return shown(value.value) + ends  # one seed has no interval
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
    """Full precision, where an estimate takes two columns and an interval three."""
    columns: dict[str, list[Any]] = {}
    for title in rows[0]:
        values = [row[title] for row in rows]
        kind = next((type(v) for v in values if isinstance(v, Estimate | Interval)), None)
        if kind is None:
            columns[title] = values
            continue
        for i, part in enumerate(_PARTS[kind]):
            found = [v[i] if isinstance(v, kind) else math.nan for v in values]
            columns[f"{title} ({part})"] = found
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def write_table(table: Exhibit, folder: Path) -> None:
    """NAME.csv and NAME.tex."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / f"{table.name}.csv", table.rows)
    (folder / f"{table.name}.tex").write_text(as_latex(table), encoding="utf-8")


def as_latex(table: Exhibit) -> str:
    """A booktabs tabular with its caption."""
    header, *rows = (" & ".join(cell.translate(_LATEX) for cell in row) for row in table.text)
    body = "".join(f"{row} \\\\\n" for row in rows)
    return rf"""\begin{{table}}[htb]
\centering
\caption{{{table.title.translate(_LATEX)}}}
\begin{{tabular}}{{@{{}}l{"r" * (len(table.rows[0]) - 1)}@{{}}}}
\toprule
{header} \\
\midrule
{body}\bottomrule
\end{{tabular}}
\end{{table}}
"""


_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {mark: f"${mark}$" for mark in "<>|"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "–": "--", "−": "$-$", "²": "$^2$", "∞": r"$\infty$"}
    | {"γ": r"$\gamma$", "Δ": r"$\Delta$", "σ": r"$\sigma$"}
)
