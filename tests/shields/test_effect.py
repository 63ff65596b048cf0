"""Violations with and without a shield, and a shield that is disarmed because it harms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import advice
from advice.shields.effect import FIRST_LOOK, Effect
from advice.shields.session import ShieldSession
from advice.types import Outcome

QUICK = advice.ShieldConfig(
    hidden_size=16, fit_steps=30, refit_episodes=0, construction_episodes=30
)


def counted(unarmed: tuple[int, int], armed: tuple[int, int]) -> bool:
    """What is found after these violations and steps, told as one episode each."""
    effect = Effect()
    effect.count(False, *unarmed)
    return effect.count(True, unarmed[0] + armed[0], unarmed[1] + armed[1])


def tail(least: int, trials: int, share: float) -> float:
    """P(X >= least) for a binomial X."""
    return sum(
        math.comb(trials, x) * share**x * (1 - share) ** (trials - x)
        for x in range(least, trials + 1)
    )


def test_harm_is_found_where_chance_hardly_gives_as_many_violations() -> None:
    # 20 in 1,000 steps before. Of 30 or 32 violations a sixth of the steps should have 5.
    assert tail(10, 30, 200 / 1200) == pytest.approx(0.0197, abs=1e-4)
    assert counted((20, 1000), (10, 200))
    assert not counted((20, 1000), (10, 250))
    assert not counted((20, 1000), (9, 100)), "too few to look"
    assert not counted((9, 1000), (10, 50)), "too few before to compare with"


def test_looks_come_after_twice_as_many_violations() -> None:
    effect = Effect()
    effect.count(False, 50, 1000)
    assert not effect.count(True, 60, 1200)
    assert effect.next_look == 2 * FIRST_LOOK
    assert not effect.count(True, 69, 1201), "would be harm, but is not looked at"
    assert effect.count(True, 70, 1202)


def test_counts_survive_a_file() -> None:
    effect = Effect()
    effect.count(False, 30, 1000)
    effect.count(True, 35, 1200)
    effect.disarm()
    again = Effect.from_list(effect.to_list())
    assert again.to_list() == effect.to_list()
    assert again.count(False, 36, 1300) == effect.count(False, 36, 1300)
    with pytest.raises(ValueError, match="eight counts"):
        Effect.from_list([1, 2, -3, 4, 5, 6, 7, 8])


def live(session: ShieldSession, episodes: int, fatal: float, seed: int) -> None:
    """Episodes of ten steps; a share ends with a violation."""
    rng = np.random.default_rng(seed)
    for _ in range(episodes):
        fails = rng.random() < fatal
        for step in range(10):
            session.guard(rng.normal(size=2).astype(np.float32), np.float32([0.1]))
            info: dict[str, Any] = {"violation": fails and step == 9}
            session.record(rng.normal(size=2), 0.0, info["violation"], step == 9, info)
        session.end_episode(fit=False)


def armed_session(config: advice.ShieldConfig) -> tuple[ShieldSession, list[str]]:
    """A session whose shield is fitted after 60 episodes, a third of them violated."""
    said: list[str] = []
    spaces = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Box(-1, 1, (1,))
    shield = advice.Shield(*spaces, config)
    options = advice.shields.session.SessionOptions(shield=shield)
    session = ShieldSession(*spaces, options, say=said.append)
    live(session, 60, 0.33, seed=1)
    shield.fit()
    return session, said


def test_a_shield_that_harms_is_disarmed_and_says_so() -> None:
    session, said = armed_session(QUICK)
    shield: Any = session.shield
    before = shield._memory.violations
    live(session, 20, 1.0, seed=2)
    assert not shield.armed
    assert any("disarmed" in message for message in said)
    assert not shield.wants_fit, "a trial comes after twice as many violations, not at once"
    assert shield._next_trial == 2 * (before + FIRST_LOOK)
    arrays, document = shield.snapshot()
    copy = advice.Shield(*shield.space, QUICK)
    copy.restore(arrays, document)
    assert (copy.armed, copy.effect.to_list()) == (False, shield.effect.to_list())


def test_a_shield_armed_after_fixed_episodes_stays_armed() -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, arm="fixed"))
    live(session, 60, 1.0, seed=2)
    assert session.shield.armed


def test_a_loaded_shield_is_not_judged_by_what_was_before(tmp_path: Any) -> None:
    session, _ = armed_session(QUICK)
    session.shield.save(tmp_path / "shield.safetensors")  # type: ignore[attr-defined]
    loaded = advice.Shield.load(tmp_path / "shield.safetensors")
    assert loaded.effect.to_list() == Effect().to_list()


def test_outcomes_given_by_hand_count_too() -> None:
    spaces = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Box(-1, 1, (1,))
    shield = advice.Shield(*spaces, QUICK)
    shield.record(np.zeros(2, np.float32), np.zeros(1, np.float32), Outcome.UNSAFE)
    shield.end_episode(True)
    assert shield.effect.unarmed == (1, 1)
