"""What a run writes, so that it survives anything: growing records, and checkpoints.

A checkpoint is one atomic file for the state, and a growing log for the replay. A save appends the
new replay rows, flushes them to disk, and only then replaces ``state.safetensors``, which says how
many rows of which segment belong to it. Whenever the process dies, the state file on disk and the
rows and records it counts are whole; surplus ones are cut at the resume.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.agents.agent import ReplayBuffer
from advice.files import read_arrays, write_arrays, write_atomically
from advice.runs.actions import action_layout
from advice.runs.records import COLUMNS, RunFolder, episode_line, parse_episodes
from advice.types import AdviceError, Array, BrokenFileError, EpisodeRecord

_KIND, _VERSION = "checkpoint", 1
_SEGMENTS_PER_REPLAY = 4
_UNFIT = (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError)


class Counters(NamedTuple):
    """How far a run has come."""

    episode: int = 0
    total_steps: int = 0
    violations: int = 0


class Segment(NamedTuple):
    """One file of the replay log: rows numbered start .. start+rows-1."""

    start: int
    rows: int
    checksum: int

    @property
    def end(self) -> int:
        return self.start + self.rows


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Contents that do not fit the run become an error that names the file."""
    try:
        yield
    except BrokenFileError:
        raise
    except (AdviceError, *_UNFIT) as error:
        raise BrokenFileError(
            f"{path}: the contents do not fit this run: {str(error)[:300]!r}"
        ) from error


class Checkpointer:
    """Saves and restores one run's parts, by their ``snapshot`` and ``restore``, in one folder."""

    def __init__(self, folder: Path, parts: dict[str, Any], replay: ReplayBuffer) -> None:
        self._folder, self._parts, self._replay = folder, parts, replay
        self._state_file = folder / "state.safetensors"
        self._segments: list[Segment] = []
        self.saved = Counters()

    def save(self, counters: Counters) -> None:
        """Make this moment the one a resume continues from."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._append_replay()
            log = {"added": self._replay.added, "segments": [list(s) for s in self._segments]}
            arrays: dict[str, Array] = {}
            document: dict[str, Any] = {"counters": list(counters), "replay": log}
            for name, part in self._parts.items():
                part_arrays, document[name] = part.snapshot()
                arrays |= {f"{name}/{key}": array for key, array in part_arrays.items()}
            write_arrays(self._state_file, arrays, document, _KIND, _VERSION)
        except (OSError, TypeError) as error:  # a disk's trouble, or what cannot be stored
            reason = getattr(error, "strerror", None) or error
            raise AdviceError(
                f"could not save a checkpoint in {self._folder}: {reason}; "
                f"the last good one, after episode {self.saved.episode}, is still there"
            ) from error
        self.saved = counters
        self.drop_replay(keep=self._segments)

    def load(self) -> Counters:
        """Restore every part but the replay from the last save; zeros if there is none."""
        if not self._state_file.exists():
            return Counters()
        arrays, document = read_arrays(self._state_file, _KIND, _VERSION)
        with _naming(self._state_file):
            for name, part in self._parts.items():
                part.restore(_of(name, arrays), document[name])
            self._added = document["replay"]["added"]
            self._segments = [Segment(*fields) for fields in document["replay"]["segments"]]
            self.saved = Counters(*document["counters"])
            numbers = (*self.saved, self._added, *chain(*self._segments))
            if any(type(x) is not int or x < 0 for x in numbers):
                raise ValueError(f"expected whole numbers, found {numbers}")
            starts = [segment.start for segment in self._segments]
            ends = [segment.end for segment in self._segments] or [self._added]
            if starts[1:] != ends[:-1] or ends[-1] != self._added:
                raise ValueError("replay: expected segments one after the other")
        return self.saved

    def load_replay(self) -> None:
        """Restore the replay that belongs to what :meth:`load` restored."""
        replay = self._replay
        for segment in self._segments:
            path, size = self._segment_file(segment), segment.rows * 4 * replay.width
            data = path.read_bytes()[:size] if path.exists() else b""
            if len(data) != size or zlib.crc32(data) != segment.checksum:
                raise BrokenFileError(f"{path}: expected {segment.rows} intact rows of replay")
            rows = np.frombuffer(data, "<f4").reshape(segment.rows, replay.width)
            gone = max(0, self._added - replay.capacity - segment.start)
            replay.put(segment.start + gone, rows[gone:])
        replay.added = self._added

    def drop_replay(self, keep: Collection[Segment] = ()) -> None:
        """Delete the files of the log but those to keep; a finished run needs none."""
        kept = {self._segment_file(segment) for segment in keep}
        for path in set(self._folder.glob("replay-*.bin")) - kept:
            path.unlink()

    def _segment_file(self, segment: Segment) -> Path:
        return self._folder / f"replay-{segment.start:012d}.bin"

    def _append_replay(self) -> None:
        replay = self._replay
        last = self._segments[-1] if self._segments else Segment(0, 0, 0)
        oldest = replay.added - replay.capacity
        first = max(last.end, oldest)
        if first == replay.added:
            return
        full = last.rows >= max(1, replay.capacity // _SEGMENTS_PER_REPLAY)
        if not self._segments or full or first > last.end:
            last = Segment(first, 0, 0)
            self._segments.append(last)
        data = replay.rows(first, replay.added).astype("<f4", copy=False).tobytes()
        with open(self._segment_file(last), "r+b" if last.rows else "w+b") as stream:
            stream.seek(last.rows * 4 * replay.width)
            stream.write(data)
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
        rows = replay.added - last.start
        self._segments[-1] = Segment(last.start, rows, zlib.crc32(data, last.checksum))
        self._segments = [segment for segment in self._segments if segment.end > oldest]


def read_part(folder: Path, name: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """The saved state of one part of a run: its arrays and its document."""
    path = folder / "state.safetensors"
    if not path.exists():
        raise AdviceError(f"{folder}: expected a checkpoint, found none yet")
    arrays, document = read_arrays(path, _KIND, _VERSION)
    with _naming(path):
        return _of(name, arrays), document[name]


def _of(name: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays of one part."""
    names = [key for key in arrays if key.startswith(f"{name}/")]
    return {key.removeprefix(f"{name}/"): arrays[key] for key in names}


class RecordWriter:
    """Appends episodes and actions; first truncates both files to ``episodes`` and ``steps``."""

    def __init__(self, folder: RunFolder, space: Any, episodes: int, steps: int) -> None:
        file, kept = folder.episodes_file, (",".join(COLUMNS) + "\n").encode()
        if episodes:
            kept = b"".join(file.read_bytes().splitlines(keepends=True)[: episodes + 1])
            if (found := len(parse_episodes(file, kept))) < episodes:
                raise BrokenFileError(f"{file}: expected {episodes} episodes, found {found}")
        write_atomically(file, [kept])
        self._episodes = open(file, "ab")
        self._actions = open(folder.actions_file, "ab")
        self._type, width = action_layout(space)
        size = steps * 2 * width * self._type.itemsize
        if self._actions.tell() < size:
            raise BrokenFileError(f"{folder.actions_file}: expected {size} bytes, found fewer")
        self._actions.truncate(size)
        self.flush()

    def step(self, executed: Array, proposed: Array) -> None:
        for action in (executed, proposed):
            self._actions.write(action.astype(self._type).tobytes())

    def episode(self, record: EpisodeRecord) -> None:
        """Write one finished episode and flush, so that readers see it."""
        self._episodes.write(episode_line(record).encode())
        self._actions.flush()
        self._episodes.flush()

    def flush(self) -> None:
        """Write everything so far to disk (fsync)."""
        for stream in (self._actions, self._episodes):
            stream.flush()
            os.fsync(stream.fileno())

    def close(self) -> None:
        with self._actions, self._episodes:
            self.flush()
