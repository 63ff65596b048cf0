"""What a fitted shield decides with: encoder, labelled latent points and candidate actions."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from advice.config import ShieldConfig
from advice.shields.encoder import Encoder, EncoderWeights
from advice.shields.neighbours import Neighbours, VoteMap
from advice.shields.spaces import (
    Bools,
    Candidates,
    FeatureSpace,
    Floats,
    Ints,
    Space,
    check_array,
    check_size,
)
from advice.shields.warp import Warp
from advice.types import Array

_BLOCK = 256  # candidates that are encoded together
MAP_FROM = 500
"""Voting points from which a map of their votes is worth its time, some 50 ms."""
CALM = 0.8
"""A replacement should have no more risk than this share of the safe points. The best of many
candidates is often one that was wrongly taken for safe; a calm one seldom is."""


class Considered(NamedTuple):
    """The alternatives to a proposal and their votes."""

    actions: Array  # (C, *action shape)
    latents: Floats  # (C, latent)
    safe_neighbours: Ints  # (C,)


class Points(NamedTuple):
    """The steps that vote, with what the audit needs to know of them."""

    latent: Floats  # (N, latent)
    safe: Bools
    held_out: Bools  # True where the step's episode was kept out of the fit
    episodes: Ints


class FittedModel:
    """Encoder, neighbours and candidates. :class:`~advice.shields.shield.Shield` decides.

    ``risk``, if there is one, is a direction of the latent space: the larger ``latent @ risk``, the
    more danger is expected.
    """

    def __init__(
        self,
        encoder: Encoder,
        points: Points,
        action_space: Space,
        config: ShieldConfig,
        risk: Floats | None = None,
        calm: float | None = None,
    ) -> None:
        self.encoder, self.points, self.risk = encoder, points, risk
        grid = config.candidates_per_dimension, config.candidate_budget
        check_size(action_space, *grid, hidden=len(encoder.weights.b1))
        if risk is not None and calm is None:
            risks = points.latent[points.safe] @ risk
            calm = float(np.quantile(risks, CALM)) if len(risks) else 0.0
        self.calm = 0.0 if calm is None else calm
        self._set_voters(points.latent, points.safe, config.k_max)
        self._space, split = action_space, encoder.split
        offset, self._scale = (x[split:] for x in encoder.weights[:2])
        low, high = action_space.low, action_space.high
        if action_space.kind == "box":  # bounds that are too wide are replaced by the data's range
            low = np.where(action_space.bounded, low, np.maximum(low, offset - self._scale))
            high = np.where(action_space.bounded, high, np.minimum(high, offset + self._scale))
        self.candidates = Candidates(action_space, low, high, *grid)
        fixed = self.candidates.fixed
        self._fixed_share = np.empty((len(fixed), len(encoder.weights.b1)))
        for i in range(0, len(fixed), _BLOCK):  # one-hot rows take much memory
            block = slice(i, i + _BLOCK)
            self._fixed_share[block] = encoder.action_share(self.flat(fixed[block]))

    def without_held_out(self, config: ShieldConfig) -> FittedModel:
        """The model in which fitted episodes alone vote, or itself if there are none."""
        fitted = ~self.points.held_out
        if fitted.all() or not fitted.any():
            return self
        apart = copy.copy(self)
        apart._set_voters(self.points.latent[fitted], self.points.safe[fitted], config.k_max)
        return apart

    def _set_voters(self, latent: Floats, safe: Bools, k_max: int) -> None:
        self.neighbours, self.safe = Neighbours(latent, k_max), safe
        kept = self.neighbours.kept
        plane = latent.shape[1] == 2 and len(kept) >= MAP_FROM and k_max < 255
        self._map = VoteMap(latent[kept], safe[kept], k_max) if plane else None

    def snapshot(self) -> dict[str, Array]:
        """Everything as named arrays."""
        parts: dict[str, Any] = {
            "encoder": self.encoder.weights,
            "warp": self.encoder.warp,
            "points": self.points,
        }
        arrays = {
            f"{part}.{name}": array
            for part, fields in parts.items()
            for name, array in fields._asdict().items()
        }
        if self.risk is None:
            return arrays
        return arrays | {"risk": self.risk, "calm": np.array([self.calm])}

    @classmethod
    def restored(
        cls, arrays: dict[str, Array], space: FeatureSpace, config: ShieldConfig
    ) -> FittedModel:
        """The model of a :meth:`snapshot`; ValueError if its parts do not fit each other."""
        weights = EncoderWeights(*(arrays[f"encoder.{x}"] for x in EncoderWeights._fields))
        warp = Warp(*(arrays[f"warp.{x}"] for x in Warp._fields))
        points = Points(*(arrays[f"points.{x}"] for x in Points._fields))
        encoder = Encoder(weights, space.observation.size, warp)
        count, latent = len(points.safe), len(weights.b2)
        check_array("points.latent", points.latent, np.float64, (count, latent))
        dtypes = np.bool_, np.bool_, np.int64
        for name, array, dtype in zip(Points._fields[1:], points[1:], dtypes, strict=True):
            check_array(f"points.{name}", array, dtype, (count,))
        if len(weights.offset) != space.size or points.held_out.all():
            raise ValueError("the encoder or the points do not fit the spaces")
        risk, calm = arrays.get("risk"), arrays.get("calm")
        if calm is not None:
            check_array("calm", calm, np.float64, (1,))
        if risk is not None:
            check_array("risk", risk, np.float64, (latent,))
        limit = None if calm is None else float(calm[0])
        return cls(encoder, points, space.action, config, risk, limit)

    def vote(self, latent: Floats) -> int:
        """Safe neighbours of one (latent,) point."""
        votes = None if self._map is None else self._map.one(latent)
        if votes is None:
            votes = int(np.count_nonzero(self.safe[self.neighbours.set_of_one(latent)]))
        return votes

    def votes(self, latents: Floats) -> Ints:
        """(M,) safe neighbours of (M, latent) points."""
        if self._map is None:
            return np.count_nonzero(self.safe[self.neighbours.sets(latents)], axis=1)
        votes, rows = self._map.many(latents)
        if len(rows):
            found = self.neighbours.sets(latents[rows])
            votes[rows] = np.count_nonzero(self.safe[found], axis=1)
        return votes

    def consider(self, feature: Floats) -> Considered:
        """Every alternative to the proposal in ``feature``, with its votes."""
        encoder, actions = self.encoder, self.candidates.fixed
        state = encoder.state_share(feature[: encoder.split])
        latents = encoder.finish(self._fixed_share, state)
        if len(self.candidates.offsets):
            near = self.candidates.near(feature[encoder.split :])
            actions = np.concatenate([actions, near])
            share = encoder.action_share(self.flat(near))
            latents = np.concatenate([latents, encoder.finish(share, state)])
        return Considered(actions, latents, self.votes(latents))

    def distances(self, actions: Array, feature: Floats) -> Floats:
        """(C,) scaled distances of (C, ...) actions to the proposal in ``feature``."""
        steps = (self.flat(actions) - feature[self.encoder.split :]) / self._scale
        return np.sqrt(np.square(steps).sum(1))

    def calm_rows(self, rows: Ints, latents: Floats) -> Ints:
        """Those of ``rows`` that are calm, or else the one of least risk."""
        if self.risk is None:
            return rows
        risks = latents[rows] @ self.risk
        calm = risks <= self.calm
        return rows[calm] if calm.any() else rows[[np.argmin(risks)]]

    def is_calm(self, latent: Floats) -> bool:
        """Whether an action has less risk than most safe ones; always, if there is no risk."""
        return self.risk is None or bool(latent @ self.risk <= self.calm)

    def least_risky(self, latents: Floats, votes: Ints) -> int:
        """The row of least risk; without a risk, of most safe neighbours, then farthest from the
        nearest unsafe one. The first of equals."""
        if self.risk is not None:
            return int(np.argmin(latents @ self.risk))
        nearest = self.neighbours.query(latents)
        clearance = np.where(self.safe[nearest.indices], np.inf, nearest.squared).min(1)
        return int(np.lexsort((-clearance, -votes))[0])

    def flat(self, actions: Array) -> Floats:
        """(C, ...) actions as rows of numbers."""
        return self._space.flat(actions).astype(np.float64)
