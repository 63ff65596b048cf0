"""Small Gymnasium environments in which learning and shielding take seconds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Target(gym.Env[Any, Any]):
    """Act as the observation says: reward -(action - target)^2, episodes of ten steps."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = -float((action[0] - self._target) ** 2)
        self._steps += 1
        return self._observe(), reward, False, self._steps >= 10, {}

    def _observe(self) -> Any:
        self._target = self.np_random.uniform(-0.8, 0.8)
        return np.array([self._target], np.float32)


class Corridor(gym.Env[Any, Any]):
    """Walk right to the goal at x = 1; |y| > 0.5 is a violation. Observation: (x, y)."""

    observation_space = Box(-2, 2, (2,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.uniform((-1.0, -0.3), (-0.8, 0.3))
        self._steps = 0
        return self._at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self._at[0]
        self._at = np.clip(self._at + 0.15 * np.asarray(action, np.float64), -2, 2)
        self._steps += 1
        violation = bool(abs(self._at[1]) > 0.5)
        success = bool(self._at[0] >= 1.0) and not violation
        reward = float(self._at[0] - before) + success - violation
        info = {"cost": 0.2 * violation, "violation": violation, "success": success}
        ended = violation or success
        return self._at.astype(np.float32), reward, ended, self._steps >= 60, info


class BrokenReward(Corridor):
    """A corridor whose reward is NaN from its hundredth step on."""

    def __init__(self) -> None:
        self._total_steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._total_steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward if self._total_steps < 100 else float("nan"), terminated, truncated, info


class Speeding(gym.Env[Any, Any]):
    """A speed of 0.4 pays best, but each step beyond the observed speed limit costs 0.2.

    The speed is the action plus noise, so that the expected cost rises smoothly with the action.
    """

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        speed = action[0] + self.np_random.normal(0, 0.3)
        speeding = bool(speed > self._limit)
        self._steps += 1
        info = {"cost": 0.2 * speeding}
        reward = -float((action[0] - 0.4) ** 2)
        return self._observe(), reward, False, self._steps >= 10, info

    def _observe(self) -> Any:
        self._limit = self.np_random.uniform(-0.2, 0.2)
        return np.array([self._limit], np.float32)
