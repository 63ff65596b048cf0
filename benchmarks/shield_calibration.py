"""Does Learn-then-Test keep its promise? Promised and realised false-safe rates, on fresh episodes.

    python benchmarks/shield_calibration.py --seeds 5

For each seed: episodes of randomised-goal with smooth random actions, until --unsafe of them have a
violation; a shield is fitted on them and calibrated on those that the fit held out; the dangerous
actions of --fresh further episodes with a violation are then judged. The last line is a JSON
object with every figure.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import json
import time

import numpy as np

import advice
from advice.envs.signals import SignalRules, read_signals
from advice.shields.calibration import dangerous
from advice.shields.cautiousness import required_votes
from advice.shields.memory import EpisodeLabels, StepMemory
from advice.types import AdviceError

STEPS = 150  # an episode that lasts longer is cut


def drive(shield: advice.Shield, memory: StepMemory | None, unsafe: int, seed: int) -> int:
    """Episodes until ``unsafe`` of them have a violation, for the shield or for a memory."""
    env = advice.make("randomised-goal", max_episode_steps=STEPS)
    rng, rules, episodes, violated = np.random.default_rng(seed), SignalRules.of(env), 0, 0
    while violated < unsafe:
        obs, _ = env.reset(seed=int(rng.integers(2**31)))
        labels, ended, action = EpisodeLabels("hindsight", 10), False, rng.uniform(-1, 1, 2)
        while not ended:
            action = np.clip(action + 0.3 * rng.normal(size=2), -1, 1).astype(np.float32)
            before = obs
            obs, reward, terminated, truncated, info = env.step(action)
            signals = read_signals(info, terminated, truncated, reward, rules)
            label = labels.next(signals)
            ended = terminated or truncated
            violated += signals.unsafe
            if label is None:
                continue
            if memory is None:
                shield.record(before, action, label)
            else:
                memory.add(shield.space.features(before, action), label)
        episodes += 1
        if memory is None:
            shield.end_episode(False)
        else:
            memory.end_episode()
    return episodes


def one_seed(seed: int, unsafe: int, fresh: int) -> dict[str, float]:
    env = advice.make("randomised-goal")
    config = advice.ShieldConfig(k_rule="fixed")
    shield = advice.Shield(env.observation_space, env.action_space, config, seed=seed)
    began = time.perf_counter()
    episodes = drive(shield, None, unsafe, 1000 + seed)
    shield.fit()
    later = StepMemory(shield.space.size, shield.space.dtype, 10**6)
    drive(shield, later, fresh, 2000 + seed)
    steps = later.all()
    assert shield.summary is not None
    led = dangerous(steps, shield.summary.horizon)
    features, numbers = steps.features[led].astype(np.float64), steps.episodes[led]
    row: dict[str, float] = {"seed": seed, "episodes": episodes}
    for limit in (0.05, 0.1):
        name = f"{limit:.0%}"
        try:
            found = shield.calibrate(limit, 0.9)
        except AdviceError as error:
            print(f"seed {seed}, {name}: {error}", flush=True)
            continue
        model = shield._fitted()
        latents = model.encoder.encode(features)
        needed = required_votes(found.k, config.k_max, len(model.neighbours))
        passes = model.votes(latents) >= needed
        if found.risk_limit is not None and model.risk is not None:
            passes &= latents @ model.risk <= found.risk_limit
        by_episode = [passes[numbers == x].mean() for x in np.unique(numbers)]
        row[f"promised {name}"], row[f"realised {name}"] = limit, float(np.mean(by_episode))
        row[f"refused {name}"] = found.refused
        print(f"seed {seed}: {found}; realised {np.mean(by_episode):.1%} of {fresh} fresh episodes")
    print(f"seed {seed}: {episodes} episodes, {time.perf_counter() - began:.0f} s", flush=True)
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--unsafe", type=int, default=400, help="episodes with a violation")
    parser.add_argument("--fresh", type=int, default=300)
    options = parser.parse_args()
    rows = [one_seed(seed, options.unsafe, options.fresh) for seed in range(options.seeds)]
    print(json.dumps({"rows": rows}))
