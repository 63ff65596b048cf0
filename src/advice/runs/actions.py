"""The actions of a run, step by step: ``actions.bin`` as it is trained, packed where it is kept."""

from __future__ import annotations

import functools
import hashlib
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from advice.files import write_atomically
from advice.runs.records import RunFolder
from advice.types import AdviceError, Array, BrokenFileError

MOST_BYTES = 1 << 30
"""Packed actions that would take more than this are refused."""


def action_layout(space: Any) -> tuple[np.dtype[Any], int]:
    """Type and count of the numbers in an action of this space."""
    return space.dtype.newbyteorder("<"), int(np.prod(space.shape))


def has_actions(folder: RunFolder) -> bool:
    """True if the actions were kept, packed or not."""
    return folder.actions_file.exists() or folder.packed_file.exists()


def pack_actions(folder: RunFolder, to: RunFolder) -> None:
    """Write the actions of one run packed into another folder."""
    folder.refuse_changed(folder.actions_file)
    content = lzma.compress(folder.actions_file.read_bytes(), preset=6)
    write_atomically(to.packed_file, [content])


def read_steps(folder: RunFolder, start: int, stop: int, space: Any) -> tuple[Array, Array]:
    """Executed and proposed actions of the steps from ``start`` to ``stop``: (steps, size)."""
    kind, size = action_layout(space)
    count, offset = (stop - start) * 2 * size, start * 2 * size * kind.itemsize
    if folder.actions_file.exists():
        values = np.fromfile(folder.actions_file, kind, count, offset=offset)
    else:
        steps = folder.read_episodes()[-1].total_steps
        content = _unpacked(folder.packed_file, steps * 2 * size * kind.itemsize)
        folder.refuse_digest(folder.actions_file, hashlib.sha256(content).hexdigest())
        values = np.frombuffer(content, kind, count, offset=offset)
    if len(values) < count:
        raise BrokenFileError(f"{folder.actions_file}: expected {stop} steps, found fewer")
    rows = values.reshape(-1, 2 * size)
    return rows[:, :size], rows[:, size:]


def _unpacked(path: Path, size: int) -> bytes:
    """The ``size`` bytes of a packed file; no more than that is unpacked."""
    if size > MOST_BYTES:
        raise BrokenFileError(
            f"{path}: expected at most {MOST_BYTES} bytes, found steps for {size}"
        )
    content = _unpack(path, path.stat().st_mtime_ns, size)
    if len(content) != size:
        found = "more" if len(content) > size else str(len(content))
        raise BrokenFileError(f"{path}: expected {size} bytes, found {found}")
    return content


@functools.lru_cache(maxsize=2)  # a report reads many episodes of one run
def _unpack(path: Path, changed: int, size: int) -> bytes:
    try:
        with lzma.open(path) as stream:
            return stream.read(size + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise BrokenFileError(f"{path}: cannot be unpacked: {error}") from None


def read_actions(folder: RunFolder, episode: int, space: Any) -> tuple[Array, Array]:
    """Executed and proposed actions of one episode (counted from 1) in this action space."""
    records = folder.read_episodes()
    if not 1 <= episode <= len(records):
        expected = f"expected an episode from 1 to {len(records)}, found {episode}"
        raise AdviceError(f"{folder.path}: {expected}")
    if not has_actions(folder):
        raise AdviceError(f"{folder.path} was kept without its actions (actions.bin)")
    if folder.actions_file.exists():
        folder.refuse_changed(folder.actions_file)
    record = records[episode - 1]
    return read_steps(folder, record.total_steps - record.steps, record.total_steps, space)
