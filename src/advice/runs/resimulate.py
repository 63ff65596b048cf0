"""Recorded episodes, simulated again from their seed and their recorded actions.

Every method resets an episode with :func:`episode_seed`, so the reset and the recorded actions
give the same states bit for bit as long as task and physics are the same. An episode that does
not come out as recorded is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from advice.config import TrainConfig
from advice.envs.model import camera_height
from advice.envs.signals import SignalRules, Step, rollout
from advice.runs.actions import read_actions
from advice.runs.evaluate import bordered, load_trained, write_video
from advice.runs.methods import environment_of, episode_seed
from advice.runs.records import RunFolder
from advice.types import AdviceError, Array, EpisodeRecord, RateActions

Choice = Literal["intervened", "worst", "first-violation", "any-violation"]
"""Which episode: the last armed one with interventions (a success, if there is one), the one of
highest cost, the first one with a violation after arming, or the first one with a violation."""


class Replay(NamedTuple):
    """One episode of T steps."""

    record: EpisodeRecord
    observations: Array  # (T + 1, observation size)
    executed: Array  # (T, action size)
    proposed: Array  # (T, action size)
    rewards: Array  # (T,)
    costs: Array  # (T,)
    violations: Array  # (T,) bool
    successes: Array  # (T,) bool
    poses: Array | None  # (T + 1, 3): x, y, heading, where the task has a car
    layout: dict[str, Array]  # positions (n, 2) by kind, where the task has them
    sizes: dict[str, float]  # radius or half edge by kind, and "arena"
    lidars: tuple[str, ...]  # what the consecutive lidars of the observation see
    bins: int  # directions of each lidar; 0 if the observation has none
    fps: float  # steps a second at the environment's own pace

    @property
    def intervened(self) -> Array:
        """(T,) bool: another action than the proposed one was executed."""
        return np.asarray((self.executed != self.proposed).any(axis=1))

    @property
    def farthest(self) -> float:
        """Half the side of a square that holds the arena and the car's way, in metres; 0 if there
        is no car."""
        if self.poses is None:
            return 0.0
        return max(self.sizes["arena"], float(np.abs(self.poses[:, :2]).max()))


class Counterfactual(NamedTuple):
    """What the proposal would have led to at one intervention."""

    step: int  # steps before it, so the first step is 0
    needed: bool  # holding the proposal leads to a violation or cost within the horizon
    harm_after: int  # steps until then; 0 if there was none
    harmed_anyway: bool  # the recorded episode had a violation or cost within the same horizon


def choose_episode(folder: RunFolder, choice: Choice | int) -> int:
    """The number (from 1) of the episode asked for."""
    records = folder.read_episodes()
    if not records:
        raise AdviceError(f"{folder.path}: expected at least one episode, found none")
    if isinstance(choice, int):
        return choice
    armed = [record for record in records if record.k > 0]
    if choice in ("first-violation", "any-violation"):
        looked = records if choice == "any-violation" else armed
        for record in looked:
            if record.violation:
                return record.episode
        when = ""
        if looked is armed:
            when = " after arming (its shield was never armed)"
            if armed:
                when = f" after the shield was armed in episode {armed[0].episode}"
            when += "; --any takes the first violation of all"
        raise AdviceError(f"{folder.path}: no episode with a violation{when}")
    busy = [record for record in armed if record.interventions]
    if choice == "intervened" and busy:  # the last: the shield was then nearly as the run left it
        return ([record for record in busy if record.success] or busy)[-1].episode
    # The worst episode cost most and, of those, earned least.
    return min(records, key=lambda record: (-record.cost, record.episode_return)).episode


def resimulate(folder: RunFolder, episode: int) -> Replay:
    """Simulate a recorded episode; AdviceError if it does not come out as recorded."""
    with closing(environment_of(folder)) as env:
        executed, proposed = read_actions(folder, episode, env.action_space)
        record, inner = folder.read_episodes()[episode - 1], env.unwrapped
        first, repeated = _repeat(env, folder.read_config(), episode, executed)
        layout = {kind: np.asarray(xy, float) for kind, xy in getattr(inner, "layout", {}).items()}
        steps, poses = [], [getattr(inner, "car_pose", None)]
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
    unsafe, success = any(x.signals.unsafe for x in steps), bool(replay.successes.any())
    total = float(replay.rewards.cumsum()[-1])  # added up as the loop does; sum() rounds otherwise
    found = (total, unsafe, success)
    expected = (record.episode_return, record.violation, record.success)
    if not steps[-1].ended or len(steps) != len(executed) or found != expected:
        raise AdviceError(
            f"{folder.path}: episode {episode} cannot be repeated: expected return, violation and "
            f"success {expected}, found {found}. The code, MuJoCo or the machine may differ from "
            "the one that made the run (see its config.json)"
        )
    return replay


def film(
    folder: RunFolder, replay: Replay, every: int = 1, farthest: float | None = None
) -> list[Array]:
    """Frames of the start, of every so many steps and of the end; AdviceError if there are none.

    The picture shows ``farthest`` metres to each side and a border, by default as far as the car
    gets.
    """
    config = folder.read_config()
    with closing(environment_of(folder, render_mode="rgb_array")) as env:
        if replay.poses is not None:
            height = camera_height(farthest or replay.farthest)
            env.unwrapped.model.camera("top").pos[2] = height
        _, steps = _repeat(env, config, replay.record.episode, replay.executed)
        frames = [env.render()]
        for number, step in enumerate(steps, 1):
            if number % every == 0 or step.ended:
                frames.append(env.render())
    if any(np.ndim(frame) != 3 for frame in frames):
        raise AdviceError(f"{config.task}: expected frames (render_mode='rgb_array'), found none")
    return frames


def save_film(folder: RunFolder, replay: Replay, path: Path) -> None:
    """The episode as a video, with a red border at interventions."""
    intervened = [False, *replay.intervened.tolist()]
    pairs = zip(film(folder, replay), intervened, strict=True)
    write_video(path, [bordered(*pair) for pair in pairs])


def counterfactuals(folder: RunFolder, replay: Replay, horizon: int = 10) -> list[Counterfactual]:
    """At each intervention: restore the state and hold the proposal for ``horizon`` steps."""
    if horizon < 1:
        raise AdviceError(f"horizon: expected at least 1 step, found {horizon}")
    config, found = folder.read_config(), []
    unsafe = replay.violations | (replay.costs > 0)
    with closing(environment_of(folder)) as env, closing(environment_of(folder)) as other:
        inner, rules = env.unwrapped, SignalRules.of(env, config.env.terminal)
        if not hasattr(inner, "get_state") or not hasattr(inner, "set_state"):
            raise AdviceError(
                f"{config.task}: counterfactuals need an environment with get_state and set_state"
            )
        _, steps = _repeat(env, config, replay.record.episode, replay.executed)
        for number, intervened in enumerate(replay.intervened):
            if intervened:
                obs, _ = other.reset(seed=0)  # wrappers count steps of their own
                other.unwrapped.set_state(inner.get_state())
                trial = _follow(other, obs, replay.proposed[[number] * horizon], rules)
                after = next((n for n, step in enumerate(trial, 1) if step.signals.unsafe), 0)
                anyway = bool(unsafe[number : number + horizon].any())
                found.append(Counterfactual(number, after > 0, after, anyway))
            next(steps)
    return found


def final_critic(folder: RunFolder) -> RateActions | None:
    """The critic as the run left it, or None if neither checkpoint nor agent was kept."""
    if not (folder.state_file.exists() or folder.agent_file.exists()):
        return None
    trained = load_trained(folder)
    trained.env.close()
    return trained.agent.rate_actions


def _repeat(
    env: Any, config: TrainConfig, episode: int, executed: Array
) -> tuple[Array, Iterator[Step]]:
    """What the reset of an episode returns, then one step per recorded action."""
    obs, _ = env.reset(seed=episode_seed(config.seed, episode))
    return obs, _follow(env, obs, executed, SignalRules.of(env, config.env.terminal))


def _follow(env: Any, obs: Array, actions: Array, rules: SignalRules) -> Iterator[Step]:
    """Execute the actions (n, size) until they or the episode end."""
    remaining = iter(actions.reshape(-1, *env.action_space.shape))
    return rollout(env, obs, lambda _: next(remaining), len(actions), rules)


def _sizes(task: Any) -> dict[str, float]:
    """Sizes by the layout's names."""
    target = "button_radius" if getattr(task, "target", "") == "button" else "goal_radius"
    names = {"arena": "arena", "cubes": "cube_half_edge", "goal": target}
    names |= {"circle": "circle_radius", "buttons": "button_radius"}
    names |= {"pillars": "pillar_radius", "hazards": "hazard_radius"}
    return {kind: float(getattr(task, name)) for kind, name in names.items() if hasattr(task, name)}
