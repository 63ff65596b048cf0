"""The protocol of a shield, and the shield that endorses everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from advice.types import Array, Outcome, RateActions, Verdict


class PostShield(Protocol):
    """Replaces unsafe proposals before they are executed."""

    @property
    def armed(self) -> bool:
        """True once :meth:`guard` may be called."""

    @property
    def k(self) -> int:
        """Safe neighbours an action needs; 0 where that means nothing."""

    @property
    def wants_fit(self) -> bool:
        """True when :meth:`fit` is due."""

    def fit(self, progress: Callable[..., None] | None = None) -> Any:
        """Learn from what was recorded; afterwards the shield is armed."""

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """Remember an executed action and its outcome."""

    def guard(self, obs: Any, action: Any, rate_actions: RateActions | None = None) -> Verdict:
        """Endorse the proposal or replace it."""

    def end_episode(self, violated: bool) -> None:
        """Close an episode that had a violation or not."""

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The whole state, as arrays and a JSON document."""

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Continue from a snapshot exactly as the shield that made it."""


class NoShield:
    """Never armed, remembers nothing: the unshielded baseline."""

    armed = False
    k = 0
    wants_fit = False

    def fit(self, progress: Callable[..., None] | None = None) -> None:
        """There is nothing to learn."""

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """There is nothing to remember."""

    def guard(self, obs: Any, action: Any, rate_actions: RateActions | None = None) -> Verdict:
        """Endorse everything."""
        return Verdict(action)

    def end_episode(self, violated: bool) -> None:
        """Nothing adapts."""

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """No state."""
        return {}, {}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """No state."""
