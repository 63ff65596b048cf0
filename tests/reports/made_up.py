"""Run folders as training would leave them, with invented but plausible episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import ShieldConfig, TrainConfig, to_dict
from advice.files import write_json
from advice.runs.records import COLUMNS, RunFolder
from advice.shields.cautiousness import update_k

METHODS = ("ddpg", "ddpg-lag", "rcpo", "tabular", "csc", "advice")
CRASH_RATES = {"ddpg": 0.25, "ddpg-lag": 0.14, "rcpo": 0.2, "tabular": 0.25, "csc": 0.22}
PROVENANCE = {
    "versions": {"advice-rl": "0.1.0", "mujoco": "3.3.0"},
    "commit": "0123456789abcdef0123456789abcdef01234567",
}


def write_run(
    root: Path,
    config: TrainConfig,
    episodes: int | None = None,
    provenance: dict[str, Any] | None = None,
) -> RunFolder:
    """One run of ``episodes`` (all, if not given)."""
    folder = RunFolder.of(root, config)
    folder.path.mkdir(parents=True)
    document = {"config": to_dict(config), "provenance": provenance or PROVENANCE}
    write_json(folder.config_file, document)
    table = invent(config, config.episodes if episodes is None else episodes)
    lines = [",".join(COLUMNS), *(",".join(f"{cell:.10g}" for cell in row) for row in table)]
    folder.episodes_file.write_text("\n".join(lines) + "\n")
    return folder


def invent(config: TrainConfig, episodes: int) -> np.ndarray:
    """(episodes, columns) of episodes.csv; K follows the violations by the real rule."""
    generator = np.random.default_rng([config.seed, sum(map(ord, config.task + config.method))])
    shield, number = config.shield, np.arange(1, episodes + 1)
    progress = 1.0 - np.exp(-number / (0.3 * max(episodes, 1)))
    rate = CRASH_RATES.get(config.method, 0.25) * generator.normal(1.0, 0.08) + 0.0 * progress
    armed = np.zeros(episodes, dtype=bool)
    if config.method.endswith("advice"):
        armed = number > (0 if config.shield_from else shield.construction_episodes)
        rate = np.where(armed, 0.3 * rate / (shield.k / 4), rate)
    violation = generator.random(episodes) < rate
    success = ~violation & (generator.random(episodes) < 0.2 + 0.7 * progress)
    k = np.zeros(episodes, dtype=int)
    value = shield.k
    windows = (shield.recent_window, shield.distant_window)
    for i in np.flatnonzero(armed):
        k[i] = value
        past = violation[max(0, i + 1 - max(windows)) : i + 1].tolist()
        value = update_k(value, shield.k_max, past, *windows, shield.k_rule)
    steps = generator.integers(80, config.env.max_episode_steps or 1000, episodes)
    hazards = generator.integers(1, 12, episodes) if "constrained" in config.task else 1
    columns = {
        "episode": number,
        "steps": steps,
        "total_steps": np.cumsum(steps),
        "return": 2.5 * progress - 1.5 * violation + generator.normal(0, 0.3, episodes),
        "cost": 0.2 * violation * hazards,
        "violation": violation,
        "success": success,
        "interventions": armed * generator.poisson(20 * np.exp(-2 * progress) + 2),
        "no_safe_action": np.zeros(episodes),
        "k": k,
        "multiplier": np.zeros(episodes),
        "seconds": steps * (0.002 + 0.001 * armed),
    }
    return np.column_stack([columns[name] for name in COLUMNS]).astype(float)


def write_grid(
    root: Path,
    tasks: Iterable[str] = ("randomised-goal",),
    methods: Iterable[str] = METHODS,
    seeds: Iterable[int] = range(3),
    episodes: int = 120,
    construction: int = 60,
    **changes: Any,
) -> list[RunFolder]:
    """Runs of all tasks, methods and seeds with the same settings."""
    seeds, methods = list(seeds), list(methods)
    shield = ShieldConfig(construction_episodes=construction)
    return [
        write_run(
            root,
            dataclasses.replace(
                TrainConfig(task=t, method=m, seed=s, episodes=episodes, shield=shield), **changes
            ),
        )
        for t in tasks
        for m in methods
        for s in seeds
    ]
