"""What a step costs through ShieldedEnv, beside the bare environment.

Microseconds per step of randomised-goal and of an environment that does nothing, with the same
random actions: bare; wrapped and watching; wrapped and guarding (a memory of 2,000 features), where
endorsed steps and steps on which the shield intervened are timed apart. Each figure is the median
of its steps in a block, and of those the median over the blocks.
"""

import json
import time

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

import advice

BLOCKS, STEPS, FEATURES = 10, 500, 2000


class Nothing(gym.Env):
    """Returns at once: what remains is the wrapper itself."""

    observation_space = Box(-1, 1, (36,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)
    _obs, _info = np.zeros(36, np.float32), {"cost": 0.0, "violation": False, "success": False}

    def reset(self, **_):
        return self._obs, {}

    def step(self, action):
        return self._obs, 0.0, False, False, self._info


def fitted_shield(env, seed=0):
    """An armed shield with FEATURES features from real steps; unsafe is a left turn.

    About half of all random actions are then judged unsafe, so both kinds of step get timed.
    """
    shield = advice.Shield(
        env.observation_space, env.action_space, advice.ShieldConfig(fit_steps=200), seed
    )
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    for _ in range(FEATURES):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        outcome = advice.Outcome.UNSAFE if action[0] > action[1] else advice.Outcome.SAFE
        shield.record(obs, action, outcome)
        shield.end_episode(False)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
    shield.fit()
    return shield


def step_times(env, seed=0):
    """Seconds and whether the shield intervened, for BLOCKS x STEPS steps; resets not counted."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    seconds, intervened = np.zeros((BLOCKS, STEPS)), np.zeros((BLOCKS, STEPS), bool)
    for block in range(BLOCKS):
        actions = rng.uniform(-1, 1, (STEPS, 2)).astype(np.float32)
        for step, action in enumerate(actions):
            began = time.perf_counter()
            _, _, terminated, truncated, info = env.step(action)
            seconds[block, step] = time.perf_counter() - began
            intervened[block, step] = "shield" in info and info["shield"]["intervened"]
            if terminated or truncated:
                env.reset()
    return seconds, intervened


def median(seconds, chosen):
    """Median over blocks of the median microseconds of the chosen steps in each."""
    blocks = zip(seconds, chosen, strict=True)
    return 1e6 * float(np.median([np.median(times[mask]) for times, mask in blocks]))


def main():
    figures = {}
    makers = {"nothing": Nothing, "randomised-goal": lambda: advice.make("randomised-goal")}
    print(
        f"{'microseconds per step':24}{'bare':>10}{'watching':>10}{'endorsed':>10}{'replaced':>10}"
    )
    for task, make in makers.items():
        shield = fitted_shield(make())
        bare, _ = step_times(make())
        watching, none = step_times(advice.ShieldedEnv(make()))
        guarding, replaced = step_times(advice.ShieldedEnv(make(), shield=shield))
        row = {
            "bare": median(bare, ~none),
            "watching": median(watching, ~none),
            "endorsed": median(guarding, ~replaced),
            "replaced": median(guarding, replaced),
        }
        print(f"{task:24}" + "".join(f"{value:10.1f}" for value in row.values()))
        name = task.replace("-", "_")
        figures |= {f"{name}_{key}_us": round(value, 2) for key, value in row.items()}
        figures[f"{name}_replaced_share"] = round(float(replaced.mean()), 3)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
