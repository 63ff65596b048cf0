"""A grid without processes, for tests of what comes before and after it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from advice.runs.engines import DONE, GridOutcome, run_cell
from advice.runs.grid import Cell


def run_here(cells: Sequence[Cell], on_poll: Callable[[], None], *settings: Any) -> GridOutcome:
    """In place of ``run_local``: train one cell after the other in this process.

    A worker process takes seconds to start and to trace its update.
    """
    failed = []
    for cell in cells:
        if run_cell(Cell.from_row(cell.to_row()), sys.argv[1:]) != DONE:
            failed.append(cell)
        on_poll()
    return GridOutcome(failed, stopped=False)
