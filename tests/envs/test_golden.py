"""The car, its lidar and its rewards against recordings of the original Safety Gymnasium."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

import advice
from advice.envs.sensors import pseudo_lidar

RECORDED = Path(__file__).parent.parent / "data" / "safety_gymnasium_car.npz"


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(RECORDED) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_the_car_has_the_original_masses_and_joints(golden):
    model = advice.make("randomised-goal").model
    bodies = [model.body(name) for name in golden["body_names"]]
    np.testing.assert_allclose([b.mass[0] for b in bodies], golden["body_mass"], rtol=1e-12)
    np.testing.assert_allclose([b.inertia for b in bodies], golden["body_inertia"], rtol=1e-12)
    joints = [model.joint(i).name for i in range(model.njnt)]
    assert joints == golden["joint_names"].tolist()


def test_the_car_drives_as_the_original(golden):
    env = advice.make("randomised-goal", cubes=0)
    model, data = env.model, env.data
    off = {"qpos": [], "qvel": []}
    columns = ("car_qpos", "car_qvel", "car_ctrl", "car_qpos_next", "car_qvel_next")
    for qpos, qvel, ctrl, qpos_next, qvel_next in zip(*(golden[c] for c in columns), strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_step(model, data, 10)
        off["qpos"].append(np.abs(data.qpos - qpos_next).max())
        off["qvel"].append(np.abs(data.qvel - qvel_next).max())
    position, velocity = np.array(off["qpos"]), np.array(off["qvel"])
    assert len(position) > 1000
    assert np.mean((position <= 1e-9) & (velocity <= 1e-9)) >= 0.95
    assert position.max() <= 1e-6
    assert velocity.max() <= 1e-3


def test_one_environment_step_is_the_original_step_and_reward(golden):
    # Put the goal where the recording's distance says, then take the recorded action.
    env = advice.make("randomised-goal", cubes=0)
    env.reset(seed=0)
    for i in range(0, len(golden["car_qpos"]), 13):
        before, after = golden["car_qpos"][i, :2], golden["car_qpos_next"][i, :2]
        goal = _meeting_point(
            before, golden["goal_dist_before"][i], after, golden["goal_dist_after"][i]
        )
        env.reset(options={"layout": {"goal": goal}})
        env.data.qpos[:], env.data.qvel[:] = golden["car_qpos"][i], golden["car_qvel"][i]
        _, reward, terminated, _, info = env.step(golden["car_ctrl"][i])
        assert reward == pytest.approx(golden["goal_reward"][i], abs=1e-9)
        assert terminated == info["success"] == golden["goal_met"][i]


def _meeting_point(a: np.ndarray, from_a: float, b: np.ndarray, from_b: float) -> np.ndarray:
    """A point at given distances from two others: where two circles cross."""
    apart = np.linalg.norm(b - a)
    along = (apart**2 + from_a**2 - from_b**2) / (2 * apart)
    aside = np.sqrt(max(from_a**2 - along**2, 0.0))
    ahead = (b - a) / apart
    return a + along * ahead + aside * np.array([-ahead[1], ahead[0]])


def test_the_lidar_reads_as_the_original(golden):
    for pos, mat, objects, reading in zip(
        *(golden[f"lidar_{c}"] for c in ("agent_pos", "agent_mat", "object_xy", "reading")),
        strict=True,
    ):
        np.testing.assert_allclose(pseudo_lidar(pos, mat, objects), reading, rtol=0, atol=1e-9)


def test_the_circle_reward_is_the_original(golden):
    env = advice.make("randomised-circle", cubes=0)
    env.reset(seed=0)
    for pos, velocity, reward in zip(
        *(golden[f"circle_{c}"] for c in ("agent_pos", "agent_vel", "reward")), strict=True
    ):
        env.data.qpos[:3], env.data.qvel[:3] = pos, velocity
        assert 0.1 * env._circling() == pytest.approx(reward, abs=1e-9)
