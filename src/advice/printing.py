"""What the commands print: lines, tables, a run in one line."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any


def printable(text: str) -> str:
    """``text`` with control characters spelled out, so that no file can steer a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


@functools.cache
def console() -> Any:
    """The one console, so that lines appear above a live view."""
    from rich.console import Console

    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=160)


def say(message: str) -> None:
    console().print(printable(message), soft_wrap=True, markup=False)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title, *cells in zip(titles, *rows, strict=True):
        table.add_column(title, no_wrap=max(map(len, cells), default=0) <= 40, overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    console().print(table, markup=False)


def summary(folder: Any) -> str:
    """One line about a run, from its records."""
    records = folder.read_episodes() if folder.episodes_file.exists() else []
    config = folder.read_config()
    return (
        f"{config.method} on {config.task}, seed {config.seed}: "
        f"{len(records)}/{config.episodes} episodes, {sum(r.violation for r in records)} "
        f"violations, {sum(r.success for r in records)} successes, "
        f"{sum(r.interventions for r in records)} interventions, {sum(r.steps for r in records)} "
        f"steps in {sum(r.seconds for r in records):.0f} s -> {folder.path}"
    )
