"""What overrules the neighbours' votes: rules, a proposal far from all data, a limit of the risk.

A shield without any of them has no :class:`Checks`, and pays nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.config import Far
from advice.shields.bounds import conformal_threshold
from advice.shields.encoder import Floats
from advice.shields.memory import Steps
from advice.shields.rules import Matcher
from advice.types import Array

NEVER, ALWAYS = -1, 1 << 30
"""Votes that stand for a decision which is made already."""
PROTOTYPES = 256
"""Features that stand for all data in the far check, whatever the size of the memory."""
FAR_EPISODES = 0.05
"""Share of episodes like the recorded ones that may have a step far from all data."""
_MOST_ROWS, _MOST_EPISODES = 8000, 500


class FarData(NamedTuple):
    """Stands for all recorded features: how far from all of them is another one?"""

    offset: Floats
    scale: Floats
    prototypes: Floats
    """(P, d) scaled features, spread over all of them."""
    threshold: Floats
    """(1,) the distance from which on a feature is far; infinite if too few episodes were held
    out."""
    episodes: NDArray[np.int64]
    """(1,) held-out episodes that gave the threshold."""

    @staticmethod
    def calibrated(steps: Steps, share: float, seed: int) -> FarData:
        """Prototypes of most episodes, and a threshold by the others (split conformal).

        The score of an episode is its largest distance to the nearest prototype, so at most
        :data:`FAR_EPISODES` of the episodes like these ever have a step that counts as far.
        """
        rng = np.random.default_rng([seed, 3])
        episodes = np.unique(steps.episodes)
        count = min(round(share * len(episodes)), _MOST_EPISODES, len(episodes) - 1)
        held_out = rng.choice(episodes, max(count, 0), replace=False)
        held = np.isin(steps.episodes, held_out)
        raw = steps.features[~held].astype(np.float64)
        offset, deviation = raw.mean(0), raw.std(0)
        scale = np.where(deviation > 1e-9, deviation, 1.0)
        some = raw[:: -(-len(raw) // _MOST_ROWS)]
        prototypes = _spread((some - offset) / scale, PROTOTYPES)
        far = FarData(offset, scale, prototypes, np.full(1, np.inf), np.full(1, len(held_out)))
        scores = [
            far.distances(steps.features[steps.episodes == x].astype(np.float64)).max()
            for x in held_out
        ]
        return far._replace(threshold=np.array([conformal_threshold(scores, FAR_EPISODES)]))

    @staticmethod
    def restored(arrays: dict[str, Array], size: int) -> FarData:
        """From the arrays ``far.*`` of a file; ValueError if they do not fit ``size`` numbers."""
        data = FarData(*(arrays[f"far.{name}"] for name in FarData._fields))
        count = len(data.prototypes)
        shapes = [(size,), (size,), (count, size), (1,), (1,)]
        valid = (
            [x.shape for x in data] == shapes
            and [x.dtype for x in data] == [np.float64] * 4 + [np.int64]
            and 0 < count <= PROTOTYPES
            and all(bool(np.isfinite(x).all()) for x in data[:3])
            and bool((data.scale > 0).all())
            and bool((data.threshold >= 0).all())
            and bool((data.episodes >= 0).all())
        )
        if not valid:
            raise ValueError("the data of the far check do not fit the spaces")
        return data

    def distances(self, features: Floats) -> Floats:
        """(N,) to the nearest prototype, of (N, d) features."""
        return FarCheck(self, self.prototypes.shape[1]).distances(features)


def _spread(rows: Floats, count: int) -> Floats:
    """Up to ``count`` of the rows, each the farthest from those before it; the first one is the
    nearest to the middle."""
    chosen = [int(np.argmin(np.square(rows).sum(1)))]
    apart = np.square(rows - rows[chosen[0]]).sum(1)
    while len(chosen) < count and apart.max() > 0:
        chosen.append(int(np.argmax(apart)))
        np.minimum(apart, np.square(rows - rows[chosen[-1]]).sum(1), out=apart)
    return rows[chosen]


class FarCheck:
    """:class:`FarData` made ready for fast calls. The first ``split`` numbers are a state."""

    def __init__(self, data: FarData, split: int) -> None:
        self._offset, self._scale, self._split = data.offset, data.scale, split
        self._points, self._norms = data.prototypes, np.square(data.prototypes).sum(1)
        self._limit = float(data.threshold[0]) ** 2
        # |x - p|^2 = x.x - 2 p.x + p.p, written for features that are not scaled
        self._pull = -2.0 * self._points / self._scale
        self._push = self._norms - self._pull @ self._offset
        self._weights = self._scale**-2.0

    def __call__(self, feature: Floats) -> bool:
        """Whether one feature is far from all data."""
        squared = self._pull @ feature
        squared += self._push
        own = feature - self._offset
        own *= own
        return bool(squared.min() + own @ self._weights > self._limit)

    def of_actions(self, feature: Floats, actions: Floats) -> NDArray[np.bool_]:
        """(C,) whether (C, ...) flat actions are far in the state of ``feature``."""
        split = self._split
        state = (feature[:split] - self._offset[:split]) / self._scale[:split]
        moves = (actions - self._offset[split:]) / self._scale[split:]
        squared = self._norms - 2.0 * (self._points[:, :split] @ state) + state @ state
        own = np.square(moves).sum(1)
        cross = moves @ (-2.0 * self._points[:, split:].T)
        cross += squared
        far: NDArray[np.bool_] = cross.min(1) + own > self._limit
        return far

    def distances(self, features: Floats) -> Floats:
        """(N,) distances of (N, d) features."""
        x = (features - self._offset) / self._scale
        squared = np.concatenate(
            [
                (self._norms - 2.0 * (rows @ self._points.T)).min(1)
                for rows in np.array_split(x, -(-len(x) // 4096))
            ]
        )
        return np.sqrt(np.maximum(squared + np.square(x).sum(1), 0.0))


class Judged(NamedTuple):
    """Votes of candidates after the checks."""

    votes: NDArray[np.int64]
    forbidden: NDArray[np.bool_]
    """(C,) True where a rule forbids the candidate."""


class Checks(NamedTuple):
    """The checks of one fitted shield; each may be absent."""

    matcher: Matcher | None
    far: FarCheck | None
    on_far: Far | None
    risk: Floats | None
    """The direction of risk and its limit, above which every action is refused."""
    risk_limit: float

    def judge(self, feature: Floats, latent: Floats, votes: int) -> tuple[int, str]:
        """The votes that count for one proposal, and why they are not its neighbours'."""
        if self.matcher is not None and (row := self.matcher.of(feature)) >= 0:
            forbidden = self.matcher.forbids[row]
            return (NEVER, "forbidden") if forbidden else (ALWAYS, "allowed")
        if self.far is not None and self.far(feature):
            return ALWAYS if self.on_far == "endorse" else NEVER, "far"
        if self.risk is not None and latent @ self.risk > self.risk_limit:
            return NEVER, "risk"
        return votes, ""

    def judge_candidates(
        self, feature: Floats, actions: Floats, latents: Floats, votes: Array
    ) -> Judged:
        """The same for (C, ...) flat actions in the state of ``feature``."""
        votes = votes.copy()
        if self.risk is not None:
            votes[latents @ self.risk > self.risk_limit] = NEVER
        if self.far is not None and self.on_far != "endorse":
            votes[self.far.of_actions(feature, actions)] = NEVER
        forbidden = np.zeros(len(votes), bool)
        if self.matcher is not None:
            rows = self.matcher.of_actions(actions, self.matcher.of_state(feature))
            ruled = rows >= 0
            forbidden[ruled] = self.matcher.forbids[rows[ruled]]
            votes[ruled] = np.where(forbidden[ruled], NEVER, ALWAYS)
        return Judged(votes, forbidden)

    def rule_for(self, feature: Floats) -> Any:
        """The rule that decides on one feature, or None."""
        row = -1 if self.matcher is None else self.matcher.of(feature)
        return None if row < 0 or self.matcher is None else self.matcher.rules[row]
