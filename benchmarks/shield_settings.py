"""What each setting of the shield is worth: other shields before the same, frozen agent.

    advice train --method advice --shield.arm fixed --seed 100 --episodes 1001 --out tuning
    python benchmarks/shield_settings.py tuning/randomised-goal/advice/seed-100

For each row a shield is fitted on what the run's shield had recorded, and the run's agent drives
behind it with the noise of training. All rows start the same episodes. Not a measure of training:
there the agent goes on learning behind its shield. With several runs, the first violations and
successes are means, and each run's violations follow.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import ShieldConfig
from advice.runs.evaluate import FRESH, Trained, load_trained, play
from advice.runs.methods import episode_seed
from advice.runs.records import RunFolder
from advice.shields.base import NoShield, PostShield
from advice.shields.shield import Shield

DEFAULT = ShieldConfig()
ROWS: dict[str, ShieldConfig | None] = {
    "no shield": None,
    "default": DEFAULT,
    "nothing held": dataclasses.replace(DEFAULT, hold=0),
    "margin 1": dataclasses.replace(DEFAULT, margin=1.0),
    "latent space of 3 dimensions": dataclasses.replace(DEFAULT, latent_size=3),
    "500 gradient steps": dataclasses.replace(DEFAULT, fit_steps=500),
    "K fixed": dataclasses.replace(DEFAULT, k_rule="fixed"),
    "proposal if none is safe": dataclasses.replace(DEFAULT, fallback="proposed"),
}


def fitted(recorded: Shield, config: ShieldConfig) -> Shield:
    """A shield of other settings, fitted on what another one recorded."""
    shield = Shield(recorded.observation_space, recorded.action_space, config)
    arrays, document = recorded.snapshot()
    shield.restore(arrays, {**document, "armed": False, "k": config.k})
    shield.fit()
    return shield


def drive(trained: Trained, shield: PostShield, seed: int, episodes: int) -> dict[str, float]:
    """Per 100 episodes; K follows the violations as in training."""
    rows = []
    for number in range(episodes):
        start = episode_seed(seed, FRESH + number)
        row = play(trained._replace(shield=shield), start, explore=True)
        shield.end_episode(row.violation)
        rows.append((row.violation, row.success, row.steps, row.interventions))
    violations, successes, steps, interventions = np.mean(rows, axis=0)
    return {
        "violations": 100 * violations,
        "successes": 100 * successes,
        "steps": steps,
        "interventions": interventions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--episodes", type=int, default=150)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    print(f"{'shield':<34} {'accuracy':>8} {'viol.':>6} {'succ.':>6} {'steps':>6} {'interv.':>7}")
    for name, config in ROWS.items():
        found = []
        for path in options.runs:
            trained = load_trained(RunFolder.find(path))
            seed = RunFolder.find(path).read_config().seed
            shield = NoShield() if config is None else fitted(trained.shield, config)
            row = drive(trained, shield, seed, options.episodes)
            if config is not None:
                row["accuracy"] = shield.audit().to_dict()["at_k"][config.k - 1][
                    "balanced_accuracy"
                ]
            found.append(row)
            trained.env.close()
        mean = {key: float(np.mean([row[key] for row in found])) for key in found[0]}
        each = [round(row["violations"], 1) for row in found]
        print(
            f"{name:<34} {mean.get('accuracy', float('nan')):8.2f} {mean['violations']:6.1f} "
            f"{mean['successes']:6.1f} {mean['steps']:6.0f} {mean['interventions']:7.1f}   "
            + ", ".join(map(str, each)),
            flush=True,
        )
        figures[name] = {key: round(value, 3) for key, value in mean.items()} | {"each": each}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
