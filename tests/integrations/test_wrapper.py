"""ShieldedEnv: it records, fits its shield, guards, and changes nothing else."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Sequence
from walking import QUICK, run, sideways

import advice
from advice.agents.ddpg import DDPG
from advice.config import AgentConfig, ShieldConfig
from advice.integrations.vector import ShieldedVectorEnv
from advice.integrations.wrapper import CostInInfo, ShieldedEnv
from advice.shields.tabular import TabularShield
from advice.types import BudgetSpentError, SpaceMismatchError, Transition
from tiny import Corridor

KEYS = {"proposed", "executed", "intervened", "safe_neighbours", "no_safe_action"}


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps what the environment really received."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.received: list[Any] = []

    def step(self, action: Any) -> Any:
        self.received.append(np.array(action))
        return self.env.step(action)


def test_it_arms_itself_and_executes_what_info_says() -> None:
    inner = Recorder(Corridor())
    env = advice.ShieldedEnv(inner, config=QUICK)
    before = run(env, 29)
    assert not env.shield.armed
    assert all(info["shield"].keys() >= KEYS for info in before)
    assert not any(info["shield"]["intervened"] for info in before)
    run(env, 1, seed=1)
    assert env.shield.armed
    inner.received.clear()
    after = run(env, 40, seed=2)
    shields = [info["shield"] for info in after]
    assert any(shield["intervened"] for shield in shields)
    assert env.interventions == sum(shield["intervened"] for shield in shields)
    for shield, received in zip(shields, inner.received, strict=True):
        np.testing.assert_array_equal(shield["executed"], received)
        changed = not np.array_equal(shield["executed"], shield["proposed"])
        assert not changed or shield["intervened"]
        assert env.action_space.contains(received)
    crashes = sum(info["violation"] for info in after) / 40
    assert crashes < sum(info["violation"] for info in before) / 29


def test_it_agrees_with_a_shield_used_by_hand(fitted: str) -> None:
    env = ShieldedEnv(Corridor(), shield=fitted)
    shield = advice.Shield.load(fitted)
    rng = np.random.default_rng(3)
    obs, _ = env.reset(seed=3)
    for _ in range(200):
        action = sideways(rng)
        verdict = shield.guard(obs, action)
        obs, _, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(info["shield"]["executed"], verdict.action)
        assert info["shield"]["safe_neighbours"] == verdict.safe_neighbours
        if terminated or truncated:
            shield.end_episode(info["violation"])
            obs, _ = env.reset()
    assert env.interventions > 0


def test_the_critic_chooses_among_safe_actions(fitted: str) -> None:
    def first_replacement(env: ShieldedEnv) -> dict[str, Any]:
        return next(x["shield"] for x in run(env, 20) if x["shield"]["intervened"])

    rated: list[Any] = []

    def backwards(obs: Any, actions: Any) -> Any:
        rated.append(actions)
        return -actions[:, 0]

    env = ShieldedEnv(Corridor(), shield=fitted)
    env.rate_actions = backwards
    chosen, nearest = first_replacement(env), first_replacement(ShieldedEnv(Corridor(), fitted))
    np.testing.assert_array_equal(chosen["proposed"], nearest["proposed"])
    assert chosen["executed"][0] == rated[0][:, 0].min() < nearest["executed"][0]


def test_a_shield_that_never_intervenes_changes_nothing() -> None:
    # Of five neighbours one is always safe, since only four unsafe features are known.
    config = dataclasses.replace(QUICK, k=1, k_rule="fixed", max_epochs=2)
    shield = advice.Shield(Corridor.observation_space, Corridor.action_space, config)
    for number in range(20):
        outcome = advice.Outcome.UNSAFE if number < 4 else advice.Outcome.SAFE
        shield.record(np.full(2, number / 20, np.float32), np.zeros(2, np.float32), outcome)
        shield.end_episode(number < 4)
    shield.fit()
    sizes = AgentConfig(
        warmup_steps=0, hidden_size=16, batch_size=16
    )  # as the runs': compiled once

    def learn(env: gym.Env[Any, Any]) -> tuple[list[Any], Any]:
        agent = DDPG(env.observation_space, env.action_space, sizes, 5)
        trace: list[Any] = []
        for episode in range(15):
            obs, _ = env.reset(seed=5 if episode == 0 else None)
            agent.start_episode()
            ended = False
            while not ended:
                action = agent.act(obs)
                after, reward, terminated, truncated, _ = env.step(action)
                agent.observe(Transition(obs, action, reward, 0.0, after, terminated))
                agent.learn()
                trace.append((obs, action, reward, terminated, truncated))
                obs, ended = after, terminated or truncated
        return trace, agent.snapshot()[0]

    bare, bare_weights = learn(Corridor())
    env = ShieldedEnv(Corridor(), shield)
    shielded, weights = learn(env)
    assert env.interventions == 0
    for left, right in zip(bare, shielded, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
    assert all(np.array_equal(bare_weights[name], weights[name]) for name in bare_weights)


def test_same_seed_same_run() -> None:
    first, second = (run(ShieldedEnv(Corridor(), config=QUICK), 45) for _ in range(2))
    assert [str(x["shield"]) for x in first] == [str(x["shield"]) for x in second]


def test_one_class_warns_once_and_is_tried_again() -> None:
    env = ShieldedEnv(Corridor(), config=QUICK)

    def walk(action: tuple[float, float]) -> None:
        ended = False
        env.reset(seed=0)
        while not ended:
            *_, terminated, truncated, _ = env.step(np.array(action, np.float32))
            ended = terminated or truncated

    for _ in range(29):
        walk((1.0, 0.0))
    with pytest.warns(UserWarning, match="60 safe and 0 unsafe"):
        walk((1.0, 0.0))
    walk((1.0, 0.0))  # a second warning would be an error
    assert not env.shield.armed
    walk((0.0, 1.0))
    assert env.shield.armed


def test_save_and_load_go_on_alike(fitted: str, tmp_path: Any) -> None:
    env = ShieldedEnv(Corridor(), shield=advice.Shield.load(fitted))
    env.save(tmp_path / "again")
    again = ShieldedEnv(Corridor(), shield=tmp_path / "again")
    assert again.shield.armed
    assert [str(x) for x in run(env, 5)] == [str(x) for x in run(again, 5)]


def test_a_shield_for_other_spaces_is_refused(fitted: str) -> None:
    with pytest.raises(SpaceMismatchError, match="made for"):
        ShieldedEnv(gym.make("Pendulum-v1"), shield=fitted)


def test_settings_that_contradict_a_given_shield_are_refused(fitted: str) -> None:
    assert ShieldedEnv(Corridor(), shield=fitted, config=QUICK).shield.armed
    with pytest.raises(ValueError, match="its own settings"):
        ShieldedEnv(Corridor(), shield=fitted, config=advice.ShieldConfig(k=5))


class SixValues(Corridor):
    """Reports its cost as the third of six values, and nowhere else."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        success = {"success": info["success"]}
        return obs, reward, info["cost"], terminated, truncated, success


def test_a_step_of_six_values() -> None:
    env = ShieldedEnv(SixValues(), config=QUICK)
    infos = run(env, 30)
    assert env.shield.armed
    assert env.violations == sum(info["cost"] > 0 for info in infos) > 0
    vector = ShieldedVectorEnv(gym.vector.SyncVectorEnv([lambda: CostInInfo(SixValues())] * 2))
    vector.reset(seed=0)
    for _ in range(60):
        vector.step(np.tile(np.float32([0.5, 1.0]), (2, 1)))
    assert vector.session.violations > 0
    vector.close()


class NoSignals(Corridor):
    """Says nothing about safety."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {}


def test_an_unexplained_end_warns_once() -> None:
    env = ShieldedEnv(NoSignals())
    with pytest.warns(UserWarning, match="nothing says whether that was a failure") as caught:
        run(env, 5)
    assert len(caught) == 1
    assert env.violations == 0


def test_terminal_and_known_ids_report_failures() -> None:
    env = ShieldedEnv(NoSignals(), terminal="failure")
    run(env, 5)
    assert env.violations > 0
    for shielded in (
        ShieldedEnv(gym.make("CartPole-v1")),
        ShieldedVectorEnv(gym.make_vec("CartPole-v1", num_envs=2)),
        ShieldedVectorEnv(gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)),
    ):
        shielded.reset(seed=0)
        shielded.action_space.seed(0)
        while not shielded.violations:
            shielded.step(np.zeros_like(shielded.action_space.sample()))
        shielded.close()


def test_the_users_own_outcome_sees_where_the_step_led() -> None:
    def outcome(obs: Any, action: Any, reward: float, *rest: Any) -> advice.Outcome:
        terminated, _, info = rest
        assert isinstance(info, dict)
        assert terminated == (abs(obs[1]) > 0.5 or obs[0] >= 1)
        return advice.Outcome.UNSAFE if abs(obs[1]) > 0.5 else advice.Outcome.INCONCLUSIVE

    env = ShieldedEnv(NoSignals(), config=QUICK, outcome=outcome)
    run(env, 30)
    assert env.violations > 0
    assert env.shield.armed  # the first steps count as safe without being said to be


def test_an_outcome_of_another_type_raises() -> None:
    env = ShieldedEnv(Corridor(), outcome=lambda *_: True)  # type: ignore[arg-type, return-value]
    env.reset(seed=0)
    with pytest.raises(TypeError, match="found True"):
        env.step(np.zeros(2, np.float32))


class DictCorridor(Corridor):
    """Dictionary observations and four discrete actions."""

    observation_space = Dict({"x": Box(-2, 2, (1,), np.float32), "y": Box(-2, 2, (1,), np.float32)})  # type: ignore[assignment]
    action_space = Discrete(3, start=-1)  # type: ignore[assignment]

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return {"x": obs[:1], "y": obs[1:]}, info

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(np.array([0.3, action]))
        return {"x": obs[:1], "y": obs[1:]}, *rest


def walk_discrete(env: gym.Env[Any, Any], episodes: int) -> list[Any]:
    rng = np.random.default_rng(0)
    shields = []
    for episode in range(episodes):
        env.reset(seed=episode)
        ended = False
        while not ended:
            *_, terminated, truncated, info = env.step(rng.integers(-1, 2))
            shields.append(info["shield"])
            ended = terminated or truncated
    return shields


def test_dictionary_observations_and_discrete_actions() -> None:
    def features(obs: Any) -> Any:
        return np.concatenate([obs["x"], obs["y"]])

    rated = []

    def rate_actions(obs: Any, actions: Any) -> Any:
        rated.append(obs)
        return np.zeros(len(actions))

    env = ShieldedEnv(DictCorridor(), config=QUICK, features=features, rate_actions=rate_actions)
    shields = walk_discrete(env, 60)
    assert env.shield.armed
    replaced = [shield for shield in shields if shield["intervened"]]
    assert replaced
    assert all(env.action_space.contains(shield["executed"]) for shield in replaced)
    assert rated
    assert all(set(obs) == {"x", "y"} for obs in rated)


def test_dictionary_observations_are_flattened_by_default(tmp_path: Path) -> None:
    env = ShieldedEnv(DictCorridor(), config=QUICK)
    walk_discrete(env, 60)
    assert env.shield.armed
    assert env.shield.observation_space.shape == (2,)
    env.shield.save(tmp_path / "shield.safetensors")
    again = ShieldedEnv(DictCorridor(), shield=tmp_path / "shield.safetensors")
    assert again.shield.armed


def test_observations_that_cannot_be_flattened_are_explained() -> None:
    env = DictCorridor()
    env.observation_space = Sequence(Box(-1, 1, (1,)))  # type: ignore[assignment]
    with pytest.raises(SpaceMismatchError, match="give features="):
        ShieldedEnv(env)


def test_features_leave_the_users_generator_alone() -> None:
    env, twin = DictCorridor(), DictCorridor()
    env.observation_space = Dict({"x": Box(-2, 2, (1,), np.float32)}, seed=4)  # type: ignore[assignment]
    twin.observation_space = Dict({"x": Box(-2, 2, (1,), np.float32)}, seed=4)  # type: ignore[assignment]
    ShieldedEnv(env, features=lambda obs: obs["x"])
    assert env.observation_space.sample() == twin.observation_space.sample()


def test_an_abandoned_episode_counts_as_one() -> None:
    env = ShieldedEnv(Corridor(), config=QUICK)
    for _ in range(3):
        env.reset(seed=0)
        env.step(np.array([1, 0], np.float32))
    env.reset(seed=0)
    env.reset(seed=0)  # nothing happened in between
    assert env.session.episodes == 3


def test_stepping_past_the_end_is_refused() -> None:
    env = ShieldedEnv(Corridor())
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2, np.float32))
    run(env, 1)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2, np.float32))


class EndlessCost(Corridor):
    """A cliff that costs and does not end the episode."""

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, False, truncated, info


@pytest.mark.parametrize("kind", [Corridor, EndlessCost])
def test_a_spent_budget_ends_training_and_saves(kind: type[Corridor], tmp_path: Any) -> None:
    path = tmp_path / "shield"
    env = ShieldedEnv(kind(), config=QUICK, max_violations=3, save_path=path)
    while not env.budget_spent:
        infos = run(env, 1)
    assert env.violations == 3
    assert [info["violation"] for info in infos].index(True) == len(infos) - 1  # there and then
    with pytest.raises(BudgetSpentError, match="max_violations=3"):
        env.reset()
    with pytest.raises(BudgetSpentError):
        env.step(np.zeros(2, np.float32))
    assert " 0 unsafe" not in repr(advice.Shield.load(path))


def test_closing_saves(tmp_path: Any) -> None:
    env = ShieldedEnv(Corridor(), config=QUICK, save_path=tmp_path / "shield")
    run(env, 2)
    env.close()
    assert "unarmed" in repr(advice.Shield.load(tmp_path / "shield"))


def test_info_has_the_penalty(fitted: str) -> None:
    config = dataclasses.replace(QUICK, intervention_penalty=0.1)
    shields = [info["shield"] for info in run(ShieldedEnv(Corridor(), config=config), 60)]
    assert {(s["intervened"], s["penalty"]) for s in shields} == {(True, 0.1), (False, 0.0)}


def test_an_environment_that_reuses_its_arrays() -> None:
    class Reusing(Corridor):
        buffer = np.zeros(2, np.float32)

        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            self.buffer[:] = obs
            action[:] = 7  # and scribbles over what it was given
            return self.buffer, *rest

    scribbled, tidy = (ShieldedEnv(env(), config=QUICK) for env in (Reusing, Corridor))
    for seed in (0, 1):  # watching, then guarding
        infos = [run(env, 30, seed) for env in (scribbled, tidy)]
        assert str(infos[0]) == str(infos[1])
        ours, theirs = (env.shield.snapshot()[0] for env in (scribbled, tidy))
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert tidy.interventions > 0


def test_it_passes_gymnasiums_own_check() -> None:
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(ShieldedEnv(Corridor()), skip_render_check=True)
        check_env(ShieldedEnv(advice.make("randomised-goal")), skip_render_check=True)


def test_an_environment_made_from_the_spec_starts_anew(tmp_path: Path) -> None:
    class Critic:
        def rate(self, obs: Any, actions: Any) -> Any:
            return actions.sum(axis=1)

        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("an agent, with its replay, was copied")

    path = tmp_path / "shield"
    task = advice.make("randomised-goal")
    env = ShieldedEnv(task, config=QUICK, rate_actions=Critic().rate, save_path=path)
    spec = gym.wrappers.RecordEpisodeStatistics(env).spec
    assert spec is not None
    other = spec.make().get_wrapper_attr("shield")
    assert other.config == QUICK
    assert other is not env.shield
    spec.make().close()
    assert not path.exists()


def test_a_tabular_shield_works(tmp_path: Path) -> None:
    corridor = Corridor()
    table = TabularShield(corridor.observation_space, corridor.action_space)
    env = ShieldedEnv(corridor, shield=table, config=ShieldConfig(unsafe_per_episode=1))
    run(env, 5)
    assert env.violations > 0
    assert len(table) > 0
    with pytest.raises(ValueError, match="TabularShield cannot be saved"):
        ShieldedEnv(corridor, shield=table, save_path=tmp_path / "table")
    with pytest.raises(ValueError, match="expected a file's name, found the folder"):
        ShieldedEnv(corridor, save_path=tmp_path)
