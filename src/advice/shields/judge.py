"""A fitted shield's decisions: encode, ask the neighbours, replace what they vote down."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.config import ShieldConfig
from advice.shields.candidates import Candidates, checked_ratings
from advice.shields.encoder import Encoder, EncoderWeights, Floats
from advice.shields.neighbours import Neighbours
from advice.shields.spaces import Space
from advice.types import Array, RateActions, Verdict


class Considered(NamedTuple):
    """The alternatives to a proposal and what their neighbours say."""

    actions: Array
    """(C, *action shape)"""
    latents: Floats
    """(C, latent)"""
    safe_neighbours: NDArray[np.int64]
    """(C,)"""


class Judge:
    """Encoder, memory and candidates of a fitted shield. Knows no K: the caller brings it."""

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
        self.encoder = encoder
        self.safe, self.serials = safe, serials
        self.neighbours = Neighbours(latent, config.k_max, in_tree)
        self._space, self._config = action_space, config
        self._split = len(encoder.weights.centre) - action_space.size
        centre, self._reach = (x[self._split :] for x in encoder.weights[:2])
        low, high = action_space.low, action_space.high
        if action_space.kind == "box":  # the data stand in for bounds that say nothing
            low = np.where(action_space.bounded, low, np.maximum(low, centre - self._reach))
            high = np.where(action_space.bounded, high, np.minimum(high, centre + self._reach))
        self.candidates = Candidates(
            action_space, low, high, config.candidates_per_dimension, config.candidate_budget
        )
        self._fixed_share = encoder.share(self._flat(self.candidates.fixed), self._split)

    def snapshot(self) -> dict[str, Array]:
        """Encoder and memory as named arrays; how many points lie in the tree is told apart."""
        weights = self.encoder.weights._asdict()
        return {f"encoder.{name}": array for name, array in weights.items()} | {
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
    ) -> Judge:
        """The judge of a :meth:`snapshot`; ValueError if it does not fit (size,) ``power``."""
        names = EncoderWeights._fields
        encoder = Encoder(EncoderWeights(*(arrays[f"encoder.{name}"] for name in names)), power)
        latent, safe, serials = (arrays[f"memory.{x}"] for x in ("latent", "safe", "serials"))
        count = len(latent)
        sensible = (
            len(encoder.weights.centre) == len(power)
            and latent.shape == (count, len(encoder.weights.b2))
            and latent.dtype == np.float64
            and bool(np.isfinite(latent).all())
            and (safe.shape, safe.dtype) == ((count,), np.bool_)
            and (serials.shape, serials.dtype) == ((count,), np.int64)
            and 0 < in_tree <= count
        )
        if not sensible:
            raise ValueError("the encoder or the memory does not fit the spaces")
        return cls(encoder, latent, safe, serials, action_space, config, in_tree)

    def required(self, k: int) -> int:
        """Safe neighbours needed: K, or the same share while there are fewer than K_max points."""
        voters = min(self._config.k_max, len(self.neighbours))
        return math.ceil(k * voters / self._config.k_max)

    def learn(self, feature: Floats, safe: bool, serial: int) -> None:
        """Add one feature to the memory, without a refit."""
        self.neighbours.insert(self.encoder.encode(feature[None]))
        self.safe = np.append(self.safe, safe)
        self.serials = np.append(self.serials, serial)

    def tidy(self, alive: NDArray[np.int64]) -> None:
        """Move newcomers into the tree and forget what is no longer among the ``alive`` serials."""
        if self.neighbours.in_tree == len(self.neighbours):
            return
        stay = np.isin(self.serials, alive)
        self.safe, self.serials = self.safe[stay], self.serials[stay]
        self.neighbours = Neighbours(self.neighbours.points[stay], self._config.k_max)

    def guard(
        self,
        obs: Any,
        action: Any,
        feature: Floats,
        k: int,
        rate_actions: RateActions | None,
        details: bool,
    ) -> Verdict:
        """The verdict on one proposal, whose checked feature is given."""
        latent = self.encoder.encode(feature)
        safe = int(np.count_nonzero(self.safe[self.neighbours.set_of_one(latent)]))
        verdict = Verdict(action, False, safe, False)
        if safe < self.required(k):
            verdict = self._replace(obs, verdict, feature, latent, k, rate_actions)
        return self._with_details(verdict, latent) if details else verdict

    def guard_batch(
        self,
        obs: Array,
        actions: Any,
        features: Floats,
        k: int,
        rate_actions: RateActions | None,
        details: bool,
    ) -> list[Verdict]:
        """The same for a stack of proposals: equal, as the encoder and the neighbours are exact."""
        latents = self.encoder.encode(features)
        votes = self.votes(latents).tolist()
        required = self.required(k)
        verdicts = [
            Verdict(action, False, v, False) for action, v in zip(actions, votes, strict=True)
        ]
        for row in [row for row, safe in enumerate(votes) if safe < required]:
            verdicts[row] = self._replace(
                obs[row], verdicts[row], features[row], latents[row], k, rate_actions
            )
        if details:
            verdicts = [self._with_details(v, z) for v, z in zip(verdicts, latents, strict=True)]
        return verdicts

    def votes(self, latents: Floats) -> NDArray[np.int64]:
        """(M,) safe neighbours of (M, latent) points."""
        return np.count_nonzero(self.safe[self.neighbours.sets(latents)], axis=1)

    def consider(self, feature: Floats) -> Considered:
        """Every alternative to the proposal in ``feature``, with its neighbours' votes."""
        actions, share = self.candidates.fixed, self._fixed_share
        if len(self.candidates.offsets):
            near = self.candidates.near(feature[self._split :])
            actions = np.concatenate([actions, near])
            share = np.concatenate([share, self.encoder.share(self._flat(near), self._split)])
        here = self.encoder.share(feature[: self._split]) + self.encoder.b1
        latents = self.encoder.finish(here + share)
        return Considered(actions, latents, self.votes(latents))

    def rate(
        self, obs: Any, actions: Array, feature: Floats, rate_actions: RateActions | None
    ) -> Floats:
        """(C,) ratings: the agent's, or else minus the distance to the proposal."""
        if rate_actions is None:
            steps = (self._flat(actions) - feature[self._split :]) / self._reach
            return -np.sqrt(np.square(steps).sum(1))
        return checked_ratings(rate_actions(obs, actions), len(actions))

    def least_risky(self, latents: Floats, votes: NDArray[np.int64]) -> int:
        """Most safe neighbours, then farthest from the nearest unsafe one; the first of equals."""
        nearest = self.neighbours.query(latents)
        clearance = np.where(self.safe[nearest.indices], np.inf, nearest.squared).min(1)
        return int(np.lexsort((-clearance, -votes))[0])

    def _replace(
        self,
        obs: Any,
        refused: Verdict,
        feature: Floats,
        latent: Floats,
        k: int,
        rate_actions: RateActions | None,
    ) -> Verdict:
        """The best safe alternative; if there is none, what the fallback says.

        The least risky action may be the proposal itself, which is then no intervention.
        """
        considered = self.consider(feature)
        total = len(considered.actions)
        good = np.flatnonzero(considered.safe_neighbours >= self.required(k))
        if len(good):
            ratings = self.rate(obs, considered.actions[good], feature, rate_actions)
            best = int(good[np.argmax(ratings)])
        else:
            best = -1
            if self._config.fallback == "least-risk":
                latents = np.vstack([latent, considered.latents])
                votes = np.append(refused.safe_neighbours, considered.safe_neighbours)
                best = self.least_risky(latents, votes) - 1
            if best < 0:
                return refused._replace(no_safe_action=True, candidates=total)
        # Indexing a Discrete space's vector gives a scalar, as its sample() does.
        action = considered.actions[best].copy()
        return refused._replace(
            action=action, intervened=True, no_safe_action=len(good) == 0, candidates=total
        )

    def _with_details(self, verdict: Verdict, latent: Floats) -> Verdict:
        nearest = self.neighbours.query(latent[None])
        return verdict._replace(
            neighbours=nearest.indices[0], distances=np.sqrt(nearest.squared[0])
        )

    def _flat(self, actions: Array) -> Floats:
        return self._space.flat(actions).astype(np.float64)
