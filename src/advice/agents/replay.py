"""Replay: one preallocated float32 table, a row per transition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advice.types import Array, SettingError, Transition


class Batch(NamedTuple):
    """Columns of sampled rows, each (n, ...) float32."""

    obs: Any
    action: Any
    reward: Any
    cost: Any
    next_obs: Any
    terminated: Any


def split(rows: Any, obs_size: int, action_size: int) -> Batch:
    """The columns of replay rows as a :class:`Batch`; works on NumPy and JAX arrays."""
    a, r = obs_size, obs_size + action_size
    return Batch(
        rows[:, :a],
        rows[:, a:r],
        rows[:, r],
        rows[:, r + 1],
        rows[:, r + 2 : r + 2 + obs_size],
        rows[:, -1],
    )


class Replay:
    """The most recent ``capacity`` transitions; row i lies in slot i modulo capacity."""

    def __init__(self, capacity: int, obs_size: int, action_size: int) -> None:
        self.capacity = capacity
        self.width = 2 * obs_size + action_size + 3
        try:
            self.table = np.zeros((capacity, self.width), np.float32)
        except MemoryError as error:
            raise SettingError(
                f"no memory for a replay of {capacity} transitions between observations of "
                f"{obs_size} numbers; lower --agent.replay-capacity ({error})"
            ) from None
        self.added = 0
        self._obs_size, self._action_size = obs_size, action_size

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, step: Transition) -> None:
        a, r = self._obs_size, self._obs_size + self._action_size
        row = self.table[self.added % self.capacity]
        row[:a] = step.obs
        row[a:r] = step.action
        row[r] = step.reward
        row[r + 1] = step.cost
        row[r + 2 : -1] = step.next_obs
        row[-1] = step.terminated
        self.added += 1

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """``size`` rows drawn uniformly with replacement, shape (size, width)."""
        return self.table[rng.integers(0, len(self), size)]

    def rows(self, start: int, stop: int) -> Array:
        """Rows number start..stop-1 in the order they were added; all must still be kept."""
        return self.table[np.arange(start, stop) % self.capacity]

    def put(self, start: int, rows: Array) -> None:
        """Place rows that were numbered from ``start`` on; the inverse of :meth:`rows`."""
        self.table[np.arange(start, start + len(rows)) % self.capacity] = rows
