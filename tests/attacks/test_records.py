"""No record is deleted unasked, and a run that broke or was stopped goes on as if it had not."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import hostile
import pytest
from helpers import assert_same_run, small

from advice.files import remove_leftovers, write_atomically
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener, RunError, train
from advice.runs.records import RunFolder
from advice.types import AdviceError, EpisodeRecord


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "gone",
    [
        ("checkpoint",),
        ("checkpoint/state.safetensors",),
        ("config.json",),
        ("checkpoint", "actions.bin", "shield.safetensors", "agent.safetensors"),  # as in results/
        ("checkpoint", "done"),
        ("config.json", "done", "episodes.csv"),
    ],
)
def test_a_run_that_lacks_a_part_is_named_and_kept(gone: tuple[str, ...], run: Path) -> None:
    for name in gone:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = contents(run)
    with pytest.raises(AdviceError, match=f"no {gone[0]}.*--overwrite"):
        train(small(episodes=10), run)
    assert contents(run) == before
    assert train(small("ddpg", episodes=1), run, overwrite=True).finished


@pytest.mark.parametrize("gone", ["config.json", "episodes.csv"])
def test_a_run_marked_as_done_that_is_not_is_named(gone: str, run: Path) -> None:
    (run / gone).unlink()
    with pytest.raises(AdviceError, match=f"marked as done, but lacks {gone}"):
        RunFolder(run).check_done()


def test_records_that_were_cut_or_edited_after_the_end_are_named(run: Path) -> None:
    folder = RunFolder(run)
    folder.check_done()
    whole = folder.episodes_file.read_text()
    folder.episodes_file.write_text(whole.replace(".", ".1", 1))
    with pytest.raises(AdviceError, match="changed after the run was done"):
        train(small(episodes=10), run)
    folder.episodes_file.write_text("\n".join(whole.splitlines()[:4]) + "\n")
    with pytest.raises(AdviceError, match="marked as done, but has 3 of 10 episodes"):
        folder.check_done()
    folder.done_file.write_text("")  # as earlier versions marked it
    folder.episodes_file.write_text(whole)
    folder.check_done()


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_run_goes_on_after_its_environment_broke(seconds: float, tmp_path: Path) -> None:
    config = small(episodes=12, task="hostile:BreaksOnce")
    hostile.BreaksOnce.struck = False
    with pytest.raises(RunError, match=r"ZeroDivisionError.*from its last checkpoint, after"):
        train(config, tmp_path / "broken", checkpoint_seconds=seconds)
    assert train(config, tmp_path / "broken").finished
    train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_an_environment_that_ends_the_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"step \d+: the environment raised SystemExit"):
        train(small("ddpg", episodes=12, task="hostile:Exits"), tmp_path)


def test_the_first_signal_is_answered_at_once(tmp_path: Path) -> None:
    class Asks(Listener):
        heard = ""

        def stepped(self) -> None:
            if not self.heard:
                os.kill(os.getpid(), signal.SIGINT)

        def said(self, message: str) -> None:
            self.heard += message

        def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
            assert "stopping when this episode ends" in self.heard

    assert not train(small("ddpg"), tmp_path, Asks()).finished


def test_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    stray = tmp_path / ".config.json.abc.tmp"
    stray.write_text("half a")
    os.utime(stray, (0, 0))
    with RunFolder(tmp_path).locked():
        assert not stray.exists()
    stray.write_text("half a")
    os.utime(stray, (0, 0))
    write_atomically(tmp_path / "other.json", [b"{}"])
    assert stray.exists()
    write_atomically(tmp_path / "config.json", [b"{}"])
    assert not stray.exists()


def test_a_temporary_file_in_use_stays(tmp_path: Path) -> None:
    import fcntl

    stray = tmp_path / ".config.json.abc.tmp"
    with open(stray, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        os.utime(stray, (0, 0))
        remove_leftovers(tmp_path)
        assert stray.exists()
    remove_leftovers(tmp_path)
    assert not stray.exists()
