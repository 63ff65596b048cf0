"""A million guard calls with flat memory, and 20,000 damaged files of which none loads.

python benchmarks/guard_soak.py [--calls 1000000] [--files 20000]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "shields")]

from advice_mutations import mutations
from guard_latency import made_shield, situations

from advice import Shield
from advice.threads import restart_with_one_thread
from advice.types import BrokenFileError


def resident_mb() -> float:
    """Memory in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def soak(calls: int) -> dict[str, float]:
    """Guard again and again; memory must not grow after the first tenth."""
    shield = made_shield(2000)
    readings = []
    interventions = 0
    start = time.perf_counter()
    for tenth in range(10):
        for _ in range(calls // 10 // 1000):
            for obs, action in zip(*situations(1000), strict=True):
                interventions += shield.guard(obs, action).intervened
        readings.append(resident_mb())
        print(f"{(tenth + 1) * calls // 10:>10,} calls  {readings[-1]:8.2f} MB", flush=True)
    return {
        "calls": calls,
        "interventions": interventions,
        "seconds": round(time.perf_counter() - start, 1),
        "growth_mb": round(readings[-1] - readings[0], 2),
    }


def damage(count: int) -> dict[str, float]:
    """Load damaged files; every one must be refused as broken, none may do anything else."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shield.safetensors"
        made_shield(50, hidden_size=16).save(path)
        good = path.read_bytes()
        Shield.load(path)
        for bad in mutations(good, count, seed=1):
            path.write_bytes(bad)
            try:
                Shield.load(path)
                outcomes["loaded"] += 1
            except BrokenFileError:
                outcomes["refused"] += 1
            except Exception as error:  # anything else is a finding
                outcomes[f"crashed: {type(error).__name__}"] += 1
    for name, number in outcomes.items():
        print(f"{name:<30} {number:8,}")
    crashed = sum(n for name, n in outcomes.items() if name.startswith("crashed"))
    return {"files": count, "loaded": outcomes["loaded"], "crashed": crashed}


if __name__ == "__main__":
    restart_with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20_000)
    options = parser.parse_args()
    np.seterr(all="raise")
    figures = soak(options.calls) | damage(options.files)
    print(json.dumps(figures))
