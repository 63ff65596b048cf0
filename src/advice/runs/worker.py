"""One cell of a grid in a process of its own: ``python -m advice.runs.worker ORDER_JSON``."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from advice.config import TrainConfig
from advice.runs.branching import train_branch
from advice.runs.grid import Cell
from advice.runs.loop import Listener
from advice.runs.records import FolderLockedError, RunFolder
from advice.settings import from_dict, to_dict
from advice.types import AdviceError

DONE, FAILED, LOCKED, STOPPED = 0, 1, 75, 130
_PR_SET_PDEATHSIG = 1
_NOT_WRITABLE = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES)


class StopWithParent(Listener):
    """Stops the run when the grid's process has ended."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        with suppress(OSError, AttributeError):  # on Linux the kernel does, even if this hangs
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            sys.exit(STOPPED)

    def stepped(self) -> None:
        if os.getppid() != self._parent:
            os.kill(os.getpid(), signal.SIGTERM)


def order_of(cell: Cell) -> dict[str, Any]:
    """What a worker needs to know, as JSON-ready values."""
    return {
        "config": to_dict(cell.config),
        "folder": str(cell.folder.path.resolve()),
        "shield": str(cell.after.resolve()) if cell.after else None,
        "trunk": str(cell.trunk.resolve()) if cell.trunk else None,
        "shared": cell.shared,
        "keep": cell.keep,
        "command": sys.argv[1:],
        "parent": os.getpid(),
    }


def run_order(
    order: dict[str, Any], folder: RunFolder, shield: str | None, listener: Listener | None = None
) -> int:
    """Train one cell in ``folder``; the reason of a failure is written to its error file.

    ``shield`` is where the shield that the run starts with is found on this machine.
    """
    sys.argv[1:] = order["command"]  # what the user typed, for the records
    config, trunk = from_dict(TrainConfig, order["config"]), RunFolder(order["trunk"] or "")
    shared = order["shared"] if order["trunk"] and trunk.config_file.exists() else 0
    options = {"listener": listener, "shield_source": shield, "keep": order["keep"]}
    try:
        folder.error_file.unlink(missing_ok=True)
        return DONE if train_branch(config, folder, trunk, shared, **options).finished else STOPPED
    except FolderLockedError:
        return LOCKED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        reason = f"{'' if isinstance(error, AdviceError) else f'{type(error).__name__}: '}{error}"
        print(reason, file=sys.stderr)
        try:
            folder.error_file.write_text(reason + "\n")
        except OSError as problem:
            if problem.errno not in _NOT_WRITABLE:
                raise
        return FAILED


if __name__ == "__main__":
    _order = json.loads(sys.argv[1])
    if _order["core"] is not None:
        os.sched_setaffinity(0, {_order["core"]})
    _listener = StopWithParent(_order["parent"])
    sys.exit(run_order(_order, RunFolder(_order["folder"]), _order["shield"], _listener))
