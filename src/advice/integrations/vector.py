"""One shield around a Gymnasium vector of environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from advice.envs.signals import SignalRules, describe, named
from advice.integrations.wrapper import HasSession
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession


class ShieldedVectorEnv(HasSession, VectorWrapper):
    """:class:`advice.ShieldedEnv` for SyncVectorEnv and AsyncVectorEnv: all share one shield.

    It works with every autoreset mode: the step that only resets an environment (next-step mode) is
    neither guarded nor recorded, and no step is labelled with the observation of the next episode
    (same-step mode). ``infos["shield"]`` holds arrays with one row per environment;
    ``infos["_shield"]`` is False where the step was a reset. When the violation budget is spent
    the next step or reset raises :class:`advice.types.BudgetSpentError`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], **options: Any) -> None:
        super().__init__(env)
        given = SessionOptions(**options)
        call = getattr(env.unwrapped, "call", None)  # not every vector has one
        described = describe(env) + (call("__str__")[0] if call else "")
        self.session = ShieldSession(
            env.single_observation_space,
            env.single_action_space,
            given,
            env.num_envs,
            rules=SignalRules.of(described, given.terminal),
            task=named(described),
        )
        mode = env.metadata.get("autoreset_mode", "NextStep")
        self._mode = str(getattr(mode, "value", mode))
        if self._mode not in ("NextStep", "SameStep", "Disabled"):
            raise ValueError(f"autoreset_mode: expected one of Gymnasium's three, found {mode!r}")
        self._obs: list[Any] = []
        self._resetting: NDArray[np.bool_] = np.zeros(env.num_envs, bool)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes, in all environments or those of ``options["reset_mask"]``."""
        mask = (options or {}).get("reset_mask")
        chosen = np.ones(self.num_envs, bool) if mask is None else np.array(mask, bool)
        for env_index in np.flatnonzero(chosen).tolist():
            self.session.start_episode(env_index)
        obs, infos = self.env.reset(seed=seed, options=options)
        self._resetting &= ~chosen
        self._obs = list(iterate(self.env.observation_space, obs))
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Execute the actions, or their replacements."""
        self.session.check_budget()
        if not self._obs:
            raise gym.error.ResetNeeded("no episode has begun: call reset first")
        live = np.flatnonzero(~self._resetting).tolist()
        proposed = np.array(actions)
        verdicts = self.session.guard_batch(self._obs, proposed, live)
        said = [self.session.describe(*pair) for pair in zip(verdicts, proposed, strict=True)]
        shield = {key: np.stack([each[key] for each in said]) for key in said[0]}
        extra = {"_shield": ~self._resetting, "shield": shield}
        executed = np.stack([verdict.action for verdict in verdicts])
        obs, rewards, terminated, truncated, infos = self.env.step(executed)

        ended = np.asarray(terminated) | np.asarray(truncated)
        self._obs = rows = list(iterate(self.env.observation_space, obs))
        if self._mode == "NextStep":
            self._resetting = ended
        unreadable: list[Exception] = []
        for i in live:
            led_to, info = rows[i], infos
            if ended[i] and self._mode == "SameStep":
                led_to, info = infos["final_obs"][i], infos["final_info"]
            numbers = float(rewards[i]), bool(terminated[i]), bool(truncated[i])
            try:
                self.session.record(led_to, *numbers, row_of(info, i), env_index=i)
            except Exception as error:  # the other environments have made their step
                unreadable.append(error)
            if ended[i]:
                self.session.end_episode(i)
        self.session.close_if_spent()
        if unreadable:
            raise unreadable[0]
        return obs, rewards, terminated, truncated, {**infos, **extra}


def row_of(infos: Mapping[str, Any], env_index: int) -> dict[str, Any]:
    """The info of one environment, from the dictionary of arrays of a Gymnasium vector.

    The mask ``_key`` says where ``key`` holds something; without a mask it does so everywhere.
    """
    info: dict[str, Any] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if (key.startswith("_") and key[1:] in infos) or (mask is not None and not mask[env_index]):
            continue  # a mask itself, or nothing said about this environment
        if isinstance(values, Mapping):
            info[key] = row_of(values, env_index)
            continue
        try:
            info[key] = values[env_index]
        except (TypeError, IndexError):  # said once, about all of them
            info[key] = values
    return info
