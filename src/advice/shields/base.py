"""What every shield can do, and the shield that endorses everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from advice.types import Array, Outcome, RateActions, Verdict


class PostShield:
    """Replaces unsafe proposals before they are executed.

    A subclass inherits a shield that is never armed, learns nothing and has no state.
    """

    @property
    def armed(self) -> bool:
        """True once :meth:`guard` may be called."""
        return False

    @property
    def k(self) -> int:
        """Safe neighbours an action needs; 0 where that means nothing."""
        return 0

    @property
    def wants_fit(self) -> bool:
        """True when :meth:`fit` is due."""
        return False

    def fit(self, progress: Callable[..., None] | None = None) -> Any:
        """Learn from what was recorded; afterwards the shield is armed."""

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """Remember an executed action and its outcome."""

    def guard(self, obs: Any, action: Any, rate_actions: RateActions | None = None) -> Verdict:
        """Endorse the proposal or replace it."""
        return Verdict(action)

    def end_episode(self, violated: bool) -> None:
        """Close an episode that had a violation or not."""

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The whole state, as arrays and a JSON document."""
        return {}, {}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Continue from a snapshot exactly as the shield that made it."""


class NoShield(PostShield):
    """Never armed, remembers nothing: the unshielded baseline."""
