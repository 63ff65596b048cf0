"""The engines that run a grid: each cell as a process of this machine, or as a Ray task.

Such a process is ``python -m advice.runs.engines ORDER_JSON``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from advice.config import TrainConfig
from advice.runs.branching import may_branch, train_cell
from advice.runs.checkpoints import Counters
from advice.runs.grid import Cell
from advice.runs.loop import Listener, signals_to
from advice.runs.records import FolderLockedError, RunFolder
from advice.threads import ONE_THREAD, one_thread
from advice.types import AdviceError, EpisodeRecord

DONE, FAILED, LOCKED, STOPPED = 0, 1, 75, 130  # how a process of a cell ends
POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1


class GridOutcome(NamedTuple):
    """How a grid ended."""

    failed: list[Cell]
    stopped: bool


def run_local(
    cells: Sequence[Cell],
    on_poll: Callable[[], None],
    processes: int | None = None,
    attempts: int = 3,
    stall_minutes: float = 10.0,
    say: Callable[[str], None] = lambda message: None,
) -> GridOutcome:
    """Run every cell in a process of its own, one per core, each pinned and single-threaded.

    A cell is done when its folder says so. One that fails, or takes no step for ``stall_minutes``,
    is tried again from its checkpoint, ``attempts`` times in all; the others go on. SIGINT or
    SIGTERM: every running cell finishes its checkpoint, then the grid returns. ``on_poll`` is
    called several times a second, to redraw a view.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = processes or len(cores) or os.cpu_count() or 1
    free = [cores[i % len(cores)] if len(cores) > 1 else None for i in range(count)]
    waiting, running, failed = list(cells), list[_Worker](), list[Cell]()
    tries: Counter[Path] = Counter()
    signals: list[int] = []
    asked = 0  # the first signal asks the workers to stop, the next one ends them
    with signals_to(lambda number, frame: signals.append(number)), ExitStack() as at_the_end:
        while running or (waiting and not signals):
            if len(signals) > asked:
                asked = len(signals)
                once = "stopping when the running episodes end; the same again stops at once"
                say(once if asked == 1 else "stopping at once")
                for worker in running:
                    worker.process.send_signal(signal.SIGTERM if asked == 1 else signal.SIGKILL)
            if not signals:
                pending = {x.folder.path for x in (*waiting, *(w.cell for w in running))}
                for cell in list(waiting):
                    if free and _may_start(cell, pending):
                        waiting.remove(cell)
                        running.append(_Worker(cell, free.pop(0)))
                        at_the_end.callback(running[-1].process.kill)
            for worker in list(running):
                worker.kill_if_stalled(60 * stall_minutes)
                if worker.process.poll() is None:
                    continue
                running.remove(worker)
                free.append(worker.core)
                cell = worker.cell
                if signals or cell.folder.done_file.exists():
                    continue
                if worker.process.returncode in (LOCKED, STOPPED):
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


def _may_start(cell: Cell, pending: set[Path]) -> bool:
    if cell.folder.is_locked() or cell.after in pending:  # locked by another process
        return False
    # of a trunk that has failed nothing can be shared
    return cell.trunk not in pending or may_branch(cell.trunk, cell.shared)


class _Worker:
    """The process of one cell."""

    def __init__(self, cell: Cell, core: int | None) -> None:
        self.cell, self.core, self.stalled = cell, core, False
        self._sign = 0.0  # when it last showed a step, by the file system's clock,
        self._since = time.monotonic()  # and since when nothing came, by ours
        order = {"cell": cell.to_row(), "core": core, "command": sys.argv[1:]}
        order_text = json.dumps(order | {"parent": os.getpid()})
        cell.folder.path.mkdir(parents=True, exist_ok=True)
        with open(cell.folder.path / "log.txt", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "advice.runs.engines", order_text],
                env=one_thread(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the grid, which asks its workers to stop
            )

    def kill_if_stalled(self, seconds: float) -> None:
        """Kill the process if it shows no step for too long."""
        with suppress(FileNotFoundError):
            sign = os.stat(self.cell.folder.lock_file).st_mtime
            if sign != self._sign:
                self._sign, self._since = sign, time.monotonic()
        if not self.stalled and time.monotonic() - self._since > seconds:
            self.stalled = True
            self.process.kill()

    def explain(self, stall_minutes: float) -> None:
        """Write the reason of a failure if the process could not."""
        code, file = self.process.returncode, self.cell.folder.error_file
        reason = f"the worker ended with exit code {code} before the run was done"
        if self.stalled:
            reason = f"no step was taken for {stall_minutes:g} minutes: the environment hangs"
        elif code < 0:
            reason = f"the worker was killed by {signal.Signals(-code).name}"
        if self.stalled or not file.exists():
            with suppress(OSError):  # a full or read-only disk: the grid still reports the failure
                file.write_text(f"{reason}, see log.txt\n")


class Log(Listener):
    """Writes what a run says to the log.txt of its folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._episode = folder, 0

    def started(self, config: TrainConfig, folder: RunFolder, counters: Counters) -> None:
        self._episode = counters.episode

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        self._episode = record.episode

    def said(self, message: str) -> None:
        with suppress(OSError), open(self._folder.path / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"after episode {self._episode}: {message}\n")


def run_cell(cell: Cell, command: list[str]) -> int:
    """Train one cell; the reason of a failure is written to its error file."""
    sys.argv[1:] = command  # what the user typed, for the records
    try:
        cell.folder.error_file.unlink(missing_ok=True)
        if cell.after and not RunFolder(cell.after).done_file.exists():
            raise AdviceError("the run whose shield this one starts with has failed")
        return DONE if train_cell(cell, Log(cell.folder)).finished else STOPPED
    except FolderLockedError:
        return LOCKED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        reason = f"{'' if isinstance(error, AdviceError) else f'{type(error).__name__}: '}{error}"
        print(reason, file=sys.stderr)
        with suppress(OSError):  # a full or read-only disk
            cell.folder.error_file.write_text(reason + "\n")
        return FAILED


def run_ray(
    cells: Sequence[Cell], on_poll: Callable[[], None], address: str, attempts: int = 3
) -> GridOutcome:
    """Run every cell as a Ray task of one CPU; a lost node or a failing run is retried by Ray.

    Scheduling and placement are Ray's own. Every node works in the grid's own folders.
    """
    try:
        import ray
    except ImportError:
        raise AdviceError("the Ray engine needs: pip install 'advice-rl[ray]'") from None
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": ONE_THREAD})
    stop: list[int] = []
    with signals_to(lambda number, frame: stop.append(number)), ExitStack() as at_the_end:
        if started_here:
            at_the_end.callback(ray.shutdown)
        task = ray.remote(num_cpus=1, max_retries=attempts - 1, retry_exceptions=True)(_run_on_node)
        refs: dict[Path, Any] = {}
        for cell in cells:
            named, first = task.options(name=cell.name), refs.get(cell.after or Path())
            refs[cell.folder.path] = named.remote(cell.to_row(), sys.argv[1:], first)
        waiting = list(refs.values())
        while waiting:
            waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)[1]
            on_poll()
            if stop:  # the running episode ends, the checkpoint is saved, the task returns
                for ref in waiting:
                    ray.cancel(ref, force=len(stop) > 1)
                ray.wait(waiting, num_returns=len(waiting), timeout=60)
                return GridOutcome([], stopped=True)
        return GridOutcome([cell for cell in cells if not _succeeded(ray, cell, refs)], False)


def _run_on_node(row: dict[str, Any], command: list[str], after: Any) -> None:
    """One cell on one node, after the task ``after``; Ray tries again if it raises."""
    code = run_cell(Cell.from_row(row), command)
    if code not in (DONE, STOPPED):
        raise RuntimeError(f"the run in {row['folder']} ended with code {code}")


def _succeeded(ray: Any, cell: Cell, refs: dict[Path, Any]) -> bool:
    """False if the task failed; writes the reason if the task could not."""
    try:
        ray.get(refs[cell.folder.path])
        return True
    except ray.exceptions.RayError as error:
        if not cell.folder.error_file.exists():
            cell.folder.path.mkdir(parents=True, exist_ok=True)
            cell.folder.error_file.write_text(f"{str(error).strip().splitlines()[-1]}\n")
        return False


if __name__ == "__main__":
    _order = json.loads(sys.argv[1])
    if _order["core"] is not None:
        os.sched_setaffinity(0, {_order["core"]})
    with suppress(OSError, AttributeError):  # Linux ends this process with its parent, even a hung
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == _order["parent"]:  # or it ended before
        sys.exit(run_cell(Cell.from_row(_order["cell"]), _order["command"]))
