"""What a step says about safety: every word in ``info``, ``terminal=`` and the well-known ids."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from advice.envs.signals import (
    KNOWN_ENDS,
    VIOLATION_COST,
    SignalRules,
    describe,
    named,
    normalize_step,
    read_signals,
)


def known(name: str) -> SignalRules:
    return SignalRules(known=KNOWN_ENDS[name])


@pytest.mark.parametrize(
    "key",
    [
        "violation",
        "constraint_violation",
        "crashed",
        "crash",
        "crash_vehicle",
        "collision",
        "fatal_collision",
        "out_of_bounds",
        "out_of_road",
    ],
)
@pytest.mark.parametrize("true", [True, 1, 1.0, np.bool_(True), np.int64(1), np.array(True)])
def test_each_key_reports_a_violation(key, true):
    signals = read_signals({key: true}, terminated=True)
    assert signals[:4] == (True, VIOLATION_COST, False, key)
    false = type(true)(0) if not isinstance(true, np.ndarray) else np.array(False)
    signals = read_signals({key: false}, terminated=False)
    assert signals[:4] == (False, 0.0, False, key)


@pytest.mark.parametrize("key", ["success", "is_success", "arrive_dest", "env_complete"])
@pytest.mark.parametrize("true", [True, 1, np.float32(1), np.bool_(True), np.array(1)])
def test_each_key_reports_a_success(key, true):
    assert read_signals({key: true}, terminated=True)[:3] == (False, 0.0, True)
    assert not read_signals({key: False}, terminated=True).success


@pytest.mark.parametrize("cost", [0.3, 1, np.float32(0.5), np.array(2.0)])
def test_a_cost_above_zero_is_a_violation(cost):
    signals = read_signals({"cost": cost}, terminated=False)
    assert (signals.violation, signals.cost, signals.source) == (True, float(cost), "cost")


def test_a_cost_beside_a_denied_violation_is_unsafe_but_no_violation():
    signals = read_signals({"cost": 0.2, "violation": False}, terminated=False)
    assert not signals.violation
    assert signals.unsafe


def test_the_cost_of_a_six_value_step_is_read():
    *_, info = normalize_step((0, 0.0, 1.5, False, False, {}))
    assert read_signals(info, terminated=False).cost == 1.5


def test_one_of_several_keys_is_enough():
    info = {"crash_vehicle": False, "out_of_road": True, "crash_object": False}
    assert read_signals(info, True)[:4] == (True, VIOLATION_COST, False, "out_of_road")


@pytest.mark.parametrize("value", ["False", 0.3, np.nan, [True], np.array([True, False]), 2])
@pytest.mark.parametrize("key", ["violation", "crashed", "collision", "is_success"])
def test_a_flag_that_is_no_truth_value_raises(key, value):
    with pytest.raises(ValueError, match=f'info."{key}".: expected a truth value'):
        read_signals({key: value}, terminated=False)


@pytest.mark.parametrize("cost", [np.nan, np.inf, "0", np.array([0.0, 1.0]), [0.0]])
def test_a_cost_that_is_no_finite_number_raises(cost):
    with pytest.raises(ValueError, match=r'info."cost".: expected a finite number'):
        read_signals({"cost": cost, "violation": True}, terminated=False)


def test_none_counts_as_absent():
    info = {"violation": None, "cost": None, "success": None}
    assert read_signals(info, terminated=False) == read_signals({}, terminated=False)


def test_other_keys_that_begin_with_crash_may_be_anything():
    info = {"crash_speed": 3.2, "crash_site": "kerb", "crash_times": [1, 2]}
    info |= {"crashes": 1, "crash_count": 1, "crash_total": 0}  # counts, not truth values
    assert read_signals({"crashes": True}, terminated=False).violation
    assert read_signals(info, terminated=False) == read_signals({}, terminated=False)


@pytest.mark.parametrize("info", [{}, {"cost": 0.0}, {"crashed": False}, {"success": False}])
def test_an_unexplained_termination_is_inconclusive(info):
    signals = read_signals(info, terminated=True)
    assert not signals.unsafe
    assert not signals.success
    assert signals.unexplained
    assert not read_signals(info, terminated=False).unexplained
    assert not read_signals(info, terminated=False, truncated=True).unexplained


def test_an_end_that_denies_both_is_explained():
    assert not read_signals({"violation": False, "success": False}, terminated=True).unexplained


def test_a_failure_may_come_as_truncation():
    assert read_signals({"crashed": True}, terminated=False, truncated=True).violation
    rules = known("BipedalWalker")
    assert read_signals({}, False, truncated=True, reward=-100.0, rules=rules).violation
    assert not read_signals({}, False, truncated=True, reward=0.2, rules=rules).success


@pytest.mark.parametrize("info", [{}, {"cost": 0.0}, {"violation": False, "success": False}])
def test_terminal_failure(info):
    rules = SignalRules("failure")
    ended = read_signals(info, terminated=True, rules=rules)
    assert ended.violation
    assert not ended.success
    assert not ended.unexplained
    assert not read_signals(info, terminated=False, truncated=True, rules=rules).violation
    assert not read_signals(info, terminated=False, rules=rules).violation
    assert read_signals({}, terminated=False, rules=rules).source == 'terminal="failure"'


def test_terminal_failure_yields_to_a_reported_success():
    signals = read_signals({"is_success": True}, terminated=True, rules=SignalRules("failure"))
    assert signals.success
    assert not signals.violation


def test_terminal_success():
    rules = SignalRules("success")
    ended = read_signals({}, terminated=True, rules=rules)
    assert ended.success
    assert not ended.violation
    assert not ended.unexplained
    crashed = read_signals({"crashed": True}, terminated=True, rules=rules)
    assert crashed.violation
    assert not crashed.success
    assert read_signals({}, terminated=True, rules=rules).source == ""


def test_terminal_takes_the_place_of_the_known_end():
    rules = SignalRules("success", KNOWN_ENDS["Walker2d"])
    assert read_signals({}, terminated=True, rules=rules).success


def test_terminal_must_be_one_of_three():
    with pytest.raises(ValueError, match='expected None, "failure" or "success"'):
        SignalRules("crash")


FAILURES = ["Hopper", "Walker2d", "Ant", "Humanoid", "InvertedPendulum", "InvertedDoublePendulum"]
REWARD_CASES = [
    ("LunarLander", -100.0, "failure"),
    ("LunarLander", 100.0, "success"),
    ("LunarLander", 3.0, "unexplained"),
    ("LunarLanderContinuous", -100.0, "failure"),
    ("LunarLanderContinuous", 100.0, "success"),
    ("BipedalWalker", -100.0, "failure"),
    ("BipedalWalker", 0.3, "success"),
    ("BipedalWalkerHardcore", -100.0, "failure"),
    ("CarRacing", -100.0, "failure"),
    ("CarRacing", 3.0, "success"),
    ("FrozenLake", 0.0, "failure"),
    ("FrozenLake", 1.0, "success"),
]


@pytest.mark.parametrize(
    ("name", "reward", "meaning"),
    [
        *((name, 1.0, "failure") for name in (*FAILURES, "CartPole")),
        *((name, -1.0, "success") for name in ("Acrobot", "MountainCar", "MountainCarContinuous")),
        *REWARD_CASES,
    ],
)
def test_each_known_end(name, reward, meaning):
    signals = read_signals({}, terminated=True, reward=reward, rules=known(name))
    assert signals.violation == (meaning == "failure")
    assert signals.success == (meaning == "success")
    assert signals.unexplained == (meaning == "unexplained")
    during = read_signals({}, terminated=False, reward=reward, rules=known(name))
    assert not during.unsafe
    assert not during.success


def test_every_known_end_is_tested():
    named = {*FAILURES, "CartPole", "Acrobot", "MountainCar", "MountainCarContinuous"}
    assert set(KNOWN_ENDS) == named | {name for name, _, _ in REWARD_CASES}


def test_a_known_end_is_used_only_where_info_says_nothing():
    signals = read_signals({"is_success": False}, terminated=True, rules=known("Walker2d"))
    assert not signals.violation
    assert signals.unexplained


class Renamed(gym.RewardWrapper):
    def reward(self, reward):
        return reward / 100


def test_rules_are_found_by_the_id_of_the_environment():
    env = gym.make("CartPole-v1")
    assert SignalRules.of(env) == SignalRules(None, KNOWN_ENDS["CartPole"])
    assert SignalRules.of(env, "success").terminal == "success"
    assert SignalRules.of(str(env)) == SignalRules.of(env)
    for version in ("Walker2d-v3", "Walker2d-v5", "Walker2d-v12"):
        fake = SimpleNamespace(spec=SimpleNamespace(id=version))
        assert SignalRules.of(fake).known is KNOWN_ENDS["Walker2d"]
    other = SimpleNamespace(spec=SimpleNamespace(id="theirs/Walker2d-v5"))
    assert SignalRules.of(other).known is None
    assert SignalRules.of(object()).known is None


def test_a_known_end_that_reads_rewards_is_not_used_behind_a_wrapper_that_changes_them():
    env = gym.make("FrozenLake-v1")
    assert SignalRules.of(env).known is KNOWN_ENDS["FrozenLake"]
    for wrap in (Renamed, gym.wrappers.NormalizeReward):
        assert SignalRules.of(wrap(env)).known is None
        assert SignalRules.of(wrap(gym.make("CartPole-v1"))).known is KNOWN_ENDS["CartPole"]


def test_describe_names_the_id_and_the_wrappers():
    assert "<CartPole-v1>" in describe(gym.make("CartPole-v1"))
    assert "TimeLimit" in describe(gym.make("CartPole-v1"))


def test_the_innermost_name_of_a_description():
    assert named(str(gym.make("CartPole-v1"))) == "CartPole-v1"
    assert named("<TimeLimit<Own instance>> <Own instance>") == "Own"
    assert named("SyncVectorEnv(num_envs=2)") == named("<own.Odd object at 0x7f>") == ""


@pytest.mark.parametrize(
    ("name", "violation"),
    [("Walker2d-v5", True), ("InvertedDoublePendulum-v5", True), ("CartPole-v1", True)],
)
def test_real_environments_end_in_a_failure_under_random_actions(name, violation):
    env = gym.make(name)
    rules = SignalRules.of(env)
    env.action_space.seed(0)
    env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        signals = read_signals(info, terminated, truncated, float(reward), rules)
    assert signals.violation == violation


@pytest.mark.parametrize("name", ["LunarLander-v3", "BipedalWalker-v3"])
def test_a_crash_in_box2d_is_a_violation(name):
    pytest.importorskip("Box2D")
    test_real_environments_end_in_a_failure_under_random_actions(name, True)
