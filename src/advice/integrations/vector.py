"""One shield around a Gymnasium vector of environments."""

from __future__ import annotations

from typing import Any, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from advice.integrations.watch import Options, Watch, Watched, row_of
from advice.types import Array


class ShieldedVectorEnv(Watched, VectorWrapper[Any, Any, Any, Any, Any]):
    """:class:`advice.ShieldedEnv` for SyncVectorEnv and AsyncVectorEnv: all share one shield.

    Takes the same settings. Every autoreset mode is understood: the step that only resets an
    environment (next-step mode) is neither guarded nor remembered, and no step is labelled with
    the observation of the next episode (same-step mode). ``infos["shield"]`` holds arrays with one
    row per environment, about the actions of this very step; ``infos["_shield"]`` is False where
    the step was a reset. When ``max_violations`` is spent the next step or reset raises
    :class:`advice.types.BudgetSpentError`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], **options: Unpack[Options]) -> None:
        super().__init__(env)
        self.watch = Watch(
            env.single_observation_space, env.single_action_space, env.num_envs, **options
        )
        mode = env.metadata.get("autoreset_mode", "NextStep")
        self._mode = str(getattr(mode, "value", mode))
        if self._mode not in ("NextStep", "SameStep", "Disabled"):
            raise ValueError(f"autoreset_mode: expected one of Gymnasium's three, found {mode!r}")
        self._obs: list[Any] = []
        self._seen: list[Array] = []
        self._resetting: NDArray[np.bool_] = np.zeros(env.num_envs, bool)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes, in all environments or those of ``options["reset_mask"]``."""
        self.watch.check_budget()
        mask = (options or {}).get("reset_mask")
        chosen = np.ones(self.num_envs, bool) if mask is None else np.array(mask, bool)
        for place in np.flatnonzero(chosen).tolist():
            self.watch.end_episode(place)
        obs, infos = self.env.reset(seed=seed, options=options)
        self._resetting &= ~chosen
        self._remember(obs)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Execute the actions, or what the shield puts in their place."""
        self.watch.check_budget()
        if not self._seen:
            raise gym.error.ResetNeeded("no episode has begun: call reset first")
        live = np.flatnonzero(~self._resetting).tolist()
        executed, reports = self.watch.decide(self._seen, self._obs, np.array(actions), live)
        shield = {key: np.stack([report[key] for report in reports]) for key in reports[0]}
        said = {"_shield": ~self._resetting, "shield": shield}
        obs, rewards, terminated, truncated, infos = self.env.step(executed.copy())

        ended = np.asarray(terminated) | np.asarray(truncated)
        rows = list(iterate(self.env.observation_space, obs))
        for place in live:
            led_to, info = rows[place], infos
            if ended[place] and self._mode == "SameStep":
                led_to, info = infos["final_obs"][place], infos["final_info"]
            self.watch.step(
                place,
                self._seen[place],
                executed[place],
                led_to,
                float(rewards[place]),
                bool(terminated[place]),
                bool(truncated[place]),
                row_of(info, place),
            )
        self.watch.stop_if_spent()
        if self._mode == "NextStep":
            self._resetting = ended
        self._remember(obs)
        return obs, rewards, terminated, truncated, {**infos, **said}

    def close(self, **kwargs: Any) -> None:
        """Save the shield, if asked to, and close the environments."""
        self.watch.save()
        super().close(**kwargs)

    def _remember(self, obs: Any) -> None:
        self._obs = list(iterate(self.env.observation_space, obs))
        self._seen = [self.watch.look(row) for row in self._obs]
