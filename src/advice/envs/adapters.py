"""Adapts Safety Gymnasium's six-value steps to Gymnasium's five values."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from advice.types import Array


def adapt_safety_gymnasium(env: Any) -> gymnasium.Env[Array, Array]:
    """``env`` with five-value steps and ``cost``, ``violation``, ``success`` in ``info``.

    ``violation`` is a cost above 0, ``success`` the original's ``goal_met``. Of ``env`` only
    ``reset``, ``step``, ``close``, ``render`` and the two spaces are used, so it may be of another
    Gymnasium version.
    """
    return _AdaptedEnv(env)


class _AdaptedEnv(gymnasium.Env[Array, Array]):
    def __init__(self, env: Any) -> None:
        self._env = env
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space, self.action_space = (
            _box(space) for space in (env.observation_space, env.action_space)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self._env.reset(seed=seed, options=options)
        return _flat(observation), {**info, "cost": 0.0, "violation": False, "success": False}

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
        return _flat(observation), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


def _flat(values: Any) -> Array:
    return np.asarray(values, dtype=np.float32).ravel()


def _box(space: Any) -> gymnasium.spaces.Box:
    """A flat Box, from one that may be of another Gymnasium version."""
    if not hasattr(space, "low"):
        raise ValueError(f"expected a flat Box space, found {space} (make it with flattening on)")
    return gymnasium.spaces.Box(_flat(space.low), _flat(space.high), dtype=np.float32)
