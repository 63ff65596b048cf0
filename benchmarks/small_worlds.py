"""Small worlds in which agents fail in different ways, for ``foreign_random.py``.

In some the last action decides, in others a violation is decided long before it happens. In those
with a method ``press`` an agent may also press on towards danger, with little variation.
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


class Lava(World):
    """Seven by seven cells, eight of them lava at random; the agent sees the 25 around it."""

    limit = 80
    observation_space, action_space = Box(0, 1, (25,)), Discrete(5)

    def start(self) -> None:
        self.cells = np.full((11, 11), 0.5, np.float32)  # walls
        inside = np.zeros(49, np.float32)
        middle = 24
        inside[self.np_random.choice(np.delete(np.arange(49), middle), 8, replace=False)] = 1
        self.cells[2:9, 2:9] = inside.reshape(7, 7)
        self.cell = np.array([5, 5])

    def observe(self) -> Any:
        row, column = self.cell
        return self.cells[row - 2 : row + 3, column - 2 : column + 3].ravel()

    def move(self, action: Any) -> Any:
        wanted = self.cell + [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)][int(action)]
        if self.cells[tuple(wanted)] != 0.5:
            self.cell = wanted
        return self.cells[tuple(self.cell)] == 1


class Tank(World):
    """Two tanks in a row; the inflow of the first must keep both from running over or dry."""

    limit = 300
    observation_space, action_space = Box(shape=(2,), **ANY), Box(0, 1, (1,))

    def start(self) -> None:
        self.levels, self.demand = self.np_random.uniform(0.3, 0.6, 2), 0.5

    def observe(self) -> Any:
        return self.levels.astype(np.float32)

    def move(self, action: Any) -> Any:
        self.demand = np.clip(self.demand + self.np_random.normal(0, 0.03), 0.3, 0.6)
        flow = 0.025 * self.levels[0]
        self.levels[0] += 0.03 * float(action[0]) - flow
        self.levels[1] += flow - 0.03 * self.demand * self.levels[1]
        return self.levels.max() > 1 or self.levels.min() < 0.1


class Lane(World):
    """A car on a winding road: offset, heading and curvature; it must not leave its lane."""

    limit = 200
    observation_space, action_space = Box(shape=(3,), **ANY), Box(-1, 1, (1,))

    def start(self) -> None:
        self.offset, self.heading, self.bend = self.np_random.uniform(-0.3, 0.3), 0.0, 0.0

    def observe(self) -> Any:
        return np.array([self.offset, self.heading, self.bend], np.float32)

    def move(self, action: Any) -> Any:
        self.bend = np.clip(self.bend + self.np_random.normal(0, 0.1), -0.4, 0.4)
        self.heading += 0.1 * float(action[0]) - 0.05 * self.bend
        self.offset += 0.2 * np.sin(self.heading)
        return abs(self.offset) > 1


class Upright(World):
    """A pendulum that must stay upright; its motor is too weak to lift it from far out."""

    limit = 200
    observation_space, action_space = Box(shape=(3,), **ANY), Box(-2, 2, (1,))

    def start(self) -> None:
        self.angle, self.speed = self.np_random.uniform(-0.1, 0.1, 2)

    def observe(self) -> Any:
        return np.array([np.cos(self.angle), np.sin(self.angle), self.speed], np.float32)

    def move(self, action: Any) -> Any:
        self.speed += 0.05 * (15 * np.sin(self.angle) + 3 * float(action[0]))
        self.angle += 0.05 * self.speed
        return abs(self.angle) > 0.5


class Rocks(World):
    """Rocks fall down a picture of ten by ten pixels; the agent at its bottom must evade them."""

    limit = 200
    observation_space, action_space = Box(0, 255, (10, 10, 1), np.uint8), Discrete(3)

    def start(self) -> None:
        self.picture, self.column = np.zeros((10, 10), np.uint8), 5

    def observe(self) -> Any:
        seen = self.picture.copy()
        seen[9, self.column] = 128
        return seen[..., None]

    def move(self, action: Any) -> Any:
        self.column = int(np.clip(self.column + int(action) - 1, 0, 9))
        fresh = 255 * (self.np_random.random(10) < 0.08).astype(np.uint8)
        self.picture = np.vstack([fresh, self.picture[:-1]])
        return self.picture[9, self.column] == 255


class Discs(World):
    """A point among three discs that it must not touch, on the way from left to right."""

    limit = 60
    discs = np.array([[0.0, 0.0], [0.5, 0.6], [0.4, -0.6]])
    observation_space, action_space = Box(-2, 2, (2,)), Box(-1, 1, (2,))

    def start(self) -> None:
        self.place = np.array([-1.0, self.np_random.uniform(-0.8, 0.8)])

    def observe(self) -> Any:
        return self.place.astype(np.float32)

    def move(self, action: Any) -> Any:
        moved = self.place + 0.08 * np.clip(action, -1, 1) + self.np_random.normal(0, 0.01, 2)
        self.place = np.clip(moved, -1.5, 1.5)
        return np.linalg.norm(self.discs - self.place, axis=1).min() < 0.3

    def press(self) -> Any:
        wanted = np.clip(3 * (np.array([1.2, 0.0]) - self.place), -1, 1)
        return np.clip(wanted + self.np_random.normal(0, 0.2, 2), -1, 1).astype(np.float32)


class Brake(World):
    """A vehicle between walls: it must stop before each, then it may go on."""

    limit = 200
    observation_space, action_space = Box(shape=(2,), **ANY), Box(-1, 1, (1,))

    def start(self) -> None:
        self.speed, self.gap = 0.0, self.np_random.uniform(2, 6)

    def observe(self) -> Any:
        return np.array([min(self.gap, 3.0), self.speed], np.float32)

    def move(self, action: Any) -> Any:
        self.speed = np.clip(self.speed + 0.06 * float(action[0]), 0, 1)
        self.gap -= 0.2 * self.speed
        if self.gap < 0.8 and self.speed < 0.05:
            self.gap = self.np_random.uniform(2, 6)
        return self.gap < 0

    def press(self) -> Any:
        return np.clip(self.np_random.normal(0.7, 0.5, 1), -1, 1).astype(np.float32)


_RANDOM = (Mass, HiddenSpeed, Cliff, Joints, Follow, Drone, Lava, Tank, Lane, Upright, Rocks)
WORLDS = {world.__name__: world for world in (*_RANDOM, Discs, Brake)}
