"""Small worlds in which a random agent fails in different ways, for ``foreign_random.py``.

In some the last action decides, in others a violation is decided long before it happens.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

ANY = {"low": -np.inf, "high": np.inf, "dtype": np.float32}


class World(gym.Env[Any, Any]):
    """An episode ends with a violation or after ``limit`` steps."""

    limit = 100

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.start()
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        violation = bool(self.move(np.asarray(action)))
        info = {"violation": violation}
        return self.observe(), 1.0, violation, self.steps >= self.limit, info

    def start(self) -> None:
        """Place everything for a new episode."""

    def observe(self) -> Any:
        """The observation."""

    def move(self, action: Any) -> Any:
        """Move on by one step; True if it violates."""


class Mass(World):
    """A mass between two walls: force, position and speed."""

    observation_space, action_space = Box(shape=(2,), **ANY), Box(-1, 1, (1,))

    def start(self) -> None:
        self.x, self.speed = self.np_random.uniform(-0.3, 0.3), self.np_random.uniform(-0.05, 0.05)

    def observe(self) -> Any:
        return np.array([self.x, self.speed], np.float32)

    def move(self, action: Any) -> Any:
        self.speed += 0.03 * float(action[0]) + self.np_random.normal(0, 0.01)
        self.x += self.speed
        return abs(self.x) > 1


class HiddenSpeed(Mass):
    """The same, but the speed is not observed."""

    observation_space = Box(shape=(1,), **ANY)

    def observe(self) -> Any:
        return np.array([self.x], np.float32)


class Cliff(World):
    """A grid of 8 x 8 cells; a step off its edge is a violation. Discrete actions."""

    limit = 60
    observation_space, action_space = Box(0, 7, (2,)), Discrete(4)

    def start(self) -> None:
        self.cell = self.np_random.integers(2, 6, 2)

    def observe(self) -> Any:
        return self.cell.astype(np.float32)

    def move(self, action: Any) -> Any:
        wanted = self.cell + [(1, 0), (-1, 0), (0, 1), (0, -1)][int(action)]
        self.cell = np.clip(wanted, 0, 7)
        return not np.array_equal(self.cell, wanted)


class Joints(World):
    """Six joints that must stay within their limits; the last action decides."""

    limit = 60
    observation_space, action_space = Box(shape=(8,), **ANY), Box(-1, 1, (6,))

    def start(self) -> None:
        self.angles = self.np_random.uniform(-0.3, 0.3, 6)

    def observe(self) -> Any:
        sums = self.angles[:3].sum(), self.angles[3:].sum()
        return np.array([*self.angles, *sums], np.float32)

    def move(self, action: Any) -> Any:
        self.angles = self.angles + 0.25 * action
        return np.abs(self.angles).max() > 1


class Follow(World):
    """A car behind another one that brakes at random: who brakes late, crashes."""

    limit = 300
    observation_space, action_space = Box(shape=(3,), **ANY), Box(-3, 3, (1,))

    def start(self) -> None:
        self.gap, self.speed, self.ahead, self.push = 30.0, 20.0, 20.0, 0.0

    def observe(self) -> Any:
        return np.array([self.gap, self.speed, self.ahead - self.speed], np.float32)

    def move(self, action: Any) -> Any:
        if self.np_random.random() < 0.05:
            self.push = self.np_random.uniform(-3, 2)
        self.ahead = np.clip(self.ahead + 0.2 * self.push, 0, 35)
        self.speed = max(0.0, self.speed + 0.2 * float(action[0]))
        self.gap += 0.2 * (self.ahead - self.speed)
        return self.gap < 2


class Drone(World):
    """A planar quadrotor: thrust and moment; it must not tip over, fall or fly away."""

    limit = 150
    observation_space = Box(-np.inf, np.inf, (6,), np.float64)
    action_space = Box(np.array([0.0, -1.0]), np.array([2.0, 1.0]), dtype=np.float64)

    def start(self) -> None:
        self.state = np.array([0, 2, 0, 0, 0, 0.0]) + self.np_random.uniform(-0.2, 0.2, 6)

    def observe(self) -> Any:
        return self.state.copy()

    def move(self, action: Any) -> Any:
        thrust, moment = action
        tilt = self.state[2]
        force = 9.8 * np.array([-thrust * np.sin(tilt), thrust * np.cos(tilt) - 1.0])
        self.state[3:] += 0.05 * np.array([*force, 4 * moment])
        self.state[:3] += 0.05 * self.state[3:]
        x, height, tilt = self.state[:3]
        return abs(x) > 4 or not 0 <= height <= 5 or abs(tilt) > 1.2


WORLDS = {world.__name__: world for world in (Mass, HiddenSpeed, Cliff, Joints, Follow, Drone)}
