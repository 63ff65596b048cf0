"""The local engine: each cell of a grid as a process on a core of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from advice.runs.branching import may_branch
from advice.runs.grid import Cell
from advice.runs.worker import DONE, LOCKED, STOPPED, order_of
from advice.threads import one_thread

POLL_SECONDS = 0.2

OnPoll = Callable[[], None]
"""Called several times a second while a grid runs, to redraw a view."""


class GridOutcome(NamedTuple):
    """How a grid ended."""

    failed: list[Cell]
    stopped: bool


class _Worker(NamedTuple):
    cell: Cell
    core: int | None
    process: subprocess.Popen[bytes]


def run_local(
    cells: Sequence[Cell], on_poll: OnPoll, processes: int | None = None, attempts: int = 3
) -> GridOutcome:
    """Run every cell in a process of its own, one per core, each pinned and single-threaded.

    A cell that fails is tried again from its checkpoint, ``attempts`` times in all; the others go
    on. SIGINT or SIGTERM: every running cell finishes its checkpoint, then the grid returns.
    """
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = processes or len(available) or os.cpu_count() or 1
    free: list[int | None] = [
        available[i % len(available)] if len(available) > 1 else None for i in range(count)
    ]
    waiting = list(cells)
    tries = dict.fromkeys((cell.folder.path for cell in cells), 0)
    running: list[_Worker] = []
    failed: list[Cell] = []
    not_before: dict[Any, float] = {}
    signals: list[int] = []
    asked = 0  # the first signal asks the workers to stop, the next one ends them
    previous = {
        number: signal.signal(number, lambda received, frame: signals.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while running or (waiting and not signals):
            if len(signals) > asked:
                asked = len(signals)
                number = signal.SIGTERM if asked == 1 else signal.SIGKILL
                for worker in running:
                    worker.process.send_signal(number)
            if not signals:
                lost = {cell.folder.path for cell in failed}
                for cell in [cell for cell in waiting if cell.after in lost]:
                    waiting.remove(cell)
                    cell.folder.path.mkdir(parents=True, exist_ok=True)
                    cell.folder.error_file.write_text(
                        "the run whose shield this one starts with has failed\n"
                    )
                    failed.append(cell)
                pending = {x.folder.path for x in (*waiting, *(w.cell for w in running))}
                able = [cell for cell in waiting if _may_start(cell, not_before, pending)]
                for cell in able[: len(free)]:
                    waiting.remove(cell)
                    running.append(_start(cell, free.pop(0)))
            for worker in [worker for worker in running if worker.process.poll() is not None]:
                running.remove(worker)
                free.append(worker.core)
                cell, code = worker.cell, worker.process.returncode
                if code == LOCKED:
                    not_before[cell.folder.path] = time.monotonic() + 2.0
                    waiting.append(cell)
                elif code == STOPPED and not signals:
                    waiting.append(cell)
                elif code not in (DONE, STOPPED):
                    tries[cell.folder.path] += 1
                    if tries[cell.folder.path] < attempts:
                        waiting.insert(0, cell)
                    else:
                        _explain(cell, code)
                        failed.append(cell)
            on_poll()
            time.sleep(POLL_SECONDS)
        return GridOutcome(failed, bool(signals))
    finally:
        for worker in running:
            worker.process.kill()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _may_start(cell: Cell, not_before: dict[Any, float], pending: set[Path]) -> bool:
    if time.monotonic() < not_before.get(cell.folder.path, 0.0):
        return False
    if cell.trunk in pending and not may_branch(cell.trunk, cell.shared):
        return False  # of a trunk that has failed nothing can be shared
    return cell.after is None or (cell.after / "done").exists()


def _start(cell: Cell, core: int | None) -> _Worker:
    order = json.dumps(order_of(cell) | {"core": core})
    with cell.folder.open_log() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "advice.runs.worker", order],
            env=one_thread(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the grid, which asks its workers to stop
        )
    return _Worker(cell, core, process)


def _explain(cell: Cell, code: int) -> None:
    """Write the reason of a failure if the worker could not."""
    if not cell.folder.error_file.exists():
        name = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        with suppress(OSError):  # a full or read-only disk: the grid still reports the failure
            cell.folder.error_file.write_text(f"the worker ended with {name}, see log.txt\n")
