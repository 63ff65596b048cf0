"""Speed of the tasks, and the share of physics in a step.

    python benchmarks/env_throughput.py                        the built-in tasks
    python benchmarks/env_throughput.py --peer PYTHON3.10      and the original Safety Gymnasium

``PYTHON3.10`` is an interpreter that has safety-gymnasium installed; ``make parity`` prepares one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import mujoco
import numpy as np

import advice
from advice.envs import TASKS
from advice.envs.model import PHYSICS_STEPS

PEER = Path(__file__).with_name("parity_peer.py")
DRIVE = 100
PEER_TASK = "randomised-goal"  # what the original's SafetyCarGoal1 is nearest to


def measure(task: str, steps: int, resets: int, repeats: int) -> dict[str, float]:
    """Medians in seconds of a step, of its bare physics and of a reset, and the physics' share."""
    env = advice.make(task)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 2)).astype(np.float32)
    rows = [_measure_once(env, actions, resets) for _ in range(repeats)]
    step, physics, reset = (statistics.median(column) for column in zip(*rows, strict=True))
    share = statistics.median(physics / step for step, physics, _ in rows)
    return {"step": step, "physics": physics, "reset": reset, "share": share}


def _measure_once(env, actions, resets: int) -> tuple[float, float, float]:
    """Drives of whole steps, then the same drives as bare physics, in turns; medians of each."""
    clock = time.perf_counter
    whole, physics, reset = [], [], []
    env.reset(seed=0)
    for drive in np.split(actions, range(DRIVE, len(actions), DRIVE)):
        env.reset()
        state, taken = env.get_state(), 0
        for action in drive:
            start = clock()
            _, _, terminated, truncated, _ = env.step(action)
            whole.append(clock() - start)
            taken += 1
            if terminated or truncated:
                break
        env.set_state(state)
        for action in drive[:taken]:
            env.data.ctrl[:] = action
            start = clock()
            mujoco.mj_step(env.model, env.data, PHYSICS_STEPS)
            physics.append(clock() - start)
    for _ in range(resets):
        start = clock()
        env.reset()
        reset.append(clock() - start)
    return statistics.median(whole), statistics.median(physics), statistics.median(reset)


def measure_peer(python: str, steps: int, resets: int) -> dict[str, float]:
    """The original's seconds per step and reset, measured in its own interpreter."""
    command = [python, "-W", "ignore", str(PEER), "speed", str(steps), str(resets)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="PYTHON", help="a Python that has safety-gymnasium")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--resets", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    print(f"{'task':<30}{'steps/s':>10}{'step ms':>10}{'physics':>10}{'reset ms':>10}")
    ours = {}
    for task in TASKS:
        ours[task] = row = measure(task, options.steps, options.resets, options.repeats)
        print(
            f"{task:<30}{1 / row['step']:>10.0f}{1e3 * row['step']:>10.3f}"
            f"{row['share']:>10.1%}{1e3 * row['reset']:>10.3f}"
        )
    figures = {
        "native_steps_per_s": 1 / statistics.median(row["step"] for row in ours.values()),
        "physics_share": min(row["share"] for row in ours.values()),
        "reset_ms": 1e3 * max(row["reset"] for row in ours.values()),
    }
    if options.peer:
        peer = measure_peer(options.peer, min(options.steps, 1000), 5)
        print(
            f"{'the original (SafetyCarGoal1)':<30}{1 / peer['step']:>10.0f}"
            f"{1e3 * peer['step']:>10.3f}{'':>10}{1e3 * peer['reset']:>10.1f}"
        )
        mine = ours[PEER_TASK]
        figures |= {
            "peer_steps_per_s": 1 / peer["step"],
            "peer_reset_ms": 1e3 * peer["reset"],
            "step_ratio": peer["step"] / mine["step"],
            "reset_ratio": peer["reset"] / mine["reset"],
        }
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
