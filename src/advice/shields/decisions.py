"""What a fitted shield decides: endorse, replace or fall back, and which rules overrule it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from advice.config import ShieldConfig
from advice.shields.base import PostShield
from advice.shields.bounds import Certificate
from advice.shields.cautiousness import Cautiousness, required_votes
from advice.shields.checks import RADIUS, Checks, FarData, Rule, Rules
from advice.shields.model import FittedModel
from advice.shields.spaces import FeatureSpace, Floats, Space, checked_ratings
from advice.types import Array, FallbackAction, NotFittedError, RateActions, Verdict

if TYPE_CHECKING:
    from advice.shields.explain import Explanation


class Decisions(PostShield):
    """The part of :class:`~advice.shields.shield.Shield` that decides on proposals."""

    config: ShieldConfig
    space: FeatureSpace
    rules: Rules
    """The rules given at run time; iterate to see them."""
    fallback: FallbackAction | None
    """Your own fallback; None: what ``config.fallback`` says. It is not saved."""
    certificate: Certificate | None
    """What an evaluation of this very shield has shown."""
    used: Counter[str]
    """Proposals that were decided otherwise than by votes, by ``Verdict.reason``, those on which
    your own fallback decided, and with a far check all that were ``guarded``."""
    _cautiousness: Cautiousness
    _model: FittedModel | None
    _far: FarData | None
    _risk_limit: float | None
    _checks: Checks | None

    @property
    def k(self) -> int:
        """Safe neighbours an action needs at present."""
        return self._cautiousness.k

    @property
    def required_votes(self) -> int:
        """Safe neighbours needed now: K, or the same share of fewer than K_max points."""
        points = len(self._fitted().neighbours)
        return required_votes(self.k, self.config.k_max, points)

    def guard(
        self,
        obs: Any,
        action: Any,
        rate_actions: RateActions | None = None,
        *,
        held: Any = None,
        details: bool = False,
    ) -> Verdict:
        """Endorse the proposal unchanged, or replace it by the best safe and calm candidate.

        Calm is what has less risk than most safe steps. Best is what ``rate_actions(obs, actions)``
        rates highest, or else the nearest to the proposal. A ``held`` action (an earlier
        replacement) is executed instead of either while it is safe and calm. ``details`` adds the
        proposal's neighbours and their distances.
        """
        model, checks = self._fitted(), self._checks
        if held is not None and checks is not None:  # what a rule allows is not replaced
            rule = checks.rule_for(self.space.features(obs, action)) if self.rules else None
            held = None if rule is not None and rule.kind == "allow" else held
        if held is not None:
            feature = self.space.features(obs, held)
            latent = model.encoder.encode(feature)
            votes = model.vote(latent)
            counted = checks.judge(feature, latent, votes)[0] if checks else votes
            if counted >= self.required_votes and model.is_calm(latent):
                return Verdict(held, intervened=True, safe_neighbours=votes, held=True)
        feature = self.space.features(obs, action)
        latent = model.encoder.encode(feature)
        votes = model.vote(latent)
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
        required, each = self.required_votes, details or self._checks is not None
        for row, verdict in enumerate(verdicts):
            if each or verdict.safe_neighbours < required:
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
        votes, checks = verdict.safe_neighbours, self._checks
        if checks is not None:
            votes, reason = checks.judge(feature, latent, votes)
            self.used["guarded"] += 1
            if reason:
                self.used[reason] += 1
                verdict = verdict._replace(reason=reason)
        if votes < self.required_votes:
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
        """The best calm candidate of the safe ones; if none is safe, what the fallback says.

        The least risky action may be the proposal itself, which is then no intervention.
        """
        model, checks = self._fitted(), self._checks
        at_once = refused.reason == "far" and self.config.far == "fallback"
        if at_once and self.fallback is not None:
            return self._own_fallback(obs, refused)
        considered = model.consider(feature)
        votes, forbidden = considered.safe_neighbours, None
        if checks is not None:
            flat = model.flat(considered.actions)
            votes, forbidden = checks.judge_candidates(feature, flat, considered.latents, votes)
        safe = np.flatnonzero(votes >= self.required_votes)
        refused = refused._replace(
            no_safe_action=len(safe) == 0, candidates=len(considered.actions)
        )
        best = -1  # the proposal
        if len(safe) and not at_once:
            safe = model.calm_rows(safe, considered.latents)
            ratings = self._rate(obs, considered.actions[safe], feature, rate_actions)
            best = int(safe[np.argmax(ratings)])
        else:
            refused = refused._replace(fallback=True)
            if self.fallback is not None:
                return self._own_fallback(obs, refused)
            if self.config.fallback == "least-risk" or refused.reason == "forbidden":
                latents = np.vstack([latent, considered.latents])
                counts = np.append(refused.safe_neighbours, considered.safe_neighbours)
                rows = np.arange(len(latents))
                if forbidden is not None:  # rather any action that no rule forbids
                    allowed = ~np.append(refused.reason == "forbidden", forbidden)
                    rows = rows[allowed] if allowed.any() else rows
                best = int(rows[model.least_risky(latents[rows], counts[rows])]) - 1
        if best < 0:
            return refused
        # Indexing a Discrete space's vector gives a scalar, as its sample() does.
        return refused._replace(action=considered.actions[best].copy(), intervened=True)

    def _own_fallback(self, obs: Any, refused: Verdict) -> Verdict:
        assert self.fallback is not None
        self.used["fallback"] += 1
        return use_fallback(self.fallback, obs, refused, self.space.action)

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
        used = self.used.copy()
        verdict = self.guard(obs, action, rate_actions, details=True)
        self.used = used  # an explanation is no use
        considered = model.consider(feature)
        votes, rule = considered.safe_neighbours, None
        if self._checks is not None:
            flat = model.flat(considered.actions)
            votes = self._checks.judge_candidates(feature, flat, considered.latents, votes)[0]
            rule = self._checks.rule_for(feature)
        return Explanation(
            proposal=action,
            verdict=verdict,
            k=self.k,
            required=self.required_votes,
            neighbour_safe=model.safe[verdict.neighbours],
            latent=model.encoder.encode(feature),
            candidates=considered.actions,
            candidate_safe_neighbours=considered.safe_neighbours,
            candidate_passes=votes >= self.required_votes,
            candidate_ratings=self._rate(obs, considered.actions, feature, rate_actions),
            memory=model.neighbours.points,
            memory_safe=model.safe,
            rule=rule,
            own_fallback=self.fallback is not None,
        )

    # -- rules at run time ---------------------------------------------------------------------

    def forbid(self, obs: Any, action: Any = None, radius: float = RADIUS) -> int:
        """Refuse an action near ``obs``, or every action, from now on; returns the rule's number.

        It applies to states and actions up to ``radius`` away: the root mean square distance of the
        numbers, observations scaled by their standard deviation, actions to -1..1. ``obs=None``
        means every state. Rules overrule the votes, and newer rules older ones.
        """
        return self._add_rule("forbid", obs, action, radius)

    def allow(self, obs: Any, action: Any = None, radius: float = RADIUS) -> int:
        """Endorse an action near ``obs``, or every action, from now on; see :meth:`forbid`."""
        return self._add_rule("allow", obs, action, radius)

    def undo(self, number: int | None = None) -> Rule:
        """Take back the rule of this number, or the newest one."""
        rule = self.rules.undo(number)
        self._rules_changed()
        return rule

    def _add_rule(self, kind: Any, obs: Any, action: Any, radius: float) -> int:
        rule = self.rules.add(kind, obs, action, radius)
        self._rules_changed()
        return rule.number

    def _rules_changed(self) -> None:
        self.certificate = None  # it was of the shield as it was before
        self._prepare()

    def _prepare(self) -> None:
        """Make the checks ready; None if there are none."""
        model, far, limit = self._model, self._far if self.config.far else None, self._risk_limit
        checks = None
        if model is not None and (self.rules or far or limit is not None):
            checks = Checks(self.rules, far, self.config.far, model, limit)
        self._checks = checks  # at once: another thread may be guarding

    def _fitted(self) -> FittedModel:
        if self._model is None:
            raise NotFittedError(f"expected a fitted shield, call fit first, found {self!r}")
        return self._model


@dataclass
class StepGuard:
    """Guards the steps of one episode: holds replacements, and passes while a violation lasts."""

    inside: bool = False  # the last step was unsafe and the episode goes on
    held: tuple[Any, int] | None = None  # a replacement, for how many more steps

    def __call__(
        self, shield: Any, obs: Array, proposed: Any, rate_actions: RateActions | None
    ) -> Verdict:
        """The verdict on one proposal."""
        if not shield.armed or self.inside:  # a shield knows ways into danger, not out of it
            self.held = None  # it led into the violation
            return Verdict(proposed)
        held = {"held": self.held[0]} if self.held else {}  # other shields do not know the argument
        verdict: Verdict = shield.guard(obs, proposed, rate_actions, **held)
        self.decided(shield, verdict)
        return verdict

    def decided(self, shield: Any, verdict: Verdict) -> None:
        """Hold a replacement that is safe, for as long as the shield says."""
        if not verdict.intervened or verdict.no_safe_action or verdict.fallback:
            self.held = None
            return
        left = self.held[1] if verdict.held and self.held else getattr(shield, "hold", 0)
        self.held = (verdict.action, left - 1) if left > 1 else None


def use_fallback(
    fallback: FallbackAction, obs: Any, refused: Verdict, action_space: Space
) -> Verdict:
    """The verdict with the action of a user's own fallback, which is checked."""
    proposed = np.array(refused.action, dtype=action_space.dtype)
    given = action_space.check(fallback(obs, proposed.copy()[()]), "fallback")
    with np.errstate(over="ignore"):
        action = np.array(given, dtype=action_space.dtype)
    if not np.isfinite(action).all():
        raise ValueError(f"fallback: expected finite numbers, found {given}")
    same = np.array_equal(action, proposed)
    return refused._replace(action=action[()], intervened=not same, fallback=True)
