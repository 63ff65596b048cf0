"""The Ray engine: one Ray task per run; scheduling, placement and retries are Ray's own.

With shared storage every node works in the grid's own folders. Without it, a run works in a
temporary folder and sends what is new to the machine that started the grid after each checkpoint;
a retry first fetches what is there.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from advice.files import write_atomically
from advice.runs.checkpoints import Counters
from advice.runs.engines import DONE, STOPPED, GridOutcome, order_of, run_order
from advice.runs.grid import Cell
from advice.runs.loop import Listener
from advice.runs.records import RunFolder
from advice.threads import ONE_THREAD
from advice.types import AdviceError

Files = dict[str, tuple[int, bytes]]  # by name: an offset and the bytes from there on


def run_ray(
    cells: Sequence[Cell],
    on_poll: Callable[[], None],
    address: str,
    attempts: int = 3,
    shared_storage: bool = True,
) -> GridOutcome:
    """Run every cell as a Ray task of one CPU; a lost node or a failing run is retried by Ray."""
    try:
        import ray
    except ImportError:
        raise AdviceError("the Ray engine needs: pip install 'advice-rl[ray]'") from None
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": ONE_THREAD})
    stop: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: stop.append(number))
    try:
        store = None
        if not shared_storage:  # an actor on this node
            node = ray.get_runtime_context().get_node_id()
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            store = ray.remote(num_cpus=0)(FileStore).options(scheduling_strategy=here).remote()
        task = ray.remote(num_cpus=1, max_retries=attempts - 1, retry_exceptions=True)(_run)
        refs: dict[Path, Any] = {}
        for cell in cells:
            named, first = task.options(name=cell.name), refs.get(cell.after or Path())
            refs[cell.folder.path] = named.remote(order_of(cell), store, first)
        waiting = list(refs.values())
        while waiting:
            waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)[1]
            on_poll()
            if stop:  # the running episode ends, the checkpoint is saved, the task returns
                for ref in waiting:
                    ray.cancel(ref, force=len(stop) > 1)
                ray.wait(waiting, num_returns=len(waiting), timeout=60)
                break
        failed = [] if stop else [cell for cell in cells if not _succeeded(ray, cell, refs)]
        return GridOutcome(failed, bool(stop))
    finally:
        signal.signal(signal.SIGINT, previous)
        if started_here:
            ray.shutdown()


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


def _run(order: dict[str, Any], store: Any, after: Any) -> int:
    """One cell on one node, after the task ``after``; Ray tries again if it raises."""
    shield = order["shield"]
    if store is None:
        code = run_order(order, RunFolder(order["folder"]), shield)
    else:
        import ray

        with tempfile.TemporaryDirectory(prefix="advice-") as scratch:
            folder = RunFolder(Path(scratch) / "run")
            write_files(folder.path, ray.get(store.fetch.remote(order["folder"])))
            if shield:
                write_files(Path(scratch) / "shield", ray.get(store.fetch.remote(shield)))
                shield = str(Path(scratch) / "shield")
            sender = FileSender(ray, store, order["folder"], folder.path)
            code = run_order(order, folder, shield, sender)
            sender.saved(Counters())
    if code not in (DONE, STOPPED):
        raise RuntimeError(f"the run in {order['folder']} ended with code {code}")
    return code


class FileSender(Listener):
    """Sends a run's changed files to the store; of growing files only what is new."""

    def __init__(self, ray: Any, store: Any, name: str, folder: Path) -> None:
        self._ray, self._store, self._name, self._folder = ray, store, name, folder
        self._sent: dict[str, tuple[int, int]] = {}  # size and time of change

    def saved(self, counters: Counters) -> None:
        files, stamps = {}, {name: _stamp(self._folder / name) for name in _names(self._folder)}
        for name, stamp in stamps.items():
            size, before = stamp[0], self._sent.get(name, (0, 0))
            if stamp != before:
                grown = name.endswith((".csv", ".bin")) and size >= before[0]
                offset = before[0] if grown else 0
                with open(self._folder / name, "rb") as stream:
                    stream.seek(offset)
                    files[name] = (offset, stream.read(size - offset))
        gone = [name for name in self._sent if name not in stamps]
        self._ray.get(self._store.store.remote(self._name, files, gone))
        self._sent = stamps


class FileStore:
    """Keeps the runs' folders on the machine that started the grid."""

    def fetch(self, folder: str) -> Files:
        return {name: (0, (Path(folder) / name).read_bytes()) for name in _names(Path(folder))}

    def store(self, folder: str, files: Files, gone: list[str]) -> None:
        write_files(Path(folder), files)
        for name in gone:
            (Path(folder) / name).unlink(missing_ok=True)


def write_files(folder: Path, files: Files) -> None:
    """Write files as sent; a checkpoint's state goes last, since it counts on the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name.endswith("state.safetensors")):
        offset, data = files[name]
        if not offset:
            write_atomically(folder / name, [data])
            continue
        with open(folder / name, "r+b") as stream:
            stream.seek(offset)
            stream.write(data)
            stream.truncate()


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _names(folder: Path) -> list[str]:
    """The files below a folder, which need not exist, but the lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return [path.relative_to(folder).as_posix() for path in paths]
