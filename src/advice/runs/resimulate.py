"""Recorded episodes, simulated again from their seed and their recorded actions.

Every method resets an episode with :func:`episode_seed`, so the reset and the recorded actions
give the same states bit for bit as long as task and physics are the same. An episode that does
not come out as recorded is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from advice.config import TrainConfig
from advice.envs.rollout import Step, rollout
from advice.envs.signals import SignalRules
from advice.runs.evaluate import bordered, load_trained, write_video
from advice.runs.loop import environment_of, episode_seed, rules_of
from advice.runs.records import STATE_FILE, RunFolder, read_actions
from advice.types import AdviceError, Array, EpisodeRecord, RateActions

Choice = Literal["intervened", "worst", "first-violation", "any-violation"]
"""Which episode: the last armed one with interventions, the one of highest cost, the first one with
a violation after arming, or the first one with a violation at all."""


class Replay(NamedTuple):
    """One episode of T steps."""

    record: EpisodeRecord
    observations: Array
    """(T + 1, observation size)"""
    executed: Array
    """(T, action size)"""
    proposed: Array
    """(T, action size)"""
    rewards: Array
    """(T,)"""
    costs: Array
    """(T,)"""
    violations: Array
    """(T,) bool"""
    successes: Array
    """(T,) bool"""
    poses: Array | None
    """(T + 1, 3): x, y, heading, where the task has a car."""
    layout: dict[str, Array]
    """Positions (n, 2) by kind, where the task has them."""
    sizes: dict[str, float]
    """Radius or half edge by kind, and "arena"."""
    lidars: tuple[str, ...]
    """What the consecutive lidars of the observation see."""
    bins: int
    """Directions of each lidar; 0 if the observation has none."""
    fps: float
    """Steps a second at the environment's own pace."""

    @property
    def intervened(self) -> Array:
        """(T,) bool: another action than the proposed one was executed."""
        return np.asarray((self.executed != self.proposed).any(axis=1))


class Counterfactual(NamedTuple):
    """What the proposal would have led to at one intervention."""

    step: int
    """Steps before it, so the first step is 0."""
    needed: bool
    """True if holding the proposal leads to a violation or cost within the horizon."""
    harm_after: int
    """Steps until then; 0 if there was none."""
    harmed_anyway: bool
    """True if the recorded episode had a violation or cost within the same horizon."""


def choose_episode(folder: RunFolder, choice: Choice | int) -> int:
    """The number (from 1) of the episode asked for."""
    records = folder.read_episodes()
    if not records:
        raise AdviceError(f"{folder.path}: expected at least one episode, found none")
    if isinstance(choice, int):
        return choice
    armed = [record for record in records if record.k > 0]
    if choice == "intervened":  # the last one: the shield was then as the run left it
        busy = [record for record in armed if record.interventions]
        if busy:
            return busy[-1].episode
    elif choice != "worst":
        looked = records if choice == "any-violation" else armed
        for record in looked:
            if record.violation:
                return record.episode
        when = ""
        if looked is armed:
            after = f"after the shield was armed in episode {armed[0].episode}" if armed else ""
            when = f" {after or '(its shield was never armed)'}; --any takes any episode"
        raise AdviceError(f"{folder.path}: no episode with a violation{when}")
    # The worst episode cost most and, of those, earned least.
    return min(records, key=lambda record: (-record.cost, record.episode_return)).episode


def resimulate(folder: RunFolder, episode: int) -> Replay:
    """Simulate a recorded episode; AdviceError if it does not come out as recorded."""
    env = environment_of(folder)
    try:
        return _simulate(env, folder, episode)
    finally:
        env.close()


def film(folder: RunFolder, replay: Replay, every: int = 1) -> list[Array]:
    """Frames of the start, of every so many steps and of the end; AdviceError if there are none."""
    config = folder.read_config()
    env = environment_of(folder, render_mode="rgb_array")
    try:
        _, steps = _repeat(env, config, replay.record.episode, replay.executed)
        frames = [env.render()]
        for number, step in enumerate(steps, 1):
            if number % every == 0 or step.ended:
                frames.append(env.render())
    finally:
        env.close()
    if any(np.ndim(frame) != 3 for frame in frames):
        raise AdviceError(f"{config.task}: expected frames (render_mode='rgb_array'), found none")
    return frames


def save_film(folder: RunFolder, replay: Replay, path: Path) -> None:
    """The episode as a video, with a red border at interventions."""
    intervened = [False, *replay.intervened.tolist()]
    frames = film(folder, replay)
    write_video(path, [bordered(*pair) for pair in zip(frames, intervened, strict=True)])


def counterfactuals(folder: RunFolder, replay: Replay, horizon: int = 10) -> list[Counterfactual]:
    """At each intervention: restore the state and hold the proposal for ``horizon`` steps."""
    if horizon < 1:
        raise AdviceError(f"horizon: expected at least 1 step, found {horizon}")
    config = folder.read_config()
    env, other = environment_of(folder), environment_of(folder)
    inner, shape = env.unwrapped, env.action_space.shape
    rules = rules_of(config, env)
    unsafe = replay.violations | (replay.costs > 0)
    found = []
    try:
        if not hasattr(inner, "get_state") or not hasattr(inner, "set_state"):
            raise AdviceError(
                f"{config.task}: counterfactuals need an environment with get_state and set_state"
            )
        _, steps = _repeat(env, config, replay.record.episode, replay.executed)
        for step, intervened in enumerate(replay.intervened):
            if intervened:
                obs, _ = other.reset(seed=0)  # wrappers count steps of their own
                other.unwrapped.set_state(inner.get_state())
                proposed = replay.proposed[step].reshape(shape)
                after = _steps_to_unsafe(other, obs, proposed, horizon, rules)
                anyway = bool(unsafe[step : step + horizon].any())
                found.append(Counterfactual(step, after > 0, after, anyway))
            next(steps)
    finally:
        env.close()
        other.close()
    return found


def final_critic(folder: RunFolder) -> RateActions | None:
    """The critic as the run left it, or None if there is no checkpoint."""
    if not (folder.checkpoint / STATE_FILE).exists():
        return None
    trained = load_trained(folder)
    trained.env.close()
    return trained.agent.rate_actions


def _repeat(
    env: Any, config: TrainConfig, episode: int, executed: Array
) -> tuple[Array, Iterator[Step]]:
    """What the reset of an episode returns, then one step per recorded action."""
    obs, _ = env.reset(seed=episode_seed(config.seed, episode))
    actions = iter(executed.reshape(-1, *env.action_space.shape))
    return obs, rollout(env, obs, lambda _: next(actions), len(executed), rules_of(config, env))


def _simulate(env: Any, folder: RunFolder, episode: int) -> Replay:
    executed, proposed = read_actions(folder, episode, env.action_space)
    record = folder.read_episodes()[episode - 1]
    inner = env.unwrapped
    first, repeated = _repeat(env, folder.read_config(), episode, executed)
    layout = {kind: np.asarray(xy, float) for kind, xy in getattr(inner, "layout", {}).items()}
    poses = [getattr(inner, "car_pose", None)]
    steps = []
    for step in repeated:
        steps.append(step)
        poses.append(getattr(inner, "car_pose", None))
    task = getattr(inner, "task", None)
    replay = Replay(
        record=record,
        observations=np.array([first, *(step.obs for step in steps)]),
        executed=executed,
        proposed=proposed,
        rewards=np.array([step.reward for step in steps]),
        costs=np.array([step.signals.cost for step in steps]),
        violations=np.array([step.signals.violation for step in steps]),
        successes=np.array([step.signals.success for step in steps]),
        poses=None if poses[0] is None else np.array(poses),
        layout=layout,
        sizes=_sizes(task),
        lidars=tuple(getattr(task, "observed", ())),
        bins=int(getattr(task, "lidar_bins", 0)),
        fps=float(env.metadata.get("render_fps") or 25),
    )
    _check(folder, replay, steps[-1].ended and len(steps) == len(executed))
    return replay


def _check(folder: RunFolder, replay: Replay, ended: bool) -> None:
    """Raise AdviceError unless this is the episode that was recorded."""
    record = replay.record
    violated = bool(replay.violations.any() or (replay.costs > 0).any())
    found = (sum(replay.rewards.tolist()), violated, bool(replay.successes.any()))
    expected = (record.episode_return, record.violation, record.success)
    if not ended or found != expected:
        raise AdviceError(
            f"{folder.path}: episode {record.episode} cannot be repeated: expected return, "
            f"violation and success {expected}, found {found}. The code, MuJoCo or the machine may "
            "differ from the one that made the run (see its config.json)"
        )


def _sizes(task: Any) -> dict[str, float]:
    """Sizes by the layout's names."""
    names = {
        "arena": "arena",
        "cubes": "cube_half_edge",
        "goal": "button_radius" if getattr(task, "target", "") == "button" else "goal_radius",
        "circle": "circle_radius",
        "buttons": "button_radius",
        "pillars": "pillar_radius",
        "hazards": "hazard_radius",
    }
    return {kind: float(getattr(task, name)) for kind, name in names.items() if hasattr(task, name)}


def _steps_to_unsafe(env: Any, obs: Array, action: Array, horizon: int, rules: SignalRules) -> int:
    """Steps of ``action`` until one is unsafe; 0 if none is within ``horizon``."""
    steps = rollout(env, obs, lambda _: action, horizon, rules)
    return next((number for number, step in enumerate(steps, 1) if step.signals.unsafe), 0)
