"""Throughput of a grid with one process and with two.

    python benchmarks/grid_scaling.py

The same cells run twice, one at a time and two at a time; ``scaling`` is the ratio of the steps
trained per second of wall time. The rounds alternate and the medians count.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from advice.config import EnvConfig, TrainConfig
from advice.runs.engines import run_local
from advice.runs.studies import Study, cells_of


def throughput(processes: int, episodes: int) -> float:
    """Steps per second of four runs of plain DDPG."""
    base = TrainConfig(episodes=episodes, env=EnvConfig(max_episode_steps=200))
    with tempfile.TemporaryDirectory() as scratch:
        cells = cells_of([Study("", methods=("ddpg",))], range(100, 104), Path(scratch), base)
        began = time.monotonic()
        outcome = run_local(cells, lambda: None, processes=processes)
        seconds = time.monotonic() - began
        if outcome.failed:
            raise SystemExit(f"failed: {[cell.name for cell in outcome.failed]}")
        steps = sum(cell.folder.read_episodes()[-1].total_steps for cell in cells)
    return steps / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for number in range(options.rounds):
        for processes in speeds:
            speeds[processes].append(throughput(processes, options.episodes))
        one, two = speeds[1][-1], speeds[2][-1]
        print(
            f"round {number + 1}: {one:.0f} and {two:.0f} steps/s, ratio {two / one:.2f}",
            flush=True,
        )
    figures = {
        "one_process_steps_per_s": statistics.median(speeds[1]),
        "two_processes_steps_per_s": statistics.median(speeds[2]),
        "scaling": statistics.median(b / a for a, b in zip(speeds[1], speeds[2], strict=True)),
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
