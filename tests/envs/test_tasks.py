"""The tasks: spaces, rewards, endings, options, errors."""

from __future__ import annotations

import warnings

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import advice
from advice.envs import TASKS

SIZES = {
    "semi-random-goal": 32,
    "randomised-goal": 32,
    "randomised-button": 64,
    "randomised-circle": 32,
    "constrained-randomised-goal": 32,
}
AHEAD = (1.0, 1.0)


def drive(env, steps: int, action=AHEAD):
    """Step until the episode ends or ``steps`` are done; the last result."""
    for _ in range(steps):
        result = env.step(action)
        if result[2] or result[3]:
            break
    return result


@pytest.mark.parametrize("task", TASKS)
def test_gymnasiums_checker_passes(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(advice.make(task, render_mode="rgb_array"))
        check_env(advice.make(task, observe_velocity=True), skip_render_check=True)


@pytest.mark.parametrize("task", TASKS)
def test_the_registered_id_is_the_same_environment(task):
    ours, registered = advice.make(task), gymnasium.make(TASKS[task].id)
    assert type(registered) is type(ours)
    assert ours.spec.id == registered.spec.id == TASKS[task].id
    assert ours.observation_space == registered.observation_space
    assert ours.observation_space.shape == (SIZES[task],)
    assert ours.observation_space.dtype == np.float32
    assert ours.action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    one, other = ours.reset(seed=3)[0], registered.reset(seed=3)[0]
    for _ in range(20):
        np.testing.assert_array_equal(one, other)
        one, other = ours.step((1, 0.5))[0], registered.step((1, 0.5))[0]


@pytest.mark.parametrize("task", TASKS)
def test_every_step_reports_plain_values(task):
    env = advice.make(task)
    _, info = env.reset(seed=0)
    for _ in range(30):
        assert set(info) == {"cost", "violation", "success"}
        assert type(info["cost"]) is float
        assert type(info["violation"]) is bool
        assert type(info["success"]) is bool
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)


def test_reaching_the_goal_ends_the_episode_with_success():
    env = advice.make("randomised-goal", cubes=0)
    env.reset(seed=0, options={"layout": {"car": (0, 0, 0), "goal": (0.8, 0)}})
    start = env._target_distance()
    total, terminated = 0.0, False
    while not terminated:
        _, reward, terminated, truncated, info = env.step(AHEAD)
        total += reward
        assert not truncated
    assert info == {"cost": 0.0, "violation": False, "success": True}
    assert env._target_distance() <= 0.3
    assert total == pytest.approx(start - env._target_distance() + 1.0, abs=1e-12)


def test_touching_a_cube_ends_the_episode_as_a_violation():
    env = advice.make("randomised-goal", cubes=1)
    env.reset(options={"layout": {"car": (0, 0, 0), "cubes": (0.6, 0), "goal": (-1, -1)}}, seed=0)
    _, reward, terminated, truncated, info = drive(env, 100)
    assert terminated
    assert not truncated
    assert reward < -0.9
    assert info == {"cost": 0.2, "violation": True, "success": False}


@pytest.mark.parametrize(
    ("right", "success"), [(0, True), (1, False)], ids=["right button", "wrong button"]
)
def test_buttons(right, success):
    env = advice.make("randomised-button", buttons=2, cubes=0, pillars=0)
    layout = {"car": (0, 0, 0), "buttons": [(0.6, 0), (-1, -1)], "right_button": right}
    env.reset(seed=0, options={"layout": layout})
    _, reward, terminated, _, info = drive(env, 100)
    assert terminated
    assert info["success"] is success
    assert info["violation"] is not success
    assert info["cost"] == (0.0 if success else 0.2)
    assert reward == pytest.approx(1.0 if success else -1.0, abs=0.1)


def test_pillars_are_violations():
    env = advice.make("randomised-button", buttons=1, cubes=0, pillars=1)
    layout = {"car": (0, 0, 0), "pillars": (0.7, 0), "buttons": (-1, -1)}
    env.reset(seed=0, options={"layout": layout})
    assert drive(env, 100)[4]["violation"]


def test_the_right_button_has_its_own_lidar():
    env = advice.make("randomised-button")
    observation, _ = env.reset(seed=5)
    target, buttons = observation[:16], observation[16:32]
    assert target.any()
    assert (target <= buttons).all()
    assert not np.array_equal(target, buttons)


def test_hazards_cost_and_do_not_end_the_episode():
    env = advice.make("constrained-randomised-goal", hazards=1)
    layout = {"car": (0, 0, 0), "hazards": (0.5, 0), "goal": (1.2, 0)}
    env.reset(seed=0, options={"layout": layout})
    costs, distances = [], []
    for _ in range(200):
        before = env._target_distance()
        _, reward, terminated, _, info = env.step(AHEAD)
        x, y, _ = env.car_pose
        costs.append(info["cost"])
        distances.append(np.hypot(x - 0.5, y))
        assert not info["violation"]
        gained = before - env._target_distance()
        assert reward == pytest.approx(gained + info["success"], abs=1e-12)
        if terminated:
            break
    assert info["success"]
    assert costs == [0.2 if d <= 0.2 else 0.0 for d in distances]
    assert sum(costs) > 0.2


@pytest.mark.parametrize(
    ("start", "inside"), [((0, 0, 0), True), ((1.8, 0, 0), True), ((1.86, 0, 0), False)]
)
def test_circle_success_is_being_at_most_a_length_outside_when_time_is_up(start, inside):
    env = advice.make("randomised-circle", cubes=0, max_episode_steps=5)
    env.reset(seed=0, options={"layout": {"car": start}})
    for step in range(5):
        _, _, terminated, truncated, info = env.step((0, 0))
        assert not terminated
        assert truncated == (step == 4)
        assert info["success"] == (truncated and inside)


def test_circle_rewards_speed_along_the_circle():
    env = advice.make("randomised-circle", cubes=0)
    env.reset(seed=0, options={"layout": {"car": (1.2, 0, np.pi / 2)}})
    _, reward, *_ = drive(env, 10)
    (x, y), (u, v) = env.data.qpos[:2], env.data.qvel[:2]
    radius = np.hypot(x, y)
    assert reward == pytest.approx((-u * y + v * x) / radius / (1 + abs(radius - 1.5)), abs=1e-12)
    assert reward > 0.1


def test_the_episode_is_truncated_after_max_episode_steps():
    for task, row in TASKS.items():
        assert row.max_episode_steps == (500 if task == "randomised-circle" else 1000)
    env = advice.make("randomised-goal", max_episode_steps=7)
    env.reset(seed=0)
    assert [env.step((0, 0))[3] for _ in range(7)] == [False] * 6 + [True]


def test_velocity_on_request():
    env = advice.make("randomised-goal", cubes=0, observe_velocity=True)
    observation, _ = env.reset(seed=0, options={"layout": {"car": (0, 0, 1.0), "goal": (-1, -1)}})
    assert observation.shape == (35,)
    assert not observation[-3:].any()
    forward, left, turning = drive(env, 15)[0][-3:]
    assert forward > 0.2
    assert abs(left) < 0.1
    env.step((-1, 1))
    for _ in range(10):
        turning = env.step((-1, 1))[0][-1]
    heading = env.car_pose[2]
    env.step((-1, 1))
    assert np.sign(turning) == np.sign(env.car_pose[2] - heading)


def test_actions_beyond_the_bounds_are_clipped():
    one, other = advice.make("randomised-goal"), advice.make("randomised-goal")
    one.reset(seed=0)
    other.reset(seed=0)
    np.testing.assert_array_equal(one.step((9, -9))[0], other.step((1, -1))[0])
    np.testing.assert_array_equal(one.data.qpos, other.data.qpos)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ((np.nan, 0), "finite"),
        ((0, np.inf), "finite"),
        ((0, 0, 0), r"shape \(2,\), found \(3,\)"),
        (0.5, r"shape \(2,\), found \(\)"),
        (("a", "b"), "2 numbers"),
        (None, "expected"),
    ],
)
def test_a_bad_action_raises_and_does_not_step(action, said):
    env = advice.make("randomised-goal")
    env.reset(seed=0)
    before = env.get_state()["physics"]
    with pytest.raises(ValueError, match=said):
        env.step(action)
    np.testing.assert_array_equal(env.get_state()["physics"], before)


def test_a_step_before_the_first_reset_is_an_error():
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        advice.make("randomised-goal").step((0, 0))


@pytest.mark.filterwarnings("ignore")
def test_an_unstable_simulation_ends_the_episode_as_truncated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log where it runs
    env = advice.make("randomised-goal")
    last, _ = env.reset(seed=0)
    env.data.qvel[:] = 1e9
    env.data.qacc_warmstart[:] = 1e12
    env.data.qvel[0] = 1e11
    observation, reward, terminated, truncated, info = env.step((1, 1))
    assert info["unstable"] is True
    assert truncated
    assert not terminated
    assert reward == 0.0
    np.testing.assert_array_equal(observation, last)
    env.reset(seed=0)
    assert "unstable" not in env.step((1, 1))[4]


def test_contacts_are_those_of_a_full_forward_pass():
    env = advice.make("randomised-goal")
    env.reset(seed=1)
    for _ in range(200):
        env.step(env.action_space.sample())
        seen = sorted(map(tuple, env.data.contact.geom.tolist()))
        mujoco.mj_forward(env.model, env.data)
        assert seen == sorted(map(tuple, env.data.contact.geom.tolist()))


def test_every_number_of_a_row_is_an_option():
    for task, row in TASKS.items():
        assert advice.make(task, **row.options).task == row
    env = advice.make("randomised-goal", arena=2.5, cubes=3, goal_radius=0.5, lidar_bins=8)
    env.reset(seed=0)
    assert env.layout["cubes"].shape == (3, 2)
    assert env.observation_space.shape == (16,)
    assert env.task.goal_radius == 0.5
    assert advice.make("randomised-goal", cubes=0).observation_space.shape == (32,)
    assert advice.make("randomised-goal", cubes=2.0).task.cubes == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cube": 3}, "did you mean 'cubes'"),
        ({"goal_raduis": 3}, "did you mean 'goal_radius'"),
        ({"cubes": 2.5}, "whole number from 0 to 1000, found 2.5"),
        ({"cubes": -1}, "from 0 to 1000, found -1"),
        ({"arena": "wide"}, "finite number above 0, found 'wide'"),
        ({"arena": 0}, "above 0"),
        ({"max_episode_steps": 0}, "whole number from 1 "),
        ({"cost": -0.1}, "finite number of at least 0, found -0.1"),
        ({"cost": float("inf")}, "finite number of at least 0, found inf"),
        ({"success_reward": float("nan")}, "finite number, found nan"),
        ({"camera": "side"}, "top.*chase.*'side'"),
        ({"render_mode": "ascii"}, "rgb_array.*'ascii'"),
    ],
)
def test_a_wrong_option_says_what_was_expected(options, said):
    with pytest.raises(ValueError, match=said):
        advice.make("randomised-goal", **options)


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'randomised-goal'"):
        advice.make("randomized-goal")
    assert advice.make("advice/RandomisedCircle-v0").task == TASKS["randomised-circle"]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"cube": [(0, 0)]}, "did you mean 'cubes'"),
        ({"cubes": [(0, 0)]}, "expected 6 rows"),
        ({"goal": (np.nan, 0)}, "finite"),
        ({"goal": "there"}, "expected 1 rows"),
    ],
)
def test_a_wrong_layout_says_what_was_expected(layout, said):
    with pytest.raises(ValueError, match=said):
        advice.make("randomised-goal").reset(options={"layout": layout})


def test_unknown_reset_options_are_errors():
    with pytest.raises(ValueError, match="'layuot'"):
        advice.make("randomised-goal").reset(options={"layuot": {}})


def test_far_outside_the_circle_speed_towards_it_may_be_the_reward():
    env = advice.make("randomised-circle", cubes=0, inward_reward=0.5)
    env.reset(seed=0)
    env.data.qpos[:2], env.data.qvel[:2] = (0.0, 2.0), (0.3, -0.4)
    assert env.unwrapped._circling() == pytest.approx(0.2, abs=1e-12)  # 0.5 times 0.4 m/s
    env.data.qpos[:2] = 0.0, 1.8  # a success is possible there: the usual reward
    assert env.unwrapped._circling() == pytest.approx(-0.3 / 1.3, abs=1e-12)


def test_a_small_motor_gain_makes_the_force_proportional_to_the_action():
    def force(action, **options):
        env = advice.make("randomised-goal", **options)
        env.reset(seed=0)
        env.step((action, action))
        return env.data.actuator_force.tolist()

    assert force(0.5) == force(1.0) == pytest.approx([0.02, 0.02])
    assert force(0.5, motor_gain=0.02) == pytest.approx([0.01, 0.01])
    assert force(1.0, motor_gain=0.02) == pytest.approx([0.02, 0.02])
    with pytest.raises(ValueError, match="motor_gain: expected a finite number above 0"):
        advice.make("randomised-goal", motor_gain=0)
