"""Tables as CSV, as LaTeX and for the page, from the same rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from advice.reports.statistics import Estimate, Interval

Value: TypeAlias = str | int | float | Estimate | Interval
Row: TypeAlias = Mapping[str, Value]
"""Column title -> value; all rows of a table have the same columns."""
_PARTS = {Estimate: ("mean", "standard error"), Interval: ("estimate", "low", "high")}


class Table(NamedTuple):
    """Rows of text and numbers with a caption."""

    name: str
    """File name without its ending."""
    title: str
    rows: Sequence[Row]
    caption: str = ""

    @property
    def header(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []

    @property
    def text(self) -> list[list[str]]:
        """The values as the page shows them."""
        return [[shown(value) for value in row.values()] for row in self.rows]


def shown(value: Value) -> str:
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


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
    """Full precision: reading the file back gives the same numbers."""
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


def _spread(table: Table) -> tuple[list[str], list[list[Value]]]:
    """Header and rows with an estimate in two columns and an interval in three."""
    columns: dict[str, list[Value]] = {}
    for title in table.header:
        values = [row[title] for row in table.rows]
        kind = next((type(v) for v in values if isinstance(v, Estimate | Interval)), None)
        if kind is None:
            columns[title] = values
            continue
        for i, part in enumerate(_PARTS[kind]):
            columns[f"{title} ({part})"] = [
                v[i] if isinstance(v, kind) else math.nan for v in values
            ]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def as_latex(table: Table) -> str:
    """A booktabs tabular with its caption."""
    header, *rows = (" & ".join(map(_escaped, row)) for row in (table.header, *table.text))
    body = "".join(f"{row} \\\\\n" for row in rows)
    return rf"""\begin{{table}}[htb]
\centering
\caption{{{_escaped(table.title)}}}
\begin{{tabular}}{{@{{}}l{"r" * (len(table.header) - 1)}@{{}}}}
\toprule
{header} \\
\midrule
{body}\bottomrule
\end{{tabular}}
\end{{table}}
"""


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
