"""Runs with the look-ahead shield: trials, refits, what the agent learns from, and resuming."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from helpers import LOOK_AHEAD, Killed, assert_same_run, small

from advice.config import TrainConfig
from advice.files import read_arrays
from advice.runs.actions import read_actions
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener, train
from advice.runs.records import RunFolder
from advice.shields import shield as shields
from advice.types import EpisodeRecord, Verdict
from tiny import Corridor


class Notes(Listener):
    """Keeps the episodes at whose end the shield was fitted, with what came of it."""

    def __init__(self, die_after: int = 0) -> None:
        self.fits: list[tuple[int, bool]] = []
        self._die_after = die_after

    def ready(self, agent: Any, shield: Any) -> None:
        self.shield, fit = shield, shield.fit_if_good

        def noted(progress: Any = None) -> bool:
            good = bool(fit(progress))
            self.fits.append((shield._memory.episode, good))
            return good

        shield.fit_if_good = noted

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        if record.episode == self._die_after:
            raise Killed


@pytest.fixture(scope="module", autouse=True)
def early_trials() -> Any:
    """Arming is tried after two violations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shields, "FIRST_TRIAL", 2)
        yield


def run_config(**shield: Any) -> TrainConfig:
    return small(episodes=14, shield=dataclasses.replace(LOOK_AHEAD, **shield))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Notes]:
    """An undisturbed run."""
    folder, notes = tmp_path_factory.mktemp("whole"), Notes()
    train(run_config(), folder, notes)
    return folder, notes


def test_trials_come_first_and_refits_later(whole: tuple[Path, Notes]) -> None:
    folder, notes = whole
    trials = [(episode, good) for episode, good in notes.fits if episode < 8]
    refits = [episode for episode, good in notes.fits if episode > 8]
    assert trials, "no trial came before the last construction episode"
    assert refits, "no refit came"
    records = RunFolder(folder).read_episodes()
    armed = next((episode for episode, good in notes.fits if good), 0)
    assert 0 < armed <= 8
    assert all((record.k > 0) == (record.episode > armed) for record in records)
    assert not any(record.interventions for record in records[:armed])
    assert all(b - a >= 3 for a, b in zip([armed, *refits], refits, strict=False))


def test_the_time_of_fits_and_trials_is_noted_apart(whole: tuple[Path, Notes]) -> None:
    folder = RunFolder(whole[0])
    noted = folder.read_document()["provenance"]["fit_seconds"]
    assert noted > 0.01 * len(whole[1].fits)


def test_a_run_that_is_cut_before_any_fit_is_identical(
    whole: tuple[Path, Notes], tmp_path: Path
) -> None:
    """Also where the cut comes right after a trial or a refit, which is not repeated."""
    folder, notes = whole
    episodes = {episode for episode, _ in notes.fits}
    cuts = sorted({min(episodes), min(episodes) + 1, max(episodes), max(episodes) + 1} - {15})
    for cut in cuts:
        part = tmp_path / str(cut)
        with pytest.raises(Killed):
            train(run_config(), part, Notes(die_after=cut), checkpoint_seconds=0)
        assert train(run_config(), part).finished
        assert_same_run(folder, part)


@pytest.mark.parametrize("which", [0, -1])
def test_a_kill_while_fitting_loses_nothing(
    whole: tuple[Path, Notes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """During the first trial, and during the last refit, even after the last episode."""
    folder, notes = whole
    number, fit, calls = range(len(notes.fits))[which], shields.fit_model, []

    def dies(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == number + 1:
            raise Killed
        return fit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shields, "fit_model", dies)
        with pytest.raises(Killed):
            train(run_config(), tmp_path, checkpoint_seconds=1e9)
    assert train(run_config(), tmp_path).finished
    assert_same_run(folder, tmp_path)


@pytest.mark.parametrize(
    ("learn_from", "penalty", "extra"),
    [("executed", 0.0, 0), ("proposed", 0.0, 0), ("both", 0.0, 1), ("both", 0.1, 2)],
)
def test_what_the_agent_learns_from_an_intervention(
    learn_from: str, penalty: float, extra: int, tmp_path: Path
) -> None:
    class Sees(Listener):
        """Notes what the agent observes; the armed shield replaces every third proposal."""

        actions: list[tuple[Any, ...]]
        guarded = 0

        def guard(self, obs: Any, action: Any, rate_actions: Any = None) -> Verdict:
            self.guarded += 1
            return Verdict(action) if self.guarded % 3 else Verdict(-action, intervened=True)

        def ready(self, agent: Any, shield: Any) -> None:
            shield.guard = self.guard
            self.actions, observe = [], agent.observe

            def noted(transition: Any) -> None:
                self.actions.append(tuple(transition.action.tolist()))
                observe(transition)

            agent.observe = noted

    sees = Sees()
    config = run_config(learn_from=learn_from, intervention_penalty=penalty, arm="fixed", hold=0)
    config = dataclasses.replace(config, episodes=11)
    train(config, tmp_path, sees)
    folder = RunFolder(tmp_path)
    records = folder.read_episodes()
    interventions = sum(record.interventions for record in records)
    assert interventions == sees.guarded // 3 > 0
    state = read_arrays(folder.checkpoint / "state.safetensors", "checkpoint", 1)[1]
    steps = records[-1].total_steps
    assert state["replay"]["added"] == len(sees.actions) == steps + extra * interventions
    expected = []
    for record in records:
        executed, proposed = read_actions(folder, record.episode, Corridor.action_space)
        for done, wanted in zip(executed.tolist(), proposed.tolist(), strict=True):
            replaced = done != wanted
            both = [done, wanted] if replaced else [done]
            learnt = {"executed": [done], "proposed": [wanted], "both": both}[learn_from]
            expected += learnt + [wanted] * (penalty > 0 and replaced)
    assert sees.actions == [tuple(action) for action in expected]


class Swamp(Corridor):
    """The cliffs are a swamp: each step there costs, and the episode goes on."""

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, info["success"], truncated or self._steps >= 25, info


@pytest.mark.slow
def test_k_after_a_resume_counts_costs_as_before(tmp_path: Path) -> None:
    """An episode counts as violated if it cost what was usual before the shield was armed."""
    config = dataclasses.replace(small(episodes=16), task=f"{__name__}:Swamp")
    train(config, tmp_path / "whole")
    records = RunFolder(tmp_path / "whole").read_episodes()
    assert len({record.cost for record in records[:8] if record.violation}) > 1
    with pytest.raises(Killed):
        train(config, tmp_path / "cut", Notes(die_after=11), checkpoint_seconds=0)
    train(config, tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
