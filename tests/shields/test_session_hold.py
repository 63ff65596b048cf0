"""Held replacements: executed again while they stay safe, and not for longer than allowed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from made_shields import ACTIONS, LOOK_AHEAD, OBSERVATIONS, copy

from advice.envs.signals import Signals
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession, StepGuard
from advice.types import Verdict

OBS, UNSAFE, SAFE = np.zeros(4, np.float32), np.full(2, 9.0), np.zeros(2)
REPLACEMENT = np.ones(2)


class Counting:
    """Refuses what is 9, replaces it by 1, and says whether a held action is still safe."""

    armed, k, wants_fit = True, 4, False

    def __init__(self, hold: int) -> None:
        self.hold, self.held_is_safe, self.hopeless = hold, True, False
        self.asked: list[Any] = []

    def guard(self, obs: Any, action: Any, rate_actions: Any = None, held: Any = None) -> Verdict:
        self.asked.append(held)
        if held is not None and self.held_is_safe:
            return Verdict(held, intervened=True, safe_neighbours=5, held=True)
        if action[0] != 9:
            return Verdict(action, safe_neighbours=5)
        return Verdict(REPLACEMENT, intervened=True, no_safe_action=self.hopeless)

    def record(self, *step: Any) -> None: ...
    def end_episode(self, violated: bool) -> None: ...


def held(shield: Any, guard: StepGuard, proposals: list[Any]) -> list[bool]:
    """Whether each step executes the replacement."""
    return [guard(shield, OBS, x, None).action is REPLACEMENT for x in proposals]


@pytest.mark.parametrize("hold", [0, 1, 2, 5])
def test_at_most_so_many_steps_in_all(hold):
    found = held(Counting(hold), StepGuard(), [UNSAFE] + [SAFE] * 6)
    assert found == [True] * max(hold, 1) + [False] * (7 - max(hold, 1))


def test_a_proposal_that_is_refused_afterwards_starts_a_new_replacement():
    assert held(Counting(2), StepGuard(), [UNSAFE, SAFE, UNSAFE, SAFE, SAFE]) == [True] * 4 + [
        False
    ]


def test_dropped_once_it_is_no_longer_safe():
    shield, guard = Counting(5), StepGuard()
    assert held(shield, guard, [UNSAFE, SAFE]) == [True, True]
    shield.held_is_safe = False
    assert held(shield, guard, [SAFE]) == [False]
    shield.held_is_safe = True
    assert held(shield, guard, [SAFE]) == [False]
    assert [x is not None for x in shield.asked] == [False, True, True, False]


def test_the_least_risky_of_unsafe_actions_is_not_held():
    shield, guard = Counting(5), StepGuard()
    shield.hopeless = True
    assert held(shield, guard, [UNSAFE, SAFE]) == [True, False]


def test_nothing_is_guarded_or_held_while_a_violation_lasts():
    shield, guard = Counting(5), StepGuard()
    assert held(shield, guard, [UNSAFE]) == [True]
    guard.inside = True
    assert held(shield, guard, [UNSAFE, SAFE]) == [False, False]
    guard.inside = False
    assert held(shield, guard, [SAFE]) == [False]  # what led into the violation is not taken up
    assert len(shield.asked) == 2


def test_an_unarmed_shield_is_not_asked():
    shield = Counting(5)
    shield.armed = False
    assert held(shield, StepGuard(), [UNSAFE]) == [False]
    assert not shield.asked


def session(shield: Any, num_envs: int = 1) -> ShieldSession:
    return ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(shield), num_envs)


def step(session: ShieldSession, proposed: Any, env_index: int = 0, **info: Any) -> bool:
    verdict = session.guard(OBS, proposed, env_index)
    signals = session.record(OBS, 0.0, False, False, {"cost": 0.0, **info}, env_index)
    assert isinstance(signals, Signals)
    return verdict.action is REPLACEMENT


def test_a_session_holds_within_an_episode_only():
    one = session(Counting(5))
    assert [step(one, UNSAFE), step(one, SAFE)] == [True, True]
    assert one.end_episode().interventions == 2
    assert not step(one, SAFE)


def test_a_session_does_not_guard_inside_a_violation():
    one = session(Counting(5))
    assert [step(one, UNSAFE, cost=1.0), step(one, UNSAFE, cost=1.0)] == [True, False]
    assert [step(one, UNSAFE), step(one, SAFE), step(one, UNSAFE)] == [False, False, True]


def test_environments_hold_apart(looking_ahead, queries):
    """A batch of guards holds as single guards do, each environment for itself."""
    shield = copy(looking_ahead, dataclasses.replace(LOOK_AHEAD, hold=3))
    observations, actions = (x[:240].reshape(60, 4, -1) for x in queries)
    batched, single = session(shield, 4), [session(copy(shield)) for _ in range(4)]
    held_steps = 0
    for obs, proposed in zip(observations, actions, strict=True):
        verdicts = batched.guard_batch(list(obs), proposed)
        for i, (one, verdict) in enumerate(zip(single, verdicts, strict=True)):
            other = one.guard(obs[i], proposed[i])
            np.testing.assert_array_equal(verdict.action, other.action)
            assert verdict[1:6] == other[1:6]
            held_steps += verdict.held
            for each, index in ((batched, i), (one, 0)):
                each.record(obs[i], 0.0, False, False, {"cost": 0.0}, index)
    assert held_steps > 0
