"""ShieldSession by itself: what it returns, counts and requires."""

from __future__ import annotations

import numpy as np
import pytest
from made_shields import ACTIONS, OBSERVATIONS, SMALL

from advice.shields.base import NoShield
from advice.shields.session import SessionOptions, ShieldSession

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
    assert "0 safe, 0 unsafe" in repr(session.shield)
    session.end_episode(0)
    assert "0 safe, 1 unsafe" in repr(session.shield)


def test_a_shield_with_the_protocol_alone_works():
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(NoShield()))
    verdicts = session.guard_batch([OBS], [ACTION])
    assert verdicts[0].action is ACTION
    assert not session.record(OBS, 0.0, True, False, {}).unsafe


def test_record_without_guard_raises():
    session = ShieldSession(OBSERVATIONS, ACTIONS)
    with pytest.raises(RuntimeError, match="expected a call of guard"):
        session.record(OBS, 0.0, False, False, {})
