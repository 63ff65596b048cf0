"""Vectors of environments: one shield, and nothing that crosses a reset."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from walking import LOOK_AHEAD, QUICK

import advice
from advice.integrations.vector import ShieldedVectorEnv, row_of
from advice.types import BudgetSpentError
from marks import slow_but
from tiny import Corridor

MODES = list(AutoresetMode)
NEVER = advice.PRESETS["paper"]  # the shield is never fitted in these few episodes


class Diary(Corridor):
    """A corridor that writes down every start and every step it really took."""

    def __init__(self) -> None:
        self.diary: list[tuple[Any, ...]] = []

    def reset(self, **kwargs: Any) -> Any:
        self._before, info = super().reset(**kwargs)
        self.diary.append(("reset",))
        return self._before, info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.diary.append(("step", self._before, np.array(action), dict(info)))
        self._before = obs
        return obs, reward, terminated, truncated, info


def make(mode: AutoresetMode, count: int = 2, **options: Any) -> tuple[Any, list[Diary]]:
    envs = [Diary() for _ in range(count)]
    vector = SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode)  # type: ignore[misc]
    return ShieldedVectorEnv(vector, **options), envs


def walk(env: Any, mode: AutoresetMode, steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """Walk carelessly, resetting by hand where nobody else does; the shield's part of the infos."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    shields = []
    for _ in range(steps):
        sideways = rng.choice([-1.0, 0.0, 1.0], env.num_envs)
        actions = np.stack([rng.uniform(-0.2, 1, env.num_envs), sideways], 1).astype(np.float32)
        *_, terminated, truncated, infos = env.step(actions)
        shields.append({**infos["shield"], "live": infos["_shield"]})
        ended = terminated | truncated
        if mode == AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    return shields


def expected_features(envs: list[Diary]) -> tuple[set[Any], set[Any]]:
    """What the labelling rule makes of the diaries: safe and unsafe (obs, action) pairs."""
    safe, unsafe = set(), set()
    for env in envs:
        first = False
        for kind, *what in env.diary:
            if kind == "step":
                obs, action, info = what
                pair = (*obs.tolist(), *action.tolist())
                if info["violation"]:
                    unsafe.add(pair)
                elif first or info["success"]:
                    safe.add(pair)
            first = kind == "reset"
    return safe, unsafe


def stored_features(arrays: dict[str, Any]) -> tuple[set[Any], set[Any]]:
    """The safe and the unsafe pairs of a shield's snapshot."""
    rows, outcomes = arrays["steps.features"].tolist(), arrays["steps.outcomes"]
    pairs = list(zip(map(tuple, rows), outcomes, strict=True))
    safe, unsafe = (
        {row for row, outcome in pairs if outcome == kind}
        for kind in (advice.Outcome.SAFE, advice.Outcome.UNSAFE)
    )
    return safe, unsafe


@pytest.mark.parametrize("mode", MODES)
def test_exactly_the_steps_that_happened_are_remembered(mode: AutoresetMode) -> None:
    env, envs = make(mode, config=dataclasses.replace(NEVER, unsafe_per_episode=1000))
    walk(env, mode, 300)
    env.reset()  # closes the episodes under way
    safe, unsafe = expected_features(envs)
    assert len(unsafe) > 5
    assert stored_features(env.shield.snapshot()[0]) == (safe, unsafe)


@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_remembered_for_hindsight(mode: AutoresetMode) -> None:
    """In rows per episode: an episode's steps in order, none of another episode between them."""
    env, envs = make(mode, config=advice.ShieldConfig(arm="fixed"))
    walk(env, mode, 100)
    env.reset()
    arrays = env.shield.snapshot()[0]
    ends = np.cumsum(arrays["steps.lengths"])
    found = [tuple(map(tuple, x.tolist())) for x in np.split(arrays["steps.features"], ends[:-1])]
    expected = []
    for inner in envs:
        for kind, *what in inner.diary:
            if kind == "reset":
                expected.append(())
            else:
                expected[-1] += ((*what[0].tolist(), *what[1].tolist()),)
    assert sorted(found) == sorted(episode for episode in expected if episode)


@pytest.mark.parametrize("mode", MODES)
def test_environments_receive_what_infos_say(mode: AutoresetMode, fitted: str) -> None:
    env, envs = make(mode, shield=fitted)
    shields = walk(env, mode, 300, seed=1)
    assert sum(shield["intervened"].sum() for shield in shields) > 0
    for place, inner in enumerate(envs):
        received = [what[1] for kind, *what in inner.diary if kind == "step"]
        executed = [shield["executed"][place] for shield in shields if shield["live"][place]]
        np.testing.assert_array_equal(executed, received)
        resets = [shield for shield in shields if not shield["live"][place]]
        assert bool(resets) == (mode == AutoresetMode.NEXT_STEP)
        assert not any(shield["intervened"][place] for shield in resets)


def test_the_modes_tell_the_shield_the_same_story() -> None:
    """Same starts and same actions, step for step: the same features in the same order."""

    def story(mode: AutoresetMode) -> Any:
        env, _ = make(mode, count=1, config=QUICK)
        env.reset(seed=3)
        rng = np.random.default_rng(3)
        live = 0
        while live < 150:
            action = np.array([[0.3, rng.choice([-1.0, 1.0])]], np.float32)
            while True:
                *_, terminated, truncated, infos = env.step(action)
                if infos["_shield"][0]:
                    break
            live += 1
            if mode == AutoresetMode.DISABLED and (terminated | truncated).any():
                env.reset(options={"reset_mask": terminated | truncated})
        return env.shield.snapshot()[0]

    stories = [story(mode) for mode in MODES]
    for other in stories[1:]:
        assert all(np.array_equal(stories[0][name], other[name]) for name in stories[0])


@pytest.mark.parametrize(
    "config", slow_but([QUICK], [QUICK, LOOK_AHEAD]), ids=["paper", "look-ahead"]
)
def test_a_vector_of_one_equals_the_plain_wrapper(config: advice.ShieldConfig) -> None:
    vector, _ = make(AutoresetMode.SAME_STEP, count=1, config=config)
    plain = advice.ShieldedEnv(Corridor(), config=config)
    rng = np.random.default_rng(0)
    vector.reset(seed=0)
    plain.reset(seed=0)
    for _ in range(600):
        action = np.array([0.4, rng.choice([-1.0, 0.0, 1.0])], np.float32)
        obs, *_, infos = vector.step(action[None])
        other, _, terminated, truncated, info = plain.step(action)
        for key, value in info["shield"].items():
            np.testing.assert_array_equal(infos["shield"][key][0], value)
        if terminated or truncated:
            other, _ = plain.reset()
        np.testing.assert_array_equal(obs[0], other)
    assert plain.shield.armed


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_worker_processes_make_no_difference(mode: AutoresetMode, fitted: str) -> None:
    sync, _ = make(mode, shield=fitted)
    ours = walk(sync, mode, 200)
    shared = AsyncVectorEnv([Corridor, Corridor], context="spawn", autoreset_mode=mode)
    other = ShieldedVectorEnv(shared, shield=fitted)
    theirs = walk(other, mode, 200)
    other.close()
    assert [str(x) for x in ours] == [str(x) for x in theirs]


class DictCorridor(Corridor):
    observation_space = Dict({"at": Box(-2, 2, (2,), np.float32)})  # type: ignore[assignment]

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return {"at": obs}, info

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return {"at": obs}, *rest


@pytest.mark.filterwarnings("ignore:the shield does not help")  # fitted for a moment only
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_dictionaries_outcomes_and_critics(mode: AutoresetMode) -> None:
    def outcome(obs: Any, action: Any, reward: float, *rest: Any) -> advice.Outcome:
        assert rest[-1]["violation"] == (abs(obs["at"][1]) > 0.5)  # the step's end, not a reset
        unsafe = abs(obs["at"][1]) > 0.5
        return advice.Outcome.UNSAFE if unsafe else advice.Outcome.INCONCLUSIVE

    rated = []

    def rate_actions(obs: Any, actions: Any) -> Any:
        rated.append(obs["at"])
        return actions[:, 0]

    vector = SyncVectorEnv([DictCorridor] * 2, autoreset_mode=mode)
    env = ShieldedVectorEnv(
        vector,
        config=QUICK,
        features=lambda obs: obs["at"],
        outcome=outcome,
        rate_actions=rate_actions,
    )
    shields = walk(env, mode, 600)
    assert env.shield.armed
    assert len(rated) > 0
    assert sum(shield["intervened"].sum() for shield in shields) >= len(rated)


def test_a_spent_budget_ends_training_and_saves(tmp_path: Any) -> None:
    env, envs = make(AutoresetMode.NEXT_STEP, max_violations=4, save_path=tmp_path / "shield")
    with pytest.raises(BudgetSpentError, match="max_violations=4"):
        walk(env, AutoresetMode.NEXT_STEP, 10_000)
    crashes = sum(what[2]["violation"] for x in envs for kind, *what in x.diary if kind == "step")
    assert 4 <= crashes <= 5  # both may crash in the same step
    assert (tmp_path / "shield").exists()


@pytest.mark.parametrize("crashing", [0, 1])
def test_a_spent_budget_keeps_the_episodes_under_way(crashing: int, monkeypatch: Any) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(
        advice.Shield, "save", lambda shield, path: saved.append(shield.snapshot()[0])
    )
    env, envs = make(AutoresetMode.NEXT_STEP, config=NEVER, max_violations=1, save_path="shield")
    env.reset(seed=0)
    actions = np.zeros((2, 2), np.float32)
    actions[crashing, 1] = 1
    while not env.budget_spent:
        env.step(actions)
    assert len(saved) == 1
    assert env.session.episodes == 2
    assert stored_features(saved[0]) == expected_features(envs)


def test_it_has_the_wrappers_names(fitted: str, tmp_path: Any) -> None:
    env, _ = make(AutoresetMode.NEXT_STEP, shield=fitted, max_violations=1000)
    rated: list[Any] = []
    env.rate_actions = lambda obs, actions: rated.append(actions) or actions[:, 0]
    shields = walk(env, AutoresetMode.NEXT_STEP, 200)
    assert env.interventions == sum(shield["intervened"].sum() for shield in shields) > 0
    assert rated
    assert (env.violations, env.budget_spent) == (env.session.violations, False)
    env.save(tmp_path / "again")
    assert advice.Shield.load(tmp_path / "again").armed


def test_whole_numbers_do_not_cut_the_executed_action(fitted: str) -> None:
    env, envs = make(AutoresetMode.SAME_STEP, shield=fitted)
    env.reset(seed=0)
    shields = [env.step([[0, 1], [0, -1]])[-1]["shield"] for _ in range(30)]
    assert env.interventions > 0
    for place, inner in enumerate(envs):
        received = [what[1] for kind, *what in inner.diary if kind == "step"]
        np.testing.assert_array_equal([x["executed"][place] for x in shields], received)


class Unmasked(SyncVectorEnv):
    """Says everything about all environments, and so needs no masks."""

    def step(self, actions: Any) -> Any:
        *rest, infos = super().step(actions)
        return *rest, {key: values for key, values in infos.items() if key[0] != "_"}


def test_infos_without_masks_are_read() -> None:
    env = ShieldedVectorEnv(Unmasked([Corridor] * 2))
    walk(env, AutoresetMode.NEXT_STEP, 100)
    assert env.violations > 0


def test_the_info_of_one_environment() -> None:
    yes = np.array([False, True])
    inner = {"violation": yes, "cost": yes * 0.2, "_cost": yes}
    infos = {"end": inner, "_end": yes, "two": inner, "time": 0.3, "_own": [1, 2], "_": yes}
    first = {"violation": False}
    second = {"violation": True, "cost": 0.2}
    assert row_of(infos, 0) == {"two": first, "time": 0.3, "_own": 1, "_": False}
    assert row_of(infos, 1) == {"end": second, "two": second, "time": 0.3, "_own": 2, "_": True}


def test_stepping_before_a_reset_is_refused() -> None:
    env, _ = make(AutoresetMode.NEXT_STEP)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros((2, 2), np.float32))
