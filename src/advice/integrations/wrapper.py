"""A shield around a Gymnasium environment."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import gymnasium as gym

from advice.config import ShieldConfig
from advice.envs.signals import SignalRules, normalize_step
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession
from advice.types import RateActions


class HasSession:
    """The names that the shielded environments share."""

    session: ShieldSession

    def _set_rate_actions(self, rate: RateActions | None) -> None:
        self.session.rate_actions = rate

    shield = property(attrgetter("session.shield"))
    """The shield: ``armed``, ``k``, ``audit()``, ``explain(...)`` and the rest."""
    rate_actions = property(attrgetter("session.rate_actions"), _set_rate_actions)
    """The agent's critic, if it has one; may be set."""
    violations = property(attrgetter("session.violations"))
    """Episodes with a violation so far."""
    interventions = property(attrgetter("session.interventions"))
    """Steps on which another action than the proposed one was executed."""
    fallbacks = property(attrgetter("session.fallbacks"))
    """Steps on which the ``fallback`` that was given decided."""
    budget_spent = property(attrgetter("session.budget_spent"))
    """True once the violation budget is spent."""

    def save(self, path: Path | str) -> None:
        """Write the shield to a file that ``shield=path`` and ``Shield.load`` read."""
        self.shield.save(path)

    def close(self, **kwargs: Any) -> None:
        """Save the shield if ``save_path`` was given, and close what is wrapped."""
        self.session.save()
        super().close(**kwargs)  # type: ignore[misc]


class ShieldedEnv(HasSession, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment that learns a shield, fits it by itself and then guards its actions.

    At first it only records. When held-out episodes say that the shield tells actions apart, or at
    the latest after ``config.construction_episodes`` episodes, it is armed (at the end of an
    episode) and guards from there on; later it is fitted anew on all that was seen. Now and then an
    episode goes without it, to see whether it still helps (``config.probe_violations``). While no
    unsafe step has been seen it warns once, stays unarmed and tries again after each episode.

    Each step's ``info["shield"]`` holds proposed, executed, intervened, safe_neighbours,
    no_safe_action, fallback (it decided), reason (what overruled the votes), penalty
    (``config.intervention_penalty`` if it intervened, else 0) and armed. The step that spends the
    violation budget truncates the episode; the next one raises
    :class:`advice.types.BudgetSpentError`.

    ``env`` has Box or (multi-)discrete actions; its step may return six values, the third being the
    cost.
    The options are the fields of :class:`advice.shields.options.SessionOptions`.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        shield: Any = None,
        config: ShieldConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(env)
        given = SessionOptions(shield, config, **options)
        rules = SignalRules.of(env, given.terminal)
        spaces = env.observation_space, env.action_space
        task = env.spec.id if env.spec else type(env.unwrapped).__name__
        self.session = ShieldSession(*spaces, given, rules=rules, task=task)
        # an environment made from our spec gets a shield of its own and saves nothing
        fresh = {
            "shield": shield if isinstance(shield, str | Path) else None,
            "config": self.session.config,
            "rate_actions": None,
            "save_path": None,
        }
        gym.utils.RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, **(vars(given) | fresh)
        )
        self._obs: Any = None
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; one that was under way counts as ended."""
        self.session.start_episode()
        self._obs, info = self.env.reset(seed=seed, options=options)
        self._running = True
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Execute ``action``, or its replacement."""
        self.session.check_budget()
        if not self._running:
            raise gym.error.ResetNeeded("the episode is over or has not begun: call reset first")
        verdict = self.session.guard(self._obs, action)
        said = self.session.describe(verdict, action)
        step = normalize_step(self.env.step(verdict.action))
        self._obs, reward, terminated, truncated, info = step
        self._running = not (terminated or truncated)
        try:
            self.session.record(*step)
        finally:  # a step that cannot be read does happen
            if not self._running:
                self.session.end_episode()
        truncated = truncated or (self.session.close_if_spent() and not terminated)
        self._running = not (terminated or truncated)
        return self._obs, reward, terminated, truncated, {**info, "shield": said}


class CostInInfo(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Makes a step of six values one of five, with the cost in ``info["cost"]``.

    :class:`ShieldedEnv` does so by itself; vectors of environments need it around each.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return normalize_step(self.env.step(action))
