"""What the shielded environments may be given, and the shield that follows from it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import ShieldConfig
from advice.envs.signals import check_terminal
from advice.shields.shield import Shield
from advice.types import Array, FallbackAction, Outcome, RateActions, SpaceMismatchError, Terminal


@dataclass(frozen=True)
class SessionOptions:
    """Options that :class:`advice.ShieldedEnv`, the vector wrapper and SB3 share."""

    shield: Any = None
    """A shield or the path of a saved one; None makes a new one."""
    config: ShieldConfig | None = None
    """Settings of a new shield."""
    rate_actions: RateActions | None = None
    """``rate_actions(obs, actions) -> values``, the agent's critic, picks among the safe actions.
    Without it the one nearest to the proposal is executed."""
    outcome: Callable[[Any, Any, float, bool, bool, dict[str, Any]], Outcome] | None = None
    """``outcome(obs, action, reward, terminated, truncated, info) -> advice.Outcome`` in place of
    what ``info`` says; ``obs`` is the observation after the step."""
    terminal: Terminal | None = None
    """What a termination means where ``info`` does not say the opposite: "failure" or "success".
    None: inconclusive, except in the environments of :data:`advice.envs.signals.KNOWN_ENDS`."""
    features: Callable[[Any], Array] | None = None
    """Turns an observation into an array of numbers; where observations are no Box, Gymnasium's
    ``flatten`` does so by default."""
    fallback: FallbackAction | None = None
    """``fallback(obs, proposed) -> action``, a brake or a recovery policy: what to execute where no
    candidate is safe, in place of what ``config.fallback`` says."""
    certified: float | None = None
    """The violation probability per episode that was shown before, above which the drift alarm
    warns; by default the one that a saved shield brings along."""
    max_violations: int | None = None
    """The violation budget: training ends after this many episodes with a violation."""
    save_path: Path | str | None = None
    """Where the shield is saved: when fitted, when the budget is spent, and on close."""
    seed: int = 0
    """Seed of a new shield."""

    def __post_init__(self) -> None:
        if self.max_violations is not None and self.max_violations < 1:
            raise ValueError(f"max_violations: expected 1 or more, found {self.max_violations}")
        if self.certified is not None and not 0 < self.certified < 1:
            raise ValueError(f"certified: expected a number above 0, below 1: {self.certified}")
        check_terminal(self.terminal)
        if self.terminal is not None and self.outcome is not None:
            raise ValueError("terminal: expected None with an outcome function, which replaces it")


def flattened(options: SessionOptions, observation_space: Any) -> SessionOptions:
    """The options with ``features`` that flatten observations which are no Box of numbers."""
    if options.features is not None or hasattr(observation_space, "low"):
        return options
    try:
        from gymnasium.spaces.utils import flatdim, flatten

        flatdim(observation_space)
    except (ImportError, NotImplementedError, ValueError):
        return options  # making the shield says what is wrong
    flat: Any = partial(flatten, observation_space)
    return replace(options, features=flat)


def find_shield(options: SessionOptions, observation_space: Any, action_space: Any) -> Any:
    """The given shield, checked; the one in the given file; or a new one."""
    shield, config = options.shield, options.config
    if options.features is not None:
        observation_space = _feature_space(observation_space, options.features)
    try:
        if shield is None:
            return Shield(observation_space, action_space, config, options.seed)
        if isinstance(shield, str | Path):
            shield = Shield.load(shield, observation_space, action_space)
        elif hasattr(shield, "check_spaces"):
            shield.check_spaces(observation_space, action_space)
    except SpaceMismatchError as error:
        if hasattr(observation_space, "low"):
            raise
        hint = "give features=..., a function that turns an observation into an array of numbers"
        raise SpaceMismatchError(f"{error}; {hint}") from None
    own = getattr(shield, "config", None)
    if config is not None and isinstance(own, ShieldConfig) and config != own:
        raise ValueError("config: a given shield brings its own settings, and these are different")
    return shield


def _feature_space(observation_space: Any, features: Callable[[Any], Array]) -> Any:
    """An unbounded Box of what ``features`` returns for a sample observation."""
    from gymnasium.spaces import Box

    space = copy.deepcopy(observation_space)  # leaves the generator of the user's space unchanged
    space.seed(0)
    sample = np.asarray(features(space.sample()))
    if sample.dtype.kind not in "fiu" or sample.size == 0:
        raise SpaceMismatchError(
            f"features: expected it to return an array of numbers, found {sample!r}"
        )
    return Box(-np.inf, np.inf, sample.shape, np.result_type(sample.dtype, np.float32).type)
