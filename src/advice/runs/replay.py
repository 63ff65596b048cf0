"""An episode again, exactly: from its seed and the recorded actions, not from pictures.

Every method resets an episode with :func:`episode_seed`, so reset and recorded actions give the
same states bit for bit, as long as task and physics are the same. That is checked against the
record: an episode that comes out differently is an error, never a look-alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from advice.runs.loop import episode_seed, make_environment
from advice.runs.records import RunFolder, read_actions
from advice.shields.signals import five_values, read_signals
from advice.types import AdviceError, Array, EpisodeRecord, RateActions

Choice = Literal["worst", "first-violation", "last"]


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

    @property
    def intervened(self) -> Array:
        """(T,) bool: another action than the proposed one was executed."""
        return np.asarray((self.executed != self.proposed).any(axis=1))


class Counterfactual(NamedTuple):
    """What the vetoed action would have led to."""

    step: int
    """Steps before it, so the first step is 0."""
    needed: bool
    """True if holding the vetoed action leads to a violation or cost within the horizon."""
    harm_after: int
    """Steps until then; 0 if there was none."""
    harmed_anyway: bool
    """True if the recorded episode came to harm within the same horizon."""


def choose_episode(folder: RunFolder, choice: Choice | int) -> int:
    """The number (from 1) of the episode asked for."""
    records = folder.read_episodes()
    if not records:
        raise AdviceError(f"{folder.path}: expected at least one episode, found none")
    if isinstance(choice, int):
        if not 1 <= choice <= len(records):
            raise AdviceError(
                f"{folder.path}: expected an episode from 1 to {len(records)}, found {choice}"
            )
        return choice
    if choice == "last":
        return records[-1].episode
    violated = [record for record in records if record.violation]
    if choice == "first-violation":
        if not violated:
            raise AdviceError(f"{folder.path}: no episode of this run had a violation")
        return violated[0].episode
    # The worst episode cost most and, of those, earned least.
    return min(records, key=lambda record: (-record.cost, record.episode_return)).episode


def resimulate(folder: RunFolder, episode: int) -> Replay:
    """Play a recorded episode again; AdviceError if it does not come out as recorded."""
    env = make_environment(folder.read_config())
    try:
        return _simulate(env, folder, episode)
    finally:
        env.close()


def film(folder: RunFolder, episode: int) -> list[Array]:
    """The episode's frames from above; a red border where the shield stepped in."""
    from advice.runs.evaluate import bordered

    config = folder.read_config()
    env = make_environment(config, render_mode="rgb_array")
    frames = []
    try:
        executed, proposed = _recorded(env, folder, episode)
        env.reset(seed=episode_seed(config.seed, episode))
        for action, wanted in zip(executed, proposed, strict=True):
            env.step(_as_action(env, action))
            frames.append(bordered(env.render(), bool((action != wanted).any())))
    finally:
        env.close()
    return frames


def counterfactuals(folder: RunFolder, episode: int, horizon: int = 10) -> list[Counterfactual]:
    """At each intervention: restore the state and hold the vetoed action for ``horizon`` steps."""
    if horizon < 1:
        raise AdviceError(f"horizon: expected at least 1 step, found {horizon}")
    config = folder.read_config()
    env, other = make_environment(config), make_environment(config)
    inner = env.unwrapped
    harmful: list[bool] = []
    vetoed: list[tuple[int, int]] = []  # step, steps until harm (0: none)
    try:
        if not hasattr(inner, "get_state") or not hasattr(inner, "set_state"):
            raise AdviceError(
                f"{config.task}: counterfactuals need an environment with get_state and set_state"
            )
        executed, proposed = _recorded(env, folder, episode)
        env.reset(seed=episode_seed(config.seed, episode))
        for step, (action, wanted) in enumerate(zip(executed, proposed, strict=True)):
            if (action != wanted).any():
                other.reset(seed=0)  # wrappers count steps of their own
                other.unwrapped.set_state(inner.get_state())
                vetoed.append((step, _steps_to_harm(other, wanted, horizon)))
            _, _, terminated, truncated, info = five_values(env.step(_as_action(env, action)))
            harmful.append(_harm(info, terminated, truncated))
    finally:
        env.close()
        other.close()
    return [
        Counterfactual(step, after > 0, after, any(harmful[step : step + horizon]))
        for step, after in vetoed
    ]


def final_critic(folder: RunFolder) -> RateActions | None:
    """The critic as the run left it, or None if there is no checkpoint."""
    from advice.runs.evaluate import load_trained

    if not (folder.checkpoint / "state.safetensors").exists():
        return None
    trained = load_trained(folder)
    trained.env.close()
    return trained.agent.rate_actions


def save_film(folder: RunFolder, episode: int, path: Path) -> None:
    """Write the episode as an mp4."""
    from advice.runs.evaluate import write_video

    write_video(path, film(folder, episode))


def _simulate(env: Any, folder: RunFolder, episode: int) -> Replay:
    record = folder.read_episodes()[episode - 1]
    executed, proposed = _recorded(env, folder, episode)
    inner = env.unwrapped
    obs, _ = env.reset(seed=episode_seed(folder.read_config().seed, episode))
    layout = {kind: np.asarray(xy, float) for kind, xy in getattr(inner, "layout", {}).items()}
    observations, poses = [obs], [getattr(inner, "car_pose", None)]
    rewards, signals = [], []
    for action in executed:
        obs, reward, terminated, truncated, info = five_values(env.step(_as_action(env, action)))
        observations.append(obs)
        poses.append(getattr(inner, "car_pose", None))
        rewards.append(float(reward))
        signals.append(read_signals(info, terminated, truncated))
    task = getattr(inner, "task", None)
    replay = Replay(
        record=record,
        observations=np.array(observations),
        executed=executed,
        proposed=proposed,
        rewards=np.array(rewards),
        costs=np.array([s.cost for s in signals]),
        violations=np.array([s.violation for s in signals]),
        successes=np.array([s.success for s in signals]),
        poses=None if poses[0] is None else np.array(poses),
        layout=layout,
        sizes=_sizes(task),
        lidars=tuple(getattr(task, "observed", ())),
        bins=int(getattr(task, "lidar_bins", 0)),
    )
    _check(folder, replay, ended=signals[-1].terminated or signals[-1].truncated)
    return replay


def _check(folder: RunFolder, replay: Replay, ended: bool) -> None:
    """Is this the episode that was recorded?"""
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
    """How large things are, by the layout's names."""
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


def _steps_to_harm(env: Any, action: Array, horizon: int) -> int:
    for step in range(1, horizon + 1):
        _, _, terminated, truncated, info = five_values(env.step(_as_action(env, action)))
        if _harm(info, terminated, truncated):
            return step
        if terminated or truncated:
            return 0
    return 0


def _harm(info: dict[str, Any], terminated: bool, truncated: bool) -> bool:
    signals = read_signals(info, terminated, truncated)
    return signals.violation or signals.cost > 0


def _recorded(env: Any, folder: RunFolder, episode: int) -> tuple[Array, Array]:
    return read_actions(folder, episode, int(np.prod(env.action_space.shape)))


def _as_action(env: Any, flat: Array) -> Any:
    """A recorded action in the shape the environment takes."""
    space = env.action_space
    if hasattr(space, "n"):
        return int(flat[0])
    return flat.reshape(space.shape).astype(space.dtype)
