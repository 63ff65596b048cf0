"""Checks whether a shield can work on an environment: findings, each with what to do."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils import env_checker

from advice.envs.signals import WHAT_TO_GIVE, SignalRules, Signals, rollout
from advice.types import SettingError, Terminal

SECONDS = 30.0
"""Time limit of the random actions."""
SLOW_STEPS_PER_S = 50.0
QUIET_STEPS = 5
"""A step counts as quiet if neither it nor the next ones, this many, are unsafe."""


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    level: Literal["ok", "warning", "error"]
    found: str
    advice: str = ""


class Trial(NamedTuple):
    """What random actions showed."""

    episodes: list[list[Signals]]
    ended: int  # how many of the episodes; only the last one may not have ended
    not_finite: int  # observations with NaN or infinity
    outside: int  # finite observations outside their space
    steps_per_s: float
    reset_ms: float

    @property
    def steps(self) -> list[Signals]:
        return [step for episode in self.episodes for step in episode]


def check_env(
    make_env: Callable[[], gymnasium.Env[Any, Any]],
    episodes: int = 20,
    max_steps: int = 20_000,
    terminal: Terminal | None = None,
) -> list[Finding]:
    """Examine new environments of ``make_env``; a shield cannot work if any finding is an error.

    Runs random actions for at most ``episodes`` episodes, ``max_steps`` steps and :data:`SECONDS`.
    ``terminal`` is what a termination means, as in :class:`advice.ShieldedEnv`.
    """
    try:
        env = make_env()
        env.reset(seed=0)
        values = len(env.step(env.action_space.sample()))
        env.close()
    except SettingError:  # there is no such environment
        raise
    except Exception as error:
        return [Finding("first step", "error", _line(error), "make reset() and step() run first")]
    if values not in (5, 6):
        advice = "return observation, reward, terminated, truncated, info"
        return [Finding("first step", "error", f"step() returns {values} values", advice)]
    findings = [_check_spaces(env), *_check_api(make_env, values)]
    try:
        trial = _try(make_env, episodes, max_steps, terminal)
        findings += [_check_violations(trial, values), _check_safe_steps(trial)]
        findings += [_check_ends(trial), _check_observations(trial), _check_speed(trial)]
    except Exception as error:
        findings.append(Finding("random actions", "error", _line(error), "fix this error first"))
    return findings


def conclude(findings: list[Finding]) -> str:
    """The conclusion of all findings in one sentence."""
    if any(finding.level == "error" for finding in findings):
        return "shielding does not work here yet: fix the errors first"
    needed = ("violations", "safe steps", "episodes")
    missing = [f.name for f in findings if f.name in needed and f.level != "ok"]
    if missing:
        return f"whether shielding works here is not known: see {' and '.join(missing)}"
    return "shielding can work here: violations are reported and there are safe steps to learn from"


def _check_spaces(env: gymnasium.Env[Any, Any]) -> Finding:
    """A shield needs numbers of a fixed size to embed, and actions to choose from."""
    spaces = {"observation": env.observation_space, "action": env.action_space}
    found = ", ".join(f"{role} {type(x).__name__}{x.shape or ''}" for role, x in spaces.items())
    observation, action = spaces.values()
    box = gymnasium.spaces.Box
    several = gymnasium.spaces.MultiDiscrete | gymnasium.spaces.MultiBinary
    if not isinstance(action, box | gymnasium.spaces.Discrete | several):
        return Finding("spaces", "error", found, "a shield needs Box or (multi-)discrete actions")
    if not (isinstance(observation, box) or _flattens(observation)):
        return Finding("spaces", "error", found, "flatten observations into a Box")
    advice = []
    if not isinstance(observation, box):
        advice.append("ShieldedEnv flattens observations; `advice train` needs FlattenObservation")
    if isinstance(action, box) and not action.is_bounded():
        advice.append("ShieldedEnv scales actions by the data; `advice train` needs finite bounds")
    if advice:
        return Finding("spaces", "warning", found, "; ".join(advice))
    bounded = not isinstance(observation, box) or observation.is_bounded()
    return Finding("spaces", "ok", found, "" if bounded else "observations are scaled by the data")


def _flattens(space: gymnasium.Space[Any]) -> bool:
    """True if Gymnasium's ``flatten`` makes numbers of it."""
    try:
        return gymnasium.spaces.utils.flatdim(space) > 0
    except (NotImplementedError, ValueError):
        return False


def _check_api(make_env: Callable[[], gymnasium.Env[Any, Any]], values: int) -> list[Finding]:
    """Gymnasium's own checker, its warnings as findings."""
    if values == 6:
        advice = (
            "a shield takes that; for other libraries wrap it: "
            "advice.envs.adapters.adapt_safety_gymnasium(env) returns five values"
        )
        return [Finding("API", "warning", "step() returns 6 values", advice)]
    env = make_env()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            env_checker.check_env(env.unwrapped, skip_render_check=True)
    except Exception as error:
        return [Finding("API", "error", _line(error), "fix what Gymnasium's checker names")]
    finally:
        env.close()
    said = dict.fromkeys(_line(warning.message) for warning in caught)
    if not said:
        return [Finding("API", "ok", "Gymnasium's checker has no warnings")]
    return [Finding("API", "warning", text, "see Gymnasium's checker") for text in said]


def _try(
    make_env: Callable[[], gymnasium.Env[Any, Any]],
    episodes: int,
    max_steps: int,
    terminal: Terminal | None,
) -> Trial:
    """Take random actions within the limits."""
    env = make_env()
    env.action_space.seed(0)
    rules = SignalRules.of(env, terminal)
    told: list[list[Signals]] = []
    resets: list[float] = []
    left, ended, not_finite, outside = max_steps, 0, 0, 0
    start = time.perf_counter()
    for episode in range(episodes):
        began = time.perf_counter()
        observation, _ = env.reset(seed=episode)
        resets.append(time.perf_counter() - began)
        told.append([])
        for step in rollout(env, observation, lambda _: env.action_space.sample(), left, rules):
            told[-1].append(step.signals)
            finite = _finite(step.obs)
            not_finite += not finite
            outside += finite and step.obs not in env.observation_space
            ended += step.ended
            if time.perf_counter() >= start + SECONDS:
                break
        left -= len(told[-1])
        if ended == episode:
            break
    seconds = time.perf_counter() - start - sum(resets)
    env.close()
    speed = (max_steps - left) / max(seconds, 1e-9)
    return Trial(told, ended, not_finite, outside, speed, 1000 * float(np.median(resets)))


def _check_violations(trial: Trial, values: int) -> Finding:
    """A shield needs unsafe steps: something must report them, and they must occur."""
    steps = trial.steps
    source = next((step.source for step in steps if step.source), "")
    if not source:
        found = "no step says whether it is a violation"
        return Finding("violations", "error", found, WHAT_TO_GIVE)
    # A key of info as one writes it; other sources are sentences.
    said = f'info["{source}"]' if source.isidentifier() else source
    said = f"read from {said}" if values == 5 else "read from the 6-value step"
    unsafe = sum(step.unsafe for step in steps)
    if not unsafe:
        found = f"{said}, none in {len(steps)} random steps"
        advice = f"use more episodes, or check what reports them: {WHAT_TO_GIVE}"
        return Finding("violations", "warning", found, advice)
    if unsafe == len(steps):
        found = f"{said}, in all {len(steps)} random steps"
        advice = "a shield needs safe steps too: check the sign and the threshold"
        return Finding("violations", "error", found, advice)
    episodes = sum(any(step.unsafe for step in episode) for episode in trial.episodes)
    found = f"{said}, in {unsafe} of {len(steps)} random steps, {episodes} episodes"
    return Finding("violations", "ok", found)


def _check_safe_steps(trial: Trial) -> Finding:
    """A shield needs safe steps other than the first ones of episodes."""
    quiet = sum(
        not any(step.unsafe for step in episode[i : i + 1 + QUIET_STEPS])
        for episode in trial.episodes
        for i in range(1, len(episode))
    )
    successes = sum(step.success and not step.unsafe for step in trial.steps)
    found = f"{quiet} quiet steps after the first of their episode, {successes} successes"
    if quiet + successes:
        return Finding("safe steps", "ok", found)
    advice = "only first steps would be safe examples: start farther from danger, or report success"
    return Finding("safe steps", "warning", found, advice)


def _check_ends(trial: Trial) -> Finding:
    """A shield needs episodes that end, and ends that are explained."""
    steps, ends = len(trial.steps), [episode[-1] for episode in trial.episodes[: trial.ended]]
    if not ends:
        advice = "a shield counts episodes: end them, or wrap with gymnasium.wrappers.TimeLimit"
        return Finding("episodes", "error", f"none ended within {steps} steps", advice)
    unexplained = sum(end.unexplained for end in ends)
    unsafe = sum(end.unsafe for end in ends)
    successes = sum(end.success and not end.unsafe for end in ends)
    found = (
        f"{len(ends)} ended, {steps / len(ends):.0f} steps each: {unsafe} by a violation, "
        f"{successes} by success, {unexplained} unexplained"
    )
    if not unexplained:
        return Finding("episodes", "ok", found)
    advice = (
        'nothing says what these terminations mean: give terminal="failure" or '
        'terminal="success" (--terminal), or set info["violation"] and info["success"]'
    )
    return Finding("episodes", "warning", found, advice)


def _check_observations(trial: Trial) -> Finding:
    if trial.not_finite:
        found = f"{trial.not_finite} observations have NaN or infinity"
        return Finding("observations", "error", found, "replace what is not a number at its source")
    if trial.outside:
        found = f"{trial.outside} observations are outside the space"
        return Finding("observations", "warning", found, "widen the space or clip the observations")
    return Finding("observations", "ok", "finite and inside the space")


def _check_speed(trial: Trial) -> Finding:
    found = f"{trial.steps_per_s:,.0f} steps/s, {trial.reset_ms:.2f} ms per reset"
    if trial.steps_per_s < SLOW_STEPS_PER_S:
        return Finding("speed", "warning", found, "training will take long: profile step()")
    return Finding("speed", "ok", found)


def _finite(observation: Any) -> bool:
    try:
        return bool(np.isfinite(np.asarray(observation, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return True  # not numbers: the finding on spaces says so


def _line(message: object) -> str:
    """The first line of a message, without terminal colours."""
    text = re.sub(r"\x1b\[\d+m", "", str(message)).strip()
    first = text.partition("\n")[0].removeprefix("WARN: ")
    if isinstance(message, Exception) and not isinstance(message, Warning):
        return f"{type(message).__name__}: {first}"
    return first
