"""The replay buffer: one preallocated float32 table, one row per transition."""

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


def as_batch(rows: Any, obs_size: int) -> Batch:
    """The columns of buffer rows by name; works on NumPy and JAX arrays."""
    reward = rows.shape[1] - obs_size - 3  # behind it: cost, next observation, terminated
    return Batch(
        obs=rows[:, :obs_size],
        action=rows[:, obs_size:reward],
        reward=rows[:, reward],
        cost=rows[:, reward + 1],
        next_obs=rows[:, reward + 2 : -1],
        terminated=rows[:, -1],
    )


class ReplayBuffer:
    """The most recent ``capacity`` transitions; row i is in slot i modulo capacity."""

    def __init__(self, capacity: int, obs_size: int, action_size: int) -> None:
        self.capacity = capacity
        self.width = 2 * obs_size + action_size + 3
        try:
            self.table = np.zeros((capacity, self.width), np.float32)
        except MemoryError as error:
            raise SettingError(
                f"no memory for a replay buffer of {capacity} transitions between observations of "
                f"{obs_size} numbers; lower --agent.replay-capacity ({error})"
            ) from None
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, step: Transition) -> None:
        self.table[self.added % self.capacity] = np.concatenate(
            [step.obs, step.action, (step.reward, step.cost), step.next_obs, (step.terminated,)]
        )
        self.added += 1

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """``size`` rows drawn uniformly with replacement, shape (size, width)."""
        return self.table[rng.integers(0, len(self), size)]

    def rows(self, start: int, stop: int) -> Array:
        """Rows number start..stop-1 in the order they were added; all must still be stored."""
        return self.table[np.arange(start, stop) % self.capacity]

    def put(self, start: int, rows: Array) -> None:
        """Store rows that were numbered from ``start`` on; the inverse of :meth:`rows`."""
        self.table[np.arange(start, start + len(rows)) % self.capacity] = rows
