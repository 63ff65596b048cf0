"""A shield around a Gymnasium environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from advice.config import ShieldConfig
from advice.envs.signals import normalize_step
from advice.integrations.watch import Features, OutcomeRule, Watch, Watched
from advice.types import Array, RateActions


class ShieldedEnv(Watched, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Watches, fits its shield by itself, then guards every action: for any agent.

    For ``config.construction_episodes`` episodes it only watches. Then it fits the shield (during
    the last step of that episode) and guards from there on; while no unsafe, or no safe, step has
    been seen it says so once, goes on unarmed and tries again after each episode. Each step's
    ``info["shield"]`` says what was proposed and executed, whether the shield intervened, how many
    neighbours of the proposal were safe, whether no safe action was found, the penalty that is due
    (``config.intervention_penalty`` if it intervened, else 0) and whether the shield is armed.

    Args:
        env: any environment with Box or Discrete actions; its step may return six values, the
            third being the cost.
        shield: a shield or the path of a saved one; without it, a new one.
        config: settings of a new shield.
        rate_actions: ``rate_actions(obs, actions) -> values``, the agent's critic; may be set later
            as an attribute. Without it the safe action nearest to the proposal is executed.
        outcome: ``outcome(obs, action, reward, terminated, truncated, info) -> advice.Outcome``, in
            place of what ``info`` says; ``obs`` is the observation the step led to. An
            inconclusive first step of an episode still counts as safe.
        features: turns an observation into an array of numbers; needed if observations are
            dictionaries or the like.
        max_violations: a safety budget. With the violation that spends it the episode is cut
            (truncated), and the next step or reset raises :class:`advice.types.BudgetSpentError`.
            An episode counts once, however many of its steps violate.
        save_path: the shield is saved there when it is fitted, when the budget is spent and when
            the environment is closed.
        seed: of the new shield.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        shield: Any = None,
        config: ShieldConfig | None = None,
        rate_actions: RateActions | None = None,
        outcome: OutcomeRule | None = None,
        features: Features | None = None,
        max_violations: int | None = None,
        save_path: Path | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(env)
        self.watch = Watch(
            env.observation_space,
            env.action_space,
            shield=shield,
            config=config,
            rate_actions=rate_actions,
            outcome=outcome,
            features=features,
            max_violations=max_violations,
            save_path=save_path,
            seed=seed,
        )
        # an environment made anew from our spec has a shield of its own, and saves nothing
        gym.utils.RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            shield=shield if isinstance(shield, str | Path) else None,
            config=self.watch.config,
            outcome=outcome,
            features=features,
            max_violations=max_violations,
            seed=seed,
        )
        self._obs: Any = None
        self._seen: Array | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; one that was under way counts as ended."""
        self.watch.check_budget()
        self.watch.end_episode(0)
        self._obs, info = self.env.reset(seed=seed, options=options)
        self._seen = self.watch.look(self._obs)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Execute ``action``, or what the shield puts in its place."""
        self.watch.check_budget()
        if self._seen is None:
            raise gym.error.ResetNeeded("the episode is over or has not begun: call reset first")
        verdict = self.watch.guard(self._seen, self._obs, action)
        report = self.watch.report(verdict, action)
        obs, reward, terminated, truncated, info = normalize_step(self.env.step(verdict.action))
        self.watch.step(0, self._seen, report["executed"], obs, reward, terminated, truncated, info)
        self.watch.stop_if_spent()
        truncated = truncated or (self.budget_spent and not terminated)
        ended = terminated or truncated
        self._obs, self._seen = obs, None if ended else self.watch.look(obs)
        return obs, reward, terminated, truncated, {**info, "shield": report}

    def close(self) -> None:
        """Save the shield, if asked to, and close the environment."""
        self.watch.save()
        super().close()


class CostInInfo(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Makes a step of six values one of five, with the cost in ``info["cost"]``.

    :class:`ShieldedEnv` does so by itself; vectors of environments need it around each.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return normalize_step(self.env.step(action))
