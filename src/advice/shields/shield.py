"""The ADVICE shield: record labelled steps, fit, then guard every action."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advice import config as configs
from advice.config import ShieldConfig
from advice.files import read_arrays, write_arrays
from advice.shields.candidates import checked_ratings
from advice.shields.cautiousness import Cautiousness, required_votes
from advice.shields.encoder import Floats
from advice.shields.fit import FitSummary, fit_model
from advice.shields.memory import StepMemory
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

_KIND, _VERSION = "shield", 2
FIRST_TRIAL = 50
"""Violations after which arming early is tried first."""
REFIT_GROWTH = 1.15
"""A refit also waits until that many times as many steps as at the last fit are recorded."""


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
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._memory, self._cautiousness = self._new_memory(), Cautiousness(self.config)
        self._model: FittedModel | None = None
        self._next_trial = FIRST_TRIAL  # violations after which arming early is tried
        self._fitted_at = (0, 0)  # episodes and steps recorded at the last fit
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
    def hold(self) -> int:
        """Steps for which a replacement may be executed while it stays safe."""
        if self.config.hold is not None:
            return self.config.hold
        return self.summary.hold if self.summary else 0

    @property
    def required_votes(self) -> int:
        """Safe neighbours needed now: K, or the same share of fewer than K_max points."""
        points = len(self._fitted().neighbours)
        return required_votes(self.k, self.config.k_max, points)

    @property
    def wants_fit(self) -> bool:
        """True when a fit is due: the first one, a trial to arm early, or a refit."""
        config, memory = self.config, self._memory
        if self.armed:
            episodes, steps = self._fitted_at
            return (
                0 < config.refit_episodes <= memory.episode - episodes
                and memory.seen >= REFIT_GROWTH * steps
            )
        early = config.arm == "early" and memory.violations >= self._next_trial
        return early or memory.episode >= config.construction_episodes

    def __repr__(self) -> str:
        state = f"armed, K={self.k}/{self.config.k_max}" if self.armed else "unarmed"
        seen = f"{self._memory.seen} steps, {self._memory.violations} unsafe"
        return f"Shield({state}; {seen}; {self.observation_space} -> {self.action_space})"

    # -- recording and fitting -----------------------------------------------------------------

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """Remember what came of an executed action.

        With hindsight labels an inconclusive step is labelled by what follows it in its episode;
        with the paper's labels it is not kept, and nothing is kept once armed.
        """
        outcome = Outcome(outcome)
        if self.config.labels == "paper" and (self.armed or outcome == Outcome.INCONCLUSIVE):
            return
        self._memory.add(self.space.features(obs, action), outcome)

    def end_episode(self, violated: bool) -> None:
        """Close an episode; once armed, K follows the violations."""
        self._cautiousness.end_episode(violated, self.armed)
        self._memory.end_episode()

    def fit(self, progress: Callable[[FitProgress], None] | None = None) -> FitSummary:
        """Fit on what was recorded and arm the shield.

        With the paper's labels ``progress`` is called after each epoch. If it raises, or a class
        is missing (:class:`OneClassError`), the shield stays as it was.
        """
        self._model, self.summary, self._rng = self._fit(progress)
        self._fitted_at = self._memory.episode, self._memory.seen
        return self.summary

    def fit_if_good(self, progress: Callable[[FitProgress], None] | None = None) -> bool:
        """Fit when :attr:`wants_fit`; False if it stays unarmed.

        A trial before ``construction_episodes`` arms the shield only if held-out episodes say that
        it tells actions apart; else the next trial comes after half as many violations more.
        """
        trial = not self.armed and self._memory.episode < self.config.construction_episodes
        self._next_trial = max(self._next_trial, self._memory.violations * 3 // 2)
        model, summary, self._rng = self._fit(progress)
        if trial and not summary.evidence.tells_actions_apart:
            return False
        self._model, self.summary = model, summary
        self._fitted_at = self._memory.episode, self._memory.seen
        return True

    def _fit(self, progress: Callable[..., None] | None) -> Any:
        rng = copy.deepcopy(self._rng)
        try:
            fitted = fit_model(self._memory.all(), self.space, self.config, rng, progress)
        except OneClassError as error:
            raise OneClassError(
                f"{error} after {self._memory.episode} episodes: the shield stays as it was"
            ) from None
        return *fitted, rng

    # -- guarding ------------------------------------------------------------------------------

    def guard(
        self,
        obs: Any,
        action: Any,
        rate_actions: RateActions | None = None,
        *,
        held: Any = None,
        details: bool = False,
    ) -> Verdict:
        """Endorse the proposal unchanged, or replace it by the best safe candidate.

        Best is what ``rate_actions(obs, actions)`` rates highest, or else the nearest to the
        proposal. A ``held`` action (an earlier replacement) is executed instead of either while it
        is safe. ``details`` adds the proposal's neighbours and their distances.
        """
        model = self._fitted()
        if held is not None:
            latent = model.encoder.encode(self.space.features(obs, held))
            votes = int(np.count_nonzero(model.safe[model.neighbours.set_of_one(latent)]))
            if votes >= self.required_votes:
                return Verdict(held, intervened=True, safe_neighbours=votes, held=True)
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

        points, config = self._fitted().points, self.config
        parts = points.latent, points.safe, points.episodes, points.held_out
        return audit(*parts, self.k, config.k_max, self.summary, config.labels)

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
        """The whole state; :meth:`restore` goes on from it bit for bit."""
        stored, memory = self._memory.snapshot()
        arrays = {f"steps.{name}": array for name, array in stored.items()}
        document: dict[str, Any] = {
            **self.space.to_document(),
            "config": configs.to_dict(self.config),
            "rng": self._rng.bit_generator.state,
            "memory": memory,
            "k": self.k,
            "violations": list(self._cautiousness.violations),
            "next_trial": self._next_trial,
            "fitted_at": list(self._fitted_at),
            "armed": self.armed,
        }
        if self._model is not None:
            arrays |= self._model.snapshot()
            document["summary"] = self.summary.to_list() if self.summary else None
        return arrays, document

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Take over a snapshot of a shield with the same spaces.

        Raises ValueError, and leaves the shield unchanged, if the snapshot does not fit.
        """
        self.space.check_same(FeatureSpace.from_document(document))
        memory, cautiousness = self._new_memory(), Cautiousness(self.config)
        prefix = "steps."
        stored = {x.removeprefix(prefix): y for x, y in arrays.items() if x.startswith(prefix)}
        memory.restore(stored, document["memory"])
        cautiousness.k = int(document["k"])
        cautiousness.violations.extend(bool(x) for x in document["violations"])
        if not 0 <= cautiousness.k <= self.config.k_max:
            raise ValueError(f"expected K in 0..{self.config.k_max}, found {cautiousness.k}")
        rng = np.random.default_rng(0)
        rng.bit_generator.state = document["rng"]
        next_trial = int(document["next_trial"])
        episodes, steps = (int(x) for x in document["fitted_at"])
        model, summary = None, None
        if document["armed"]:
            model = FittedModel.restored(arrays, self.space, self.config)
            if document["summary"] is not None:
                summary = FitSummary.from_list(document["summary"])
        self._memory, self._cautiousness, self._rng, self._model = memory, cautiousness, rng, model
        self._next_trial, self._fitted_at, self.summary = next_trial, (episodes, steps), summary

    # -- helpers -------------------------------------------------------------------------------

    def _new_memory(self) -> StepMemory:
        space = self.space
        return StepMemory(space.size, space.dtype, self.config.capacity_per_class, self._seed)

    def _fitted(self) -> FittedModel:
        if self._model is None:
            raise NotFittedError(f"expected a fitted shield, call fit first, found {self!r}")
        return self._model
