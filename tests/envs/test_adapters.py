"""Safety Gymnasium's six values as five, on a small environment with the same interface."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.utils.env_checker import check_env

from advice.envs.adapters import adapt_safety_gymnasium


class SixValues:
    """What Safety Gymnasium's environments offer."""

    metadata: dict = {"render_modes": []}  # noqa: RUF012
    render_mode = None
    action_space = Box(-1, 1, (2,), np.float64)
    observation_space = Box(
        np.array([-9.0] * 3 + [0.0] * 4), np.array([9.0] * 3 + [1.0] * 4), dtype=np.float64
    )

    def __init__(self, values: int = 6):
        self.values = values

    def _observation(self):
        return np.concatenate((self.rng.normal(size=3), self.rng.uniform(size=4)))

    def reset(self, *, seed=None, options=None):
        self.steps, self.rng = 0, np.random.default_rng(seed)
        return self._observation(), {}

    def step(self, action):
        assert action.dtype == np.float64
        self.steps += 1
        info = {"cost_sum": 1.0}
        if self.steps == 3:
            info["goal_met"] = True
        six = self._observation(), np.float64(0.5), float(self.steps == 2), False, False, info
        return (*six[: self.values - 1], info) if self.values < 6 else six

    def close(self):
        self.closed = True


def test_six_values_become_five():
    original = SixValues()
    env = adapt_safety_gymnasium(original)
    observation, info = env.reset(seed=1)
    assert observation in env.observation_space
    assert info == {"cost": 0.0, "violation": False, "success": False}
    infos = []
    for _ in range(3):
        observation, reward, terminated, truncated, info = env.step(np.zeros(2, np.float32))
        assert observation.dtype == np.float32
        assert (reward, terminated, truncated) == (0.5, False, False)
        infos.append((info["cost"], info["violation"], info["success"]))
    assert infos == [(0.0, False, False), (1.0, True, False), (0.0, False, True)]
    assert info["cost_sum"] == 1.0
    env.close()
    assert original.closed


def test_the_adapted_environment_satisfies_gymnasium():
    env = adapt_safety_gymnasium(SixValues())
    assert env.observation_space.shape == (7,)
    check_env(env, skip_render_check=True)


def test_other_environments_are_refused():
    env = adapt_safety_gymnasium(SixValues(values=5))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected six values .* found 5"):
        env.step(np.zeros(2))
    nested = SixValues()
    nested.observation_space = Dict({"accelerometer": Box(-np.inf, np.inf, (3,))})
    with pytest.raises(ValueError, match="expected a flat Box space"):
        adapt_safety_gymnasium(nested)
