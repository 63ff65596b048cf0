"""Training speed of each method relative to plain DDPG, over whole steps: act, guard, step, learn.

    python benchmarks/method_speed.py                   every method of the table, and td3 and sac
    python benchmarks/method_speed.py --methods csc     some of them (DDPG is always included)

Every repeat trains each method for some episodes with the training loop, on one thread, and
counts steps per second of processor time, so that other programs matter less. The first episode
is not counted, as updates compile in it. The ADVICE shield was fitted before, on the crashes of a
car at full speed, and is armed at every step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import numpy as np

import advice
from advice.config import EnvConfig, ShieldConfig, TrainConfig
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener, train
from advice.runs.methods import METHODS, find_method
from advice.types import EpisodeRecord

DRIVE = 10_000


class Clock(Listener):
    """Notes the processor time at the end of each episode."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, float]] = []

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        self.notes.append((counters.total_steps, time.process_time()))


def fitted_shield(task: str, path: Path) -> None:
    """Drive at full speed, record all steps, fit, save."""
    env = advice.make(task, max_episode_steps=200)
    shield = advice.Shield(env.observation_space, env.action_space, ShieldConfig(fit_steps=200))
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    for step in range(DRIVE):
        if step % 50 == 0:
            action = rng.uniform(0.8, 1.0, env.action_space.shape).astype(np.float32)
        next_obs, _, terminated, truncated, info = env.step(action)
        unsafe = info["violation"] or info["cost"] > 0
        outcome = advice.Outcome.UNSAFE if unsafe else advice.Outcome.INCONCLUSIVE
        shield.record(obs, action, outcome)
        obs = next_obs
        if terminated or truncated:
            shield.end_episode(unsafe)
            obs, _ = env.reset()
    shield.fit()
    shield.save(path)


def steps_per_second(method: str, seed: int, shield: Path, options: argparse.Namespace) -> float:
    """All counted steps over all counted seconds of one fresh run."""
    config = TrainConfig(
        task=options.task,
        method=method,
        seed=seed,
        episodes=1 + options.episodes,
        shield_from=str(shield) if find_method(method).shield == "advice" else None,
        env=EnvConfig(max_episode_steps=options.steps),
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        train(config, folder, clock, checkpoint_seconds=1e9)
    (first, began), (last, ended) = clock.notes[0], clock.notes[-1]
    return (last - first) / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=[*METHODS, "td3", "sac"])
    parser.add_argument("--task", default="randomised-goal")
    parser.add_argument("--steps", type=int, default=250, help="time limit of an episode")
    parser.add_argument("--episodes", type=int, default=6, help="counted episodes per repeat")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    methods = list(dict.fromkeys(["ddpg", *options.methods]))
    rates: dict[str, list[float]] = {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as folder:
        shield = Path(folder) / "shield.safetensors"
        fitted_shield(options.task, shield)
        for repeat in range(options.repeats):
            for method in methods:  # side by side, so that a busy moment spares none
                rates[method].append(steps_per_second(method, repeat, shield, options))

    medians = {method: statistics.median(found) for method, found in rates.items()}
    print(f"{options.task}, median of {options.repeats} runs")
    print(f"{'method':<12}{'steps/s':>9}{'of DDPG':>9}")
    for method, rate in medians.items():
        print(f"{method:<12}{rate:>9.0f}{rate / medians['ddpg']:>9.2f}")
    figures = {f"{method}_steps_per_s": round(rate, 1) for method, rate in medians.items()}
    shares = {f"{method}_of_ddpg": round(r / medians["ddpg"], 3) for method, r in medians.items()}
    print(json.dumps(figures | shares))


if __name__ == "__main__":
    main()
