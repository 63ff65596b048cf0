"""Options of a task that change the car, the floor or the sensors, not the goal."""

from __future__ import annotations

import numpy as np
import pytest

import advice
from advice.types import SettingError

START = {
    "car": (0.0, 0.0, 0.0),
    "goal": (1.4, 1.4, 0.0),
    "cubes": [(-1.4, y, 0.0) for y in (-1.0, 1.0)],
}


def driven(steps: int = 25, turn: bool = False, **options: float) -> float:
    """How far the car gets with both motors at full force, or in turns."""
    env = advice.make("randomised-goal", cubes=2, **options)
    env.reset(seed=0, options={"layout": START})
    for step in range(steps):
        forward = not turn or step % 10 < 5
        env.step(np.array([1.0, 1.0 if forward else -1.0], np.float32))
    x, y, _ = env.car_pose
    return float(np.hypot(x, y))


def test_a_heavier_car_and_weaker_motors_are_slower() -> None:
    usual = driven()
    assert usual > 0.2
    assert driven(car_mass=2.0) < 0.95 * usual
    assert driven(motor_force=0.5) < 0.9 * usual
    assert driven(car_mass=1.0, motor_force=1.0, friction=1.0) == usual


def test_the_model_holds_the_numbers() -> None:
    usual, other = (
        advice.make("randomised-goal"),
        advice.make("randomised-goal", car_mass=3.0, motor_force=0.5, friction=0.2),
    )
    car = usual.model.body("agent").id
    assert other.model.body_mass[car] == pytest.approx(3 * usual.model.body_mass[car])
    assert other.model.body_subtreemass[car] == pytest.approx(3 * usual.model.body_subtreemass[car])
    np.testing.assert_allclose(
        other.model.actuator_forcerange, 0.5 * usual.model.actuator_forcerange
    )
    np.testing.assert_allclose(
        other.model.geom_friction[:, 0], 0.2 * usual.model.geom_friction[:, 0]
    )


def test_a_slippery_floor_changes_the_path() -> None:
    assert driven(turn=True, friction=0.05) != pytest.approx(driven(turn=True), rel=0.01)


def test_lidar_noise_is_of_the_asked_size_and_part_of_the_state() -> None:
    clear, noisy = (advice.make("randomised-goal", lidar_noise=x) for x in (0.0, 0.05))
    apart = []
    for seed in range(30):
        seen = [env.reset(seed=seed, options={"layout": START_6})[0] for env in (clear, noisy)]
        inside = (seen[0] > 0.2) & (seen[0] < 0.8)
        apart.extend((seen[1] - seen[0])[inside])
    assert np.std(apart) == pytest.approx(0.05, rel=0.2)
    assert noisy.observation_space.contains(seen[1])
    state = noisy.get_state()
    action = np.array([0.5, 0.2], np.float32)
    first = [noisy.step(action)[0] for _ in range(3)]
    noisy.set_state(state)
    for obs in first:
        np.testing.assert_array_equal(noisy.step(action)[0], obs)
    assert not np.array_equal(noisy.reset(seed=1)[0], noisy.reset(seed=2)[0])
    np.testing.assert_array_equal(noisy.reset(seed=1)[0], noisy.reset(seed=1)[0])


START_6 = START | {"cubes": [(x, y, 0.0) for x in (-1.3, 0.8) for y in (-1.2, 0.6, 1.3)]}


@pytest.mark.parametrize("name", ["car_mass", "motor_force", "friction"])
def test_there_is_no_car_without_mass(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name}: expected a finite number above 0, found 0"):
        advice.make("randomised-goal", **{name: 0})
