"""Stable-Baselines3 behind a shield: needs PyTorch, see `make test-integrations`."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecNormalize,
)

import advice
from advice.integrations.sb3 import shield
from advice.shields.base import NoShield
from advice.types import AdviceError, BudgetSpentError, SettingError, Verdict
from tiny import Corridor

OFF_POLICY = [DDPG, TD3, SAC]
QUICK = advice.ShieldConfig(
    construction_episodes=12, arm="fixed", refit_episodes=0, hidden_size=32, fit_steps=100
)
EXECUTED = dataclasses.replace(QUICK, learn_from="executed")


class ForbiddenPendulum(gym.Wrapper[Any, Any, Any, Any]):
    """Swing the pendulum up, but never through the sector right of the bottom: that is a crash."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1", max_episode_steps=50))

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        violation = bool(obs[0] < -0.3 and obs[1] > 0.2)
        return obs, reward, terminated or violation, truncated, {**info, "violation": violation}


class HastyGoal(gym.Wrapper[Any, Any, Any, Any]):
    """Randomised goal among many cubes, with long strides, so that a beginner crashes soon."""

    def __init__(self) -> None:
        super().__init__(advice.make("randomised-goal", cubes=16, max_episode_steps=400))

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(10):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


class Received(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps every step as it really was: before, action, reward, after, ended for good."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.steps: list[tuple[Any, ...]] = []

    def reset(self, **kwargs: Any) -> Any:
        self._before, info = self.env.reset(**kwargs)
        return self._before, info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps.append((self._before, np.array(action), reward, obs, terminated, truncated))
        self._before = obs
        return obs, reward, terminated, truncated, info


TASKS = {"corridor": Corridor, "pendulum": ForbiddenPendulum, "goal": HastyGoal}


def make(kind: Any, task: str, count: int = 1, **options: Any) -> tuple[Any, list[Received]]:
    envs = [Received(TASKS[task]()) for _ in range(count)]
    venv = DummyVecEnv([lambda env=env: env for env in envs])  # type: ignore[misc]
    size = venv.action_space.shape[0]
    settings: dict[str, Any] = {"policy_kwargs": {"net_arch": [32, 32]}, "seed": 0, "gamma": 0.9}
    if kind is PPO:
        settings |= {"n_steps": 64, "batch_size": 32, "n_epochs": 2}
    else:
        noise = NormalActionNoise(np.zeros(size), np.full(size, 0.6))
        settings |= {"action_noise": noise, "learning_starts": 50, "batch_size": 16}
    return kind("MlpPolicy", venv, **settings, **options), envs


def check_replay(model: Any, envs: list[Received]) -> None:
    """The buffer holds what the environments received, each step once, none across a reset."""
    buffer = model.replay_buffer
    for place, env in enumerate(envs):
        before, actions, rewards, after, terminated, truncated = (
            np.array(x) for x in zip(*env.steps, strict=True)
        )
        rows = slice(0, buffer.pos)
        assert buffer.pos == len(actions)
        np.testing.assert_array_equal(buffer.observations[rows, place], before)
        # SB3 normalises the last observation of an episode and back again: rounding, no more
        np.testing.assert_allclose(buffer.next_observations[rows, place], after, atol=1e-6)
        scaled = model.policy.scale_action(actions)
        np.testing.assert_allclose(buffer.actions[rows, place], scaled, atol=1e-6)
        np.testing.assert_allclose(buffer.rewards[rows, place], rewards, rtol=1e-6)
        np.testing.assert_array_equal(buffer.dones[rows, place], terminated | truncated)
        cut = truncated & ~terminated
        np.testing.assert_array_equal(buffer.timeouts[rows, place], cut)


@pytest.mark.parametrize("task", ["pendulum", "goal"])
@pytest.mark.parametrize("kind", OFF_POLICY)
def test_the_replay_buffer_holds_what_was_executed(kind: Any, task: str) -> None:
    model, envs = make(kind, task)
    shield(model, EXECUTED)
    model.learn(1200)
    assert model.shield.armed
    assert model.session.interventions > 0
    assert model.session.violations > 0
    check_replay(model, envs)


@pytest.mark.parametrize("kind", OFF_POLICY)
def test_two_environments_at_once(kind: Any) -> None:
    model, envs = make(kind, "pendulum", count=2)
    shield(model, EXECUTED)
    model.learn(2000)
    assert model.session.interventions > 0
    check_replay(model, envs)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("task", ["pendulum", "goal"])
@pytest.mark.parametrize("learns", ["executed", "proposed"])
def test_ppo(task: str, count: int, learns: Any) -> None:
    model, envs = make(PPO, task, count)
    infos: list[Any] = []
    shield(model, QUICK, on_policy_learns=learns)

    class Check(BaseCallback):
        """Compares each finished rollout with what the environments received."""

        replaced = 0

        def _on_step(self) -> bool:
            infos.append(self.locals["infos"])
            return True

        def _on_rollout_end(self) -> None:
            import torch

            buffer = model.rollout_buffer
            for place, env in enumerate(envs):
                said = [row[place]["shield"] for row in infos[-64:]]
                received = np.array([step[1] for step in env.steps[-64:]])
                np.testing.assert_array_equal([x["executed"] for x in said], received)
                held = buffer.actions[:, place]
                low, high = model.action_space.low, model.action_space.high
                wanted = np.array([x[learns] for x in said])
                np.testing.assert_allclose(np.clip(held, low, high), wanted, atol=1e-6)
                self.replaced += sum(x["intervened"] for x in said)
                with torch.no_grad():
                    _, log_probs, _ = model.policy.evaluate_actions(
                        torch.as_tensor(buffer.observations[:, place]), torch.as_tensor(held)
                    )
                np.testing.assert_allclose(buffer.log_probs[:, place], log_probs, atol=1e-4)

    check = Check()
    model.learn(2000, callback=check)
    assert model.session.interventions == check.replaced > 0


def test_dqn_and_discrete_actions() -> None:
    class Steps(Corridor):
        action_space = Discrete(3)  # type: ignore[assignment]

        def step(self, action: Any) -> Any:
            return super().step(np.array([0.4, action - 1.0]))

    env = Received(Steps())
    model = DQN("MlpPolicy", env, learning_starts=50, exploration_final_eps=0.8, seed=0)
    shield(model, EXECUTED)
    model.learn(1500)
    assert model.session.interventions > 0
    held = model.replay_buffer.actions[: model.replay_buffer.pos, 0, 0]
    np.testing.assert_array_equal(held, [step[1] for step in env.steps])


@pytest.mark.parametrize("kind", [*OFF_POLICY, PPO])
def test_a_shield_that_never_intervenes_changes_nothing(kind: Any) -> None:
    def trained(shielded: bool) -> tuple[Any, list[Received]]:
        model, envs = make(kind, "corridor")
        if shielded:
            shield(model, shield=_endorsing())
        return model.learn(400), envs

    (bare, bare_envs), (model, envs) = trained(False), trained(True)
    assert model.session.interventions == 0
    for left, right in zip(bare_envs[0].steps, envs[0].steps, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
    ours, theirs = model.policy.state_dict(), bare.policy.state_dict()
    assert all((ours[name] == theirs[name]).all() for name in theirs)


def _endorsing() -> advice.Shield:
    """An armed shield that knows four unsafe features: of five neighbours one is always safe."""
    config = dataclasses.replace(
        advice.PRESETS["paper"], k=1, k_rule="fixed", hidden_size=16, max_epochs=2
    )
    made = advice.Shield(Corridor.observation_space, Corridor.action_space, config)
    for number in range(20):
        outcome = advice.Outcome.UNSAFE if number < 4 else advice.Outcome.SAFE
        made.record(np.full(2, number / 20, np.float32), np.zeros(2, np.float32), outcome)
        made.end_episode(number < 4)
    made.fit()
    return made


def test_the_critic_rates_the_candidates() -> None:
    for kind in OFF_POLICY:
        model, _ = make(kind, "corridor")
        shield(model, QUICK)
        model.learn(200)
        obs = np.array([0.1, 0.2], np.float32)
        actions = np.array([[-1, 0], [0.5, 0.5], [1, 1]], np.float32)
        rated = model.session.rate_actions(obs, actions)
        seen, _ = model.policy.obs_to_tensor(np.repeat(obs[None], 3, 0))
        values = model.critic(seen, model.policy.obs_to_tensor(actions)[0])  # bounds are -1 and 1
        worst = np.min([value.detach().numpy()[:, 0] for value in values], axis=0)
        wanted = worst if kind is SAC else values[0].detach().numpy()[:, 0]
        np.testing.assert_allclose(rated, wanted, rtol=1e-5)


@pytest.mark.parametrize("learn_from", ["executed", "proposed", "both"])
@pytest.mark.parametrize("count", [1, 2])
def test_replaced_proposals_are_learnt_with_what_really_happened(
    count: int, learn_from: Any
) -> None:
    model, envs = make(TD3, "corridor", count)
    infos: list[Any] = []
    shield(model, dataclasses.replace(QUICK, learn_from=learn_from))
    model.learn(1200, callback=lambda local, _: infos.append(local["infos"]) or True)
    assert model.session.interventions > 0
    buffer, row = model.replay_buffer, 0
    for step, info in enumerate(infos):
        said = [x["shield"] for x in info]
        stored = ["proposed" if learn_from == "proposed" else "executed"]
        if learn_from == "both" and any(x["intervened"] for x in said):
            stored.append(
                "proposed"
            )  # a row of all environments; where nothing was replaced, twice
        for which in stored:
            for place, x in enumerate(said):
                before, _, reward, after, terminated, truncated = envs[place].steps[step]
                np.testing.assert_array_equal(buffer.observations[row, place], before)
                np.testing.assert_array_equal(buffer.next_observations[row, place], after)
                np.testing.assert_allclose(buffer.actions[row, place], x[which], atol=1e-6)
                assert buffer.rewards[row, place] == pytest.approx(reward)
                assert buffer.dones[row, place] == (terminated or truncated)
                assert buffer.timeouts[row, place] == (truncated and not terminated)
            row += 1
    assert row == buffer.pos
    assert (row > len(infos)) == (learn_from == "both")


def test_proposals_are_left_out_of_buffers_whose_rows_depend_on_each_other() -> None:
    model, envs = make(
        TD3,
        "corridor",
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )
    shield(model, QUICK)
    model.learn(900)
    assert model.session.interventions > 0
    assert model.replay_buffer.pos == len(envs[0].steps)


def test_a_shield_of_another_kind_says_what_is_learnt() -> None:
    class Stubborn(Standstill):
        learn_from = "executed"

    model, envs = make(TD3, "corridor")
    shield(model, shield=Stubborn()).learn(60)
    assert model.session.interventions == model.replay_buffer.pos == 60
    check_replay(model, envs)


@pytest.mark.parametrize("count", [1, 2])
def test_a_replacement_is_held(count: int) -> None:
    """Once the shield holds, the same action is executed step after step within an episode."""

    def repeated(hold: int) -> int:
        model, _ = make(SAC, "corridor", count)
        shield(model, dataclasses.replace(QUICK, hold=hold))
        infos: list[Any] = []
        model.learn(1200, callback=lambda local, _: infos.append(local["infos"]) or True)
        assert model.session.interventions > 0
        found = 0
        for place in range(count):
            said = [row[place]["shield"] for row in infos]
            for earlier, now in itertools.pairwise(said):
                both = earlier["intervened"] and now["intervened"]
                found += both and np.array_equal(earlier["executed"], now["executed"])
        return found

    assert repeated(10) > repeated(0)


def test_vetoed_actions_are_learnt_with_a_penalty() -> None:
    config = dataclasses.replace(EXECUTED, intervention_penalty=0.1)
    model, envs = make(TD3, "corridor", count=2)
    infos: list[Any] = []
    shield(model, config)
    model.learn(1200, callback=lambda local, _: infos.append(local["infos"]) or True)
    buffer = model.replay_buffer
    row = 0
    for step, info in enumerate(infos):
        said = [x["shield"] for x in info]
        row += 1
        if not any(x["intervened"] for x in said):
            continue
        for place, x in enumerate(said):
            before, executed, reward, after, *_ = envs[place].steps[step]
            vetoed = x["intervened"]
            np.testing.assert_array_equal(buffer.observations[row, place], before)
            np.testing.assert_array_equal(
                buffer.next_observations[row, place], before if vetoed else after
            )
            np.testing.assert_allclose(
                buffer.actions[row, place], x["proposed"] if vetoed else executed, atol=1e-6
            )
            assert buffer.rewards[row, place] == pytest.approx(-0.1 if vetoed else reward)
            assert not (vetoed and buffer.dones[row, place])
        row += 1
    assert row == buffer.pos > len(infos)


def test_a_penalty_needs_an_ordinary_buffer() -> None:
    model, _ = make(
        TD3,
        "corridor",
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )
    with pytest.raises(AdviceError, match="optimize_memory_usage"):
        shield(model, advice.ShieldConfig(intervention_penalty=0.1))


@pytest.mark.parametrize("kind", [*OFF_POLICY, PPO])
def test_save_and_load(kind: Any, tmp_path: Path) -> None:
    model, _ = make(kind, "corridor")
    shield(model, QUICK)
    model.learn(900)
    model.save(tmp_path / "model")
    model.shield.save(tmp_path / "shield")
    env = Received(Corridor())
    again = kind.load(tmp_path / "model", env=env)
    obs = np.array([0.1, 0.2], np.float32)
    np.testing.assert_array_equal(
        model.predict(obs, deterministic=True)[0], again.predict(obs, deterministic=True)[0]
    )
    shield(again, shield=tmp_path / "shield")
    again.learn(200)
    assert again.shield.armed
    assert len(env.steps) >= 200


def test_the_logger_and_callbacks(tmp_path: Path) -> None:
    model, _ = make(SAC, "corridor")
    shield(model, QUICK)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    calls: list[int] = []

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            calls.append(self.num_timesteps)
            return self.num_timesteps < 600

    model.learn(5000, callback=[Stop()], log_interval=1)
    assert calls == list(range(1, 601))
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    last = dict(zip(lines[0].split(","), lines[-1].split(","), strict=False))
    assert int(last["shield/armed"]) == model.shield.armed
    assert int(last["shield/interventions"]) <= model.session.interventions
    assert {"shield/violations", "shield/k"} <= set(last)
    model.logger.close()


@pytest.mark.parametrize("kind", [TD3, PPO])
def test_a_spent_budget_ends_learning_cleanly(kind: Any, tmp_path: Path) -> None:
    model, envs = make(kind, "corridor")
    shield(model, QUICK, max_violations=5, save_path=tmp_path / "shield")
    assert model.learn(100_000) is model
    assert model.session.violations == 5
    assert len(envs[0].steps) < 5000
    model.save(tmp_path / "model")
    assert " 0 unsafe" not in repr(advice.Shield.load(tmp_path / "shield"))
    with pytest.raises(BudgetSpentError):
        model.learn(10)


def test_under_observation_normalisation_the_shield_sees_the_real_world() -> None:
    env = Received(Corridor())
    venv = VecNormalize(DummyVecEnv([lambda: env]))
    model = TD3("MlpPolicy", venv, learning_starts=50, batch_size=16, seed=0)
    shield(model, EXECUTED)
    model.learn(900)
    stored = model.shield.snapshot()[0]["steps.features"]
    real = {(*step[0].tolist(), *step[1].tolist()) for step in env.steps}
    assert {tuple(row) for row in stored.tolist()} <= real
    check_replay(model, [env])
    rate = model.session.rate_actions
    seen, _ = model.policy.obs_to_tensor(venv.normalize_obs(np.array([[0.1, 0.2]], np.float32)))
    value = model.critic.q1_forward(
        seen, model.policy.obs_to_tensor(np.zeros((1, 2), np.float32))[0]
    )
    rated = rate(np.array([0.1, 0.2], np.float32), np.zeros((1, 2), np.float32))
    assert rated[0] == pytest.approx(value.item(), rel=1e-5)


def test_dictionary_observations() -> None:
    class DictCorridor(Corridor):
        observation_space = Dict({"at": Box(-2, 2, (2,), np.float32)})  # type: ignore[assignment]

        def reset(self, **kwargs: Any) -> Any:
            obs, info = super().reset(**kwargs)
            return {"at": obs}, info

        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            return {"at": obs}, *rest

    noise = NormalActionNoise(np.zeros(2), np.full(2, 0.8))
    model = SAC("MultiInputPolicy", DictCorridor(), action_noise=noise, learning_starts=50, seed=0)
    shield(model, QUICK, features=lambda obs: obs["at"])
    model.learn(900)
    assert model.session.interventions > 0


def test_worker_processes() -> None:
    venv = SubprocVecEnv([Corridor, Corridor], start_method="spawn")
    model = SAC("MlpPolicy", venv, learning_starts=50, batch_size=16, seed=0)
    shield(model, QUICK)
    model.learn(1500)
    assert model.shield.armed
    venv.close()


def test_a_new_environment_keeps_the_shield() -> None:
    model, _ = make(TD3, "corridor")
    shield(model, QUICK)
    model.learn(100)
    env = Received(Corridor())
    model.set_env(env)
    model.set_env(model.get_env())  # once is enough
    model.learn(100)
    assert model.session.episodes > 0
    assert model.get_env().__class__ is DummyVecEnv
    with pytest.raises(AdviceError, match="already"):
        shield(model)


class Standstill(NoShield):
    """Lets nobody move."""

    armed = True

    def guard(self, obs: Any, action: Any, rate_actions: Any = None) -> Verdict:
        return Verdict(np.zeros_like(action), True, 0, False)


@pytest.mark.parametrize("normalise", [False, True])
def test_only_the_models_own_learning_is_guarded(normalise: bool) -> None:
    env = Received(Corridor())
    venv: Any = DummyVecEnv([lambda: env])
    venv = VecNormalize(venv) if normalise else venv
    before = [venv, getattr(venv, "venv", None)]
    other, model = (shield(TD3("MlpPolicy", venv, seed=0), shield=Standstill()) for _ in range(2))
    model.learn(30)
    assert (other.session.interventions, model.session.interventions) == (0, 30)
    assert not any(step[1].any() for step in env.steps)
    assert [model.get_env(), getattr(venv, "venv", None)] == before

    evaluate_policy(model, model.get_env(), n_eval_episodes=1, warn=False)
    TD3("MlpPolicy", venv, seed=0).learn(30)
    assert all(step[1].any() for step in env.steps[30:])
    assert model.session.interventions == 30
    again = shield(TD3("MlpPolicy", model.env, seed=0), shield=Standstill())  # the guard itself
    again.learn(30)
    assert (model.session.interventions, again.session.interventions) == (30, 30)


def test_evaluation_takes_over_the_normalisation() -> None:
    venv, other = (VecNormalize(DummyVecEnv([Corridor]), training=x) for x in (True, False))
    model = shield(TD3("MlpPolicy", venv, seed=0), QUICK)
    model.learn(100, callback=EvalCallback(other, eval_freq=50, verbose=0, warn=False))
    np.testing.assert_array_equal(other.obs_rms.mean, venv.obs_rms.mean)


class Bumper(Corridor):
    """A third number says that it crashed; it is 0 but in the last observation."""

    observation_space = Box(-2, 2, (3,), np.float32)

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return np.append(obs, np.float32(0)), info

    def step(self, action: Any) -> Any:
        obs, *rest, info = super().step(action)
        return np.append(obs, np.float32(info["violation"])), *rest, {}


@pytest.mark.parametrize("stack", [1, 3])
def test_labels_come_from_beneath_the_normalisation(stack: int) -> None:
    seen: list[Any] = []

    def outcome(obs: Any, action: Any, reward: float, *rest: Any) -> advice.Outcome:
        seen.append((obs, reward))
        return advice.Outcome.UNSAFE if obs[2] else advice.Outcome.INCONCLUSIVE

    env = Received(Bumper())
    venv = VecFrameStack(VecNormalize(DummyVecEnv([lambda: env])), stack)
    model = PPO("MlpPolicy", venv, n_steps=64, batch_size=32, n_epochs=2, seed=0)
    shield(model, QUICK, outcome=outcome)
    model.learn(2000)
    assert model.session.violations > 12
    assert model.session.interventions > 0
    np.testing.assert_array_equal([obs for obs, _ in seen], [step[3] for step in env.steps])
    np.testing.assert_allclose([x for _, x in seen], [step[2] for step in env.steps], rtol=1e-6)


@pytest.mark.parametrize("kind", [TD3, SAC, PPO])
def test_actions_of_double_precision(kind: Any) -> None:
    class Double(Corridor):
        action_space = Box(-1, 1, (2,), np.float64)

    settings = {"n_steps": 64} if kind is PPO else {"learning_starts": 50}
    model = shield(kind("MlpPolicy", Double(), seed=0, **settings), QUICK)
    model.learn(1500)
    assert model.session.interventions > 0


def test_loading_through_a_shielded_model_gives_a_bare_one(tmp_path: Path) -> None:
    model, envs = make(TD3, "corridor")
    shield(model, QUICK, save_path=tmp_path / "shield").learn(100)
    assert not advice.Shield.load(tmp_path / "shield").armed  # saved as learning ended
    model.save(tmp_path / "model")
    again = model.load(tmp_path / "model", env=model.get_env())
    assert type(again) is TD3
    again.learn(10)
    assert len(envs[0].steps) == 110
    assert shield(again, shield=tmp_path / "shield").learn(10) is again


def test_a_misspelt_setting_is_refused() -> None:
    model, _ = make(PPO, "corridor")
    with pytest.raises(SettingError, match="executed, proposed, found 'proposal'"):
        shield(model, QUICK, on_policy_learns="proposal")  # type: ignore[arg-type]
    assert type(model) is PPO


@pytest.mark.parametrize("vector", [DummyVecEnv, SubprocVecEnv])
def test_the_failures_of_well_known_environments_are_counted(vector: Any) -> None:
    envs = vector([lambda: gym.make("CartPole-v1")] * 2)
    model = shield(DQN("MlpPolicy", envs, learning_starts=1000, seed=0))
    model.learn(200)
    assert model.session.violations > 0
    envs.close()


def test_terminal_is_an_option() -> None:
    model = shield(DQN("MlpPolicy", gym.make("CartPole-v1"), seed=0), terminal="success")
    model.learn(100)
    assert model.session.violations == 0


class Hopeless(NoShield):
    """Finds nothing safe."""

    armed = True

    def guard(self, obs: Any, action: Any, rate_actions: Any = None) -> Verdict:
        return Verdict(action, no_safe_action=True)


@pytest.mark.parametrize("kind", [TD3, PPO])
def test_the_own_fallback_is_executed_and_counted(kind: Any) -> None:
    model, envs = make(kind, "corridor", 2)
    asked: list[Any] = []

    def brake(obs: Any, proposed: Any) -> Any:
        asked.append(obs)
        return np.array([0.25, -0.5], np.float32)

    shield(model, shield=Hopeless(), fallback=brake).learn(64)
    steps = [step for env in envs for step in env.steps]
    assert model.session.fallbacks == len(asked) == len(steps)
    for step in steps:
        np.testing.assert_array_equal(step[1], np.array([0.25, -0.5], np.float32))
    for before, seen in zip(envs[0].steps, asked[::2], strict=True):
        np.testing.assert_array_equal(before[0], seen)
