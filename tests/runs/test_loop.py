"""The training loop: what it keeps, how it resumes, and how it fails."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import DiesAfter, Killed, assert_same_run, lines_without_seconds, small

from advice.files import read_arrays
from advice.runs.actions import read_actions
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener, RunError, train
from advice.runs.methods import episode_seed
from advice.runs.records import FolderLockedError, RunFolder
from advice.shields.shield import Shield
from advice.types import AdviceError, EpisodeRecord


class Notes(Listener):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def said(self, message: str) -> None:
        self.messages.append(message)


def test_records_describe_the_run(whole: Path) -> None:
    folder = RunFolder(whole)
    records = folder.read_episodes()
    assert [record.episode for record in records] == list(range(1, 15))
    assert records[-1].total_steps == sum(record.steps for record in records)
    assert all(record.k == 0 for record in records[:8])
    assert all(3 <= record.k <= 5 for record in records[8:])
    assert all(record.violation == (record.cost > 0) for record in records)
    document = json.loads((whole / "config.json").read_text())
    assert document["config"]["agent"]["hidden_size"] == 16
    assert document["provenance"]["versions"]["numpy"] == np.__version__
    assert Shield.load(folder.shield_file).armed
    assert "# Shield card: tiny:Corridor" in folder.card_file.read_text()
    assert list(folder.path.glob("events.*"))
    assert folder.done_file.exists()
    assert not list(folder.checkpoint.glob("replay-*"))


def test_weights_and_biases_gets_every_episode_in_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, float]] = []
    started: list[Any] = []

    def init(**options: Any) -> Any:
        started.append(options["id"])
        return SimpleNamespace(log=logged.append, finish=list, define_metric=lambda *x, **y: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict))
    config = small("ddpg", episodes=4)
    with pytest.raises(Killed):
        train(config, tmp_path, DiesAfter(2), checkpoint_seconds=0, wandb=True)
    train(config, tmp_path, wandb=True)
    assert started[0] == started[1]  # the resumed run goes on in the same one
    found = {values["episode"]: values["episode/return"] for values in logged}
    records = RunFolder(tmp_path).read_episodes()
    assert found == {record.episode: record.episode_return for record in records}
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(AdviceError, match=r"pip install 'advice-rl\[wandb\]'"):
        train(config, tmp_path / "other", wandb=True)


def test_recorded_actions_replay_the_episode(whole: Path) -> None:
    from tiny import Corridor

    folder = RunFolder(whole)
    for number in (1, 12):
        record = folder.read_episodes()[number - 1]
        executed, proposed = read_actions(folder, number, Corridor.action_space)
        assert executed.shape == proposed.shape == (record.steps, 2)
        env = Corridor()
        env.reset(seed=episode_seed(0, number))
        total = sum(env.step(action)[1] for action in executed)
        assert total == pytest.approx(record.episode_return)


def test_same_seed_same_files(whole: Path, tmp_path: Path) -> None:
    train(small(), tmp_path)
    assert_same_run(whole, tmp_path)


def test_methods_of_one_seed_start_alike(whole: Path, tmp_path: Path) -> None:
    """Until the shield is armed, ADVICE is DDPG, step for step."""
    train(small("ddpg", episodes=9), tmp_path)
    assert lines_without_seconds(whole)[:9] == lines_without_seconds(tmp_path)[:9]


@pytest.mark.parametrize("episode", [1, 7, 8, 11, 14])
def test_resumed_run_is_identical(whole: Path, tmp_path: Path, episode: int) -> None:
    with pytest.raises(Killed):
        train(small(), tmp_path, DiesAfter(episode), checkpoint_seconds=0)
    assert train(small(), tmp_path).finished
    assert_same_run(whole, tmp_path)


def test_resume_without_a_recent_checkpoint_drops_what_came_after(
    whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        train(small(), tmp_path, DiesAfter(13), checkpoint_seconds=1e9)  # saved at the fit only
    assert RunFolder(tmp_path).read_episodes()[-1].episode == 13
    assert train(small(), tmp_path).finished
    assert_same_run(whole, tmp_path)


def test_finished_run_is_left_alone(whole: Path) -> None:
    before = (whole / "episodes.csv").read_bytes()
    assert train(small(), whole).finished
    assert (whole / "episodes.csv").read_bytes() == before


def test_other_settings_are_refused_by_name_unless_overwritten(tmp_path: Path) -> None:
    config = small("ddpg", episodes=2)
    train(config, tmp_path)
    other = dataclasses.replace(config, agent=dataclasses.replace(config.agent, gamma=0.5))
    with pytest.raises(AdviceError, match=r"agent\.gamma: 0\.95 there, 0\.5 now"):
        train(other, tmp_path)
    train(other, tmp_path, overwrite=True)
    assert RunFolder(tmp_path).read_config() == other


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked(), pytest.raises(FolderLockedError, match="another process"):
        train(small("ddpg", episodes=1), tmp_path)


def test_a_signal_stops_after_the_episode_and_the_run_continues(
    whole: Path, tmp_path: Path
) -> None:
    class Signals(Listener):
        def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
            if record.episode == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    result = train(small(), tmp_path, Signals())
    assert not result.finished
    assert result.counters.episode == 5
    assert train(small(), tmp_path).finished
    assert_same_run(whole, tmp_path)


def test_safety_budget_ends_the_run_cleanly(tmp_path: Path) -> None:
    result = train(small("ddpg", episodes=50, stop_after_violations=3), tmp_path)
    records = RunFolder(tmp_path).read_episodes()
    assert result.finished
    assert sum(record.violation for record in records) == 3
    assert records[-1].violation


def test_nan_reward_names_episode_and_step_and_keeps_the_rest(tmp_path: Path) -> None:
    config = dataclasses.replace(small("ddpg", episodes=50), task="tiny:BrokenReward")
    with pytest.raises(RunError, match=r"episode \d+, step \d+: the reward is nan"):
        train(config, tmp_path)
    records = RunFolder(tmp_path).read_episodes()
    assert 0 < sum(record.steps for record in records) < 100


def test_one_class_only_goes_on_unarmed_and_says_so_once(tmp_path: Path) -> None:
    config = dataclasses.replace(small(episodes=12), task="tiny:Target")
    notes = Notes()
    train(config, tmp_path, notes)
    assert len([message for message in notes.messages if "unarmed" in message]) == 1
    assert all(record.k == 0 for record in RunFolder(tmp_path).read_episodes())


def test_shield_from_another_run_is_armed_at_once(whole: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(small(episodes=3), seed=1)
    kept = tmp_path / "kept"  # as in results/: without its checkpoint
    shutil.copytree(whole, kept, ignore=shutil.ignore_patterns("checkpoint"))
    for number, source in enumerate((whole, whole / "shield.safetensors", kept)):
        folder = tmp_path / str(number)
        train(dataclasses.replace(config, shield_from=str(source)), folder)
        assert all(record.k > 0 for record in RunFolder(folder).read_episodes())
    lent = dataclasses.replace(config, method="ddpg", shield_from=str(whole))
    with pytest.raises(AdviceError, match="has no shield"):
        train(lent, tmp_path / "ddpg")


def test_intervention_penalty_adds_the_replaced_action(tmp_path: Path) -> None:
    config = small(episodes=12)
    config = dataclasses.replace(
        config,
        shield=dataclasses.replace(config.shield, intervention_penalty=0.1, k=5, k_rule="fixed"),
    )
    train(config, tmp_path)
    records = RunFolder(tmp_path).read_episodes()
    document = read_arrays(tmp_path / "checkpoint" / "state.safetensors", "checkpoint", 1)[1]
    interventions = sum(record.interventions for record in records)
    assert interventions > 0
    assert document["replay"]["added"] == records[-1].total_steps + interventions
