"""What a checkpoint costs at the default cadence of 30 s.

    python benchmarks/checkpoint_cost.py

A DDPG agent of the default size and an armed shield of 2,000 features; between two saves as many
transitions are added as a fast machine makes in 30 s. ``share`` is the time of a save over 30 s.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import advice
from advice.agents.ddpg import DDPG
from advice.config import AgentConfig
from advice.runs.checkpoints import Checkpointer, Counters
from advice.types import Outcome, Transition

CADENCE, STEPS_PER_S = 30.0, 500


def main() -> None:
    env = advice.make("randomised-goal")
    agent = DDPG(env.observation_space, env.action_space, AgentConfig(), seed=0)
    shield = advice.Shield(
        env.observation_space, env.action_space, advice.ShieldConfig(fit_steps=20), seed=0
    )
    rng = np.random.default_rng(0)
    for number in range(2000):
        outcome = Outcome.UNSAFE if number % 4 == 0 else Outcome.SAFE
        shield.record(rng.random(32, np.float32), rng.uniform(-1, 1, 2).astype(np.float32), outcome)
    shield.fit()
    times = []
    with tempfile.TemporaryDirectory() as scratch:
        parts = {"agent": agent, "shield": shield}
        keeper = Checkpointer(Path(scratch), parts, agent.replay)
        for save in range(20):
            for _ in range(int(CADENCE * STEPS_PER_S)):
                obs = rng.random(32, np.float32)
                agent.observe(Transition(obs, np.zeros(2), 0.0, 0.0, obs, False))
            began = time.perf_counter()
            keeper.save(Counters(save + 1))
            times.append(time.perf_counter() - began)
        size = sum(path.stat().st_size for path in Path(scratch).iterdir())
    figures = {
        "save_ms": 1e3 * statistics.median(times),
        "slowest_ms": 1e3 * max(times),
        "share": statistics.median(times) / CADENCE,
        "disk_mb": size / 1e6,
    }
    for name, value in figures.items():
        print(f"{name:<12} {value:9.4f}")
    print(json.dumps({name: round(value, 5) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
