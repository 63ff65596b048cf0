"""Everything around a step, for any shield: guard before it, label, remember and count after it."""

from __future__ import annotations

import copy
import logging
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import LearnFrom, ShieldConfig
from advice.envs.signals import WHAT_TO_GIVE, SignalRules, Signals, read_signals
from advice.shields.bounds import DriftAlarm
from advice.shields.decisions import StepGuard, use_fallback
from advice.shields.memory import PIECE, EpisodeLabels
from advice.shields.options import SessionOptions, find_shield
from advice.shields.shield import Shield
from advice.shields.spaces import flattener, read_space
from advice.types import (
    Array,
    BudgetSpentError,
    OneClassError,
    Outcome,
    Verdict,
)

ENOUGH = 20
"""Violations before and after arming that it takes to say that a shield does not help."""


@dataclass
class Episode:
    """The current episode of one environment."""

    labels: EpisodeLabels
    guarded: bool = True
    """False for a probe, an episode without the shield that says whether it helps."""
    steps: int = 0
    cost: float = 0.0
    violated: bool = False
    success: bool = False
    interventions: int = 0
    no_safe_action: int = 0
    fallbacks: int = 0  # steps on which the user's own fallback decided
    guard: StepGuard = field(default_factory=StepGuard)
    # of the step in progress: observation, executed action, was there no safe action?
    current: tuple[Array, Any, bool] | None = None
    # labelled steps that the shield gets when the episode ends
    waiting: list[tuple[Array, Any, Outcome]] = field(default_factory=list)


class ShieldSession:
    """One shield and the current episodes of the ``num_envs`` environments that share it.

    Call :meth:`guard` before every step, :meth:`record` after it, and :meth:`end_episode` after an
    episode's last one. With several environments the steps of an episode reach the shield together
    when it ends, so that episodes stay apart in its memory. ``say`` gets messages; without it
    problems are warnings, and audits are logged. ``rules`` say how to read steps; by default only
    ``options.terminal`` does. ``task`` is the name for the card of a shield that has none yet.
    ``learn_from`` holds where the shield's settings do not say it.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        options: SessionOptions | None = None,
        num_envs: int = 1,
        say: Callable[[str], None] | None = None,
        rules: SignalRules | None = None,
        task: str = "",
        learn_from: LearnFrom = "both",
    ) -> None:
        options = options or SessionOptions()
        if options.features is None:
            options = replace(options, features=flattener(observation_space))
        self.options = options
        self.rate_actions, self._warn, self._note = options.rate_actions, say or _warn, say or _log
        self.shield = find_shield(options, observation_space, action_space)
        if getattr(self.shield, "task", None) == "":
            self.shield.task = task
        if (path := options.save_path) is not None:
            if not hasattr(self.shield, "save"):
                raise ValueError(f"save_path: a {type(self.shield).__name__} cannot be saved")
            if Path(path).is_dir():
                raise ValueError(f"save_path: expected a file's name, found the folder {path}")
        own = getattr(self.shield, "config", None)
        self.config = own if isinstance(own, ShieldConfig) else options.config or ShieldConfig()
        penalty, learn_from = self.config.intervention_penalty, self.config.learn_from or learn_from
        self.penalty = float(getattr(self.shield, "intervention_penalty", penalty))
        """What the agent loses for a proposal that was replaced."""
        self.learn_from = str(getattr(self.shield, "learn_from", learn_from))
        """Which action of an intervention the agent learns from."""
        self._actions = read_space(action_space, "action space", discrete=True)
        self.rules, self.num_envs = rules or SignalRules(options.terminal), num_envs
        self.episodes = self.violations = self.interventions = self.fallbacks = 0
        self.fallback_violations = 0  # those that came of a step without a safe action
        certificate = getattr(self.shield, "certificate", None)
        certified = options.certified or (certificate.bound if certificate else 1.0)
        self.alarm = DriftAlarm(certified) if certified < 1 else None
        self.violation_source = ""  # what reports violations, as far as seen
        self.usual_cost: deque[float] = deque(maxlen=1000)  # of violated episodes, unguarded
        self.one_class = self._unexplained = self._probed = False  # what has been said
        self._rates = np.zeros((2, 2))  # violations and steps, unguarded and guarded
        self._useless = False  # violations are as frequent as before arming, which has been said
        self._episodes = [self._new_episode() for _ in range(num_envs)]

    def _new_episode(self) -> Episode:
        labels = EpisodeLabels(self.config.labels, self.config.unsafe_per_episode)
        return Episode(labels)

    def _is_guarded(self, env_index: int) -> bool:
        """False in a probe: one episode at a time, from its first step on."""
        episode = self._episodes[env_index]
        if episode.steps == 0:
            others = (other for other in self._episodes if other is not episode)
            due = getattr(self.shield, "probe_due", False)
            episode.guarded = not (due and all(other.guarded for other in others))
        elif not episode.guarded and self.shield.must_guard:  # a rule was given meanwhile
            episode.guarded = True
        if not (episode.guarded or self._probed):
            self._probed = True
            self._note(
                "an episode goes without the shield, to see whether it still helps; so does one "
                f"after every {self.config.probe_violations} guarded ones with a violation "
                "(probe_violations=0: never)"
            )
        return episode.guarded

    @property
    def budget_spent(self) -> bool:
        """True once ``max_violations`` episodes have had a violation."""
        limit = self.options.max_violations
        return limit is not None and self.violations >= limit

    def start_episode(self, env_index: int = 0) -> None:
        """Begin an episode; one that is under way counts as ended."""
        self.check_budget()
        if self._episodes[env_index].steps:
            self.end_episode(env_index)

    def check_budget(self) -> None:
        """Raise :class:`BudgetSpentError` once the violation budget is spent."""
        if self.budget_spent:
            raise BudgetSpentError(
                f"training ends here: {self.violations} episodes had a violation and "
                f"max_violations={self.options.max_violations}"
            )

    def guard(self, obs: Any, proposed: Any, env_index: int = 0) -> Verdict:
        """The verdict on one proposal, see :class:`StepGuard`."""
        self.check_budget()
        seen, rate = self._features(obs), self.rate_actions
        if (agent := rate) is not None and self.options.features is not None:
            rate = lambda _, actions: agent(obs, actions)  # noqa: E731 - its own observation
        episode = self._episodes[env_index]
        guarded = self._is_guarded(env_index)
        if not (self.shield.armed and guarded) or episode.guard.inside:
            self._check_action(proposed)  # nothing else looks at it before it is executed
        if guarded:
            verdict = episode.guard(self.shield, seen, proposed, rate)
        else:
            verdict = Verdict(proposed, reason="probe")
        return self._begin_step(env_index, seen, obs, proposed, verdict)

    def guard_batch(
        self, obs: Sequence[Any], proposed: Any, env_indices: Sequence[int] | None = None
    ) -> list[Verdict]:
        """One verdict per environment; only those of ``env_indices`` (None: all) are guarded."""
        self.check_budget()
        together = getattr(self.shield, "guard_batch", None) if self.shield.armed else None
        if self.options.features is not None and self.rate_actions is not None:
            together = None  # the agent rates one observation at a time
        verdicts, batch = [Verdict(action) for action in proposed], []
        for i in range(self.num_envs) if env_indices is None else env_indices:
            guard = self._episodes[i].guard
            alone = together is None or guard.inside or guard.held
            if alone or not self._is_guarded(i):
                verdicts[i] = self.guard(obs[i], proposed[i], i)
            else:
                batch.append(i)
        if together is not None and batch:
            seen = np.stack([self._features(obs[i]) for i in batch])
            found = together(seen, np.stack([proposed[i] for i in batch]), self.rate_actions)
            for i, features, verdict in zip(batch, seen, found, strict=True):
                self._episodes[i].guard.decided(self.shield, verdict)
                verdicts[i] = self._begin_step(i, features, obs[i], proposed[i], verdict)
        return verdicts

    def _check_action(self, proposed: Any) -> None:
        """Raise ValueError for an action that is none of the action space's."""
        numbers = self._actions.check(proposed, "action")
        if not np.isfinite(numbers).all():
            raise ValueError(f"action: expected finite numbers, found {proposed}")

    def _features(self, obs: Any) -> Array:
        """One observation as the shield sees it, copied: environments may reuse their arrays."""
        features = self.options.features
        return np.array(obs if features is None else features(obs))

    def _begin_step(
        self, env_index: int, seen: Array, obs: Any, proposed: Any, verdict: Verdict
    ) -> Verdict:
        """Note the step in progress; where the fallback decides, ask the user's own one."""
        episode, hopeless = self._episodes[env_index], verdict.no_safe_action or verdict.fallback
        if hopeless and (own := self.options.fallback) is not None:
            verdict = use_fallback(own, obs, verdict._replace(action=proposed), self._actions)
            episode.fallbacks += 1
            self.fallbacks += 1
            if isinstance(self.shield, Shield) and self.shield.fallback is None:
                self.shield.used["fallback"] += 1
        episode.current = seen, copy.copy(verdict.action), hopeless
        episode.interventions += verdict.intervened
        episode.no_safe_action += verdict.no_safe_action
        self.interventions += verdict.intervened
        return verdict

    def learnt_actions(self, verdict: Verdict, proposed: Any) -> list[Any]:
        """The actions to learn from with what really happened, by ``config.learn_from``."""
        if not verdict.intervened or self.learn_from == "executed":
            return [verdict.action]
        return [proposed] if self.learn_from == "proposed" else [verdict.action, proposed]

    def describe(self, verdict: Verdict, proposed: Any) -> dict[str, Any]:
        """``info["shield"]`` of a step, with copies of the actions."""
        same = ("intervened", "safe_neighbours", "no_safe_action", "fallback", "reason")
        return {
            **{"proposed": copy.copy(proposed), "executed": copy.copy(verdict.action)},
            **{name: getattr(verdict, name) for name in same},
            "penalty": self.penalty if verdict.intervened else 0.0,
            "armed": self.shield.armed and verdict.reason != "probe",
        }

    def record(
        self,
        obs: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
        env_index: int = 0,
    ) -> Signals:
        """Label and remember the guarded step that led to ``obs``; what it says about safety."""
        episode = self._episodes[env_index]
        if episode.current is None:
            raise RuntimeError("record: expected a call of guard before each step, found none")
        seen, executed, hopeless = episode.current
        if self.options.outcome is None:
            signals = read_signals(info, terminated, truncated, reward, self.rules)
        else:
            outcome = self.options.outcome(obs, executed, reward, terminated, truncated, info)
            if not isinstance(outcome, Outcome):
                raise TypeError(
                    "outcome: expected it to return advice.Outcome.SAFE, UNSAFE or INCONCLUSIVE, "
                    f"found {outcome!r}"
                )
            signals = Signals(outcome == Outcome.UNSAFE, 0.0, outcome == Outcome.SAFE, "outcome")
        label = episode.labels.next(signals)
        if label is not None and self.num_envs == 1:
            self.shield.record(seen, executed, label)
        elif label is not None:
            episode.waiting.append((seen, executed, label))
            if len(episode.waiting) > 2 * self.config.capacity_per_class:
                del episode.waiting[:PIECE]  # of an endless episode the latest steps count
        self.violation_source = signals.source or self.violation_source
        episode.current, episode.guard.inside = None, signals.unsafe
        episode.steps += 1
        episode.cost += signals.cost
        episode.success |= signals.success
        if signals.unsafe and not episode.violated:
            episode.violated = True
            self.violations += 1
            self.fallback_violations += hopeless
        if signals.unexplained and not self._unexplained:
            self._unexplained = True
            self._warn(
                "an episode terminated and nothing says whether that was a failure or a success: "
                f"such last steps are inconclusive; if they should count, {WHAT_TO_GIVE}"
            )
        return signals

    def end_episode(self, env_index: int = 0, fit: bool = True) -> Episode:
        """Close an episode and return it; ``fit`` also fits the shield if that is due."""
        episode, alarm, was_armed = self._episodes[env_index], self.alarm, self.shield.armed
        guarded = was_armed and episode.guarded
        for step in episode.waiting:
            self.shield.record(*step)
        if not guarded:
            if episode.violated:
                self.usual_cost.append(episode.cost)
        elif alarm is not None and not alarm.alarmed and alarm.update(episode.violated):
            self._warn(f"drift alarm: {alarm.warning}")
        self._compare(episode, guarded)
        # K counts violations that cost at least what was usual before arming; where a violation
        # ends the episode, every violation costs the same
        usual = sum(self.usual_cost) / max(1, len(self.usual_cost))
        probe = {} if episode.guarded else {"guarded": False}  # other shields do not know it
        self.shield.end_episode(episode.violated and episode.cost >= usual * (1 - 1e-9), **probe)
        if was_armed and not self.shield.armed:
            self._warn(
                "the shield is disarmed: violations are more frequent with it than without it. "
                "It goes on recording and tries again when twice as many have been seen"
            )
        self._episodes[env_index] = self._new_episode()
        self.episodes += 1
        if fit:
            self.fit_if_due()
        return episode

    def _compare(self, episode: Episode, armed: bool) -> None:
        """Say, once, that violations are as frequent as before arming, when enough were seen."""
        rates = self._rates
        rates[int(armed)] += episode.violated, episode.steps
        (before, steps_before), (after, steps_after) = rates
        effect = getattr(self.shield, "effect", None)
        trying = bool(effect and effect.judged and effect.tried)  # other reaches are still to come
        enough = armed and min(before, after) >= ENOUGH and not (self._useless or trying)
        if enough and after / steps_after >= before / steps_before:
            self._useless = True
            self._warn(
                f"the shield does not help here: {1000 * after / steps_after:.3g} episodes with a "
                f"violation per 1,000 steps with it, {1000 * before / steps_before:.3g} without it"
            )

    def fit_if_due(self, progress: Callable[..., None] | None = None) -> bool:
        """Fit the shield if it is due and save it; True if it has been fitted.

        While a class of steps is missing this says so once and the shield stays unarmed.
        """
        shield = self.shield
        if not shield.wants_fit:
            return False
        how = "anew" if shield.armed else "and armed"
        try:
            if getattr(shield, "fit_if_good", shield.fit)(progress) is False:
                return False
        except OneClassError as error:
            if not self.one_class:
                hint = f"If violations are not reported, {WHAT_TO_GIVE}"
                if self.violations:
                    hint = "If harmless steps are reported as violations, check what reports them"
                self._warn(
                    f"the shield stays unarmed and tries again after each episode: {error}. {hint}"
                )
            self.one_class = True
            return False
        audit = f": {shield.audit().line}" if hasattr(shield, "audit") else ""
        self._note(f"the shield is fitted {how}{audit}")
        self.save()
        return True

    def close_if_spent(self) -> bool:
        """After a step of all environments: a spent violation budget ends every episode."""
        if self.budget_spent:
            for i in (i for i, episode in enumerate(self._episodes) if episode.steps):
                self.end_episode(i)
            self.save()
        return self.budget_spent

    def save(self) -> None:
        """Write the shield to ``save_path``, if one was given."""
        if self.options.save_path is not None:
            self.shield.save(self.options.save_path)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _log(message: str) -> None:
    level = logging.WARNING if "WARNING" in message else logging.INFO
    logging.getLogger("advice").log(level, message)
