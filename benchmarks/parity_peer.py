"""Runs Safety Gymnasium in a Python that has it, and records its steps or measures its speed.

    python parity_peer.py record FILE.npz EPISODES STEPS     transitions, lidars and rewards
    python parity_peer.py speed STEPS RESETS                 last line: seconds as JSON

Imports nothing of this package, so that it runs where only safety-gymnasium is installed.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import safety_gymnasium


def record(path: str, episodes: int, steps: int) -> None:
    """Random driving in the goal and circle tasks."""
    rows: dict[str, list] = {}
    for name in ("SafetyCarGoal1-v0", "SafetyCarCircle0-v0"):
        kind = "circle" if "Circle" in name else "goal"
        env = safety_gymnasium.make(name)
        task = env.unwrapped.task
        task.mechanism_conf.continue_goal = False  # the goal stays where it is
        rng = np.random.default_rng(0)
        for episode in range(episodes):
            env.reset(seed=episode)
            action = rng.uniform(-1, 1, 2)
            for step in range(steps):
                if step % 10 == 0:
                    action = rng.uniform(-1, 1, 2)
                row = {
                    "qpos": task.data.qpos[:13].copy(),
                    "qvel": task.data.qvel[:11].copy(),
                    "action": action.copy(),
                    "first": step == 0,
                }
                _, reward, _, terminated, truncated, _ = env.step(action)
                row |= {
                    "qpos_next": task.data.qpos[:13].copy(),
                    "qvel_next": task.data.qvel[:11].copy(),
                    "reward": reward,
                }
                if kind == "goal":
                    row |= {
                        "goal": task.goal.pos[:2].copy(),
                        "goal_lidar": task._obs_lidar(task.goal.pos, 0),
                        "hazards": np.array(task.hazards.pos)[:, :2],
                        "hazards_lidar": task._obs_lidar(task.hazards.pos, 0),
                        "success": terminated,
                    }
                for column, value in row.items():
                    rows.setdefault(f"{kind}_{column}", []).append(value)
                if terminated or truncated:
                    break
    np.savez_compressed(path, **{column: np.array(values) for column, values in rows.items()})


def speed(steps: int, resets: int) -> None:
    """Medians of the seconds per step and per reset."""
    env = safety_gymnasium.make("SafetyCarGoal1-v0")
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 2))
    step, reset = [], []
    for action in actions:
        start = time.perf_counter()
        *_, terminated, truncated, _ = env.step(action)
        step.append(time.perf_counter() - start)
        if terminated or truncated:
            env.reset()
    for _ in range(resets):
        start = time.perf_counter()
        env.reset()
        reset.append(time.perf_counter() - start)
    print(json.dumps({"step": float(np.median(step)), "reset": float(np.median(reset))}))


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        speed(int(sys.argv[2]), int(sys.argv[3]))
