"""What a step says about safety, read from whatever an environment offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

VIOLATION_COST = 0.2
"""The cost of a violation in an environment that reports violations but no cost."""


class Signals(NamedTuple):
    """The safety-relevant facts of one step."""

    violation: bool
    cost: float
    success: bool

    @property
    def unsafe(self) -> bool:
        """True if it violated, or cost anything."""
        return self.violation or self.cost > 0


def normalize_step(step: tuple[Any, ...]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """(obs, reward[, cost], terminated, truncated, info) with the cost, if there, in ``info``."""
    if len(step) == 5:
        return step
    if len(step) != 6:
        raise ValueError(f"step: expected five or six values, found {len(step)}")
    obs, reward, cost, terminated, truncated, info = step
    return obs, reward, terminated, truncated, {**info, "cost": cost}


def read_signals(info: Mapping[str, Any], terminated: bool) -> Signals:
    """Facts from ``info``: "violation" or "cost" say unsafe, "success" or a clean end say safe."""
    cost = info.get("cost")
    violation = bool(info.get("violation", cost is not None and cost > 0))
    if cost is None:
        cost = VIOLATION_COST if violation else 0.0
    success = info.get("success", info.get("is_success"))
    if success is None:
        success = terminated and not violation
    return Signals(violation, float(cost), bool(success))
