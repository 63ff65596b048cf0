"""A short run on a real task: straight driving behind a real shield, recorded as training does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from advice import Shield
from advice.config import EnvConfig, ShieldConfig, TrainConfig
from advice.envs.signals import read_signals
from advice.runs.checkpoints import RecordWriter
from advice.runs.methods import episode_seed, make_environment
from advice.runs.records import RunFolder
from advice.shields.memory import EpisodeLabels
from advice.types import EpisodeRecord, Verdict

SHIELD = ShieldConfig(construction_episodes=12, hidden_size=16, fit_steps=100, fallback="proposed")


def drive(
    root: Path, method: str = "advice", episodes: int = 20, shield: ShieldConfig = SHIELD
) -> RunFolder:
    """Drive forwards with a random bend until something happens; fit the shield on the way."""
    config = TrainConfig(
        task="semi-random-goal",
        method=method,
        episodes=episodes,
        shield=shield,
        env=EnvConfig(max_episode_steps=60),
    )
    folder = RunFolder.of(root, config)
    folder.path.mkdir(parents=True)
    folder.write_config(config)
    env = make_environment(config)
    guard = Shield(env.observation_space, env.action_space, config.shield, config.seed)
    writer = RecordWriter(folder, env.action_space, 0, 0)
    generator = np.random.default_rng(3)
    total = 0
    for number in range(1, episodes + 1):
        obs, _ = env.reset(seed=episode_seed(config.seed, number))
        labels = EpisodeLabels(shield.labels, shield.unsafe_per_episode)
        drift = generator.uniform(0.6, 1.0, 2)
        steps = interventions = no_safe = 0
        earned = cost = 0.0
        violated = succeeded = ended = False
        while not ended:
            noisy = drift + generator.normal(0, 0.2, 2)
            proposed = np.clip(noisy, -1, 1).astype(np.float32)
            verdict = Verdict(proposed, False, 0, False)
            if guard.armed:
                verdict = guard.guard(obs, proposed)
            seen, reward, terminated, truncated, info = env.step(verdict.action)
            signals = read_signals(info, terminated)
            if (outcome := labels.next(signals)) is not None:
                guard.record(obs, verdict.action, outcome)
            writer.step(np.asarray(verdict.action), proposed)
            obs, ended = seen, terminated or truncated
            steps += 1
            earned += float(reward)
            cost += signals.cost
            violated |= signals.violation
            succeeded |= signals.success
            interventions += verdict.intervened
            no_safe += verdict.no_safe_action
        total += steps
        k = guard.k if guard.armed else 0
        guard.end_episode(violated)
        if method == "advice" and guard.wants_fit:
            guard.fit()
        writer.episode(
            EpisodeRecord(
                number,
                steps,
                total,
                earned,
                cost,
                violated,
                succeeded,
                interventions,
                no_safe,
                k,
                0.0,
                0.01,
            )
        )
    writer.close()
    env.close()
    if guard.armed:
        guard.save(folder.shield_file)
    return folder
