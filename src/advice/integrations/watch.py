"""What every integration does around a step: guard before it, label and remember after it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np

from advice.config import ShieldConfig
from advice.envs.signals import Signals, read_signals
from advice.shields.memory import EpisodeLabels
from advice.shields.shield import Shield
from advice.types import (
    Array,
    BudgetSpentError,
    OneClassError,
    Outcome,
    RateActions,
    SpaceMismatchError,
    Verdict,
)

OutcomeRule: TypeAlias = Callable[[Any, Any, float, bool, bool, dict[str, Any]], Outcome]
"""``outcome(obs, action, reward, terminated, truncated, info)``; the step led to ``obs``."""
Features: TypeAlias = Callable[[Any], Array]
"""Turns one observation, of whatever kind, into the array of numbers that the shield sees."""


class Options(TypedDict, total=False):
    """The settings that :class:`advice.ShieldedEnv` and its relatives share."""

    shield: Any
    config: ShieldConfig | None
    rate_actions: RateActions | None
    outcome: OutcomeRule | None
    features: Features | None
    max_violations: int | None
    save_path: Path | str | None
    seed: int


class Watch:
    """One shield and the episodes of ``places`` environments that share it.

    With several environments the labelled steps of an episode reach the shield together, when the
    episode ends, so that episodes stay apart in its memory.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        places: int = 1,
        *,
        shield: Any = None,
        config: ShieldConfig | None = None,
        rate_actions: RateActions | None = None,
        outcome: OutcomeRule | None = None,
        features: Features | None = None,
        max_violations: int | None = None,
        save_path: Path | str | None = None,
        seed: int = 0,
    ) -> None:
        if max_violations is not None and max_violations < 1:
            raise ValueError(f"max_violations: expected 1 or more, found {max_violations}")
        self.rate_actions, self._outcome, self._features = rate_actions, outcome, features
        self.max_violations, self.save_path = max_violations, save_path
        if features is not None:
            observation_space = _feature_space(observation_space, features)
        self.shield = _find_shield(shield, observation_space, action_space, config, seed)
        if save_path is not None and not hasattr(self.shield, "save"):
            raise ValueError(f"save_path: a {type(self.shield).__name__} cannot be saved")
        self.config = _config_of(self.shield) or config or ShieldConfig()
        self.penalty = self.config.intervention_penalty
        self.episodes = self.violations = self.interventions = 0
        self._labels = [self._new_labels() for _ in range(places)]
        self._violated = [False] * places
        self._waiting: list[list[tuple[Array, Any, Outcome]]] | None = None
        if places > 1:
            self._waiting = [[] for _ in range(places)]
        self._said_one_class = False

    # -- before a step -------------------------------------------------------------------------

    @property
    def budget_spent(self) -> bool:
        """True once ``max_violations`` episodes have had a violation."""
        return self.max_violations is not None and self.violations >= self.max_violations

    def check_budget(self) -> None:
        """Refuse to go on once the budget is spent."""
        if self.budget_spent:
            raise BudgetSpentError(
                f"training ends here: {self.violations} episodes had a violation and "
                f"max_violations={self.max_violations}"
            )

    def look(self, obs: Any) -> Array:
        """One observation as the shield sees it, in an array of its own."""
        return np.array(obs if self._features is None else self._features(obs))

    def guard(self, seen: Array, obs: Any, action: Any) -> Verdict:
        """The verdict on a proposal; an unarmed shield endorses everything."""
        if not self.shield.armed:
            return Verdict(action, False, 0, False)
        verdict: Verdict = self.shield.guard(seen, action, self._rate(obs))
        self.interventions += verdict.intervened
        return verdict

    def report(self, verdict: Verdict, proposed: Any) -> dict[str, Any]:
        """What a step's ``info["shield"]`` says, whatever becomes of the action's own array."""
        executed = verdict.action if verdict.intervened else proposed
        return {
            "proposed": copy.copy(proposed),
            "executed": copy.copy(executed),
            "intervened": verdict.intervened,
            "safe_neighbours": verdict.safe_neighbours,
            "no_safe_action": verdict.no_safe_action,
            "penalty": self.penalty if verdict.intervened else 0.0,
            "armed": self.shield.armed,
        }

    def decide(
        self, seen: Sequence[Array], obs: Sequence[Any], proposed: Array, live: Sequence[int]
    ) -> tuple[Array, list[dict[str, Any]]]:
        """What all environments execute and their ``info["shield"]``; only ``live`` are guarded."""
        verdicts = [Verdict(action, False, 0, False) for action in proposed]
        rows = [(seen[place], obs[place], proposed[place]) for place in live]
        for place, verdict in zip(live, self._guard_many(rows), strict=True):
            verdicts[place] = verdict
        reports = [self.report(*pair) for pair in zip(verdicts, proposed, strict=True)]
        return np.stack([report["executed"] for report in reports]), reports

    # -- after a step --------------------------------------------------------------------------

    def step(
        self,
        place: int,
        seen: Array,
        action: Any,
        obs: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        """Label and remember that ``action``, executed where ``seen`` was seen, led to ``obs``."""
        if self._outcome is None:
            signals = read_signals(info, terminated)
        else:
            said = self._outcome(obs, action, reward, terminated, truncated, info)
            signals = _as_signals(said)
        outcome = self._labels[place].next(signals)
        if self._waiting is None:
            self.shield.record(seen, action, outcome)
        elif outcome != Outcome.INCONCLUSIVE:
            self._waiting[place].append((seen, action, outcome))
        if signals.unsafe and not self._violated[place]:
            self._violated[place] = True
            self.violations += 1
        if terminated or truncated:
            self.end_episode(place)

    def stop_if_spent(self) -> None:
        """Once all environments have stepped: a spent budget ends every episode and saves."""
        if self.budget_spent:
            for place in range(len(self._labels)):
                self.end_episode(place)
            self.save()

    def end_episode(self, place: int) -> None:
        """Close the episode of one environment, if one has begun; fit the shield when it is due."""
        if self._labels[place].first:
            return
        if self._waiting is not None:
            for step in self._waiting[place]:
                self.shield.record(*step)
            self._waiting[place].clear()
        self.shield.end_episode(self._violated[place])
        self._labels[place], self._violated[place] = self._new_labels(), False
        self.episodes += 1
        if self.shield.wants_fit:
            self._fit()

    def _new_labels(self) -> EpisodeLabels:
        return EpisodeLabels(self.config.unsafe_per_episode)

    def save(self) -> None:
        """Write the shield to ``save_path``, if one was given."""
        if self.save_path is not None:
            self.shield.save(self.save_path)

    # -- helpers -------------------------------------------------------------------------------

    def _guard_many(self, rows: Sequence[tuple[Array, Any, Any]]) -> list[Verdict]:
        """:meth:`guard` for several environments, at once where that gives the same."""
        batched = self._features is None or self.rate_actions is None
        if not (self.shield.armed and rows and batched and hasattr(self.shield, "guard_batch")):
            return [self.guard(*row) for row in rows]
        seen, _, actions = zip(*rows, strict=True)
        verdicts: list[Verdict] = self.shield.guard_batch(
            np.stack(seen), np.stack(actions), self.rate_actions
        )
        self.interventions += sum(verdict.intervened for verdict in verdicts)
        return verdicts

    def _rate(self, obs: Any) -> RateActions | None:
        """The agent rates its own kind of observation, not the features made from it."""
        rate = self.rate_actions
        if rate is None or self._features is None:
            return rate
        return lambda _, actions: rate(obs, actions)

    def _fit(self) -> None:
        try:
            self.shield.fit()
        except OneClassError as error:
            if not self._said_one_class:
                warnings.warn(
                    f"the shield stays unarmed and tries again after each episode: {error}. "
                    'Unsafe steps are read from info["violation"], info["cost"] or a cost in a '
                    "step of six values; for other environments give outcome=...",
                    stacklevel=5,
                )
            self._said_one_class = True
        else:
            self.save()


class Watched:
    """The names that :class:`advice.ShieldedEnv` and its relatives share."""

    watch: Watch

    @property
    def shield(self) -> Any:
        """The shield itself: ``armed``, ``k``, ``audit()``, ``explain(...)`` and the rest."""
        return self.watch.shield

    @property
    def rate_actions(self) -> RateActions | None:
        """The agent's opinion of actions, if it has one."""
        return self.watch.rate_actions

    @rate_actions.setter
    def rate_actions(self, rate: RateActions | None) -> None:
        self.watch.rate_actions = rate

    @property
    def violations(self) -> int:
        """Episodes with a violation so far."""
        return self.watch.violations

    @property
    def interventions(self) -> int:
        """Steps on which another action than the proposed one was executed."""
        return self.watch.interventions

    @property
    def budget_spent(self) -> bool:
        """True once there have been ``max_violations``."""
        return self.watch.budget_spent

    def save(self, path: Path | str) -> None:
        """Write the shield to a file that ``shield=path`` and ``Shield.load`` read."""
        self.shield.save(path)


def row_of(infos: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The info of one environment, from the dictionary of arrays of a Gymnasium vector.

    The mask ``_key`` says where ``key`` holds something; without a mask it does so everywhere.
    """
    info: dict[str, Any] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if (key.startswith("_") and key[1:] in infos) or (mask is not None and not mask[place]):
            continue  # a mask itself, or nothing said about this environment
        if isinstance(values, Mapping):
            info[key] = row_of(values, place)
            continue
        try:
            info[key] = values[place]
        except (TypeError, IndexError):  # said once, about all of them
            info[key] = values
    return info


def _as_signals(said: Any) -> Signals:
    if not isinstance(said, Outcome):
        raise TypeError(
            "outcome: expected it to return advice.Outcome.SAFE, UNSAFE or INCONCLUSIVE, "
            f"found {said!r}"
        )
    return Signals(said == Outcome.UNSAFE, 0.0, said == Outcome.SAFE)


def _feature_space(observation_space: Any, features: Features) -> Any:
    """An unbounded Box like what ``features`` returns, found out on a sample observation."""
    from gymnasium.spaces import Box

    space = copy.deepcopy(observation_space)  # sampling must not disturb the user's generator
    space.seed(0)
    sample = np.asarray(features(space.sample()))
    if sample.dtype.kind not in "fiu" or sample.size == 0:
        raise SpaceMismatchError(
            f"features: expected it to return an array of numbers, found {sample!r}"
        )
    dtype = np.result_type(sample.dtype, np.float32)
    return Box(-np.inf, np.inf, sample.shape, dtype.type)


def _config_of(shield: Any) -> ShieldConfig | None:
    """An ADVICE shield's own settings; a table or a foreign shield has none of these."""
    config = getattr(shield, "config", None)
    return config if isinstance(config, ShieldConfig) else None


def _find_shield(
    shield: Any, observation_space: Any, action_space: Any, config: ShieldConfig | None, seed: int
) -> Any:
    """The given shield, checked; the one in the given file; or a new one."""
    try:
        if shield is None:
            return Shield(observation_space, action_space, config, seed)
        if isinstance(shield, str | Path):
            shield = Shield.load(shield, observation_space, action_space)
        elif hasattr(shield, "check_spaces"):
            shield.check_spaces(observation_space, action_space)
    except SpaceMismatchError as error:
        if hasattr(observation_space, "low"):
            raise
        hint = "give features=..., a function that turns an observation into an array of numbers"
        raise SpaceMismatchError(f"{error}; {hint}") from None
    if config is not None and config != (_config_of(shield) or config):
        raise ValueError("config: a given shield brings its own settings, and these are different")
    return shield
