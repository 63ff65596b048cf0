"""One rollout for evaluation, re-simulation and the environment check."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from advice.envs.signals import NO_RULES, SignalRules, Signals, normalize_step, read_signals


class Step(NamedTuple):
    """One step of an environment."""

    obs: Any  # after the step
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    signals: Signals

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


def rollout(
    env: Any,
    obs: Any,
    choose: Callable[[Any], Any],
    max_steps: int | None = None,
    rules: SignalRules = NO_RULES,
) -> Iterator[Step]:
    """Execute ``choose(obs)`` until the episode ends, or for ``max_steps`` steps.

    ``obs`` is the present observation. The environment is stepped when the next item is asked
    for, so a caller may look at it in between.
    """
    for _ in itertools.count() if max_steps is None else range(max_steps):
        obs, reward, terminated, truncated, info = normalize_step(env.step(choose(obs)))
        signals = read_signals(info, terminated, truncated, float(reward), rules)
        step = Step(obs, float(reward), bool(terminated), bool(truncated), info, signals)
        yield step
        if step.ended:
            return
