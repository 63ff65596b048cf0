"""What a grid would cost, from a short measurement on this machine."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from advice.config import TrainConfig
from advice.runs.grid import Cell, status_of
from advice.runs.loop import train
from advice.runs.records import RunFolder

MEASURED_EPISODES = 12
STEPS_PER_EPISODE = 150
"""Mean length of an episode, used while the grid has no episodes."""
BYTES_PER_STEP = 2 * 2 * 4
BYTES_PER_RUN = 6e6
"""Networks, checkpoint and shield of a finished run."""
REPLAY_BYTES = 60e6
"""Replay log of a run in progress."""


class Plan(NamedTuple):
    """What would run, and what it would take."""

    cells: list[tuple[Cell, str]]
    todo: int
    steps: float
    steps_per_second: float
    processes: int

    def rows(self) -> list[tuple[str, ...]]:
        """One row per study and number of episodes."""
        groups: dict[tuple[str, int], list[tuple[Cell, str]]] = {}
        for cell, state in self.cells:
            groups.setdefault((cell.config.study, cell.config.episodes), []).append((cell, state))
        rows: list[tuple[str, ...]] = []
        for (study, episodes), found in groups.items():
            configs = [cell.config for cell, _ in found]
            tasks, methods, seeds = (
                list(dict.fromkeys(str(getattr(config, name)) for config in configs))
                for name in ("task", "method", "seed")
            )
            states = Counter(state for _, state in found)
            row = (study or "-", "\n".join(tasks), ", ".join(methods), ", ".join(seeds))
            counted = ", ".join(f"{count} {state}" for state, count in states.items())
            rows.append((*row, str(episodes), counted))
        return rows

    def __str__(self) -> str:
        hours = self.steps / self.steps_per_second / 3600
        final = (self.todo * BYTES_PER_RUN + self.steps * BYTES_PER_STEP) / 1e9
        peak = final + self.processes * REPLAY_BYTES / 1e9
        return (
            f"{self.todo} of {len(self.cells)} runs to do, "
            f"about {self.steps / 1e6:.1f} million steps; "
            f"measured here {self.steps_per_second:.0f} steps/s a core: {hours:.1f} core-hours, "
            f"{hours / self.processes:.1f} h with {self.processes} at a time; "
            f"disk {final:.2f} GB, at most {peak:.2f} GB while it runs"
        )


def plan(cells: Sequence[Cell], processes: int, only_missing: bool = True) -> Plan:
    """Measure the first run's speed here, and add up the episodes that are still to do."""
    statuses = [status_of(cell) for cell in cells]
    todo = [status for status in statuses if status.state != "done" or not only_missing]
    episodes = sum(s.cell.config.episodes - s.episode * only_missing for s in todo)
    steps = episodes * steps_per_episode(cells)
    speed = measure(cells[0].config) if cells else 1.0
    states = [(status.cell, status.state) for status in statuses]
    return Plan(states, len(todo), steps, speed, processes)


def steps_per_episode(cells: Sequence[Cell]) -> float:
    """Mean length of the episodes that the grid's folders already hold."""
    records = [
        record
        for cell in cells
        if cell.folder.episodes_file.exists()
        for record in cell.folder.read_episodes()
    ]
    return sum(r.steps for r in records) / len(records) if len(records) > 100 else STEPS_PER_EPISODE


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
