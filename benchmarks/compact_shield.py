"""A shield for small machines: size, memory, latency and decisions before and after ``compact``.

    python benchmarks/compact_shield.py [--shield FILE]

Without a file a shield is fitted on randomised-goal first (smooth random actions). Decisions are
compared on 100,000 features: states of further episodes with random actions. The last line is a
JSON object with every figure.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from guard_latency import cost
from shield_calibration import drive

import advice
from advice.shields.memory import StepMemory

MEMORY = """
import re, sys
import numpy as np
from advice.shields.shield import Shield
shield = Shield.load(sys.argv[1])
obs = np.zeros(shield.observation_space.shape, shield.observation_space.dtype)
shield.guard(obs, np.zeros(shield.action_space.shape, shield.action_space.dtype))
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def fitted(unsafe: int) -> advice.Shield:
    env = advice.make("randomised-goal")
    shield = advice.Shield(env.observation_space, env.action_space)
    drive(shield, None, unsafe, seed=0)
    shield.fit()
    return shield


def fresh_features(shield: advice.Shield, count: int) -> np.ndarray:
    """States of further episodes, each with random actions."""
    memory = StepMemory(shield.space.size, shield.space.dtype, 10**6)
    drive(shield, memory, 40, seed=1)
    states, rng = memory.all().features, np.random.default_rng(2)
    rows = states[rng.integers(len(states), size=count)].astype(np.float64)
    rows[:, shield.observation_space.size :] = rng.uniform(-1, 1, (count, shield.action_space.size))
    return rows


def endorsed(shield: advice.Shield, features: np.ndarray) -> np.ndarray:
    model = shield._fitted()
    return np.asarray(model.votes(model.encoder.encode(features)) >= shield.required_votes)


def megabytes(package: str) -> float:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    libraries = folder.with_name(f"{folder.name}.libs")
    files = [*folder.rglob("*"), *(libraries.rglob("*") if libraries.exists() else ())]
    return sum(x.stat().st_size for x in files if x.is_file()) / 1e6


def main(path: Path | None, unsafe: int, count: int) -> None:
    shield = fitted(unsafe) if path is None else advice.Shield.load(path)
    features = fresh_features(shield, count)
    split = shield.observation_space.size
    calls: list[Any] = [
        (row[:split].astype(np.float32), row[split:].astype(np.float32)) for row in features[:2000]
    ]
    before = endorsed(shield, features)
    passing = [call for call, good in zip(calls, before, strict=False) if good][:300]
    figures: dict[str, float] = {}
    for package in ("numpy", "scipy", "advice"):
        figures[f"{package}_mb"] = round(megabytes(package), 1)
    variants = {
        "whole": shield,
        "float32": shield.compact("float32"),
        "int8": shield.compact("int8"),
    }
    print(
        f"{'':<10} {'points':>7} {'file, kB':>9} {'memory, MB':>11} {'endorse, us':>12} "
        f"{'calls/s':>8} {'other decisions':>16}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, each in variants.items():
            file = Path(folder) / name / "shield.safetensors"
            each.save(file)
            done = subprocess.run(
                [sys.executable, "-c", MEMORY, str(file)],
                capture_output=True,
                text=True,
                check=True,
            )
            found = {
                "points": len(each._fitted().neighbours),
                "file_kb": file.stat().st_size / 1e3,
                "memory_mb": float(done.stdout),
                "endorse_us": cost(each.guard, passing)[0],
                "other_decisions": float((endorsed(each, features) != before).mean()),
            }
            figures |= {f"{name}_{key}": round(value, 5) for key, value in found.items()}
            print(
                f"{name:<10} {found['points']:>7} {found['file_kb']:>9.0f} "
                f"{found['memory_mb']:>11.0f} {found['endorse_us']:>12.1f} "
                f"{1e6 / found['endorse_us']:>8.0f} {found['other_decisions']:>16.3%}"
            )
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shield", type=Path, default=None)
    parser.add_argument(
        "--unsafe", type=int, default=200, help="episodes with a violation to fit on"
    )
    parser.add_argument("--features", type=int, default=100_000)
    options = parser.parse_args()
    main(options.shield, options.unsafe, options.features)
