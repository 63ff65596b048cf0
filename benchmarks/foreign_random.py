"""Does the default shield help where nobody tuned it? Random agents in Gymnasium's environments,
and in those of ``small_worlds.py``.

    pip install '.[foreign]'
    python benchmarks/foreign_random.py
    python benchmarks/foreign_random.py --tasks Mass HiddenSpeed Cliff Joints Follow Drone
    python benchmarks/foreign_random.py --tasks Lava Tank Lane Upright Rocks Discs Brake
    python benchmarks/foreign_random.py --tasks Discs Brake --press

For each environment and seed a random agent acts in ``ShieldedEnv(env)``, no settings changed, or
with ``--press`` one that presses on towards danger. It does not learn, so its episodes before
arming are the ones without a shield. Printed
per environment, means over seeds: the episode at which the shield was armed, steps per violation
without and with it, the ratio of violations per step, and shares of steps that were replaced and
that had no safe action. The last line is one JSON object.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import json
import logging
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from small_worlds import WORLDS

import advice

TASKS = (
    "CartPole-v1",
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "BipedalWalker-v3",
    "LunarLanderContinuous-v3",
)


def make(task: str) -> Any:
    """The environment; LunarLander's continuous form is an option of it in newer versions."""
    if task in WORLDS:
        return WORLDS[task]()
    if task == "LunarLanderContinuous-v3":
        return gym.make("LunarLander-v3", continuous=True)
    return gym.make(task)


def drive(
    task: str, seed: int, episodes: int, most_steps: int, press: bool = False
) -> dict[str, float]:
    """Figures of one seed: ``episodes`` armed ones, or fewer if they take too many steps."""
    plain = make(task)
    env = advice.ShieldedEnv(plain, seed=seed)
    env.action_space.seed(seed)
    act = plain.press if press else env.action_space.sample
    steps, violations, replaced, none = np.zeros((4, 2))
    number = armed_at = 0
    while number - armed_at < episodes and steps[1] < most_steps and steps[0] < 10 * most_steps:
        env.reset(seed=1000 * seed + number)
        armed = int(env.shield.armed)
        armed_at = armed_at if armed else number + 1
        before, ended = env.session.violations, False
        while not ended:
            *_, terminated, truncated, info = env.step(act())
            ended = terminated or truncated
            steps[armed] += 1
            replaced[armed] += info["shield"]["intervened"]
            none[armed] += info["shield"]["no_safe_action"]
        violations[armed] += env.session.violations - before
        number += 1
    env.close()
    rate = violations / np.maximum(steps, 1)
    return {
        "armed_at": armed_at,
        "steps_per_violation_without": 1 / rate[0] if rate[0] else np.inf,
        "steps_per_violation_with": 1 / rate[1] if rate[1] else np.inf,
        "ratio": rate[1] / rate[0] if rate[0] else np.nan,
        "replaced": replaced[1] / max(1, steps[1]),
        "no_safe_action": none[1] / max(1, steps[1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=120, help="episodes after arming")
    parser.add_argument("--most-steps", type=int, default=30_000, help="end a seed after these")
    parser.add_argument("--press", action="store_true", help="the agent presses on, see above")
    options = parser.parse_args()
    if options.press and not all(hasattr(WORLDS.get(task), "press") for task in options.tasks):
        parser.error("--press: expected --tasks with a method press: Discs, Brake")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    figures: dict[str, dict[str, float]] = {}
    for task in options.tasks:
        limits = options.episodes, options.most_steps, options.press
        rows = [drive(task, seed, *limits) for seed in options.seeds]
        mean = {key: round(float(np.mean([row[key] for row in rows])), 3) for key in rows[0]}
        figures[task] = mean
        ratios = " ".join(f"{row['ratio']:.2f}" for row in rows)
        print(
            f"{task:<26}" + "  ".join(f"{k} {v:g}" for k, v in mean.items()) + f"  [{ratios}]",
            flush=True,
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
