"""What a session is told: its options, checked, and the shield that they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import ShieldConfig
from advice.envs.signals import check_terminal
from advice.shields.shield import Shield
from advice.shields.spaces import feature_space
from advice.types import (
    Array,
    FallbackAction,
    Outcome,
    RateActions,
    SpaceMismatchError,
    Terminal,
)


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
        config: Any = self.config
        if config is not None and not isinstance(config, ShieldConfig):
            wanted = 'an advice.ShieldConfig, such as advice.PRESETS["paper"]'
            raise TypeError(f"config: expected {wanted}, found {config!r:.60}")
        budget: Any = self.max_violations
        number = isinstance(budget, int | float | np.integer)
        whole = number and (budget == np.inf or float(budget).is_integer())
        if budget is not None and not (whole and budget >= 1):
            raise ValueError(f"max_violations: expected a whole number from 1 on, found {budget!r}")
        if self.outcome is not None and not callable(self.outcome):
            raise TypeError(f"outcome: expected a function, found {self.outcome!r:.60}")
        if self.certified is not None and not 0 < self.certified < 1:
            raise ValueError(f"certified: expected a number above 0, below 1: {self.certified}")
        check_terminal(self.terminal)
        if self.terminal is not None and self.outcome is not None:
            raise ValueError("terminal: expected None with an outcome function, which replaces it")


def find_shield(options: SessionOptions, observation_space: Any, action_space: Any) -> Any:
    """The given shield, checked; the one in the given file; or a new one."""
    shield, config = options.shield, options.config
    if options.features is not None:
        observation_space = feature_space(observation_space, options.features)
    if shield is not None and not isinstance(shield, str | Path) and not hasattr(shield, "armed"):
        hint = "; settings are given as config=..." * isinstance(shield, ShieldConfig)
        raise TypeError(
            f"shield: expected a shield or the path of a saved one, found {shield!r:.60}{hint}"
        )
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
