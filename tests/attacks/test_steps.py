"""Odd numbers and failing functions in a step: refused at once, and the shield stays armed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from made_shields import ACTIONS, LOOK_AHEAD, OBSERVATIONS, copy, record_random

from advice import Outcome, Shield, ShieldConfig, ShieldedEnv
from advice.cli import fail
from advice.integrations.vector import ShieldedVectorEnv
from advice.printing import print_table, say
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession


@pytest.fixture(scope="module")
def armed() -> Shield:
    # seed and episodes of the shields' own fixture, so that its fit is compiled once for both
    shield = Shield(Box(-np.inf, np.inf, (4,), np.float32), ACTIONS, LOOK_AHEAD, seed=1)
    record_random(shield, 150)
    shield.fit()
    return shield


@pytest.mark.parametrize("number", [1e39, 2e12, -1e300, np.inf, np.nan])
def test_numbers_beyond_measure_are_refused_when_recorded(armed: Shield, number: float) -> None:
    shield = copy(armed)
    before = shield.snapshot()
    for obs, action in (([0, 0, 0, number], [0, 0]), ([0, 0, 0, 0], [number, 0])):
        with pytest.raises(ValueError, match=r"expected (finite )?numbers"):
            shield.record(np.array(obs), np.array(action), Outcome.SAFE)
        with pytest.raises(ValueError, match=r"expected (finite )?numbers"):
            shield.guard(np.array(obs), np.array(action))
    assert shield.snapshot()[1] == before[1]
    shield.end_episode(False)
    shield.fit()
    assert shield.armed


class Counts(gym.Env[Any, Any]):
    """The observation is the number of the step."""

    observation_space, action_space = Box(-100, 100, (4,), np.float32), ACTIONS
    length = 6

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        ended = self._steps >= self.length
        return np.full(4, self._steps, np.float32), 0.0, False, ended, {"cost": 0.0}


class Sees:
    """A shield that keeps what it is shown."""

    armed, k, wants_fit = True, 1, False

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.episodes = 0

    def guard(self, obs: Any, action: Any, rate_actions: Any = None) -> Any:
        from advice.types import Verdict

        self.seen.append(float(obs[0]))
        return Verdict(action)

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None: ...
    def end_episode(self, violated: bool) -> None:
        self.episodes += 1


def fails_at(*steps: int) -> Any:
    def outcome(obs: Any, *rest: Any) -> Outcome:
        if int(obs[0]) in steps:
            raise ZeroDivisionError("an outcome function")
        return Outcome.INCONCLUSIVE

    return outcome


def test_after_a_failing_outcome_the_next_step_is_guarded_with_its_own_observation() -> None:
    shield = Sees()
    env = ShieldedEnv(Counts(), shield, outcome=fails_at(2, 6))
    env.reset()
    for step in range(1, 7):
        if step in (2, 6):
            with pytest.raises(ZeroDivisionError):
                env.step(np.zeros(2))
        else:
            env.step(np.zeros(2))
    assert shield.seen == [0, 1, 2, 3, 4, 5]
    assert shield.episodes == 1
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2))


def test_a_failing_outcome_in_one_of_several_environments() -> None:
    shield = Sees()
    envs = gym.vector.SyncVectorEnv([Counts, Counts])
    env = ShieldedVectorEnv(envs, shield=shield, outcome=fails_at(2))
    env.reset()
    env.step(np.zeros((2, 2), np.float32))
    with pytest.raises(ZeroDivisionError):
        env.step(np.zeros((2, 2), np.float32))
    env.step(np.zeros((2, 2), np.float32))
    assert shield.seen == [0, 0, 1, 1, 2, 2]
    env.close()


def test_an_endless_episode_among_several_is_bounded() -> None:
    config = ShieldConfig(capacity_per_class=100, construction_episodes=10)
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(None, config), num_envs=2)
    for _ in range(1000):
        session.guard(np.zeros(4, np.float32), np.zeros(2, np.float32))
        session.record(np.zeros(4, np.float32), 0.0, False, False, {"cost": 0.0})
    assert len(session._episodes[0].waiting) <= 200
    session.end_episode()
    assert len(session.shield._memory.all().outcomes) <= 200


def test_no_file_can_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("task \x1b[2J\x9b31m")
    print_table(("a", "b"), [("\x1b[2J", "\x07")])
    with pytest.raises(SystemExit):
        fail("\x1b]0;owned\x07")
    said = capsys.readouterr()
    assert not any(c in said.out + said.err for c in "\x1b\x9b\x07")
    assert r"\x1b[2J" in said.out
