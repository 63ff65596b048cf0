"""The actions of a run, step by step: ``actions.bin`` as it is trained, packed where it is kept."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from advice.files import write_atomically
from advice.runs.records import RunFolder
from advice.types import AdviceError, Array, BrokenFileError

MOST_BYTES = 1 << 28
"""Packed actions that would take more than this are refused."""
_MEMORY = 64 << 20  # that unpacking may take besides; packing takes less


def action_layout(space: Any) -> tuple[np.dtype[Any], int]:
    """Type and count of the numbers in an action of this space."""
    return space.dtype.newbyteorder("<"), int(np.prod(space.shape))


def has_actions(folder: RunFolder) -> bool:
    """True if the actions were kept, packed or not."""
    return folder.actions_file.exists() or folder.packed_file.exists()


def pack_actions(folder: RunFolder, to: RunFolder) -> None:
    """Write the actions of one run packed into another folder."""
    import lzma  # not every Python was built with it, and training does without

    content = lzma.compress(folder.actions_file.read_bytes(), preset=6)
    write_atomically(to.packed_file, [content])


def read_steps(folder: RunFolder, start: int, stop: int, space: Any) -> tuple[Array, Array]:
    """Executed and proposed actions of the steps from ``start`` to ``stop``: (steps, size)."""
    kind, size = action_layout(space)
    count, offset = (stop - start) * 2 * size, start * 2 * size * kind.itemsize
    values = np.fromfile(folder.actions_file, kind, count, offset=offset)
    return _in_two(values, count, size, folder.actions_file)


def read_actions(folder: RunFolder, episode: int, space: Any) -> tuple[Array, Array]:
    """Executed and proposed actions of one episode (counted from 1) in this action space."""
    records = folder.read_checked_episodes()
    if not 1 <= episode <= len(records):
        expected = f"expected an episode from 1 to {len(records)}, found {episode}"
        raise AdviceError(f"{folder.path}: {expected}")
    if not has_actions(folder):
        raise AdviceError(f"{folder.path} was kept without its actions (actions.bin)")
    record = records[episode - 1]
    start, stop = record.total_steps - record.steps, record.total_steps
    if folder.actions_file.exists():
        folder.refuse_changed(folder.actions_file)
        return read_steps(folder, start, stop, space)
    kind, size = action_layout(space)
    content = _unpacked(folder.packed_file, records[-1].total_steps * 2 * size * kind.itemsize)
    folder.refuse_digest(folder.actions_file.name, hashlib.sha256(content).hexdigest())
    values = np.frombuffer(content, kind)[start * 2 * size : stop * 2 * size].copy()
    return _in_two(values, record.steps * 2 * size, size, folder.packed_file)


def _in_two(values: Array, count: int, size: int, path: Path) -> tuple[Array, Array]:
    if len(values) < count:
        raise BrokenFileError(f"{path}: expected {count // (2 * size)} steps, found fewer")
    rows = values.reshape(-1, 2 * size)
    return rows[:, :size], rows[:, size:]


def _unpacked(path: Path, size: int) -> bytes:
    """The ``size`` bytes of a packed file; no more than that is unpacked."""
    packed = path.stat()
    if (largest := max(size, packed.st_size)) > MOST_BYTES:
        raise BrokenFileError(f"{path}: expected at most {MOST_BYTES} bytes, not {largest}")
    content = _unpack(path, (packed.st_mtime_ns, packed.st_size), size)
    if len(content) != size:
        found = "more" if len(content) > size else str(len(content))
        raise BrokenFileError(f"{path}: expected {size} bytes, found {found}")
    return content


@functools.lru_cache(maxsize=1)  # a report reads many episodes of one run
def _unpack(path: Path, version: tuple[int, int], size: int) -> bytes:
    import lzma

    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        content = unpacker.decompress(path.read_bytes(), max_length=size + 1)
    except lzma.LZMAError as error:
        raise BrokenFileError(f"{path}: cannot be unpacked: {error}") from None
    if len(content) <= size and not unpacker.eof:
        raise BrokenFileError(f"{path}: cannot be unpacked: it ends early")
    return content
