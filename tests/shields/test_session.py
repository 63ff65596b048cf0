"""ShieldSession by itself: what it returns, counts and requires."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from made_shields import ACTIONS, OBSERVATIONS, SMALL

from advice.config import ShieldConfig
from advice.shields.base import NoShield
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession
from advice.types import Verdict

OBS, ACTION = np.zeros(4, np.float32), np.zeros(2, np.float32)


def step(session: ShieldSession, info: dict[str, object], env_index: int = 0) -> object:
    session.guard(OBS, ACTION, env_index)
    return session.record(OBS, 0.0, False, False, info, env_index)


def test_an_episode_sums_what_its_steps_say():
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(config=SMALL))
    assert step(session, {"cost": 0.5}).unsafe
    assert not step(session, {"cost": 0.0, "success": True}).unsafe
    episode = session.end_episode()
    assert (episode.steps, episode.cost, episode.violated, episode.success) == (2, 0.5, True, True)
    assert (session.episodes, session.violations, session.interventions) == (1, 1, 0)


def test_steps_of_several_environments_reach_the_shield_when_their_episode_ends():
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(config=SMALL), num_envs=2)
    step(session, {"cost": 1.0}, env_index=0)
    step(session, {"cost": 0.0}, env_index=1)
    assert "0 steps, 0 unsafe" in repr(session.shield)
    session.end_episode(0)
    assert "1 steps, 1 unsafe" in repr(session.shield)


def test_a_shield_with_the_protocol_alone_works():
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(NoShield()))
    verdicts = session.guard_batch([OBS], [ACTION])
    assert verdicts[0].action is ACTION
    assert not session.record(OBS, 0.0, True, False, {"success": True}).unsafe


def test_record_without_guard_raises():
    session = ShieldSession(OBSERVATIONS, ACTIONS)
    with pytest.raises(RuntimeError, match="expected a call of guard"):
        session.record(OBS, 0.0, False, False, {})


def session_of(said: list[str], **options: object) -> ShieldSession:
    given = SessionOptions(config=SMALL, **options)
    return ShieldSession(OBSERVATIONS, ACTIONS, given, say=said.append)


def end(session: ShieldSession, info: dict[str, object]) -> object:
    session.guard(OBS, ACTION)
    signals = session.record(OBS, 0.0, True, False, info)
    session.end_episode()
    return signals


def test_an_unexplained_end_is_inconclusive_and_said_once():
    said: list[str] = []
    session = session_of(said)
    for _ in range(3):
        step(session, {})
        assert not end(session, {}).success
    assert "3 steps, 0 unsafe" in repr(session.shield)  # the first steps alone
    (message,) = said
    assert "nothing says whether that was a failure or a success" in message
    assert 'terminal="failure"' in message


@pytest.mark.parametrize(("terminal", "counts"), [("failure", (4, 2)), ("success", (4, 0))])
def test_terminal_labels_the_last_steps(terminal, counts):
    said: list[str] = []
    session = session_of(said, terminal=terminal)
    for _ in range(2):
        step(session, {})
        end(session, {})
    assert f"{counts[0]} steps, {counts[1]} unsafe" in repr(session.shield)
    assert not said


@pytest.mark.parametrize("info", [{"cost": np.nan}, {"violation": "False"}, {"crashed": 0.3}])
def test_a_wrong_value_raises_and_leaves_the_session_unchanged(info):
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(config=SMALL))
    with pytest.raises(ValueError, match="expected a"):
        step(session, info)
    assert "0 steps, 0 unsafe" in repr(session.shield)
    step(session, {})
    assert session.end_episode().steps == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terminal": "crash"}, 'expected None, "failure" or "success"'),
        ({"terminal": "failure", "outcome": lambda *_: None}, "expected None with an outcome"),
    ],
)
def test_impossible_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        SessionOptions(**options)


class Pretends(NoShield):
    """Is armed after 20 episodes, and passes everything."""

    def __init__(self) -> None:
        self.episodes = 0

    @property
    def armed(self) -> bool:  # type: ignore[override]
        return self.episodes >= 20

    def guard(self, obs, action, rate_actions=None, **_):
        return Verdict(action)

    def end_episode(self, violated: bool) -> None:
        self.episodes += 1


@pytest.mark.parametrize(("steps", "useless"), [(1, True), (2, False)])
def test_a_shield_that_does_not_help_is_named_once(steps, useless):
    said: list[str] = []
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(Pretends()), say=said.append)
    for episode in range(60):
        for _ in range(steps if episode >= 20 else 1):
            step(session, {"cost": 0.0})
        end(session, {"violation": True})
    found = [x for x in said if "does not help" in x]
    assert (
        found
        == [
            "the shield does not help here: 500 episodes with a violation per 1,000 steps with it, "
            "500 without it"
        ]
        * useless
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shield": ShieldConfig()}, TypeError, r"settings are given as config="),
        ({"shield": 3}, TypeError, "expected a shield or the path of a saved one, found 3"),
        ({"config": "paper"}, TypeError, "expected an advice.ShieldConfig"),
        ({"max_violations": 2.5}, ValueError, "expected a whole number from 1 on, found 2.5"),
        ({"outcome": "unsafe"}, TypeError, "outcome: expected a function"),
    ],
)
def test_mistaken_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(**options))


@pytest.mark.parametrize("action", [np.full(2, np.nan, np.float32), np.zeros(3, np.float32)])
def test_no_invalid_action_passes_where_no_shield_looks_at_it(action):
    unarmed = ShieldSession(OBSERVATIONS, ACTIONS)
    with pytest.raises(ValueError, match="action: expected"):
        unarmed.guard(OBSERVATIONS.sample(), action)
    inside = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(NoShield()))
    step(inside, {"violation": True})  # a violation lasts
    with pytest.raises(ValueError, match="action: expected"):
        inside.guard(OBSERVATIONS.sample(), action)


def test_a_shield_that_tries_other_reaches_is_not_called_useless_yet():
    shield, said = Pretends(), []
    shield.effect = SimpleNamespace(judged=True, tried={1: 1.0})
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(shield), say=said.append)
    for episode in range(120):
        shield.effect.tried = {1: 1.0} if episode < 80 else {}
        end(session, {"violation": True})
        assert any("does not help" in x for x in said) == (episode >= 80)
