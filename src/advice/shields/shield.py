"""The ADVICE shield: record labelled steps, fit, then guard every action."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from advice.config import ShieldConfig, from_dict, to_dict
from advice.files import read_arrays, write_arrays
from advice.shields.bounds import Certificate
from advice.shields.calibration import Calibrated, calibrate, read_calibrated
from advice.shields.cautiousness import IMPOSSIBLE, REACHES, Cautiousness, Effect, Finding
from advice.shields.checks import FarData, Rules
from advice.shields.compact import compact, expand, shrink
from advice.shields.decisions import Decisions
from advice.shields.fit import FitSummary, fit_model
from advice.shields.memory import StepMemory
from advice.shields.model import FittedModel
from advice.shields.spaces import FeatureSpace, check_size
from advice.types import AdviceError, Array, BrokenFileError, FallbackAction, OneClassError, Outcome

if TYPE_CHECKING:
    from advice.shields.audit import Audit
    from advice.shields.autoencoder import FitProgress
    from advice.shields.card import Card

_KIND, _PLAIN, _OVERRULED = "shield", 2, 3
"""Version 3 has rules, a far check, a calibration or compact weights, which readers of version 2
would ignore."""
FIRST_TRIAL = 50
"""Violations after which arming early is tried first."""
ALL_LABELLED = (
    "nearly every step was recorded as SAFE or UNSAFE, so what followed a step counts for nothing: "
    "record ordinary steps as INCONCLUSIVE, and end episodes."
)
REFIT_GROWTH = 1.15
"""A refit also waits until that many times as many steps as at the last fit are recorded."""


class Shield(Decisions):
    """A post-shield learnt from labelled steps (Bethell et al., ADVICE).

    Record outcomes of unshielded episodes, call :meth:`fit`, and :meth:`guard` every action from
    then on; :meth:`end_episode` lets K follow the violations. Everything random follows ``seed``.
    Where no candidate is safe, ``fallback(obs, proposed)`` may give the action instead of what
    ``config.fallback`` says.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: ShieldConfig | None = None,
        seed: int = 0,
        fallback: FallbackAction | None = None,
    ) -> None:
        self.config = ShieldConfig() if config is None else config
        """Its settings."""
        self.space = FeatureSpace.read(observation_space, action_space)
        grid = self.config.candidates_per_dimension, self.config.candidate_budget
        check_size(self.space.action, *grid, self.config.hidden_size)
        self.observation_space, self.action_space = self.space
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._memory, self._cautiousness = self._new_memory(), Cautiousness(self.config)
        self._model = self._far = self._risk_limit = self._checks = None
        self.rules, self.fallback, self.used = Rules(self.space), fallback, Counter()
        self.task = ""
        """What it was made for, as its card says."""
        self.certificate = None
        """What :meth:`certify` was told."""
        self.calibrated: Calibrated | None = None
        """What :meth:`calibrate` found."""
        self.compacted: dict[str, Any] | None = None  # what a compact shield keeps of its origin
        self._next_trial = FIRST_TRIAL  # violations after which arming early is tried
        self._fitted_at = (0, 0)  # episodes and steps recorded at the last fit
        self._reaches = REACHES if self.config.refit_episodes else REACHES[:1]
        self.effect, self._refit_now = self._new_effect(), False
        self.summary: FitSummary | None = None

    # -- state ---------------------------------------------------------------------------------

    @property
    def armed(self) -> bool:
        """True once fitted."""
        return self._model is not None

    @property
    def hold(self) -> int:
        """Steps for which a replacement may be executed while it stays safe."""
        if self.config.hold is not None:
            return self.config.hold
        return self.summary.hold if self.summary else 0

    @property
    def wants_fit(self) -> bool:
        """True when a fit is due: the first one, a trial to arm early, or a refit."""
        config, memory = self.config, self._memory
        if self.compacted is not None:
            return False
        if self.armed:
            episodes, steps = self._fitted_at
            return self._refit_now or (
                0 < config.refit_episodes <= memory.episode - episodes
                and memory.seen >= REFIT_GROWTH * steps
            )
        early = config.arm == "early" and memory.violations >= self._next_trial
        return early or (memory.episode >= config.construction_episodes and not self._on_trial)

    @property
    def _on_trial(self) -> bool:
        """True while a fit arms the shield only if it tells actions apart."""
        within = self._memory.episode < self.config.construction_episodes
        return not self.armed and (within or self.effect.disarmed > 0)

    @property
    def probe_due(self) -> bool:
        """True if the next episode should go unguarded: would there be fewer violations?"""
        return self.armed and not self.must_guard and self.effect.probe_due

    @property
    def must_guard(self) -> bool:
        """True if someone relies on it (rules, calibration, certificate, compact form): then it
        stays armed, and no episode goes unguarded."""
        promises = self.calibrated, self.certificate, self.compacted
        return bool(self.rules) or any(promise is not None for promise in promises)

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
        if type(outcome) in (bool, np.bool_):  # True would be SAFE
            raise TypeError(f"outcome: expected an advice.Outcome, found the truth value {outcome}")
        try:
            outcome = Outcome(outcome)
        except ValueError as error:
            wanted = "advice.Outcome.SAFE, UNSAFE or INCONCLUSIVE"
            raise ValueError(f"{error}: expected {wanted}") from None
        if self.compacted is not None:
            return
        if self.config.labels == "paper" and (self.armed or outcome == Outcome.INCONCLUSIVE):
            return
        self._memory.add(self.space.features(obs, action), outcome)

    def end_episode(self, violated: bool, *, guarded: bool = True) -> None:
        """Close an episode; once armed, K follows the violations of ``guarded`` ones.

        A shield armed early tries another reach if violations are hardly less frequent than before,
        and is disarmed until there are twice as many if they are more frequent with each reach or
        than in the latest unguarded episodes.
        """
        if guarded or not self.armed:
            self._cautiousness.end_episode(violated, self.armed)
        if self.calibrated is not None:  # fewer votes were not shown to be enough
            self._cautiousness.k = max(self.k, self.calibrated.k)
        memory, config = self._memory, self.config
        memory.end_episode()
        if (config.arm, config.labels, self.compacted) == ("early", "hindsight", None):
            seen = memory.violations, memory.seen
            self._act_on(self.effect.count(self.armed, *seen, guarded))

    def _act_on(self, found: Finding) -> None:
        """Fit anew soon, or disarm; but rules and a calibration keep a shield armed."""
        self._refit_now |= found == "fit anew"
        if found == "disarm" and not self.must_guard:
            self._model = self.summary = self._far = self._checks = None
            self.certificate, self._risk_limit, self._refit_now = None, None, False
            self.effect.disarm()
            self._next_trial = 2 * self._memory.violations

    def fit(self, progress: Callable[[FitProgress], None] | None = None) -> FitSummary:
        """Fit on what was recorded and arm the shield.

        With the paper's labels ``progress`` is called after each epoch. If it raises, or a class
        is missing (:class:`OneClassError`), the shield stays as it was.
        """
        model, summary, self._rng = self._fit(progress)
        self._arm(model, summary)
        self.effect.judged = False
        return summary

    def fit_if_good(self, progress: Callable[[FitProgress], None] | None = None) -> bool:
        """Fit when :attr:`wants_fit`; False if it stays unarmed.

        A trial before ``construction_episodes`` arms the shield only if held-out episodes say that
        it tells actions apart; else the next trial comes after a quarter more violations. A refit
        is dropped if the verdict would no longer depend on the action.
        """
        trial, violations = self._on_trial, self._memory.violations
        self._next_trial = max(self._next_trial, violations + 1, violations * 5 // 4)
        asked = self._refit_now
        try:
            model, summary, self._rng = self._fit(progress)
        except OneClassError:
            if not self.armed:
                raise
            self._fitted_at, self._refit_now = (self._memory.episode, self._memory.seen), False
            self._act_on(self.effect.go_on(IMPOSSIBLE) if asked else "")
            return False
        if trial and not summary.evidence.tells_actions_apart:
            return False
        blind = summary.evidence.is_blind and self.summary and not self.summary.evidence.is_blind
        if blind and not asked:
            self._fitted_at = self._memory.episode, self._memory.seen
            return False
        self.effect.judged |= not self.armed  # one that the user fitted or loaded stays unjudged
        self._arm(model, summary)
        return True

    def _arm(self, model: FittedModel, summary: FitSummary) -> None:
        """Guard with a new fit; what was shown about an earlier one does not count any more."""
        self._model, self.summary = model, summary
        self._fitted_at, self._refit_now = (self._memory.episode, self._memory.seen), False
        self.certificate = self.calibrated = self._risk_limit = self._far = None
        if self.config.far is not None:
            steps = self._memory.all()
            self._far = FarData.calibrated(steps, self.config.held_out, self._seed)
        self._prepare()

    def _fit(self, progress: Callable[..., None] | None) -> tuple[FittedModel, FitSummary, Any]:
        if self.compacted is not None:
            raise AdviceError("a compact shield has no steps to fit; fit the one it was made from")
        rng = copy.deepcopy(self._rng)
        try:
            steps, reach = self._memory.all(), self.effect.reach
            fitted = fit_model(steps, self.space, self.config, rng, progress, reach)
        except OneClassError as error:
            raise OneClassError(
                f"{error} after {self._memory.episode} episodes: the shield stays as it was"
            ) from None
        return *fitted, rng

    def audit(self) -> Audit:
        """How well the shield tells safe from unsafe, on episodes held out of its fit."""
        from advice.shields.audit import audit

        if self.compacted is not None:
            raise AdviceError("a compact shield has nothing to audit; its card() has the figures")
        points, config, memory = self._fitted().points, self.config, self._memory
        found = audit(points, self.k, config.k_max, self.summary, config.labels)
        if config.labels == "hindsight" and memory.violations + memory.safe > 0.95 * memory.seen:
            found.warnings.append(ALL_LABELLED)
        return found

    def card(self) -> Card:
        """What to know before relying on this shield; prints as Markdown."""
        from advice.shields.card import make_card

        return make_card(self)

    def calibrate(self, false_safe: float = 0.05, confidence: float = 0.9) -> Calibrated:
        """Choose K and a limit of the risk on held-out episodes, by Learn-then-Test.

        At most a share of ``false_safe`` of the dangerous actions then passes, with ``confidence``;
        raises :class:`AdviceError` if the held-out episodes cannot show that.
        """
        model = self._fitted()
        found = calibrate(model, self._memory.all(), self, false_safe, confidence)
        self._model, self.calibrated = model.without_held_out(self.config), found
        self._cautiousness.k, self._risk_limit = found.k, found.risk_limit
        self.certificate = None  # it was of the shield as it was before
        self._prepare()
        return found

    def certify(self, violations: int, episodes: int) -> Certificate:
        """Note what an evaluation has shown, for the card and the drift alarm."""
        _ = Certificate(violations, episodes).bound  # raises ValueError for impossible counts
        self.certificate = certificate = Certificate(int(violations), int(episodes))
        return certificate

    def compact(self, weights: Literal["float32", "int8"] = "float32") -> Shield:
        """A small copy that only guards; see :func:`advice.shields.compact.compact`."""
        return compact(self, weights)

    # -- files ---------------------------------------------------------------------------------

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """Raise :class:`SpaceMismatchError` unless the shield was made for spaces like these."""
        self.space.check_same(FeatureSpace.read(observation_space, action_space))

    def save(self, path: Path | str) -> None:
        """Write everything, audit data included, to one checked file, and its card beside it.

        The card is ``card.md``, or NAME.card.md where that is another shield's.
        """
        arrays, document = self.snapshot()
        document["certificate"] = self.certificate
        more = len(self.rules) or self._far or self.calibrated or self.compacted
        if document["config"]["far"] is None:
            del document["config"]["far"]  # a reader of version 2 does not know it
        write_arrays(path, arrays, document, _KIND, _OVERRULED if more else _PLAIN)
        self.card().write(Path(path))

    @classmethod
    def load(
        cls,
        path: Path | str,
        observation_space: Any = None,
        action_space: Any = None,
        fallback: FallbackAction | None = None,
    ) -> Shield:
        """Read a saved shield; neither JAX nor Gymnasium is needed to guard with it.

        Given spaces must be like the ones it was made for.
        """
        arrays, document = read_arrays(path, _KIND, (_PLAIN, _OVERRULED))
        try:
            config = from_dict(ShieldConfig, document["config"])
            shield = cls(*FeatureSpace.from_document(document), config, fallback=fallback)
            shield.restore(arrays, document)
            shield.begin_another_use()
            if document.get("certificate") is not None:
                shield.certify(*document["certificate"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BrokenFileError(f"{path}: the contents are not valid: {error!r}") from error
        shield.check_spaces(
            shield.observation_space if observation_space is None else observation_space,
            shield.action_space if action_space is None else action_space,
        )
        return shield

    def begin_another_use(self) -> None:
        """Forget what was before arming: another use of the shield is not judged by it."""
        seen = self._memory.violations, self._memory.seen
        self.effect, self._refit_now = self.effect.for_another_use(*seen), False

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The whole state; :meth:`restore` goes on from it bit for bit."""
        stored, memory = self._memory.snapshot()
        arrays = {f"steps.{name}": array for name, array in stored.items()}
        document: dict[str, Any] = {
            **self.space.to_document(),
            "config": to_dict(self.config),
            "rng": self._rng.bit_generator.state,
            "memory": memory,
            "k": self.k,
            "violations": list(self._cautiousness.violations),
            "next_trial": self._next_trial,
            "fitted_at": list(self._fitted_at),
            "effect": self.effect.to_list(),
            "refit_now": self._refit_now,
            "armed": self.armed,
            "task": self.task,
            "rules": self.rules.to_document(),
            "used": dict(self.used),
            "calibrated": None if self.calibrated is None else list(self.calibrated),
            "compacted": self.compacted,
        }
        if self._far is not None:
            arrays |= {f"far.{name}": array for name, array in self._far._asdict().items()}
        if self._model is not None:
            model = self._model.snapshot()
            arrays |= shrink(model, self.compacted["weights"]) if self.compacted else model
            document["summary"] = self.summary.to_list() if self.summary else None
        return arrays, document

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Take over a snapshot of a shield with the same spaces.

        Raises ValueError, and leaves the shield unchanged, if the snapshot does not fit.
        """
        FeatureSpace.from_document(document).check_same(self.space)
        memory, cautiousness = self._new_memory(), Cautiousness(self.config)
        stored = {x.removeprefix("steps."): y for x, y in arrays.items() if x.startswith("steps.")}
        memory.restore(stored, document["memory"])
        cautiousness.k = int(document["k"])
        cautiousness.violations.extend(bool(x) for x in document["violations"])
        if not 0 <= cautiousness.k <= self.config.k_max:
            raise ValueError(f"expected K in 0..{self.config.k_max}, found {cautiousness.k}")
        rng = np.random.default_rng(0)
        rng.bit_generator.state = document["rng"]
        next_trial = int(document["next_trial"])
        episodes, steps = (int(x) for x in document["fitted_at"])
        model = summary = far = calibrated = None
        compacted = document.get("compacted")
        if compacted is not None:
            _ = compacted["card"] + compacted["weights"]  # both are text
            arrays = expand(arrays)
        if document["armed"]:
            model = FittedModel.restored(arrays, self.space, self.config)
            if document["summary"] is not None:
                summary = FitSummary.from_list(document["summary"])
            if "far.threshold" in arrays:
                far = FarData.restored(arrays, self.space.size)
            if document.get("calibrated") is not None:
                calibrated = read_calibrated(document["calibrated"], self.config.k_max)
                model = model.without_held_out(self.config)
        if self.config.far is not None and model is not None and far is None:
            raise ValueError("expected the data of the far check, found none")
        given = document.get("rules", {"given": 0, "rules": []})  # as in version 2
        rules = Rules.from_document(given, self.space)
        used = Counter({str(x): int(y) for x, y in document.get("used", {}).items()})
        counts = document.get("effect", Effect().to_list())  # version 2 has none
        effect = Effect.from_list(counts, self._reaches, self.config.probe_violations)
        self._memory, self._cautiousness, self._rng, self._model = memory, cautiousness, rng, model
        self._next_trial, self._fitted_at, self.summary = next_trial, (episodes, steps), summary
        self.rules, self.used, self.compacted, self.effect = rules, used, compacted, effect
        self._refit_now = bool(document.get("refit_now", False))
        self.task = str(document.get("task", ""))
        self._far, self.calibrated = far, calibrated
        self._risk_limit = calibrated.risk_limit if calibrated else None
        self._prepare()

    def _new_effect(self) -> Effect:
        return Effect(self._reaches, self.config.probe_violations)

    def _new_memory(self) -> StepMemory:
        space = self.space
        return StepMemory(space.size, space.dtype, self.config.capacity_per_class, self._seed)
