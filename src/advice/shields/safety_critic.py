"""CSC's shield (Bharadhwaj et al., 2021): replaces actions that a safety critic takes for unsafe.

Differences from the paper: see docs/methods/csc.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advice.shields.base import PostShield
from advice.types import Array, RateActions, SpaceMismatchError, Verdict


class SafetyCriticShield(PostShield):
    """Replaces a proposal whose failure probability exceeds the threshold of the agent, a CSC."""

    armed = True
    intervention_penalty = 0.0  # the multiplier already penalises danger
    learn_from = "executed"

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def guard(self, obs: Any, action: Any, rate_actions: RateActions | None = None) -> Verdict:
        """Execute the first of up to ``draws`` noisy actions with Q_C ≤ ε, else that of least Q_C;
        the proposal is the first of them."""
        agent = self._agent
        draws = agent.scale(action)[None]
        if agent.failure_probabilities(obs, draws)[0] <= agent.threshold:
            return Verdict(action)
        draws = np.concatenate([draws, agent.draw_actions(obs, agent.config.csc.draws - 1)])
        danger = agent.failure_probabilities(obs, draws)
        allowed = danger <= agent.threshold
        best = np.argmax(allowed) if allowed.any() else np.argmin(danger)
        return Verdict(
            agent.unscale(draws[best]) if best else action,
            intervened=bool(best),
            no_safe_action=not allowed.any(),
            candidates=len(draws) - 1,
        )

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The agent's safety critic, so that another run can start with it."""
        arrays, _ = self._agent.snapshot()
        return {name: a for name, a in arrays.items() if name.startswith(".safety_critic")}, {}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Give the agent the safety critic of a snapshot, or raise and leave it unchanged."""
        if not arrays:  # early checkpoints have the critic in the agent's part only
            return
        for name, expected in self.snapshot()[0].items():
            if arrays[name].shape != expected.shape:
                raise SpaceMismatchError(
                    f"{name}: expected shape {expected.shape}, found {arrays[name].shape}"
                )
        own, own_document = self._agent.snapshot()
        self._agent.restore(own | arrays, own_document)
