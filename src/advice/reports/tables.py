"""Tables as CSV, as LaTeX and for the page, from the same rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from advice.reports.statistics import Interval


class Estimate(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float


Cell: TypeAlias = str | int | float | Estimate | Interval
_PARTS = {Estimate: ("mean", "standard error"), Interval: ("estimate", "low", "high")}


class Table(NamedTuple):
    """Rows of text and numbers with a caption."""

    name: str
    """File name without its ending."""
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    @property
    def text(self) -> list[list[str]]:
        """The cells as people read them."""
        return [[shown(cell) for cell in row] for row in self.rows]


def shown(cell: Cell) -> str:
    """A number to three significant digits; what is not known is a dash."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        if not cell.error > 1e-9 * abs(cell.value):  # one seed has no error, equal seeds none
            return shown(cell.value) + ("" if math.isnan(cell.error) else " ± 0")
        # Two digits of the error, and the mean to the same place.
        places = max(0, 1 - math.floor(math.log10(cell.error)))
        return f"{cell.value:.{places}f} ± {cell.error:.{places}f}"
    if isinstance(cell, Interval):
        if math.isnan(cell.low):  # one seed has no interval
            return shown(cell.value)
        return f"{shown(cell.value)} [{shown(cell.low)}, {shown(cell.high)}]"
    if math.isnan(cell):
        return "–"
    if math.isinf(cell):
        return "∞" if cell > 0 else "−∞"
    if isinstance(cell, int) or float(cell).is_integer():
        return f"{int(cell)}"
    return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Full precision, so that reading it back gives the very numbers."""
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(
            [repr(float(cell)) if isinstance(cell, float) else cell for cell in row] for row in rows
        )


def write_table(table: Table, folder: Path) -> None:
    """NAME.csv, where an estimate takes two columns and an interval three, and NAME.tex."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / f"{table.name}.csv", *_spread(table))
    (folder / f"{table.name}.tex").write_text(as_latex(table), encoding="utf-8")


def _spread(table: Table) -> tuple[list[str], list[list[Cell]]]:
    header: list[str] = []
    columns: list[list[Cell]] = []
    for i, title in enumerate(table.header):
        cells = [row[i] for row in table.rows]
        kind = next((type(cell) for cell in cells if isinstance(cell, Estimate | Interval)), None)
        if kind is None:
            header.append(title)
            columns.append(cells)
            continue
        for j, part in enumerate(_PARTS[kind]):
            header.append(f"{title} ({part})")
            columns.append([cell[j] if isinstance(cell, kind) else math.nan for cell in cells])
    return header, [list(row) for row in zip(*columns, strict=True)]


def as_latex(table: Table) -> str:
    """A booktabs tabular with its caption."""
    rows = [" & ".join(map(_escaped, row)) + r" \\" for row in table.text]
    return "\n".join(
        (
            r"\begin{table}[htb]",
            r"\centering",
            rf"\caption{{{_escaped(table.title)}}}",
            rf"\begin{{tabular}}{{@{{}}l{'r' * (len(table.header) - 1)}@{{}}}}",
            r"\toprule",
            " & ".join(map(_escaped, table.header)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        )
    )


_LATEX = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{mark: f"${mark}$" for mark in "<>|"},
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        "²": "$^2$",
        "∞": r"$\infty$",
        "γ": r"$\gamma$",
        "Δ": r"$\Delta$",
        "σ": r"$\sigma$",
    }
)


def _escaped(text: str) -> str:
    return text.translate(_LATEX)
