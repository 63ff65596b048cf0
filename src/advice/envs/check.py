"""Checks whether a shield can work on an environment: findings, each with what to do."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils import env_checker

from advice.envs.rollout import rollout
from advice.envs.signals import WHAT_TO_GIVE, SignalRules, Signals
from advice.types import SettingError, Terminal

SECONDS = 30.0
"""Time limit of the random actions."""
REPEATED_STEPS = 200
SLOW_STEPS_PER_S = 50.0
BOTH_CLASSES = ("violations", "safe steps", "episodes")
"""Findings that must be in order for a shield to have both classes of steps to learn from."""
QUIET_STEPS = 5
"""A step counts as quiet if neither it nor the next ones, this many, are unsafe."""


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    level: Literal["ok", "warning", "error"]
    found: str
    advice: str = ""


class Step(NamedTuple):
    """One step of random actions."""

    episode: int
    first: bool
    ended: bool
    signals: Signals
    finite: bool
    inside: bool
    """False if the observation is finite but not in its space."""
    seconds: float


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
        steps, reset_ms = _random_steps(make_env, episodes, max_steps, terminal)
        findings += [
            _check_violations(steps, values),
            _check_safe_steps(steps),
            _check_ends(steps),
            _check_observations(steps),
            _check_speed(steps, reset_ms),
            _check_repeats(make_env),
        ]
    except Exception as error:
        findings.append(Finding("random actions", "error", _line(error), "fix this error first"))
    return findings


def _check_spaces(env: gymnasium.Env[Any, Any]) -> Finding:
    """A shield needs numbers of a fixed size to embed, and bounded actions to choose from."""
    observation, action = env.observation_space, env.action_space
    found = f"observation {_space(observation)}, action {_space(action)}"
    if not isinstance(observation, gymnasium.spaces.Box):
        return Finding("spaces", "error", found, "flatten observations into a Box")
    if isinstance(action, gymnasium.spaces.Discrete):
        return Finding("spaces", "ok", found)
    if not isinstance(action, gymnasium.spaces.Box):
        return Finding("spaces", "error", found, "a shield needs a Box or Discrete action space")
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        return Finding("spaces", "error", found, "give the action space finite bounds")
    if not (np.isfinite(observation.low).all() and np.isfinite(observation.high).all()):
        return Finding("spaces", "ok", found, "unbounded observations are scaled from the data")
    return Finding("spaces", "ok", found)


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


def conclude(findings: list[Finding]) -> str:
    """The conclusion of all findings in one sentence."""
    if any(finding.level == "error" for finding in findings):
        return "shielding does not work here yet: fix the errors first"
    missing = [f.name for f in findings if f.name in BOTH_CLASSES and f.level != "ok"]
    if missing:
        return f"whether shielding works here is not known: see {' and '.join(missing)}"
    return "shielding can work here: violations are reported and there are safe steps to learn from"


def _random_steps(
    make_env: Callable[[], gymnasium.Env[Any, Any]],
    episodes: int,
    max_steps: int,
    terminal: Terminal | None,
) -> tuple[list[Step], float]:
    """The steps of random actions within the limits, and the median time of a reset in ms."""
    env = make_env()
    env.action_space.seed(0)
    rules = SignalRules.of(env, terminal)
    deadline = time.perf_counter() + SECONDS
    steps: list[Step] = []
    resets = []
    began = 0.0

    def choose(_: Any) -> Any:
        nonlocal began
        action = env.action_space.sample()
        began = time.perf_counter()
        return action

    for episode in range(episodes):
        began = time.perf_counter()
        observation, _ = env.reset(seed=episode)
        resets.append(time.perf_counter() - began)
        ended = False
        first = True
        for step in rollout(env, observation, choose, max_steps - len(steps), rules):
            now = time.perf_counter()
            finite, ended = _finite(step.obs), step.ended
            inside = not finite or step.obs in env.observation_space
            seconds = now - began
            steps.append(Step(episode, first, ended, step.signals, finite, inside, seconds))
            first = False
            if now >= deadline:
                break
        if not ended:
            break
    env.close()
    return steps, 1000.0 * float(np.median(resets))


def _check_violations(steps: list[Step], values: int) -> Finding:
    """A shield needs unsafe steps: something must report them, and they must occur."""
    source = next((step.signals.source for step in steps if step.signals.source), "")
    unsafe = [step for step in steps if step.signals.unsafe]
    if not source:
        found = "no step says whether it is a violation"
        return Finding("violations", "error", found, WHAT_TO_GIVE)
    said = f"read from {_named(source)}" if values == 5 else "read from the 6-value step"
    if not unsafe:
        found = f"{said}, none in {len(steps)} random steps"
        advice = f"use more episodes, or check what reports them: {WHAT_TO_GIVE}"
        return Finding("violations", "warning", found, advice)
    if len(unsafe) == len(steps):
        found = f"{said}, in all {len(steps)} random steps"
        advice = "a shield needs safe steps too: check the sign and the threshold"
        return Finding("violations", "error", found, advice)
    episodes = len({step.episode for step in unsafe})
    found = f"{said}, in {len(unsafe)} of {len(steps)} random steps, {episodes} episodes"
    return Finding("violations", "ok", found)


def _check_safe_steps(steps: list[Step]) -> Finding:
    """A shield needs safe steps other than the first ones of episodes."""
    quiet = successes = 0
    for i, step in enumerate(steps):
        following = [s for s in steps[i : i + 1 + QUIET_STEPS] if s.episode == step.episode]
        quiet += not step.first and not any(s.signals.unsafe for s in following)
        successes += step.signals.success and not step.signals.unsafe
    found = f"{quiet} quiet steps after the first of their episode, {successes} successes"
    if quiet + successes:
        return Finding("safe steps", "ok", found)
    advice = "only first steps would be safe examples: start farther from danger, or report success"
    return Finding("safe steps", "warning", found, advice)


def _check_ends(steps: list[Step]) -> Finding:
    """A shield needs episodes that end, and ends that are explained."""
    ends = [step for step in steps if step.ended]
    if not ends:
        found = f"none ended within {len(steps)} steps"
        advice = "a shield counts episodes: end them, or wrap with gymnasium.wrappers.TimeLimit"
        return Finding("episodes", "error", found, advice)
    unexplained = sum(step.signals.unexplained for step in ends)
    unsafe = sum(step.signals.unsafe for step in ends)
    successes = sum(step.signals.success and not step.signals.unsafe for step in ends)
    others = len(ends) - unexplained - unsafe - successes
    found = (
        f"{len(ends)} ended, {len(steps) / len(ends):.0f} steps each: {unsafe} with a violation, "
        f"{successes} with success, {others} with neither, {unexplained} unexplained"
    )
    if unexplained:
        advice = (
            'nothing says what these terminations mean: give terminal="failure" or '
            'terminal="success" (--terminal), or set info["violation"] and info["success"]'
        )
        return Finding("episodes", "warning", found, advice)
    return Finding("episodes", "ok", found)


def _check_observations(steps: list[Step]) -> Finding:
    if not_finite := sum(not step.finite for step in steps):
        found = f"{not_finite} observations have NaN or infinity"
        return Finding("observations", "error", found, "replace what is not a number at its source")
    if outside := sum(not step.inside for step in steps):
        found = f"{outside} observations are outside the space"
        return Finding("observations", "warning", found, "widen the space or clip the observations")
    return Finding("observations", "ok", "finite and inside the space")


def _check_speed(steps: list[Step], reset_ms: float) -> Finding:
    steps_per_s = len(steps) / max(sum(step.seconds for step in steps), 1e-9)
    found = f"{steps_per_s:,.0f} steps/s, {reset_ms:.2f} ms per reset"
    if steps_per_s < SLOW_STEPS_PER_S:
        return Finding("speed", "warning", found, "training will take long: profile step()")
    return Finding("speed", "ok", found)


def _check_repeats(make_env: Callable[[], gymnasium.Env[Any, Any]]) -> Finding:
    """Two new environments with the same seed and actions give the same episode."""
    first, second = make_env(), make_env()
    first.action_space.seed(0)
    one, other = (env.reset(seed=0)[0] for env in (first, second))
    actions: list[Any] = []
    drawn = rollout(first, one, lambda _: actions[-1], REPEATED_STEPS)
    repeated = rollout(second, other, lambda _: actions[-1], REPEATED_STEPS)
    same, ended = env_checker.data_equivalence(one, other, exact=True), False
    while same and not ended and len(actions) < REPEATED_STEPS:
        actions.append(first.action_space.sample())
        a, b = next(drawn), next(repeated)
        ours, theirs = ((*x[:4], *x.signals) for x in (a, b))
        same = env_checker.data_equivalence(ours, theirs, exact=True)
        ended = a.ended
    steps = len(actions)
    first.close()
    second.close()
    if same:
        return Finding("repeats", "ok", f"same seed, same {steps} steps")
    advice = "draw all random numbers from self.np_random, seeded in reset(seed=...)"
    return Finding("repeats", "warning", f"same seed differs at step {steps}", advice)


def _finite(observation: Any) -> bool:
    try:
        return bool(np.isfinite(np.asarray(observation, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return True  # not numbers: the finding on spaces says so


def _named(source: str) -> str:
    """A key of info as one writes it; other sources are sentences."""
    return f'info["{source}"]' if source.isidentifier() else source


def _space(space: gymnasium.Space[Any]) -> str:
    return f"{type(space).__name__}{space.shape or ''}"


def _line(message: object) -> str:
    """The first line of a message, without terminal colours."""
    text = str(message).replace("\x1b[33m", "").replace("\x1b[0m", "").strip()
    first = text.splitlines()[0].removeprefix("WARN: ") if text else ""
    if isinstance(message, Exception) and not isinstance(message, Warning):
        return f"{type(message).__name__}: {first}"
    return first
