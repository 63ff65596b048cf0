"""Labels of steps, a bounded memory of them, and episodes held out of a fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advice.envs.signals import Signals
from advice.shields.spaces import Bools, Ints, check_array
from advice.types import Array, Outcome


class EpisodeLabels:
    """Labels an episode's steps in turn, by Eq. 2 of the paper or for hindsight.

    By Eq. 2 a step is unsafe if it violated or cost anything, safe if it is the first one or
    reached the goal; only the first ``unsafe_limit`` unsafe ones count. For hindsight a step is
    unsafe if a violation begins, safe if it ends or the goal is reached, and not recorded while it
    lasts.
    """

    def __init__(self, labels: str, unsafe_limit: int) -> None:
        self._hindsight, self._unsafe_left = labels == "hindsight", unsafe_limit
        self._first, self._inside = True, False

    def next(self, signals: Signals) -> Outcome | None:
        """The outcome of the episode's next step; None if it is not to be recorded."""
        inside, self._inside = self._inside, signals.unsafe
        first, self._first = self._first, False
        if self._hindsight:
            if signals.unsafe:
                return None if inside else Outcome.UNSAFE
            return Outcome.SAFE if inside or signals.success else Outcome.INCONCLUSIVE
        if signals.unsafe:
            self._unsafe_left -= 1
            return Outcome.UNSAFE if self._unsafe_left >= 0 else Outcome.INCONCLUSIVE
        return Outcome.SAFE if first or signals.success else Outcome.INCONCLUSIVE


class Steps(NamedTuple):
    """Stored steps in rows, the pieces of an episode each in the order of its steps."""

    features: Array  # (N, d) observation and executed action
    outcomes: Ints  # (N,) what was said about the step itself
    continues: Bools  # (N,) True if the next row is the next step of the same episode
    episodes: Ints  # (N,) numbers of the episodes
    seen: int  # all steps so far, stored or not


class _Piece(NamedTuple):
    number: int
    key: float
    episode: int
    features: Array
    outcomes: Ints
    violated: bool


PIECE = 64
"""Steps of a long episode that are kept or dropped together."""


class StepMemory:
    """All steps, bounded: pieces of episodes, those with a violation and those without apart.

    Each piece has a random key; where a class exceeds ``capacity`` steps the piece of the largest
    key goes, so every piece is equally likely to be kept. An episode's last piece has up to
    2 * PIECE steps, so that what led to its end is together.
    """

    def __init__(self, size: int, dtype: np.dtype[Any], capacity: int, seed: int = 0) -> None:
        self._size, self._dtype, self._capacity = size, dtype, capacity
        self._rng = np.random.default_rng([seed, 2])
        self._pieces: list[_Piece] = []  # in the order of their numbers
        self._rows: list[Array] = []
        self._outcomes: list[int] = []
        self.episode = self.seen = self.violations = self.safe = self.pieces = 0

    def add(self, feature: Array, outcome: Outcome) -> None:
        """Add the current episode's next step."""
        self._rows.append(feature.astype(self._dtype))
        self._outcomes.append(int(outcome))
        self.seen += 1
        self.violations += outcome == Outcome.UNSAFE
        self.safe += outcome == Outcome.SAFE
        if len(self._rows) >= 2 * PIECE:
            self._store(PIECE)

    def end_episode(self) -> None:
        """Close the current episode."""
        if self._rows:
            self._store(len(self._rows))
        self.episode += 1

    def _store(self, count: int) -> None:
        outcomes, rows = np.array(self._outcomes[:count], np.int64), np.stack(self._rows[:count])
        self._keep(self.pieces, float(self._rng.random()), self.episode, rows, outcomes)
        self.pieces += 1
        del self._rows[:count], self._outcomes[:count]
        alike = [piece for piece in self._pieces if piece.violated == self._pieces[-1].violated]
        while sum(len(piece.outcomes) for piece in alike) > self._capacity and len(alike) > 1:
            dropped = max(alike, key=lambda piece: piece.key)
            alike.remove(dropped)
            self._pieces.remove(dropped)

    def _keep(self, number: int, key: float, episode: int, rows: Array, outcomes: Ints) -> None:
        violated = bool((outcomes == Outcome.UNSAFE).any())
        self._pieces.append(_Piece(number, key, episode, rows, outcomes, violated))

    def all(self) -> Steps:
        """What is stored and the current episode, in the order of arrival."""
        parts = [(piece.features, piece.outcomes, piece.episode) for piece in self._pieces]
        if self._rows:
            current = np.stack(self._rows), np.array(self._outcomes, np.int64)
            parts.append((*current, self.episode))
        lengths = [len(outcomes) for _, outcomes, _ in parts]
        if not lengths:
            none = np.zeros(0, np.int64)
            return Steps(np.zeros((0, self._size), self._dtype), none, none > 0, none, self.seen)
        continues = np.ones(sum(lengths), bool)
        continues[np.cumsum(lengths) - 1] = False
        features, outcomes, episodes = zip(*parts, strict=True)
        numbers = np.repeat(episodes, lengths)
        return Steps(
            np.concatenate(features), np.concatenate(outcomes), continues, numbers, self.seen
        )

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Everything needed to go on as if never interrupted."""
        steps, pieces = self.all(), self._pieces
        arrays = {
            "features": steps.features,
            "outcomes": steps.outcomes,
            "lengths": np.array([len(piece.outcomes) for piece in pieces], np.int64),
            "episodes": np.array([piece.episode for piece in pieces], np.int64),
            "keys": np.array([piece.key for piece in pieces], np.float64),
            "numbers": np.array([piece.number for piece in pieces], np.int64),
        }
        counts = {name: getattr(self, name) for name in _COUNTS}
        return arrays, counts | {"rng": self._rng.bit_generator.state}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Take over a snapshot; raises ValueError if its shapes or counts do not fit."""
        names = ("features", "outcomes", "lengths", "episodes", "keys", "numbers")
        features, outcomes, lengths, episodes, keys, numbers = (arrays[name] for name in names)
        counts = {name: int(document[name]) for name in _COUNTS}
        check_array("features", features, self._dtype, (len(outcomes), self._size))
        check_array("outcomes", outcomes, np.int64, (len(outcomes),))
        check_array("keys", keys, np.float64, (len(lengths),))
        for name in ("lengths", "episodes", "numbers"):
            check_array(name, arrays[name], np.int64, (len(lengths),))
        stored = int(lengths.sum())
        if not (
            np.isin(outcomes, list(Outcome)).all()
            and (lengths > 0).all()
            and stored <= len(outcomes) <= min(counts["seen"], stored + 2 * PIECE)
            and min(counts.values()) >= 0
        ):
            raise ValueError("steps: the stored pieces do not fit each other or the spaces")
        rng = np.random.default_rng(0)
        rng.bit_generator.state = document["rng"]
        self._pieces, end = [], 0
        for number, key, episode, length in zip(numbers, keys, episodes, lengths, strict=True):
            rows = slice(end, end := end + int(length))
            self._keep(int(number), float(key), int(episode), features[rows], outcomes[rows])
        self._rows, self._outcomes = list(features[stored:]), outcomes[stored:].tolist()
        self._rng = rng
        for name, count in counts.items():
            setattr(self, name, count)


_COUNTS = ("episode", "seen", "violations", "safe", "pieces")


def held_out_mask(safe: Bools, episodes: Ints, share: float, rng: np.random.Generator) -> Bools:
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


def _draw(items: Ints, share: float, rng: np.random.Generator) -> Ints:
    count = min(max(round(share * len(items)), int(share > 0)), len(items) - 1)
    return rng.choice(items, max(count, 0), replace=False)


def _both_sides(safe: Bools, held: Bools) -> bool:
    return all((a & b).any() for a in (safe, ~safe) for b in (held, ~held))
