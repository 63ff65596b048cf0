"""A shield in a changed world, without training: violations, and whether the drift alarm is given.

    python benchmarks/shield_shift.py --seeds 2 --out docs/images/shift.png

`advice bench --suite shift` trains agents in the changed world; this is its short form. For each
seed a shield is fitted on randomised-goal (smooth random actions) and evaluated there: that gives
the certified rate. The same driving then meets each change of the suite ``shift``, with the shield
frozen and with refits. The last line is a JSON object with every figure.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import dataclasses
import json
import warnings
from pathlib import Path

import numpy as np
from shield_calibration import STEPS, drive

import advice
from advice.runs.studies import SHIFTS
from advice.shields.bounds import clopper_pearson, running_bounds


def meet(
    shield: advice.Shield, episodes: int, seed: int, certified: float | None, **options: float
) -> tuple[int, float, advice.ShieldedEnv]:
    """Violated episodes, and the episode of the alarm (infinite without one)."""
    inner = advice.make("randomised-goal", max_episode_steps=STEPS, **options)
    env = advice.ShieldedEnv(inner, shield=shield, certified=certified)
    rng, when = np.random.default_rng(seed), np.inf
    for episode in range(1, episodes + 1):
        env.reset(seed=int(rng.integers(2**31)))
        action, ended = rng.uniform(-1, 1, 2), False
        while not ended:
            action = np.clip(action + 0.3 * rng.normal(size=2), -1, 1).astype(np.float32)
            *_, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
        if np.isinf(when) and env.session.alarm is not None and env.session.alarm.alarmed:
            when = float(episode)
    return env.violations, when, env


def copy(shield: advice.Shield, refits: bool) -> advice.Shield:
    config = dataclasses.replace(shield.config, refit_episodes=50 if refits else 0)
    twin = advice.Shield(shield.observation_space, shield.action_space, config)
    twin.restore(*shield.snapshot())
    return twin


def draw(rates: dict[str, list[tuple[int, int]]], certified: list[float], out: Path) -> None:
    """Violation rates with their confidence sequences, one row for each change."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(name.split(",")[0] for name in rates))
    for kind, colour, shift in (("frozen", "#2b7bba", -0.12), ("refits", "#c8452d", 0.12)):
        for row, name in enumerate(names):
            found = rates.get(f"{name}, {kind}", [])
            if not found:
                continue
            total, count = (sum(x) for x in zip(*found, strict=True))
            low, high = running_bounds(total, count)
            label = kind if row == 0 else None
            axes.plot([low, high], [row + shift] * 2, color=colour, linewidth=2)
            axes.plot([total / count], [row + shift], "o", color=colour, label=label)
    axes.axvline(float(np.mean(certified)), color="black", linestyle=":", label="certified")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("episodes with a violation (share, 95 % confidence sequence)")
    axes.legend()
    figure.savefig(out, dpi=120)


def main(seeds: int, unsafe: int, episodes: int, kinds: list[str], out: Path | None) -> None:
    rates: dict[str, list[tuple[int, int]]] = {}
    alarms: dict[str, list[float]] = {}
    certified = []
    for seed in range(seeds):
        env = advice.make("randomised-goal")
        shield = advice.Shield(env.observation_space, env.action_space, seed=seed)
        drive(shield, None, unsafe, 1000 + seed)
        shield.fit()
        violations, _, _ = meet(copy(shield, False), 2 * episodes, 3000 + seed, None)
        certified.append(clopper_pearson(violations, 2 * episodes))
        print(
            f"seed {seed}: {violations} of {2 * episodes} certify {certified[-1]:.1%}", flush=True
        )
        for name, options in SHIFTS.items():
            for kind in kinds:
                twin, key = copy(shield, kind == "refits"), f"{name}, {kind}"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the alarm
                    bad, when, _ = meet(twin, episodes, 4000 + seed, certified[-1], **options)
                rates.setdefault(key, []).append((bad, episodes))
                alarms.setdefault(key, []).append(when)
                told = "no alarm" if np.isinf(when) else f"alarm after {when:.0f} episodes"
                print(f"seed {seed}: {key:<24} {bad / episodes:6.1%}   {told}", flush=True)
    if out is not None:
        draw(rates, certified, out)
    print(json.dumps({"certified": certified, "rates": rates, "alarms": alarms}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--unsafe", type=int, default=200, help="episodes with a violation to fit on"
    )
    parser.add_argument("--episodes", type=int, default=150, help="of each cell")
    parser.add_argument("--kinds", nargs="+", default=["frozen", "refits"])
    parser.add_argument("--out", type=Path, default=None, help="a figure")
    options = parser.parse_args()
    main(options.seeds, options.unsafe, options.episodes, options.kinds, options.out)
