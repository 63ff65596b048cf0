"""The local engine: each cell of a grid as a process on a core of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from advice.runs.branching import may_branch
from advice.runs.grid import Cell
from advice.runs.worker import LOCKED, STOPPED, order_of
from advice.threads import one_thread

POLL_SECONDS = 0.2

OnPoll = Callable[[], None]
"""Called several times a second while a grid runs, to redraw a view."""


class GridOutcome(NamedTuple):
    """How a grid ended."""

    failed: list[Cell]
    stopped: bool


@dataclass
class _Worker:
    cell: Cell
    core: int | None
    sign: float = 0.0  # when it last showed a step, by the file system's clock,
    since: float = field(default_factory=time.monotonic)  # and since when nothing came, by ours
    stalled: bool = False

    def __post_init__(self) -> None:
        order = json.dumps(order_of(self.cell) | {"core": self.core})
        self.cell.folder.path.mkdir(parents=True, exist_ok=True)
        with open(self.cell.folder.path / "log.txt", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "advice.runs.worker", order],
                env=one_thread(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the grid, which asks its workers to stop
            )

    def check_for_steps(self, stall_seconds: float) -> None:
        """Kill the process if it shows no step for too long."""
        with suppress(FileNotFoundError):
            sign = os.stat(self.cell.folder.lock_file).st_mtime
            if sign != self.sign:
                self.sign, self.since = sign, time.monotonic()
        if not self.stalled and time.monotonic() - self.since > stall_seconds:
            self.stalled = True
            self.process.kill()

    def explain(self, stall_minutes: float) -> None:
        """Write the reason of a failure if the worker could not."""
        code, file = self.process.returncode, self.cell.folder.error_file
        if self.stalled:
            reason = f"no step was taken for {stall_minutes:g} minutes: the environment hangs"
        elif file.exists():
            return
        elif code < 0:
            reason = f"the worker was killed by {signal.Signals(-code).name}"
        else:
            reason = f"the worker ended with exit code {code} before the run was done"
        with suppress(OSError):  # a full or read-only disk: the grid still reports the failure
            file.write_text(f"{reason}, see log.txt\n")


def run_local(
    cells: Sequence[Cell],
    on_poll: OnPoll,
    processes: int | None = None,
    attempts: int = 3,
    stall_minutes: float = 10.0,
    say: Callable[[str], None] = lambda message: None,
) -> GridOutcome:
    """Run every cell in a process of its own, one per core, each pinned and single-threaded.

    A cell is done when its folder says so. One that fails, or takes no step for ``stall_minutes``,
    is tried again from its checkpoint, ``attempts`` times in all; the others go on. SIGINT or
    SIGTERM: every running cell finishes its checkpoint, then the grid returns.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = processes or len(cores) or os.cpu_count() or 1
    free = [cores[i % len(cores)] if len(cores) > 1 else None for i in range(count)]
    waiting, running, failed = list(cells), list[_Worker](), list[Cell]()
    tries: Counter[Path] = Counter()
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
                once = "stopping when the running episodes end; the same again stops at once"
                say(once if asked == 1 else "stopping at once")
                for worker in running:
                    worker.process.send_signal(signal.SIGTERM if asked == 1 else signal.SIGKILL)
            if not signals:
                lost = {cell.folder.path for cell in failed}
                for cell in [cell for cell in waiting if cell.after in lost]:
                    waiting.remove(cell)
                    cell.folder.path.mkdir(parents=True, exist_ok=True)
                    reason = "the run whose shield this one starts with has failed\n"
                    cell.folder.error_file.write_text(reason)
                    failed.append(cell)
                pending = {x.folder.path for x in (*waiting, *(w.cell for w in running))}
                able = [cell for cell in waiting if _may_start(cell, pending)]
                for cell in able[: len(free)]:
                    waiting.remove(cell)
                    running.append(_Worker(cell, free.pop(0)))
            for worker in running:
                worker.check_for_steps(60 * stall_minutes)
            for worker in [worker for worker in running if worker.process.poll() is not None]:
                running.remove(worker)
                free.append(worker.core)
                cell, code = worker.cell, worker.process.returncode
                if signals or cell.folder.done_file.exists():
                    continue
                if code in (LOCKED, STOPPED):
                    waiting.append(cell)
                    continue
                tries[cell.folder.path] += 1
                if tries[cell.folder.path] < attempts:
                    waiting.insert(0, cell)
                else:
                    worker.explain(stall_minutes)
                    failed.append(cell)
            on_poll()
            time.sleep(POLL_SECONDS)
        return GridOutcome(failed, bool(signals))
    finally:
        for worker in running:
            worker.process.kill()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _may_start(cell: Cell, pending: set[Path]) -> bool:
    if cell.folder.is_locked():  # by another process
        return False
    if cell.trunk in pending and not may_branch(cell.trunk, cell.shared):
        return False  # of a trunk that has failed nothing can be shared
    return cell.after is None or (cell.after / "done").exists()
