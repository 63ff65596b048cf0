"""Labels of steps, a bounded memory of labelled features, and the held-out episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advice.envs.signals import Signals
from advice.types import Array, Outcome


def label(first: bool, signals: Signals) -> Outcome:
    """The outcome of one step (Eq. 2, with cost for the constrained task).

    Unsafe if it violated or cost anything, even as the first step; safe if it was the first step
    of the episode or reached the goal; otherwise inconclusive.
    """
    if signals.unsafe:
        return Outcome.UNSAFE
    if first or signals.success:
        return Outcome.SAFE
    return Outcome.INCONCLUSIVE


class _Reservoir:
    """Up to ``capacity`` rows of all seen, each equally likely to be among them (Algorithm R)."""

    def __init__(self, size: int, dtype: np.dtype[Any], capacity: int) -> None:
        self._capacity = capacity
        self.seen = 0
        self.count = 0
        self._features: Array = np.zeros((0, size), dtype)
        self._tags: NDArray[np.int64] = np.zeros((0, 2), np.int64)

    @property
    def features(self) -> Array:
        return self._features[: self.count]

    @property
    def tags(self) -> NDArray[np.int64]:
        """(count, 2): serial number and episode of each row."""
        return self._tags[: self.count]

    def add(self, feature: Array, serial: int, episode: int, rng: np.random.Generator) -> bool:
        """Keep the feature, if full in place of another one; False if it was not kept."""
        self.seen += 1
        slot = self.count
        if slot < self._capacity:
            if slot == len(self._features):
                self._resize(min(self._capacity, max(64, 2 * slot)))
            self.count += 1
        else:
            slot = int(rng.integers(self.seen))
            if slot >= self._capacity:
                return False
        self._features[slot] = feature
        self._tags[slot] = serial, episode
        return True

    def restore(self, features: Array, tags: NDArray[np.int64], seen: int) -> None:
        self._features, self._tags = features.copy(), tags.copy()
        self.count, self.seen = len(features), seen

    def _resize(self, rows: int) -> None:
        features = np.zeros((rows, self._features.shape[1]), self._features.dtype)
        tags = np.zeros((rows, 2), np.int64)
        features[: self.count], tags[: self.count] = self.features, self.tags
        self._features, self._tags = features, tags


class EpisodeLabels:
    """Labels an episode's steps in turn; only its first ``unsafe_limit`` unsafe ones count."""

    def __init__(self, unsafe_limit: int) -> None:
        self.first, self._unsafe_left = True, unsafe_limit

    def next(self, signals: Signals) -> Outcome:
        """The outcome of the episode's next step; beyond the limit, inconclusive."""
        outcome = label(self.first, signals)
        self.first = False
        if outcome == Outcome.UNSAFE:
            self._unsafe_left -= 1
            if self._unsafe_left < 0:
                return Outcome.INCONCLUSIVE
        return outcome


class FeatureStore:
    """Labelled features, bounded per class."""

    def __init__(self, size: int, dtype: np.dtype[Any], capacity: int) -> None:
        self._kinds = {x: _Reservoir(size, dtype, capacity) for x in (Outcome.UNSAFE, Outcome.SAFE)}
        self.serial = 0
        self.episode = 0

    def count(self, outcome: Outcome) -> int:
        """Features kept of one class."""
        return self._kinds[outcome].count

    def add(self, feature: Array, outcome: Outcome, rng: np.random.Generator) -> int | None:
        """Keep a feature; its serial number, or None if it was not kept."""
        if outcome == Outcome.INCONCLUSIVE:
            return None
        serial = self.serial
        self.serial += 1
        return serial if self._kinds[outcome].add(feature, serial, self.episode, rng) else None

    def end_episode(self) -> None:
        self.episode += 1

    def all(self) -> tuple[Array, NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """Features, safe?, serial numbers and episodes, in the order of arrival."""
        kinds = list(self._kinds.items())
        features = np.concatenate([kind.features for _, kind in kinds])
        tags = np.concatenate([kind.tags for _, kind in kinds])
        safe = np.concatenate([np.full(kind.count, x == Outcome.SAFE) for x, kind in kinds])
        order = np.argsort(tags[:, 0], kind="stable")
        return features[order], safe[order], tags[order, 0], tags[order, 1]

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The whole state."""
        arrays: dict[str, Array] = {}
        for outcome, kind in self._kinds.items():
            arrays[f"{outcome.name.lower()}.features"] = kind.features
            arrays[f"{outcome.name.lower()}.tags"] = kind.tags
        return arrays, {
            "serial": self.serial,
            "episode": self.episode,
            "seen": {outcome.name.lower(): kind.seen for outcome, kind in self._kinds.items()},
        }

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Continue from a snapshot; ValueError if its shapes or counts do not fit."""
        for outcome, kind in self._kinds.items():
            name = outcome.name.lower()
            features, tags = arrays[f"{name}.features"], arrays[f"{name}.tags"]
            seen = int(document["seen"][name])
            size, dtype = kind.features.shape[1], kind.features.dtype
            if features.ndim != 2 or features.shape[1] != size or features.dtype != dtype:
                raise ValueError(
                    f"{name} features: expected rows of {size} {dtype}, "
                    f"found {features.shape} {features.dtype}"
                )
            if tags.shape != (len(features), 2) or tags.dtype != np.int64 or seen < len(features):
                raise ValueError(f"{name} tags: expected one per feature, found {tags.shape}")
            if not np.isfinite(features).all():
                raise ValueError(f"{name} features: expected finite numbers")
            kind.restore(features, tags, seen)
        self.serial, self.episode = int(document["serial"]), int(document["episode"])


def held_out_mask(
    safe: NDArray[np.bool_],
    episodes: NDArray[np.int64],
    share: float,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """(N,) mask of about ``share`` of the episodes, drawn among those with an unsafe feature and
    those without apart.

    Where whole episodes cannot leave both classes on both sides (a single long episode, say),
    features are drawn instead; where even that cannot be, nothing is held out.
    """
    with_unsafe = np.unique(episodes[~safe])
    without = np.setdiff1d(episodes, with_unsafe)
    drawn = np.concatenate([_draw(with_unsafe, share, rng), _draw(without, share, rng)])
    by_episode = np.isin(episodes, drawn)
    if _both_sides(safe, by_episode):
        return by_episode
    by_feature = np.zeros(len(safe), dtype=bool)
    by_feature[_draw(np.flatnonzero(safe), share, rng)] = True
    by_feature[_draw(np.flatnonzero(~safe), share, rng)] = True
    return by_feature if _both_sides(safe, by_feature) else np.zeros(len(safe), dtype=bool)


def _draw(items: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    count = min(max(round(share * len(items)), int(share > 0)), len(items) - 1)
    return rng.choice(items, max(count, 0), replace=False)


def _both_sides(safe: NDArray[np.bool_], held: NDArray[np.bool_]) -> bool:
    return all((a & b).any() for a in (safe, ~safe) for b in (held, ~held))
