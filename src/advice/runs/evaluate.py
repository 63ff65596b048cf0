"""How good is what was learnt? Greedy episodes with a trained agent, shielded or not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.agents.agent import Agent
from advice.envs.signals import normalize_step, read_signals
from advice.runs.checkpoints import Checkpointer
from advice.runs.loop import episode_seed, make_environment
from advice.runs.methods import build
from advice.runs.records import RunFolder
from advice.shields.base import NoShield, PostShield
from advice.types import AdviceError, Array, Verdict

FRESH = 2**31
"""Evaluation episodes are numbered from here, so their starts were never seen in training."""


class Trained(NamedTuple):
    """A run's task, agent and shield as training left them."""

    env: Any
    agent: Agent
    shield: PostShield


class Evaluation(NamedTuple):
    """One evaluated episode."""

    steps: int
    episode_return: float
    cost: float
    violation: bool
    success: bool
    interventions: int


def load_trained(folder: RunFolder, shielded: bool = True, **env_options: Any) -> Trained:
    """Restore what a run has learnt so far."""
    config = folder.read_config()
    env = make_environment(config, **env_options)
    agent, shield = build(config, env.observation_space, env.action_space)
    counters = Checkpointer(
        folder.checkpoint, {"agent": agent, "shield": shield}, agent.replay
    ).load()
    if counters.episode == 0:
        raise AdviceError(f"{folder.path}: expected a checkpoint, found none yet")
    return Trained(env, agent, shield if shielded else NoShield())


def evaluate(
    folder: RunFolder,
    episodes: int,
    shielded: bool = True,
    video: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Evaluation]:
    """Play ``episodes`` greedy episodes; K stays as it is. ``video`` films the first three."""
    if video:
        check_video_name(video)
    trained = load_trained(folder, shielded, **({"render_mode": "rgb_array"} if video else {}))
    seed = folder.read_config().seed
    frames: list[Array] = []
    results = []
    try:
        for number in range(episodes):
            film = frames if video and number < 3 else None
            results.append(play(trained, episode_seed(seed, FRESH + number), film))
            if progress:
                progress(number + 1)
    finally:
        trained.env.close()
    if video:
        write_video(video, frames)
    return results


def play(
    trained: Trained, seed: int, frames: list[Array] | None = None, explore: bool = False
) -> Evaluation:
    """One episode, greedy or with the noise of training; frames get a red border at vetoes."""
    env, agent, shield = trained
    obs, _ = env.reset(seed=seed)
    agent.start_episode()
    total = cost = 0.0
    steps = interventions = 0
    violated = succeeded = ended = False
    while not ended:
        proposed = agent.act(obs, explore=explore)
        if shield.armed:
            verdict = shield.guard(obs, proposed, agent.rate_actions)
        else:
            verdict = Verdict(proposed, False, 0, False)
        obs, reward, terminated, truncated, info = normalize_step(env.step(verdict.action))
        signals = read_signals(info, terminated)
        ended = terminated or truncated
        steps += 1
        total += float(reward)
        cost += signals.cost
        interventions += verdict.intervened
        violated = violated or signals.unsafe
        succeeded = succeeded or signals.success
        if frames is not None:
            frames.append(bordered(env.render(), verdict.intervened))
    return Evaluation(steps, total, cost, violated, succeeded, interventions)


def check_video_name(path: Path) -> None:
    """Before the work is done, not after."""
    if path.suffix.lower() not in (".mp4", ".mkv", ".mov", ".avi"):
        raise AdviceError(f"{path}: expected a video's name, such as {path.stem or 'video'}.mp4")


def write_video(path: Path, frames: list[Array], fps: int = 25) -> None:
    """An mp4 that plays everywhere; 25 frames a second is the tasks' real time."""
    import imageio.v2 as imageio

    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # JAX warns of any fork; the child that this one makes becomes ffmpeg at once.
        warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
        imageio.mimwrite(path, frames, fps=fps, codec="libx264", macro_block_size=16)  # type: ignore[arg-type]


def bordered(frame: Array, red: bool, width: int = 6) -> Array:
    """A copy of the frame, with a red border if asked for."""
    frame = np.array(frame)
    if red:
        for edge in (frame[:width], frame[-width:], frame[:, :width], frame[:, -width:]):
            edge[:] = (220, 40, 40)
    return frame
