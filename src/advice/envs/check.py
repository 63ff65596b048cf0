"""Would shielding work on this environment? Findings, each with what to do about it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from advice.types import SettingError

SECONDS = 30.0
"""Random actions stop after this long, however slow the environment."""
REPEATED_STEPS = 200
SLOW_STEPS_PER_S = 50.0


class Finding(NamedTuple):
    """One thing that was examined."""

    name: str
    level: Literal["ok", "warning", "error"]
    found: str
    advice: str = ""


class Watched(NamedTuple):
    """What random actions showed."""

    steps: int
    episodes_ended: int
    signal: str | None
    """Where cost comes from: an info key, "6-value step", or None."""
    unsafe_steps: int
    unsafe_episodes: int
    not_finite: int
    out_of_bounds: int
    steps_per_s: float
    reset_ms: float


def check_env(
    make_env: Callable[[], gymnasium.Env[Any, Any]], episodes: int = 20, max_steps: int = 20_000
) -> list[Finding]:
    """Examine fresh environments; shielding would not work if any finding is an error.

    At most ``episodes`` episodes and ``max_steps`` steps of random actions are watched, and never
    for longer than :data:`SECONDS`.
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
        watched = _watch(make_env, episodes, max_steps)
        findings += [*_judge(watched), _check_repeats(make_env)]
    except Exception as error:
        findings.append(Finding("random actions", "error", _line(error), "mend this failure first"))
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
    from gymnasium.utils.env_checker import check_env as gymnasium_check

    env = make_env()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gymnasium_check(env.unwrapped, skip_render_check=True)
    except Exception as error:
        return [Finding("API", "error", _line(error), "mend what Gymnasium's checker names")]
    finally:
        env.close()
    said = dict.fromkeys(_line(warning.message) for warning in caught)
    if not said:
        return [Finding("API", "ok", "Gymnasium's checker has no complaints")]
    return [Finding("API", "warning", text, "see Gymnasium's checker") for text in said]


def _watch(
    make_env: Callable[[], gymnasium.Env[Any, Any]], episodes: int, max_steps: int
) -> Watched:
    """Random actions for some episodes, within the limits on steps and time."""
    env = make_env()
    env.action_space.seed(0)
    space = env.observation_space
    began, signal = time.perf_counter(), None
    resets, unsafe_steps, unsafe_episodes, ended, not_finite, outside = [], 0, 0, 0, 0, 0
    steps, step_seconds = 0, 0.0

    def within_limits() -> bool:
        return steps < max_steps and time.perf_counter() - began < SECONDS

    while ended < episodes and within_limits():
        start = time.perf_counter()
        observation, _ = env.reset(seed=ended)
        resets.append(time.perf_counter() - start)
        over, unsafe_here = False, False
        while not over and within_limits():
            not_finite += not _finite(observation)
            outside += _finite(observation) and not space.contains(observation)
            action = env.action_space.sample()
            start = time.perf_counter()
            result: tuple[Any, ...] = env.step(action)
            step_seconds += time.perf_counter() - start
            steps += 1
            observation, info = result[0], result[-1]
            over = bool(result[-3] or result[-2])
            source, unsafe = _unsafe(result, info)
            signal = signal or source
            unsafe_steps += unsafe
            unsafe_here |= unsafe
        not_finite += not _finite(observation)
        outside += _finite(observation) and not space.contains(observation)
        ended += over
        unsafe_episodes += unsafe_here
    env.close()
    return Watched(
        steps,
        ended,
        signal,
        unsafe_steps,
        unsafe_episodes,
        not_finite,
        outside,
        steps / max(step_seconds, 1e-9),
        1000.0 * float(np.median(resets)),
    )


def _judge(watched: Watched) -> list[Finding]:
    """Findings from what was watched."""
    return [
        _judge_signal(watched),
        _judge_ends(watched),
        _judge_observations(watched),
        _judge_speed(watched),
    ]


def _judge_signal(watched: Watched) -> Finding:
    if watched.signal is None:
        return Finding(
            "cost",
            "error",
            "no step reports cost or violation",
            'set info["cost"] or info["violation"], or give ShieldedEnv an outcome function',
        )
    source = f"from {watched.signal}"
    if watched.unsafe_steps == 0:
        return Finding(
            "cost",
            "warning",
            f"{source}, never above 0 in {watched.steps} random steps",
            "a shield learns from violations: check the signal, or construct it over more episodes",
        )
    if watched.unsafe_steps == watched.steps:
        return Finding(
            "cost",
            "error",
            f"{source}, above 0 at every one of {watched.steps} random steps",
            "nothing is ever safe, so nothing can be told apart: check the sign and the threshold",
        )
    share = f"{watched.unsafe_steps} of {watched.steps} random steps"
    return Finding("cost", "ok", f"{source}, fires in {share}, {watched.unsafe_episodes} episodes")


def _judge_ends(watched: Watched) -> Finding:
    if watched.episodes_ended == 0:
        return Finding(
            "episodes",
            "error",
            f"none ended within {watched.steps} steps",
            "a shield counts episodes: end them, or wrap with gymnasium.wrappers.TimeLimit",
        )
    length = watched.steps / watched.episodes_ended
    return Finding("episodes", "ok", f"{watched.episodes_ended} ended, {length:.0f} steps each")


def _judge_observations(watched: Watched) -> Finding:
    if watched.not_finite:
        found = f"{watched.not_finite} observations hold NaN or infinity"
        return Finding("observations", "error", found, "replace what is not a number at its source")
    if watched.out_of_bounds:
        found = f"{watched.out_of_bounds} observations lie outside the space"
        return Finding("observations", "warning", found, "widen the space or clip the observations")
    return Finding("observations", "ok", "finite and inside the space")


def _judge_speed(watched: Watched) -> Finding:
    found = f"{watched.steps_per_s:,.0f} steps/s, {watched.reset_ms:.2f} ms a reset"
    if watched.steps_per_s < SLOW_STEPS_PER_S:
        return Finding("speed", "warning", found, "training will take long: profile step()")
    return Finding("speed", "ok", found)


def _check_repeats(make_env: Callable[[], gymnasium.Env[Any, Any]]) -> Finding:
    """Two fresh environments, one seed, the same actions: the same episode?"""
    first, second = make_env(), make_env()
    first.action_space.seed(0)
    one, other = first.reset(seed=0), second.reset(seed=0)
    steps, over, same = 0, False, _equal(one[0], other[0])
    while same and not over and steps < REPEATED_STEPS:
        action = first.action_space.sample()
        results: list[tuple[Any, ...]] = [first.step(action), second.step(action)]
        steps += 1
        # All but info: observation, reward, perhaps cost, terminated, truncated.
        same = all(_equal(a, b) for a, b in zip(results[0][:-1], results[1][:-1], strict=True))
        over = bool(results[0][-3] or results[0][-2])
    first.close()
    second.close()
    if same:
        return Finding("repeats", "ok", f"same seed, same {steps} steps")
    advice = "draw all chance from self.np_random, seeded in reset(seed=...)"
    return Finding("repeats", "warning", f"same seed differs at step {steps}", advice)


def _unsafe(result: tuple[Any, ...], info: dict[str, Any]) -> tuple[str | None, bool]:
    """Where this step's cost comes from, and whether it is unsafe."""
    if len(result) == 6:
        return "6-value step", bool(result[2] > 0)
    for key in ("cost", "violation"):
        if key in info:
            return f'info["{key}"]', any(bool(info.get(k, 0) > 0) for k in ("cost", "violation"))
    return None, False


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def _finite(observation: Any) -> bool:
    try:
        return bool(np.isfinite(np.asarray(observation, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return True  # not numbers: the finding on spaces says so


def _space(space: gymnasium.Space[Any]) -> str:
    return f"{type(space).__name__}{space.shape or ''}"


def _line(message: object) -> str:
    """The first line of a message, without terminal colours."""
    text = str(message).replace("\x1b[33m", "").replace("\x1b[0m", "").strip()
    first = text.splitlines()[0].removeprefix("WARN: ") if text else ""
    if isinstance(message, Exception) and not isinstance(message, Warning):
        return f"{type(message).__name__}: {first}"
    return first
