"""Evaluation: greedy episodes with a trained agent, with or without its shield."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.agents.agent import Agent
from advice.envs.signals import SignalRules, rollout
from advice.files import read_arrays
from advice.runs.checkpoints import Checkpointer
from advice.runs.methods import build, environment_of, episode_seed
from advice.runs.records import RunFolder
from advice.shields.base import NoShield, PostShield
from advice.shields.bounds import clopper_pearson
from advice.shields.decisions import StepGuard
from advice.shields.shield import Shield
from advice.shields.tabular import TabularShield
from advice.types import AdviceError, Array, BrokenFileError, Verdict

FRESH = 2**31
"""Evaluation episodes are numbered from here, so their starts were never seen in training."""


class Trained(NamedTuple):
    """A run's task, agent and shield as training left them, and how to read the task's steps."""

    env: Any
    agent: Agent
    shield: PostShield
    rules: SignalRules


class Evaluation(NamedTuple):
    """One evaluated episode."""

    steps: int
    episode_return: float
    cost: float
    violation: bool
    success: bool
    interventions: int
    no_safe_action: int  # steps that were left to the fallback
    under_fallback: bool  # the violation came of such a step


def load_trained(folder: RunFolder, shielded: bool = True, **env_options: Any) -> Trained:
    """Restore what a run has learnt so far."""
    config = folder.read_config()
    env = environment_of(folder, **env_options)
    agent, shield = build(config, env.observation_space, env.action_space)
    parts = {"agent": agent, "shield": shield}
    if not Checkpointer(folder.checkpoint, parts, agent.replay).load().episode:
        shield = _restore_exported(folder, agent, shield)
    rules = SignalRules.of(env, config.env.terminal)
    return Trained(env, agent, shield if shielded else NoShield(), rules)


def _restore_exported(folder: RunFolder, agent: Agent, shield: PostShield) -> PostShield:
    """Agent and shield from their files, of a run that was kept without its checkpoint."""
    learnt: list[tuple[Path, str, Any]] = [(folder.agent_file, "agent", agent)]
    if isinstance(shield, TabularShield):
        learnt.append((folder.table_file, "table", shield))
    for file, kind, part in learnt:
        if not file.exists():
            raise AdviceError(
                f"{folder.path}: expected a checkpoint or {file.name}, found neither: the run has "
                f"none yet, or was kept without its {kind}"
            )
        state = read_arrays(file, kind, 1)
        try:
            part.restore(*state)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenFileError(f"{file}: does not fit the run: {error!r}") from error
    if isinstance(shield, Shield) and folder.shield_file.exists():
        return Shield.load(folder.shield_file, *shield.space)
    return shield


def evaluate(
    folder: RunFolder,
    episodes: int,
    shielded: bool = True,
    video: Path | None = None,
    progress: Callable[[int], None] = lambda episodes: None,
) -> list[Evaluation]:
    """Play ``episodes`` greedy episodes with a fixed K; ``video`` shows the first three."""
    if video:
        check_video_name(video)
    trained = load_trained(folder, shielded, **({"render_mode": "rgb_array"} if video else {}))
    seed, frames, results = folder.read_config().seed, list[Array](), list[Evaluation]()
    try:
        for number in range(episodes):
            shown = frames if video and number < 3 else None
            results.append(play(trained, episode_seed(seed, FRESH + number), shown))
            progress(number + 1)
    finally:
        trained.env.close()
    if video:
        write_video(video, frames)
    return results


def play(
    trained: Trained, seed: int, frames: list[Array] | None = None, explore: bool = False
) -> Evaluation:
    """One episode, greedy or with exploration noise; frames of interventions get a red border."""
    env, agent, shield, rules = trained
    guard, verdicts = StepGuard(), list[Verdict]()

    def choose(obs: Any) -> Any:
        proposed = agent.act(obs, explore=explore)
        verdicts.append(guard(shield, obs, proposed, agent.rate_actions))
        return verdicts[-1].action

    obs, _ = env.reset(seed=seed)
    agent.start_episode()
    steps = []
    for step in rollout(env, obs, choose, rules=rules):
        steps.append(step)
        guard.inside = step.signals.unsafe
        if frames is not None:
            frames.append(bordered(env.render(), verdicts[-1].intervened))
    unsafe = [step.signals.unsafe for step in steps]
    hopeless = [verdict.no_safe_action or verdict.fallback for verdict in verdicts]
    return Evaluation(
        len(steps),
        sum(step.reward for step in steps),
        sum(step.signals.cost for step in steps),
        any(unsafe),
        any(step.signals.success for step in steps),
        sum(verdict.intervened for verdict in verdicts),
        sum(hopeless),
        any(pair == (True, True) for pair in zip(unsafe, hopeless, strict=True)),
    )


def summary_rows(results: Sequence[Evaluation], shielded: bool = True) -> list[tuple[str, str]]:
    """What happened, as (name, value)."""
    count, total = len(results), Evaluation(*(sum(column) for column in zip(*results, strict=True)))
    return [
        ("episodes", f"{count}{'' if shielded else ' (without the shield)'}"),
        ("violations", f"{total.violation}"),
        ("  under the fallback", f"{total.under_fallback}"),
        ("successes", f"{total.success}"),
        ("mean return", f"{total.episode_return / count:.3f}"),
        ("mean cost", f"{total.cost / count:.3f}"),
        ("mean steps", f"{total.steps / count:.1f}"),
        ("interventions", f"{total.interventions}"),
        ("steps left to the fallback", f"{total.no_safe_action}"),
    ]


def bound_in_words(results: Sequence[Evaluation], shielded: bool = True) -> str:
    """The bound on the violation probability, and what it does not say."""
    what, rest = "agent as it is, without its shield", ""
    if shielded:
        what = "agent and shield as they are"
        rest = " Nothing is said about refused actions: they are never tested."
    bound = clopper_pearson(sum(r.violation for r in results), len(results))
    return (
        f"violation probability per episode: at most {bound:.1%} with 95 % confidence "
        f"(Clopper-Pearson), for this {what}, on episodes like these.{rest}"
    )


def certify_shield(folder: RunFolder, results: Sequence[Evaluation], shielded: bool = True) -> str:
    """Write the result into the run's shield file, which an unarmed shield lacks, and its card."""
    if not (shielded and folder.shield_file.exists()):
        raise AdviceError(
            f"{folder.path}: expected episodes with a fitted ADVICE shield to certify, found none"
        )
    shield = Shield.load(folder.shield_file)
    shield.certify(sum(r.violation for r in results), len(results))
    shield.save(folder.shield_file)
    return f"certified: {folder.shield_file}"


def check_video_name(path: Path) -> None:
    """Raise AdviceError unless the name ends like a video's."""
    if path.suffix.lower() not in (".mp4", ".mkv", ".mov", ".avi"):
        raise AdviceError(f"{path}: expected a video's name, such as {path.stem or 'video'}.mp4")


def write_video(path: Path, frames: list[Array], fps: int = 25) -> None:
    """An H.264 video; 25 frames a second is the tasks' real time."""
    import imageio.v2 as imageio

    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # JAX warns of any fork; this child process becomes ffmpeg at once.
        warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
        imageio.mimwrite(path, frames, fps=fps, codec="libx264", macro_block_size=16)  # type: ignore[arg-type]


def bordered(frame: Array, red: bool, width: int = 6) -> Array:
    """A copy of the frame, with a red border if asked for."""
    frame = np.array(frame)
    if red:
        for edge in (frame[:width], frame[-width:], frame[:, :width], frame[:, -width:]):
            edge[:] = (220, 40, 40)
    return frame
