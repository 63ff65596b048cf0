"""Many guarded steps: memory and latency must stay flat.

    python benchmarks/guard_soak.py [--calls 1000000] [--minutes 5]

First calls of one shield's guard, then steps of four environments in a wrapper whose shield is
armed early and fitted anew again and again. Steps in which a fit takes place are not timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]

import gymnasium
from guard_latency import made_shield, situations

from advice import ShieldConfig
from advice.integrations.vector import ShieldedVectorEnv
from advice.threads import restart_with_one_thread
from tiny import Corridor

ENVIRONMENTS = 4


def resident_mb() -> float:
    """Memory in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def soak(calls: int) -> dict[str, float]:
    """Guard again and again; memory must not grow after the first tenth."""
    shield = made_shield(2000)
    readings = []
    interventions = 0
    start = time.perf_counter()
    for tenth in range(10):
        for _ in range(calls // 10 // 1000):
            for obs, action in zip(*situations(1000), strict=True):
                interventions += shield.guard(obs, action).intervened
        readings.append(resident_mb())
        print(f"{(tenth + 1) * calls // 10:>10,} calls  {readings[-1]:8.2f} MB", flush=True)
    return {
        "calls": calls,
        "interventions": interventions,
        "seconds": round(time.perf_counter() - start, 1),
        "growth_mb": round(readings[-1] - readings[0], 2),
    }


def wrapper_soak(minutes: float) -> dict[str, float]:
    """Random steps of several environments in one wrapper, with refits."""
    limited = partial(gymnasium.wrappers.TimeLimit, max_episode_steps=60)
    envs = gymnasium.vector.SyncVectorEnv([lambda: limited(Corridor())] * ENVIRONMENTS)
    config = ShieldConfig(
        fit_steps=200, hidden_size=64, refit_episodes=200, capacity_per_class=2000
    )
    env = ShieldedVectorEnv(envs, config=config)
    env.reset(seed=0)
    rng, session = np.random.default_rng(0), env.session
    readings, steps, fits, before = [], 0, 0, None
    began = time.monotonic()
    for tenth in range(10):
        taken: list[float] = []
        while time.monotonic() - began < 60 * minutes * (tenth + 1) / 10:
            actions = rng.uniform(-1, 1, (ENVIRONMENTS, 2)).astype(np.float32)
            start = time.perf_counter()
            env.step(actions)
            seconds = time.perf_counter() - start
            steps += ENVIRONMENTS
            if session.shield.summary is before:
                taken.append(seconds)
            else:
                before, fits = session.shield.summary, fits + 1
        slow = 1e3 * float(np.quantile(taken, 0.99)) if taken else float("nan")
        readings.append((resident_mb(), slow))
        print(f"{steps:>10,} steps  {fits:4} fits  {readings[-1][0]:8.2f} MB  p99 {slow:.2f} ms")
        sys.stdout.flush()
    return {
        "wrapper_steps": steps,
        "fits": fits,
        "wrapper_growth_mb": round(readings[-1][0] - readings[4][0], 2),
        "p99_ms_fifth_tenth": round(readings[4][1], 3),
        "p99_ms_last_tenth": round(readings[-1][1], 3),
    }


if __name__ == "__main__":
    restart_with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=5.0, help="of steps in the wrapper")
    options = parser.parse_args()
    print(json.dumps(soak(options.calls) | wrapper_soak(options.minutes)))
