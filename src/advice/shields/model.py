"""What a fitted shield decides with: encoder, labelled latent points and candidate actions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.config import ShieldConfig
from advice.shields.candidates import Candidates
from advice.shields.encoder import Encoder, EncoderWeights, Floats
from advice.shields.neighbours import Neighbours
from advice.shields.spaces import Space
from advice.types import Array

_SAVED_NAMES = {"offset": "centre", "scale": "reach"}
"""Encoder arrays whose name in saved files differs from the field's name."""


class Considered(NamedTuple):
    """The alternatives to a proposal and their votes."""

    actions: Array
    """(C, *action shape)"""
    latents: Floats
    """(C, latent)"""
    safe_neighbours: NDArray[np.int64]
    """(C,)"""


class FittedModel:
    """Encoder, neighbours and candidates. :class:`~advice.shields.shield.Shield` decides."""

    def __init__(
        self,
        encoder: Encoder,
        latent: Floats,
        safe: NDArray[np.bool_],
        serials: NDArray[np.int64],
        action_space: Space,
        config: ShieldConfig,
        in_tree: int | None = None,
    ) -> None:
        self.encoder, self.safe, self.serials = encoder, safe, serials
        self.neighbours = Neighbours(latent, config.k_max, in_tree)
        self._space, self._k_max = action_space, config.k_max
        self._split = len(encoder.weights.offset) - action_space.size
        offset, self._scale = (x[self._split :] for x in encoder.weights[:2])
        low, high = action_space.low, action_space.high
        if action_space.kind == "box":  # bounds that are too wide are replaced by the data's range
            low = np.where(action_space.bounded, low, np.maximum(low, offset - self._scale))
            high = np.where(action_space.bounded, high, np.minimum(high, offset + self._scale))
        self.candidates = Candidates(
            action_space, low, high, config.candidates_per_dimension, config.candidate_budget
        )
        self._fixed_share = encoder.share(self._flat(self.candidates.fixed), self._split)

    def snapshot(self) -> dict[str, Array]:
        """Encoder and labelled points as named arrays."""
        weights = self.encoder.weights._asdict()
        return {f"encoder.{_SAVED_NAMES.get(x, x)}": array for x, array in weights.items()} | {
            "memory.latent": self.neighbours.points,
            "memory.safe": self.safe,
            "memory.serials": self.serials,
        }

    @classmethod
    def restored(
        cls,
        arrays: dict[str, Array],
        power: NDArray[np.int64],
        action_space: Space,
        config: ShieldConfig,
        in_tree: int,
    ) -> FittedModel:
        """The model of a :meth:`snapshot`; ValueError if it does not fit (size,) ``power``."""
        names = (_SAVED_NAMES.get(x, x) for x in EncoderWeights._fields)
        encoder = Encoder(EncoderWeights(*(arrays[f"encoder.{name}"] for name in names)), power)
        latent, safe, serials = (arrays[f"memory.{x}"] for x in ("latent", "safe", "serials"))
        count = len(latent)
        valid = (
            len(encoder.weights.offset) == len(power)
            and latent.shape == (count, len(encoder.weights.b2))
            and latent.dtype == np.float64
            and bool(np.isfinite(latent).all())
            and (safe.shape, safe.dtype) == ((count,), np.bool_)
            and (serials.shape, serials.dtype) == ((count,), np.int64)
            and 0 < int(in_tree) <= count
        )
        if not valid:
            raise ValueError("the encoder or the memory does not fit the spaces")
        return cls(encoder, latent, safe, serials, action_space, config, int(in_tree))

    def learn(self, feature: Floats, safe: bool, serial: int) -> None:
        """Add one labelled feature, without a refit."""
        self.neighbours.insert(self.encoder.encode(feature[None]))
        self.safe = np.append(self.safe, safe)
        self.serials = np.append(self.serials, serial)

    def rebuild(self, kept: NDArray[np.int64]) -> None:
        """Move added points into the tree and drop those whose serial is not in ``kept``."""
        if self.neighbours.in_tree == len(self.neighbours):
            return
        stay = np.isin(self.serials, kept)
        self.safe, self.serials = self.safe[stay], self.serials[stay]
        self.neighbours = Neighbours(self.neighbours.points[stay], self._k_max)

    def votes(self, latents: Floats) -> NDArray[np.int64]:
        """(M,) safe neighbours of (M, latent) points."""
        return np.count_nonzero(self.safe[self.neighbours.sets(latents)], axis=1)

    def consider(self, feature: Floats) -> Considered:
        """Every alternative to the proposal in ``feature``, with its votes."""
        actions, share = self.candidates.fixed, self._fixed_share
        if len(self.candidates.offsets):
            near = self.candidates.near(feature[self._split :])
            actions = np.concatenate([actions, near])
            share = np.concatenate([share, self.encoder.share(self._flat(near), self._split)])
        state = self.encoder.share(feature[: self._split]) + self.encoder.b1
        latents = self.encoder.finish(state + share)
        return Considered(actions, latents, self.votes(latents))

    def distances(self, actions: Array, feature: Floats) -> Floats:
        """(C,) scaled distances of (C, ...) actions to the proposal in ``feature``."""
        steps = (self._flat(actions) - feature[self._split :]) / self._scale
        return np.sqrt(np.square(steps).sum(1))

    def least_risky(self, latents: Floats, votes: NDArray[np.int64]) -> int:
        """Most safe neighbours, then farthest from the nearest unsafe one; the first of equals."""
        nearest = self.neighbours.query(latents)
        clearance = np.where(self.safe[nearest.indices], np.inf, nearest.squared).min(1)
        return int(np.lexsort((-clearance, -votes))[0])

    def _flat(self, actions: Array) -> Floats:
        return self._space.flat(actions).astype(np.float64)
