"""Adapts Safety Gymnasium's six-value steps to Gymnasium's five values."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from advice.types import Array


def adapt_safety_gymnasium(env: Any, lidar_only: bool = False) -> gymnasium.Env[Array, Array]:
    """``env`` with five-value steps and ``cost``, ``violation``, ``success`` in ``info``.

    ``violation`` is a cost above 0, ``success`` the original's ``goal_met``. With ``lidar_only``
    the observation has only the lidars, as in the built-in tasks. Of ``env`` only ``reset``,
    ``step``, ``close``, ``render`` and the two spaces are used (for ``lidar_only`` also its list of
    sensors), so it may be of another Gymnasium version.
    """
    return _AdaptedEnv(env, lidar_only)


class _AdaptedEnv(gymnasium.Env[Array, Array]):
    def __init__(self, env: Any, lidar_only: bool) -> None:
        self._env = env
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        self._chosen = _lidar_entries(env) if lidar_only else slice(None)
        self.observation_space = _box(env.observation_space, self._chosen)
        self.action_space = _box(env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self._env.reset(seed=seed, options=options)
        return self._keep(observation), {**info, "cost": 0.0, "violation": False, "success": False}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        result = self._env.step(np.asarray(action, dtype=self._env.action_space.dtype))
        if len(result) != 6:
            raise ValueError(
                "expected six values from a Safety Gymnasium step (observation, reward, cost, "
                f"terminated, truncated, info), found {len(result)}"
            )
        observation, reward, cost, terminated, truncated, info = result
        success = bool(info.get("goal_met", False))
        info = {**info, "cost": float(cost), "violation": bool(cost > 0), "success": success}
        return self._keep(observation), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _keep(self, observation: Any) -> Array:
        return np.asarray(observation, dtype=np.float32).ravel()[self._chosen]


def _box(space: Any, chosen: Array | slice = slice(None)) -> gymnasium.spaces.Box:
    """The chosen entries of a flat Box, which may be of another Gymnasium version."""
    if not hasattr(space, "low"):
        raise ValueError(f"expected a flat Box space, found {space} (make it with flattening on)")
    low, high = (np.asarray(x, np.float32).ravel()[chosen] for x in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def _lidar_entries(env: Any) -> Array:
    """Indices of the lidars in the flattened observation, which follows the list of sensors."""
    sensors = getattr(getattr(env.unwrapped, "task", None), "obs_info", None)
    if sensors is None:
        raise ValueError("lidar_only: expected a Safety Gymnasium environment with a sensor list")
    spaces = sensors.obs_space_dict.spaces
    is_lidar = [
        np.full(int(np.prod(space.shape)), name.endswith("_lidar"))
        for name, space in spaces.items()
    ]
    chosen = np.flatnonzero(np.concatenate(is_lidar))
    if not len(chosen):
        raise ValueError(f"lidar_only: expected sensors named *_lidar, found {', '.join(spaces)}")
    return chosen
