"""Compares the built-in tasks with the published Safety Gymnasium under the same actions.

    python benchmarks/parity.py PEER_PYTHON     a Python that has safety-gymnasium (make parity)

Sets every recorded state of the original, takes the same action, and compares the next state, the
lidars and the reward. Then runs whole episodes from the same start with the same actions and
measures the difference at their end. Exit code 1 if they disagree.

An episode's first step has its own limit: the car stands with its wheels at distance 0 from the
floor, and the last bit of a rotation, which releases of MuJoCo round differently, decides whether
that is a contact yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import env_throughput as throughput
import numpy as np

import advice
from advice.envs.sensors import pseudo_lidar

EPISODES, STEPS = 4, 250
LIMITS = {
    "position_worst": 1e-6,
    "velocity_worst": 1e-3,
    "lidar_worst": 1e-9,
    "goal_reward_worst": 1e-6,
    "circle_reward_worst": 1e-4,
    "first_step_worst": 1e-2,
}


def recorded(python: str) -> dict[str, np.ndarray]:
    """What the original does, recorded in its own interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peer.npz"
        command = [python, "-W", "ignore", str(throughput.PEER), "record"]
        command += [str(path), str(EPISODES), str(STEPS)]
        subprocess.run(command, check=True, capture_output=True)
        with np.load(path) as arrays:
            return {column: arrays[column] for column in arrays.files}


def compare(peer: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest differences, transition by transition."""
    off: dict[str, list[float]] = {column: [] for column in LIMITS}
    goals = advice.make("constrained-randomised-goal", hazards=peer["goal_hazards"].shape[1])
    circles = advice.make("randomised-circle", cubes=0)
    for kind, env in (("goal", goals), ("circle", circles)):
        env.reset(seed=0)
        for i in range(len(peer[f"{kind}_qpos"])):
            row = {c.removeprefix(f"{kind}_"): v[i] for c, v in peer.items() if c.startswith(kind)}
            given = {c: row[c] for c in ("goal", "hazards") if c in row}
            env.reset(options={"layout": {"car": (0, 0), **given}})
            env.data.qpos[:], env.data.qvel[:] = row["qpos"], row["qvel"]
            observation, reward, _, _, info = env.step(row["action"])
            if row["first"]:
                moved = env.data.qpos[:3] - row["qpos_next"][:3]
                off["first_step_worst"].append(np.abs(moved).max())
                continue
            off["position_worst"].append(np.abs(env.data.qpos - row["qpos_next"]).max())
            off["velocity_worst"].append(np.abs(env.data.qvel - row["qvel_next"]).max())
            off[f"{kind}_reward_worst"].append(
                abs((0.1 if kind == "circle" else 1.0) * reward - row["reward"])
            )
            if kind == "goal":
                assert info["success"] == row["success"]
                pose = env.data.xpos[1], env.data.xmat[1]
                for objects, lidar in (("goal", "goal_lidar"), ("hazards", "hazards_lidar")):
                    ours = pseudo_lidar(*pose, row[objects])
                    off["lidar_worst"].append(np.abs(ours - row[lidar]).max())
                both = np.concatenate((row["goal_lidar"], row["hazards_lidar"]))
                assert np.abs(observation - both).max() < 1e-6  # ours is float32
    exact = np.maximum(off["position_worst"], off["velocity_worst"]) <= 1e-9
    worst = {column: float(np.max(values)) for column, values in off.items()}
    return {"transitions": float(len(exact)), "within_1e-9": float(exact.mean()), **worst}


def drift(peer: dict[str, np.ndarray]) -> float:
    """How far apart the cars end after whole episodes of the same actions, m (largest)."""
    env = advice.make("constrained-randomised-goal", hazards=0)
    env.reset(seed=0)
    apart = 0.0
    for i in range(len(peer["goal_qpos"])):
        if peer["goal_first"][i]:
            continue
        if peer["goal_first"][i - 1]:
            env.reset()
            env.data.qpos[:], env.data.qvel[:] = peer["goal_qpos"][i], peer["goal_qvel"][i]
        env.step(peer["goal_action"][i])
        apart = max(apart, float(np.linalg.norm(env.data.qpos[:2] - peer["goal_qpos_next"][i, :2])))
    return apart


def main(python: str) -> int:
    peer = recorded(python)
    figures = compare(peer)
    figures["drift_m"] = drift(peer)
    ours = throughput.measure(throughput.PEER_TASK, steps=1000, resets=200, repeats=3)
    theirs = throughput.measure_peer(python, steps=1000, resets=3)
    agrees = figures["within_1e-9"] >= 0.95 and all(figures[c] <= LIMITS[c] for c in LIMITS)

    print(f"{'compared':<24}{'found':>12}{'limit':>12}")
    for column, value in figures.items():
        limit = ">= 0.95" if column == "within_1e-9" else LIMITS.get(column, "")
        print(f"{column:<24}{value:>12.3g}{limit!s:>12}")
    print(f"\n{'speed':<24}{'ours':>12}{'original':>12}")
    print(f"{'steps/s':<24}{1 / ours['step']:>12.0f}{1 / theirs['step']:>12.0f}")
    print(f"{'reset ms':<24}{1e3 * ours['reset']:>12.3f}{1e3 * theirs['reset']:>12.1f}")
    print("\nthe two agree" if agrees else "\nTHE TWO DISAGREE")
    figures |= {
        "step_ratio": theirs["step"] / ours["step"],
        "reset_ratio": theirs["reset"] / ours["reset"],
        "agrees": agrees,
    }
    print(json.dumps(figures))
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
