"""The tabular shield: integer keys, replacement, and where it helps and where it cannot."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

import advice
from advice.config import ShieldConfig, TabularConfig
from advice.shields.tabular import TabularShield, keys
from advice.types import Array, Outcome, SpaceMismatchError
from tiny import Corridor

OBS, ACT = Box(-2, 2, (2,), np.float32), Box(-1, 1, (2,), np.float32)
STATE = np.array([0.31, -0.18], np.float32)


def shield(within: bool = False, **settings: int) -> TabularShield:
    return TabularShield(OBS, ACT, TabularConfig(within), ShieldConfig(**settings))


def act(*values: float) -> Array:
    return np.array(values, np.float32)


def test_keys_by_hand() -> None:
    (key,) = keys(np.array([[0.31, -0.18, 1.0, -0.96]]))
    assert np.frombuffer(key, np.int64).tolist() == [3, -2, 10, -10]


@pytest.mark.parametrize("nothing", [0.0, -0.0, -0.04, 0.04])
def test_zero_has_one_key(nothing: float) -> None:
    assert keys(np.array([[nothing]])) == keys(np.array([[0.0]]))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=5))
def test_equal_keys_mean_equal_rounded_numbers(values: list[float]) -> None:
    expected = [round(10 * value) for value in values]
    (key,) = keys(np.array([values]))
    assert np.frombuffer(key, np.int64).tolist() == expected


@pytest.mark.parametrize("within", [False, True])
def test_active_from_the_beginning(within: bool) -> None:
    table = shield(within)
    assert table.armed
    table.record(STATE, act(0.5, 0.5), Outcome.SAFE)
    table.record(STATE, act(0.5, 0.5), Outcome.INCONCLUSIVE)
    assert not table.guard(STATE, act(0.5, 0.5)).intervened
    table.record(STATE, act(0.5, 0.5), Outcome.UNSAFE)
    assert table.guard(STATE, act(0.5, 0.5)).intervened
    assert len(table) == 1


def test_a_stored_pair_is_replaced_by_the_best_rated_candidate() -> None:
    table = shield()
    table.record(STATE, act(1.0, 1.0), Outcome.UNSAFE)
    proposal = act(0.99, 1.0)  # the same when rounded
    verdict = table.guard(STATE, proposal, lambda obs, actions: actions.sum(axis=1))
    assert verdict.intervened
    assert verdict.candidates == 121
    # (1, 1) would be rated best, but it is stored; the next are (0.8, 1) and (1, 0.8)
    assert verdict.action.sum() == pytest.approx(1.8)
    np.testing.assert_allclose(table.guard(STATE, proposal).action.sum(), 1.8)  # also the nearest


def test_what_is_not_stored_passes_untouched() -> None:
    table = shield()
    table.record(STATE, act(1.0, 1.0), Outcome.UNSAFE)
    for obs, proposal in ((STATE, act(0.8, 1.0)), (-STATE, act(1.0, 1.0))):
        verdict = table.guard(obs, proposal)
        assert verdict.action is proposal
        assert not verdict.intervened
        assert not verdict.no_safe_action


def test_with_every_candidate_stored_the_proposal_is_executed() -> None:
    table = shield(candidates_per_dimension=3)
    for first in (-1, 0, 1):
        for second in (-1, 0, 1):
            table.record(STATE, act(first, second), Outcome.UNSAFE)
    proposal = act(1, 1)
    verdict = table.guard(STATE, proposal)
    assert verdict.action is proposal
    assert verdict.no_safe_action
    assert not verdict.intervened


def test_within_looks_at_distances_instead() -> None:
    rounded, near = shield(), shield(within=True)
    for table in (rounded, near):
        table.record(STATE, act(0.54, 0.5), Outcome.UNSAFE)
    proposal = act(0.56, 0.5)  # rounds to 0.6, not 0.5, but is only 0.02 away
    assert not rounded.guard(STATE, proposal).intervened
    assert near.guard(STATE, proposal).intervened
    assert near.guard(STATE + np.float32(0.1), act(0.44, 0.6)).intervened  # 0.1 everywhere
    assert not near.guard(STATE + np.float32(0.11), proposal).intervened
    assert not near.guard(STATE, act(0.65, 0.5)).intervened
    replaced = near.guard(STATE, proposal).action
    assert np.abs(replaced - act(0.54, 0.5)).max() > 0.1


def test_within_reaches_around_every_stored_pair() -> None:
    table, action = shield(within=True), act(0.0, 0.0)
    for x in (0.0, 0.09, 0.09):
        table.record(act(x, 0.0), action, Outcome.UNSAFE)
    assert len(table) == 2
    assert table.guard(act(0.17, 0.0), action).intervened  # 0.08 from the second
    assert not table.guard(act(0.2, 0.0), action).intervened


@pytest.mark.parametrize("within", [False, True])
def test_a_restored_table_judges_the_same(within: bool) -> None:
    rng = np.random.default_rng(0)
    first, second = shield(within), shield(within)
    for _ in range(300):
        first.record(rng.uniform(-0.2, 0.2, 2), rng.uniform(-1, 1, 2), Outcome.UNSAFE)
        first.end_episode(violated=True)
    second.restore(*first.snapshot())
    verdicts = 0
    for _ in range(200):
        obs, action = rng.uniform(-0.2, 0.2, 2), rng.uniform(-1, 1, 2)
        one, other = first.guard(obs, action), second.guard(obs, action)
        np.testing.assert_array_equal(one.action, other.action)
        assert one[1:] == other[1:]
        verdicts += one.intervened
    assert 0 < verdicts < 200
    with pytest.raises(ValueError, match="rows of 4"):
        second.restore({"pairs": np.zeros((2, 3))}, {})


def test_spaces_and_values_are_checked() -> None:
    with pytest.raises(SpaceMismatchError, match="bounded"):
        TabularShield(OBS, Box(-np.inf, np.inf, (2,)))
    with pytest.raises(ValueError, match="shape"):
        shield().guard(np.zeros(3), act(0, 0))
    with pytest.raises(ValueError, match="finite"):
        shield().guard(np.array([np.nan, 0]), act(0, 0))


def test_a_senseless_rating_is_refused() -> None:
    shield = TabularShield(Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32))
    obs, action = np.zeros(2, np.float32), np.zeros(1, np.float32)
    shield.record(obs, action, Outcome.UNSAFE)
    with pytest.raises(ValueError, match=r"rate_actions: expected \d+ values, one per action"):
        shield.guard(obs, action, lambda obs, actions: np.full(len(actions), np.nan))


def test_unsigned_numbers_of_discrete_actions_that_begin_below_zero() -> None:
    shield = TabularShield(Box(-1, 1, (2,), np.float32), Discrete(3, start=-1))
    shield.record(np.zeros(2), np.uint8(1), Outcome.UNSAFE)
    assert shield.guard(np.zeros(2), 1).intervened
    assert not shield.guard(np.zeros(2), -1).intervened


def test_discrete_actions_are_stored_too() -> None:
    table = TabularShield(OBS, Discrete(3))
    table.record(STATE, 1, Outcome.UNSAFE)
    assert not table.guard(STATE, 0).intervened
    assert table.guard(STATE, 1, lambda obs, actions: -np.abs(actions - 2)).action == 2


def test_a_table_protects_in_two_dimensions() -> None:
    """Who always walks up and right falls off the corridor each time, until that is stored."""

    def falls(table: TabularShield | None) -> list[bool]:
        env, fallen = Corridor(), []
        for episode in range(300):
            obs, _ = env.reset(seed=episode)
            violation = ended = False
            while not ended:
                action = act(0.5, 1.0)
                if table is not None:
                    action = table.guard(obs, action, lambda obs, actions: actions[:, 0]).action
                previous = obs
                obs, _, terminated, truncated, info = env.step(action)
                violation, ended = info["violation"], terminated or truncated
                if table is not None:
                    outcome = Outcome.UNSAFE if violation else Outcome.INCONCLUSIVE
                    table.record(previous, action, outcome)
            if table is not None:
                table.end_episode(violation)
            fallen.append(violation)
        return fallen

    assert all(falls(None))
    protected = falls(shield())
    assert sum(protected[100:]) < 0.1 * sum(protected[:100])


def test_a_table_practically_never_matches_in_32_dimensions() -> None:
    env: gymnasium.Env[Array, Array] = advice.make("randomised-goal", max_episode_steps=250)
    table = TabularShield(env.observation_space, env.action_space)
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    action = act(1.0, 1.0)
    guarded = matched = 0
    for step in range(6000):
        if step % 50 == 0:  # wander at full speed, a little to the left or right
            action = rng.uniform(0.8, 1.0, 2).astype(np.float32)
        if len(table):
            verdict = table.guard(obs, action)
            guarded += 1
            matched += verdict.intervened
        previous = obs
        obs, _, terminated, truncated, info = env.step(action)
        outcome = Outcome.UNSAFE if info["violation"] else Outcome.INCONCLUSIVE
        table.record(previous, action, outcome)
        if terminated or truncated:
            table.end_episode(bool(info["violation"]))
            obs, _ = env.reset()
    env.close()
    assert len(table) >= 5
    assert guarded > 1000
    assert matched <= guarded / 1000
