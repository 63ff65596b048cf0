"""The replay log and the state file: cheap, whole, and honest about damage."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.agents.agent import ReplayBuffer
from advice.runs.checkpoints import Checkpointer, Counters
from advice.types import AdviceError, Array, BrokenFileError, Transition


class Part:
    """A part whose whole state is one number."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"number": np.array(self.number)}, {"number": self.number}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        self.number = int(arrays["number"])
        assert document["number"] == self.number


def fill(replay: ReplayBuffer, count: int) -> None:
    for _ in range(count):
        number = replay.added
        replay.add(Transition(np.array([number]), np.zeros(1), 0.0, 0.0, np.zeros(1), False))


def checkpointer(folder: Path, replay: ReplayBuffer, part: Part | None = None) -> Checkpointer:
    return Checkpointer(folder, {"part": part or Part()}, replay)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 30))
def test_any_history_of_saves_restores_the_same_replay(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], capacity: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    replay = ReplayBuffer(capacity, 1, 1)
    keeper = checkpointer(folder, replay)
    for number, count in enumerate(batches):
        fill(replay, count)
        keeper.save(Counters(number + 1))
    other = ReplayBuffer(capacity, 1, 1)
    reader = checkpointer(folder, other)
    assert reader.load() == Counters(len(batches))
    reader.load_replay()
    assert other.added == replay.added
    np.testing.assert_array_equal(other.table, replay.table)
    rows = sum(path.stat().st_size for path in folder.glob("replay-*.bin")) / (4 * replay.width)
    assert rows <= 3 * capacity + max(batches)  # old segments are dropped


def test_a_save_writes_only_what_is_new(tmp_path: Path) -> None:
    replay = ReplayBuffer(1000, 1, 1)
    keeper = checkpointer(tmp_path, replay)
    fill(replay, 100)
    keeper.save(Counters(1))
    (log,) = tmp_path.glob("replay-*.bin")
    before = log.read_bytes()
    fill(replay, 7)
    keeper.save(Counters(2))
    after = log.read_bytes()
    assert after.startswith(before)
    assert len(after) - len(before) == 7 * 4 * replay.width


def test_rows_written_by_a_save_that_died_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, part = ReplayBuffer(100, 1, 1), Part(1)
    keeper = checkpointer(tmp_path, replay, part)
    fill(replay, 5)
    keeper.save(Counters(1))
    fill(replay, 5)
    part.number = 2

    def full_disk(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("advice.runs.checkpoints.write_arrays", full_disk)
        with pytest.raises(AdviceError, match=r"No space left.*after episode 1, is still there"):
            keeper.save(Counters(2))
    other, restored = ReplayBuffer(100, 1, 1), Part()
    reader = checkpointer(tmp_path, other, restored)
    assert reader.load() == Counters(1)
    reader.load_replay()
    assert (other.added, restored.number) == (5, 1)
    fill(other, 3)
    reader.save(Counters(2))
    third = ReplayBuffer(100, 1, 1)
    last = checkpointer(tmp_path, third)
    last.load()
    last.load_replay()
    np.testing.assert_array_equal(third.table, other.table)
    keeper.save(Counters(2))  # the first process, too, can go on once there is room again


def test_damage_is_noticed(tmp_path: Path) -> None:
    replay = ReplayBuffer(100, 1, 1)
    keeper = checkpointer(tmp_path, replay)
    fill(replay, 20)
    keeper.save(Counters(1))
    (log,) = tmp_path.glob("replay-*.bin")
    data = bytearray(log.read_bytes())
    data[17] ^= 1
    log.write_bytes(data)
    reader = checkpointer(tmp_path, ReplayBuffer(100, 1, 1))
    reader.load()
    with pytest.raises(BrokenFileError, match="intact rows"):
        reader.load_replay()


def test_a_read_only_folder_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*arguments: object, **more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(AdviceError, match="Read-only file system"):
        checkpointer(tmp_path / "deep", ReplayBuffer(4, 1, 1)).save(Counters(1))
