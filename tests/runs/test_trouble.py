"""Errors in environments, folders and settings: the message, and the state of the run then."""

from __future__ import annotations

import dataclasses
import lzma
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from helpers import DiesAfter, Killed, assert_same_run, small

from advice.agents.agent import Agent
from advice.config import AgentConfig, CSCConfig, EnvConfig, SACConfig, TD3Config, TrainConfig
from advice.files import write_json
from advice.runs.actions import pack_actions, read_actions
from advice.runs.checkpoints import Counters
from advice.runs.evaluate import check_video_name, evaluate
from advice.runs.loop import Listener, RunError, train
from advice.runs.records import RunFolder, provenance
from advice.shields.base import PostShield
from advice.shields.shield import Shield
from advice.types import AdviceError, BrokenFileError, EpisodeRecord, SettingError
from tiny import Corridor


class Trouble(Corridor):
    """A corridor that misbehaves in its fourth episode."""

    kind = ""

    def __init__(self) -> None:
        self._episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed, options=options)
        self._episode += 1
        if self._episode == 4 and self.kind == "reset":
            obs[0] = np.nan
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self._episode == 4:
            if self.kind == "cost":
                info["cost"] = np.nan
            if self.kind == "raises":
                raise ZeroDivisionError("division in the simulator")
        return obs, reward, terminated, truncated, info


class BadReset(Trouble):
    kind = "reset"


class BadCost(Trouble):
    kind = "cost"


class Raises(Trouble):
    kind = "raises"


class SixValues(Corridor):
    """Says its cost as Safety Gymnasium does."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, info.pop("cost"), terminated, truncated, info


class FourValues(Corridor):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class Shaped(Corridor):
    """Actions of shape (1, 2), of which the first can only be 1, in a list of an observation."""

    action_space = Box(np.array([[1, -1]]), np.array([[1, 1]]), (1, 2), np.float32)

    def step(self, action: Any) -> Any:
        assert action.shape == (1, 2)
        assert action[0, 0] == 1
        obs, *rest = super().step(action[0])
        return (obs.tolist(), *rest)


class Reuses(Corridor):
    """Returns the same array again and again."""

    _kept = np.zeros(2, np.float32)

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        self._kept[:] = obs
        return (self._kept, *rest)


def on(task: type, method: str = "ddpg", **settings: Any) -> TrainConfig:
    return dataclasses.replace(small(method, **settings), task=f"{__name__}:{task.__name__}")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (BadReset, r"episode 4, step 0: the observation has 1 non-finite"),
        (BadCost, r"episode 4, step 1: .*expected a finite number, found nan"),
        (Raises, r"episode 4, step 1: the environment raised ZeroDivisionError: division in"),
    ],
)
def test_an_environment_error_names_the_step_and_earlier_learning_is_usable(
    task: type, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=message):
        train(on(task, "ddpg-lag"), tmp_path, checkpoint_seconds=0)
    folder = RunFolder(tmp_path, trust_task=True)
    assert len(folder.read_episodes()) == 3
    assert len(evaluate(folder, 2)) == 2
    assert not folder.done_file.exists()


def test_a_run_killed_before_its_last_files_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("ddpg", episodes=3)
    with monkeypatch.context() as patch:
        patch.setattr("advice.runs.loop.write_arrays", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path)
    assert train(config, tmp_path).finished
    assert RunFolder(tmp_path).agent_file.exists()


def interrupted(*args: Any, **kwargs: Any) -> None:
    raise KeyboardInterrupt


def test_the_records_say_when_other_code_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Listener):
        def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
            if counters.episode in (2, 4):
                os.kill(os.getpid(), signal.SIGTERM)

    folder, config = RunFolder(tmp_path), small("ddpg", episodes=6)
    train(config, folder, Stop())
    train(config, folder, Stop())
    assert "resumed" not in folder.read_document()["provenance"]
    made = provenance(TrainConfig(method="ddpg"))
    monkeypatch.setattr("advice.runs.records.provenance", lambda method: made | {"commit": "newer"})
    assert train(config, folder).finished
    (resumed,) = folder.read_document()["provenance"]["resumed"]
    assert (resumed["after_episode"], resumed["commit"]) == (4, "newer")


def test_the_commit_is_of_our_repository_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *names, *words], check=True)

    (tmp_path / "mine.py").write_text("")
    git("init", "-q")
    git("add", "mine.py")
    git("commit", "-qm", "mine")
    (tmp_path / "records.py").write_text("")
    monkeypatch.setattr("advice.runs.records.__file__", str(tmp_path / "mine.py"))
    assert len(provenance(TrainConfig(method="ddpg"))["commit"].rstrip("+")) == 40
    monkeypatch.setattr("advice.runs.records.__file__", str(tmp_path / "records.py"))
    assert provenance(TrainConfig(method="ddpg"))["commit"] is None


def test_a_run_that_is_not_over_can_be_replayed(tmp_path: Path) -> None:
    """The actions of an unfinished episode lie behind those of the finished ones."""
    folder = RunFolder(tmp_path)
    train(small("ddpg", episodes=2), folder)
    whole = read_actions(folder, 2, Corridor.action_space)
    folder.done_file.unlink()
    with open(folder.actions_file, "ab") as stream:
        np.ones((folder.read_episodes()[-1].total_steps, 4), "<f4").tofile(stream)
    np.testing.assert_array_equal(read_actions(folder, 2, Corridor.action_space), whole)
    os.truncate(folder.actions_file, 24)
    with pytest.raises(BrokenFileError, match=r"expected \d+ steps, found fewer"):
        read_actions(folder, 1, Corridor.action_space)


def test_packed_actions_are_the_actions(tmp_path: Path) -> None:
    folder, kept = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "kept")
    train(small("ddpg", episodes=3), folder)
    shutil.copytree(folder.path, kept.path)
    kept.actions_file.unlink()
    pack_actions(folder, kept)
    space = Corridor.action_space
    for number in (1, 2, 3):
        for one, other in zip(
            read_actions(folder, number, space), read_actions(kept, number, space), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    whole, content = kept.packed_file.read_bytes(), folder.actions_file.read_bytes()
    for broken, message in (
        (whole[:-20], "it ends early"),
        (b"no archive", "cannot be unpacked"),
        (whole[:12] + b"\x02\x00\x21\x01\x28" + whole[17:], "cannot be unpacked"),  # 4 GiB
        (lzma.compress(content[:-4]), r"expected \d+ bytes, found \d+"),
        (lzma.compress(content + content), r"expected \d+ bytes, found more"),
        (lzma.compress(content[::-1]), "was changed after the run was done"),
    ):
        kept.packed_file.write_bytes(broken)
        with pytest.raises(BrokenFileError, match=message):
            read_actions(kept, 1, space)
    kept.done_file.unlink()
    *lines, last = kept.episodes_file.read_text().splitlines()
    for steps, total, message in (
        (-1, -1, "expected steps in"),
        (3, 10**12, "expected total_steps in"),
        (10**12, 10**12, "expected"),
    ):
        cells = last.split(",")
        cells[1:3] = str(steps), str(total)
        kept.episodes_file.write_text("\n".join([*lines, ",".join(cells)]) + "\n")
        with pytest.raises(BrokenFileError, match=message):
            read_actions(kept, 1, space)
    kept.clear()
    assert not kept.packed_file.exists()


def test_settings_of_another_version_name_their_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_config(small())
    document = folder.read_document()
    document["config"]["newer"] = 3
    write_json(folder.config_file, document)
    with pytest.raises(BrokenFileError, match=r"config\.json: .*'newer'; another version"):
        folder.read_config()


def test_a_step_of_six_values_is_taken_and_one_of_four_is_named(tmp_path: Path) -> None:
    six, five = tmp_path / "six", tmp_path / "five"
    train(on(SixValues), six)
    train(on(Corridor), five)
    assert_same_run(six, five)
    assert len(evaluate(RunFolder(six, trust_task=True), 2)) == 2
    with pytest.raises(RunError, match=r"episode 1, step 1: .* five or six values, found 4"):
        train(on(FourValues), tmp_path / "four")


def test_diverged_networks_raise_and_keep_the_last_checkpoint(tmp_path: Path) -> None:
    config = on(Corridor, episodes=200)
    agent = dataclasses.replace(config.agent, critic_learning_rate=1e3, actor_learning_rate=1e3)

    class Poison(Listener):
        def ready(self, agent: Agent, shield: PostShield) -> None:
            self.agent = agent

        def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
            if record.episode == 3:
                self.agent.replay.table[:, 3] = np.inf

    with pytest.raises(RunError, match=r"its networks have diverged"):
        train(dataclasses.replace(config, agent=agent), tmp_path, Poison(), checkpoint_seconds=0)
    run = RunFolder(tmp_path, trust_task=True)
    assert len(evaluate(run, 1)) == 1  # the last good state, not the NaNs


def test_shaped_and_fixed_actions_and_plain_lists(tmp_path: Path) -> None:
    train(on(Shaped, "advice"), tmp_path)
    assert any(record.k for record in RunFolder(tmp_path).read_episodes())


def test_an_environment_may_reuse_its_array(tmp_path: Path) -> None:
    train(on(Reuses), tmp_path / "reuses")
    train(on(Corridor), tmp_path / "plain")
    ours, plain = (RunFolder(tmp_path / name).read_episodes() for name in ("reuses", "plain"))
    assert [r.episode_return for r in ours] == [r.episode_return for r in plain]


def test_evaluation_between_episodes_changes_nothing(whole: Path, tmp_path: Path) -> None:
    class Looks(Listener):
        seen = 0

        def ready(self, agent: Agent, shield: PostShield) -> None:
            self.agent = agent

        def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
            self.agent.act(np.zeros(2, np.float32), explore=False)
            self.seen += 1

    looks = Looks()
    train(small(), tmp_path, looks)
    assert looks.seen == 14
    assert_same_run(whole, tmp_path)


# ---- folders


def test_files_that_no_run_wrote_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "log.txt").write_text("kept")
    train(small("ddpg", episodes=1), tmp_path)
    train(small("ddpg", episodes=2), tmp_path, overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").exists()
    assert (tmp_path / "log.txt").exists()


def test_a_missing_shield_source_leaves_the_old_run_unchanged(tmp_path: Path) -> None:
    train(small(episodes=10), tmp_path)
    config = dataclasses.replace(small(episodes=10), shield_from=str(tmp_path / "typo"))
    with pytest.raises(AdviceError, match="no shield can be taken from"):
        train(config, tmp_path, overwrite=True)
    assert len(RunFolder(tmp_path).read_episodes()) == 10
    with pytest.raises(AdviceError):
        train(config, tmp_path / "new")
    train(small(episodes=1), tmp_path / "new")  # nothing of the mistaken command is left there


def test_shield_sources_of_another_kind_raise(tmp_path: Path) -> None:
    train(small(episodes=10), tmp_path / "advice")
    train(small("tabular", episodes=3), tmp_path / "tabular")
    for method, source in (("tabular", "advice"), ("advice", "tabular"), ("csc", "advice")):
        config = dataclasses.replace(small(method), shield_from=str(tmp_path / source))
        with pytest.raises(AdviceError, match="expected a shield of the kind"):
            train(config, tmp_path / f"{method}-{source}")
    fixed = small(episodes=2)
    shield = dataclasses.replace(fixed.shield, k=5, k_rule="fixed")
    source = str(tmp_path / "advice")
    train(dataclasses.replace(fixed, shield=shield, shield_from=source), tmp_path / "fixed")
    assert {record.k for record in RunFolder(tmp_path / "fixed").read_episodes()} == {5}


def test_a_fitted_shield_is_on_disk_at_once(tmp_path: Path) -> None:
    class Dies(Listener):
        def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
            if record.k:
                raise InterruptedError

    with pytest.raises(AdviceError):  # an OSError, as if from the disk
        train(small(), tmp_path, Dies(), checkpoint_seconds=1e9)
    assert Shield.load(RunFolder(tmp_path).shield_file).armed


def test_a_kill_while_fitting_loses_nothing(whole: Path, tmp_path: Path) -> None:
    class Dies(Listener):
        def fitting(self, progress: Any) -> None:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(small(), tmp_path, Dies(), checkpoint_seconds=1e9)
    found = RunFolder(tmp_path)
    assert found.checkpoint.exists()
    assert len(found.read_episodes()) == 8
    assert train(small(), found).finished
    assert_same_run(whole, tmp_path)


@pytest.mark.parametrize("extra", [b"\0" * 100 + b"\n", b"xx,yy\n", b"\xff\n", b"15,2"])
def test_invalid_bytes_after_the_last_checkpoint_are_cut_off(
    whole: Path, tmp_path: Path, extra: bytes
) -> None:
    with pytest.raises(Killed):
        train(small(), tmp_path, DiesAfter(5), checkpoint_seconds=0)
    file = RunFolder(tmp_path).episodes_file
    file.write_bytes(file.read_bytes() + extra)
    train(small(), tmp_path)
    assert_same_run(whole, tmp_path)


def test_a_complete_run_whose_mark_is_lost_is_marked_again(tmp_path: Path) -> None:
    config = small("ddpg", episodes=3)
    train(config, tmp_path)
    folder = RunFolder(tmp_path)
    folder.done_file.unlink()
    leftover = folder.checkpoint / "replay-000000000000.bin"
    leftover.touch()
    assert train(config, tmp_path).finished
    assert folder.done_file.exists()
    assert not leftover.exists()


# ---- settings


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (AgentConfig, {"batch_size": 0}),
        (AgentConfig, {"replay_capacity": 10}),
        (AgentConfig, {"updates_per_step": -1}),
        (AgentConfig, {"gamma": 2.0}),
        (AgentConfig, {"actor_learning_rate": -1.0}),
        (AgentConfig, {"critic_learning_rate": 1e30}),
        (AgentConfig, {"hidden_size": 0}),
        (CSCConfig, {"draws": 0}),
        (TD3Config, {"policy_delay": 0}),
        (SACConfig, {"initial_temperature": 0.0}),
        (EnvConfig, {"max_episode_steps": 0}),
        (TrainConfig, {"seed": -1}),
        (TrainConfig, {"episodes": -3}),
        (TrainConfig, {"stop_after_violations": 0}),
        (EnvConfig, {"max_episode_steps": 10.5}),
        (EnvConfig, {"max_episode_steps": "10"}),
    ],
)
def test_invalid_settings_raise(kind: type, setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(setting))):
        kind(**setting)


def test_a_video_needs_a_videos_name() -> None:
    check_video_name(Path("a/b.mp4"))
    for name in ("noext", "v.xyz", "."):
        with pytest.raises(AdviceError, match=r"expected a video's name"):
            check_video_name(Path(name))


def test_a_task_without_room_says_so_each_time(tmp_path: Path) -> None:
    """The checkpoint of a run that never reset its task resumes to the same message."""
    config = TrainConfig(episodes=1, env=EnvConfig(options={"cubes": 60}))
    for _ in range(2):
        with pytest.raises(RunError, match="no layout found"):
            train(config, tmp_path)
