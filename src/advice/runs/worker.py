"""One cell of a grid in a process of its own: ``python -m advice.runs.worker CELL_JSON``."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys

from advice.config import TrainConfig, from_dict
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener, train
from advice.runs.records import FolderLockedError, RunFolder
from advice.types import AdviceError, EpisodeRecord

DONE, FAILED, LOCKED, STOPPED = 0, 1, 75, 130


class Orphanage(Listener):
    """Asks for a stop when the grid that started this process has died."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        if os.getppid() != self._parent:
            os.kill(os.getpid(), signal.SIGTERM)


def run_cell(
    config: TrainConfig,
    folder: RunFolder,
    listener: Listener | None = None,
    source: str | None = None,
) -> int:
    """Train one cell; a failure's reason is left in the folder."""
    try:
        folder.error_file.unlink(missing_ok=True)
        return DONE if train(config, folder, listener, shield_source=source).finished else STOPPED
    except FolderLockedError:
        return LOCKED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        reason = (
            str(error) if isinstance(error, AdviceError) else f"{type(error).__name__}: {error}"
        )
        print(reason, file=sys.stderr)
        try:
            folder.error_file.write_text(reason + "\n")
        except OSError as problem:
            if problem.errno not in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES):
                raise
        return FAILED


if __name__ == "__main__":
    cell = json.loads(sys.argv[1])
    sys.argv[1:] = cell["command"]  # what the user typed, for the records
    if cell["core"] is not None:
        os.sched_setaffinity(0, {cell["core"]})
    sys.exit(
        run_cell(from_dict(TrainConfig, cell["config"]), RunFolder(cell["folder"]), Orphanage())
    )
