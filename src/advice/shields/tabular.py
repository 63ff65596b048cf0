"""The tabular shield (Shperberg et al., 2022): refuse what was unsafe before.

Differences from the paper: see docs/methods/tabular.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advice.config import ShieldConfig, TabularConfig
from advice.shields.base import PostShield
from advice.shields.spaces import Bools, Candidates, FeatureSpace, Floats, checked_ratings
from advice.types import Array, Outcome, RateActions, SpaceMismatchError, Verdict

REACH = 0.1 + 1e-6  # what counts as within 0.1; the surplus forgives float32 its rounding


def keys(features: Array) -> list[bytes]:
    """The integers round(10 x) of each row as a set member; integers, since -0.0 is not 0.0."""
    return [row.tobytes() for row in np.rint(10.0 * features).astype(np.int64)]


class TabularShield(PostShield):
    """Stores every unsafe (state, action) pair and replaces proposals that match one."""

    armed = True
    learn_from = "executed"

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: TabularConfig | None = None,
        shield: ShieldConfig | None = None,
    ) -> None:
        self.config = config or TabularConfig()
        shield = shield or ShieldConfig()  # gives the candidate grid, as for ADVICE
        self._space = FeatureSpace.read(observation_space, action_space)
        actions = self._space.action
        if actions.kind == "box" and not actions.bounded.all():
            raise SpaceMismatchError(
                f"the tabular shield needs a bounded action space, found {actions}"
            )
        grid = shield.candidates_per_dimension, shield.candidate_budget
        self._candidates = Candidates(actions, actions.low, actions.high, *grid)
        self._split = self._space.observation.size
        self._pairs: Floats = np.zeros((0, self._space.size))
        self._keys: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._pairs)

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """Store an unsafe pair."""
        if outcome != Outcome.UNSAFE:
            return
        pair = self._space.features(obs, action)[None]
        within = self.config.within  # then what lies near a stored pair reaches further than it
        known = (self._pairs == pair).all(axis=1).any() if within else self._matches(pair)[0]
        if not known:
            self._pairs = np.concatenate([self._pairs, pair])
            self._keys.update(keys(pair))

    def guard(self, obs: Any, action: Any, rate_actions: RateActions | None = None) -> Verdict:
        """Endorse an unknown pair; replace a stored one by the unknown candidate that
        ``rate_actions`` rates highest, or else the nearest. If all are stored, execute it."""
        proposal = self._space.features(obs, action)
        if not self._matches(proposal[None])[0]:
            return Verdict(action)
        own = proposal[self._split :]
        candidates = np.concatenate([self._candidates.fixed, self._candidates.near(own)])
        observations = np.broadcast_to(obs, (len(candidates), *np.shape(obs)))
        features = self._space.features(observations, candidates, batch=True)
        unknown = np.flatnonzero(~self._matches(features))
        if len(unknown) == 0:
            return Verdict(action, no_safe_action=True, candidates=len(candidates))
        if rate_actions is None:
            ratings = -np.square(features[unknown, self._split :] - own).sum(axis=1)
        else:
            ratings = checked_ratings(rate_actions(obs, candidates[unknown]), len(unknown))
        best = candidates[unknown[np.argmax(ratings)]].copy()
        return Verdict(best, intervened=True, candidates=len(candidates))

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The stored pairs, in order."""
        return {"pairs": self._pairs}, {}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        pairs, width = arrays["pairs"], self._pairs.shape[1]
        if pairs.ndim != 2 or pairs.shape[1] != width:
            raise ValueError(f"stored pairs: expected rows of {width}, found shape {pairs.shape}")
        if pairs.dtype != self._pairs.dtype or not np.isfinite(pairs).all():
            raise ValueError(f"stored pairs: expected finite numbers of {self._pairs.dtype}")
        self._pairs, self._keys = pairs, set(keys(pairs))

    def _matches(self, features: Floats) -> Bools:
        """Which rows, all of one state, are unsafe by the table."""
        if not self.config.within:
            return np.array([key in self._keys for key in keys(features)])
        # few stored pairs are of a state like this one: only their actions are compared
        state, actions = features[0, : self._split], features[:, None, self._split :]
        alike = np.abs(self._pairs[:, : self._split] - state).max(axis=1) <= REACH
        apart = np.abs(self._pairs[alike, self._split :] - actions)
        return (apart.max(axis=2) <= REACH).any(axis=1)
