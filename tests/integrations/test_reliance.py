"""A fallback of one's own and the drift alarm, around one environment and around a vector."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from walking import run

import advice
from advice.integrations.vector import ShieldedVectorEnv
from advice.integrations.wrapper import ShieldedEnv
from advice.shields.base import NoShield
from advice.types import Verdict
from tiny import Corridor


class Hopeless(NoShield):
    """Finds nothing safe as soon as |y| exceeds 0.2."""

    armed = True

    def guard(self, obs: Any, action: Any, rate_actions: Any = None) -> Verdict:
        return Verdict(action, no_safe_action=bool(abs(obs[1]) > 0.2))


def brake(obs: Any, proposed: Any) -> Any:
    """To the middle."""
    return np.array([0.0, -np.sign(obs[1])], np.float32)


def test_the_fallback_decides_where_nothing_is_safe() -> None:
    env = ShieldedEnv(Corridor(), shield=Hopeless(), fallback=brake)
    infos = run(env, 30)
    said = [info["shield"] for info in infos]
    used = [x for x in said if x["fallback"]]
    assert env.fallbacks == len(used) > 10
    for x in said:
        assert x["fallback"] == x["no_safe_action"]
        wanted = [0.0] if x["fallback"] else x["proposed"][:1]
        np.testing.assert_array_equal(x["executed"][:1], wanted)
    assert env.interventions == sum(x["intervened"] for x in said)
    assert not any(info["violation"] for info in infos)  # it really was executed
    alone = ShieldedEnv(Corridor(), shield=Hopeless())
    infos = run(alone, 30)
    assert sum(info["violation"] for info in infos) > 10
    assert alone.fallbacks == 0
    # violations that came of steps without a safe action are counted apart
    assert 0 < alone.session.fallback_violations <= alone.violations


def test_the_card_counts_the_fallback_of_the_wrapper(fitted: str) -> None:
    shield = advice.Shield.load(fitted)
    env = ShieldedEnv(Corridor(), shield=shield, fallback=brake)
    shield._cautiousness.k = 10**6  # nothing is safe
    infos = run(env, 3)
    shield._cautiousness.k = 4
    assert shield.used["fallback"] == env.fallbacks == len(infos)
    assert f"a function of your own, used {env.fallbacks} times" in str(shield.card())


def test_a_vector_names_its_environments_on_the_card() -> None:
    env = ShieldedVectorEnv(gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"))
    assert env.shield.task == "CartPole-v1"


def test_it_sees_the_observations_of_the_environment_not_the_features() -> None:
    asked: list[Any] = []

    def note(obs: Any, proposed: Any) -> Any:
        asked.append(obs)
        return brake(obs, proposed)

    class Mirrored(Hopeless):
        def guard(self, obs: Any, action: Any, rate_actions: Any = None) -> Verdict:
            return super().guard(-obs[:2], action)

    double = lambda obs: np.concatenate([-obs, obs])  # noqa: E731
    env = ShieldedEnv(Corridor(), shield=Mirrored(), features=double, fallback=note)
    run(env, 5)
    assert {obs.shape for obs in asked} == {(2,)}


@pytest.mark.parametrize("batched", [False, True])
def test_a_vector_asks_the_fallback_for_each_environment(batched: bool) -> None:
    class Batching(Hopeless):
        def guard_batch(self, obs: Any, actions: Any, rate_actions: Any = None) -> list[Verdict]:
            return [self.guard(o, a) for o, a in zip(obs, actions, strict=True)]

    vector = SyncVectorEnv([Corridor] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    shield = Batching() if batched else Hopeless()
    env = ShieldedVectorEnv(vector, shield=shield, fallback=brake)
    obs, _ = env.reset(seed=0)
    rng, used = np.random.default_rng(0), 0
    for _ in range(60):
        actions = np.stack([np.full(3, 0.1), rng.choice([-1.0, 1.0], 3)], 1).astype(np.float32)
        before = obs
        obs, *_, infos = env.step(actions)
        said = infos["shield"]
        for row in np.flatnonzero(said["fallback"]):
            np.testing.assert_array_equal(said["executed"][row], brake(before[row], actions[row]))
            used += 1
    assert env.fallbacks == used > 10
    assert env.violations == 0


def test_the_alarm_is_given_once_when_violations_become_frequent() -> None:
    env = ShieldedEnv(Corridor(), shield=Hopeless(), certified=0.05)
    with pytest.warns(UserWarning, match=r"drift alarm: \d+ of the last \d+ episodes") as caught:
        run(env, 60)
    assert len(caught) == 1
    assert env.session.alarm is not None
    assert env.session.alarm.alarmed


def test_no_alarm_while_the_rate_is_as_certified() -> None:
    env = ShieldedEnv(Corridor(), shield=Hopeless(), fallback=brake, certified=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(env, 60)
    assert env.session.alarm is not None
    assert env.session.alarm.episodes == 60
    assert ShieldedEnv(Corridor(), shield=Hopeless()).session.alarm is None


def test_a_saved_shield_brings_its_certificate_along(fitted: str, tmp_path: Any) -> None:
    shield = advice.Shield.load(fitted)
    shield.certify(3, 300)
    shield.save(tmp_path / "certified.safetensors")
    alarm = ShieldedEnv(Corridor(), shield=str(tmp_path / "certified.safetensors")).session.alarm
    assert alarm is not None
    assert alarm.certified == pytest.approx(0.0256, abs=1e-3)
    with pytest.raises(ValueError, match="certified: expected a number above 0"):
        ShieldedEnv(Corridor(), certified=1.5)


def test_the_card_names_the_environment(tmp_path: Any) -> None:
    env = ShieldedEnv(Corridor(), save_path=tmp_path / "shield.safetensors")
    env.close()
    assert "# Shield card: Corridor" in (tmp_path / "card.md").read_text()
