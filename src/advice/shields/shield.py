"""The ADVICE shield: record labelled steps, fit, then guard every action."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice import config as configs
from advice.config import ShieldConfig
from advice.files import read_arrays, write_arrays
from advice.shields.candidates import checked_ratings
from advice.shields.cautiousness import Cautiousness, required_votes
from advice.shields.encoder import Encoder, Floats, scaled
from advice.shields.memory import FeatureStore, held_out_mask
from advice.shields.model import FittedModel
from advice.shields.spaces import FeatureSpace
from advice.types import (
    Array,
    BrokenFileError,
    NotFittedError,
    OneClassError,
    Outcome,
    RateActions,
    Verdict,
)

if TYPE_CHECKING:
    from advice.shields.audit import Audit
    from advice.shields.autoencoder import FitProgress
    from advice.shields.explain import Explanation

_KIND, _VERSION = "shield", 1


class FitSummary(NamedTuple):
    """How a fit went."""

    epochs: int
    validation_loss: float
    features: int
    held_out: int


class Shield:
    """A post-shield learnt from labelled steps (Bethell et al., ADVICE).

    Record outcomes of unshielded episodes, call :meth:`fit`, and :meth:`guard` every action from
    then on; :meth:`end_episode` lets K follow the violations. Everything random follows ``seed``.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: ShieldConfig | None = None,
        seed: int = 0,
    ) -> None:
        self.config = ShieldConfig() if config is None else config
        self.space = FeatureSpace.read(observation_space, action_space)
        self.observation_space, self.action_space = self.space
        power = self.config.observation_power
        if power > 1 and self.space.powers(power).max() == 1:
            warnings.warn(
                f"observation_power {power} has no effect here: it needs "
                f"observations with bounds, not below 0, found {self.observation_space}",
                stacklevel=2,
            )
        self._rng = np.random.default_rng(seed)
        self._store, self._cautiousness = self._new_store(), Cautiousness(self.config)
        self._model: FittedModel | None = None
        self._held_out: NDArray[np.int64] = np.zeros(0, np.int64)
        self._fitted_until = 0  # serial numbers below this were there when the shield was fitted
        self.summary: FitSummary | None = None

    # -- state ---------------------------------------------------------------------------------

    @property
    def armed(self) -> bool:
        """True once fitted."""
        return self._model is not None

    @property
    def k(self) -> int:
        """Safe neighbours an action needs at present."""
        return self._cautiousness.k

    @property
    def required_votes(self) -> int:
        """Safe neighbours needed now: K, or the same share of fewer than K_max points."""
        points = len(self._fitted().neighbours)
        return required_votes(self.k, self.config.k_max, points)

    @property
    def wants_fit(self) -> bool:
        """True when ``construction_episodes`` have ended and no fit has succeeded yet."""
        return not self.armed and self._store.episode >= self.config.construction_episodes

    def __repr__(self) -> str:
        state = f"armed, K={self.k}/{self.config.k_max}" if self.armed else "unarmed"
        kept = ", ".join(
            f"{self._store.count(x)} {x.name.lower()}" for x in (Outcome.SAFE, Outcome.UNSAFE)
        )
        return f"Shield({state}; {kept}; {self.observation_space} -> {self.action_space})"

    # -- recording and fitting -----------------------------------------------------------------

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """Remember the outcome of an executed action; inconclusive steps are not kept.

        Once armed, nothing more is kept unless ``keep_learning`` is set.
        """
        outcome = Outcome(outcome)
        if self._model is not None and not self.config.keep_learning:
            return
        feature = self.space.features(obs, action)
        serial = self._store.add(feature, outcome, self._rng)
        if self._model is not None and serial is not None:
            self._model.learn(feature, outcome == Outcome.SAFE, serial)

    def end_episode(self, violated: bool) -> None:
        """Close an episode: adapt K (once armed) and index added features."""
        self._cautiousness.end_episode(violated, self.armed)
        self._store.end_episode()
        if self._model is not None and self.config.keep_learning:
            self._model.rebuild(self._store.all()[2])

    def fit(self, progress: Callable[[FitProgress], None] | None = None) -> FitSummary:
        """Train the contrastive autoencoder on what was recorded and arm the shield.

        ``progress`` is called after each epoch. If it raises, or a class is missing
        (:class:`OneClassError`), the shield is unchanged.
        """
        counts = {x: self._store.count(x) for x in (Outcome.SAFE, Outcome.UNSAFE)}
        if min(counts.values()) == 0:
            raise OneClassError(
                "a fit needs safe and unsafe features, found "
                f"{counts[Outcome.SAFE]} safe and {counts[Outcome.UNSAFE]} unsafe after "
                f"{self._store.episode} episodes: the shield is unchanged"
            )
        from advice.shields.autoencoder import fit_autoencoder  # JAX is needed here only

        rng = copy.deepcopy(self._rng)
        features, safe, serials, episodes = self._store.all()
        offset, scale = self.space.scaling(features)
        held_out = held_out_mask(safe, episodes, self.config.held_out, rng)
        power = self.space.powers(self.config.observation_power)
        inputs = scaled(features.astype(np.float64), offset, scale, power).astype(np.float32)
        weights, epochs, loss = fit_autoencoder(
            inputs, safe, held_out, offset, scale, self.config, int(rng.integers(2**31)), progress
        )
        encoder = Encoder(weights, power)
        latent = encoder.encode(features.astype(np.float64))
        self._model = FittedModel(encoder, latent, safe, serials, self.action_space, self.config)
        self._held_out, self._fitted_until = serials[held_out], self._store.serial
        self._rng = rng
        self.summary = FitSummary(epochs, loss, len(features), int(held_out.sum()))
        return self.summary

    # -- guarding ------------------------------------------------------------------------------

    def guard(
        self,
        obs: Any,
        action: Any,
        rate_actions: RateActions | None = None,
        *,
        details: bool = False,
    ) -> Verdict:
        """Endorse the proposal unchanged, or replace it by the best safe candidate.

        Best is what ``rate_actions(obs, actions)`` rates highest, or else the nearest to the
        proposal. ``details`` adds the proposal's neighbours and their distances.
        """
        model = self._fitted()
        feature = self.space.features(obs, action)
        latent = model.encoder.encode(feature)
        votes = int(np.count_nonzero(model.safe[model.neighbours.set_of_one(latent)]))
        return self._decide(
            obs, Verdict(action, safe_neighbours=votes), feature, latent, rate_actions, details
        )

    def guard_batch(
        self,
        obs: Any,
        actions: Any,
        rate_actions: RateActions | None = None,
        *,
        details: bool = False,
    ) -> list[Verdict]:
        """``[guard(o, a, rate_actions) for o, a in zip(obs, actions)]``, faster."""
        model = self._fitted()
        features = self.space.features(obs, actions, batch=True)
        latents = model.encoder.encode(features)
        votes = model.votes(latents).tolist()
        verdicts = [Verdict(a, False, v, False) for a, v in zip(actions, votes, strict=True)]
        required = self.required_votes
        for row, verdict in enumerate(verdicts):
            if details or verdict.safe_neighbours < required:
                verdicts[row] = self._decide(
                    obs[row], verdict, features[row], latents[row], rate_actions, details
                )
        return verdicts

    def _decide(
        self,
        obs: Any,
        verdict: Verdict,
        feature: Floats,
        latent: Floats,
        rate_actions: RateActions | None,
        details: bool,
    ) -> Verdict:
        """Endorse what has enough votes, replace the rest; with ``details``, name the voters."""
        if verdict.safe_neighbours < self.required_votes:
            verdict = self._replace(obs, verdict, feature, latent, rate_actions)
        if details:
            nearest = self._fitted().neighbours.query(latent[None])
            distances = np.sqrt(nearest.squared[0])
            verdict = verdict._replace(neighbours=nearest.indices[0], distances=distances)
        return verdict

    def _replace(
        self,
        obs: Any,
        refused: Verdict,
        feature: Floats,
        latent: Floats,
        rate_actions: RateActions | None,
    ) -> Verdict:
        """The best safe candidate; if there is none, what ``config.fallback`` says.

        The least risky action may be the proposal itself, which is then no intervention.
        """
        model = self._fitted()
        considered = model.consider(feature)
        safe = np.flatnonzero(considered.safe_neighbours >= self.required_votes)
        refused = refused._replace(
            no_safe_action=len(safe) == 0, candidates=len(considered.actions)
        )
        best = -1  # the proposal
        if len(safe):
            ratings = self._rate(obs, considered.actions[safe], feature, rate_actions)
            best = int(safe[np.argmax(ratings)])
        elif self.config.fallback == "least-risk":
            latents = np.vstack([latent, considered.latents])
            votes = np.append(refused.safe_neighbours, considered.safe_neighbours)
            best = model.least_risky(latents, votes) - 1
        if best < 0:
            return refused
        # Indexing a Discrete space's vector gives a scalar, as its sample() does.
        return refused._replace(action=considered.actions[best].copy(), intervened=True)

    def _rate(
        self, obs: Any, actions: Array, feature: Floats, rate_actions: RateActions | None
    ) -> Floats:
        """(C,) ratings: the agent's, or else minus the distance to the proposal."""
        if rate_actions is None:
            return -self._fitted().distances(actions, feature)
        return checked_ratings(rate_actions(obs, actions), len(actions))

    def explain(
        self, obs: Any, action: Any, rate_actions: RateActions | None = None
    ) -> Explanation:
        """Why ``guard`` decides as it does: a table to print, and a plot."""
        from advice.shields.explain import Explanation

        model, feature = self._fitted(), self.space.features(obs, action)
        verdict = self.guard(obs, action, rate_actions, details=True)
        considered = model.consider(feature)
        return Explanation(
            proposal=action,
            verdict=verdict,
            k=self.k,
            required=self.required_votes,
            neighbour_safe=model.safe[verdict.neighbours],
            latent=model.encoder.encode(feature),
            candidates=considered.actions,
            candidate_safe_neighbours=considered.safe_neighbours,
            candidate_ratings=self._rate(obs, considered.actions, feature, rate_actions),
            memory=model.neighbours.points,
            memory_safe=model.safe,
        )

    def audit(self) -> Audit:
        """How well the shield tells safe from unsafe, on episodes held out of its fit."""
        from advice.shields.audit import audit

        model = self._fitted()
        features, safe, serials, episodes = self._store.all()
        fitted = serials < self._fitted_until
        held_out = np.isin(serials[fitted], self._held_out)
        latent = model.encoder.encode(features[fitted].astype(np.float64))
        return audit(latent, safe[fitted], episodes[fitted], held_out, self.k, self.config.k_max)

    # -- files ---------------------------------------------------------------------------------

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """Raise :class:`SpaceMismatchError` unless the shield was made for spaces like these."""
        self.space.check_same(FeatureSpace.read(observation_space, action_space))

    def save(self, path: Path | str) -> None:
        """Write everything, audit data included, to one checked file."""
        arrays, document = self.snapshot()
        write_arrays(path, arrays, document, _KIND, _VERSION)

    @classmethod
    def load(
        cls, path: Path | str, observation_space: Any = None, action_space: Any = None
    ) -> Shield:
        """Read a saved shield; neither JAX nor Gymnasium is needed to guard with it.

        Given spaces must be like the ones it was made for.
        """
        arrays, document = read_arrays(path, _KIND, _VERSION)
        try:
            config = configs.from_dict(ShieldConfig, document["config"])
            shield = cls(*FeatureSpace.from_document(document), config)
            shield.restore(arrays, document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BrokenFileError(f"{path}: the contents are not valid: {error!r}") from error
        shield.check_spaces(
            shield.observation_space if observation_space is None else observation_space,
            shield.action_space if action_space is None else action_space,
        )
        return shield

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The whole state; :meth:`restore` continues from it bit for bit."""
        stored, store_document = self._store.snapshot()
        arrays = {f"store.{name}": array for name, array in stored.items()}
        document: dict[str, Any] = {
            **self.space.to_document(),
            "config": configs.to_dict(self.config),
            "rng": self._rng.bit_generator.state,
            "store": store_document,
            "k": self.k,
            "violations": list(self._cautiousness.violations),
            "armed": self.armed,
        }
        if self._model is not None:
            arrays |= self._model.snapshot() | {"held_out": self._held_out}
            document["in_tree"] = self._model.neighbours.in_tree
            document["fitted_until"] = self._fitted_until
            document["summary"] = None if self.summary is None else list(self.summary)
        return arrays, document

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Continue from a snapshot of a shield with the same spaces.

        Raises ValueError if the snapshot is not valid, and leaves the shield unchanged.
        """
        self.space.check_same(FeatureSpace.from_document(document))
        store, cautiousness = self._new_store(), Cautiousness(self.config)
        prefix = "store."
        stored = {x.removeprefix(prefix): y for x, y in arrays.items() if x.startswith(prefix)}
        store.restore(stored, document["store"])
        cautiousness.k = int(document["k"])
        cautiousness.violations.extend(bool(x) for x in document["violations"])
        if not 0 <= cautiousness.k <= self.config.k_max:
            raise ValueError(f"expected K in 0..{self.config.k_max}, found {cautiousness.k}")
        rng = np.random.default_rng(0)
        rng.bit_generator.state = document["rng"]
        config = self.config
        model, held_out, fitted_until, summary = None, np.zeros(0, np.int64), 0, None
        if document["armed"]:
            # the observation power belongs to the encoder and comes with it
            power = document["config"].get("observation_power", 1)
            config = dataclasses.replace(self.config, observation_power=power)
            in_tree = int(document["in_tree"])
            model = FittedModel.restored(
                arrays, self.space.powers(power), self.action_space, self.config, in_tree
            )
            held_out, fitted_until = arrays["held_out"], int(document["fitted_until"])
            if held_out.ndim != 1 or held_out.dtype != np.int64:
                raise ValueError(f"held_out: expected serial numbers, found {held_out.dtype}")
            if document["summary"] is not None:
                summary = FitSummary(*document["summary"])
        self._store, self._cautiousness, self._rng, self._model = store, cautiousness, rng, model
        self.config = config
        self._held_out, self._fitted_until, self.summary = held_out, fitted_until, summary

    # -- helpers -------------------------------------------------------------------------------

    def _new_store(self) -> FeatureStore:
        return FeatureStore(self.space.size, self.space.dtype, self.config.capacity_per_class)

    def _fitted(self) -> FittedModel:
        if self._model is None:
            raise NotFittedError(
                f"expected a fitted shield, found an unarmed one: call fit first ({self!r})"
            )
        return self._model
