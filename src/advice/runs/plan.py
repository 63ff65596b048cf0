"""What a grid would cost, from a short measurement on this machine."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence

from advice.config import TrainConfig
from advice.runs.grid import Cell, status_of
from advice.runs.loop import train
from advice.runs.records import RunFolder

MEASURED_EPISODES = 12
STEPS_PER_EPISODE = 150  # about the mean length of an episode
REPEATED = 0.15  # time of a repeated episode (the simulator alone) by that of a trained one
BYTES_PER_RUN, REPLAY_BYTES = 10e6, 60e6  # of a finished run; the replay of one in progress


def plan(
    cells: Sequence[Cell], processes: int, only_missing: bool = True
) -> tuple[list[tuple[str, ...]], str]:
    """A row per study and one for all, and the sum in words.

    Columns: runs, done, episodes to do, of these shared, core-hours without sharing, core-hours.
    """
    counts: dict[str, list[int]] = {}
    for cell in cells:
        status = status_of(cell)
        begun = status.episode if only_missing else 0
        done = only_missing and status.state == "done"
        todo = 0 if done else max(0, cell.config.episodes - begun)
        shared = 0 if begun or not todo or (only_missing and _too_late(cell)) else cell.shared
        for study in (cell.config.study or "runs", "all"):
            sums = zip(counts.get(study, [0] * 4), (1, done, todo, shared), strict=True)
            counts[study] = [sum(pair) for pair in sums]
    counts["all"] = counts.pop("all")  # last
    hours_per_episode = STEPS_PER_EPISODE / measure(cells[0].config) / 3600
    rows = []
    for study, (runs, finished, todo, shared) in counts.items():
        alone = todo * hours_per_episode
        hours = alone - (1 - REPEATED) * shared * hours_per_episode
        figures = (runs, finished, todo, shared, f"{alone:.1f}", f"{hours:.1f}")
        rows.append((study, *map(str, figures)))
    final = (runs - finished) * BYTES_PER_RUN / 1e9
    shared_in_words = (
        f"; shared beginnings save {alone - hours:.1f} of {alone:.1f} core-hours (tabular runs "
        "count as DDPG's, which they are unless the table intervenes)"
    )
    return rows, (
        f"{runs - finished} of {runs} runs to do, about {todo * STEPS_PER_EPISODE / 1e6:.1f} "
        f"million steps{shared_in_words * bool(shared)}; "
        f"{hours:.1f} core-hours at the speed measured here, {hours / processes:.1f} h with "
        f"{processes} at a time; disk {final:.2f} GB, at most "
        f"{final + processes * REPLAY_BYTES / 1e9:.2f} GB while it runs"
    )


def _too_late(cell: Cell) -> bool:
    """True if the trunk is further already and did not keep what this run needs."""
    trunk = RunFolder(cell.trunk or "")
    if not trunk.episodes_file.exists() or trunk.kept_file(cell.shared).exists():
        return False
    return len(trunk.read_episodes()) > cell.shared


def measure(config: TrainConfig) -> float:
    """Steps per second of a few real episodes, the first (it compiles) not counted."""
    env = dataclasses.replace(config.env, max_episode_steps=100)
    short = dataclasses.replace(
        config, episodes=MEASURED_EPISODES, env=env, shield_from=None, stop_after_violations=None
    )
    with tempfile.TemporaryDirectory() as folder:
        train(short, folder)
        records = RunFolder(folder).read_episodes()[2:]
    return sum(r.steps for r in records) / sum(r.seconds for r in records)
