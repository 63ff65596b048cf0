"""What a grid would cost, from a short measurement on this machine."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from advice.config import TrainConfig
from advice.runs.branching import kept_file
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


REPEATED = 0.15
"""Time of a repeated episode (the simulator alone) by that of a trained one, measured."""


class Part(NamedTuple):
    """The runs of one study."""

    study: str
    runs: int
    done: int
    episodes: int
    """Episodes of the runs that are still to do."""
    shared: int
    """How many of these another run trains too, so that they are only repeated."""

    @property
    def trained(self) -> float:
        """Episodes to train, with the repeated ones by the time they take."""
        return self.episodes - (1.0 - REPEATED) * self.shared


class Plan(NamedTuple):
    """What would run, and what it would take."""

    parts: list[Part]
    steps_per_episode: float
    steps_per_second: float
    processes: int

    @property
    def total(self) -> Part:
        return Part(
            "all", *(sum(column) for column in zip(*(p[1:] for p in self.parts), strict=True))
        )

    def hours(self, episodes: float) -> float:
        """Core-hours of so many episodes."""
        return episodes * self.steps_per_episode / self.steps_per_second / 3600

    def rows(self) -> list[tuple[str, ...]]:
        """One line per study and the sum: runs, done, episodes, shared, core-hours."""
        return [
            (
                *(part.study or "runs", str(part.runs), str(part.done), str(part.episodes)),
                *(str(part.shared), f"{self.hours(part.episodes):.1f}"),
                f"{self.hours(part.trained):.1f}",
            )
            for part in (*self.parts, self.total)
        ]

    def __str__(self) -> str:
        total = self.total
        todo, steps = total.runs - total.done, total.episodes * self.steps_per_episode
        final = (todo * BYTES_PER_RUN + steps * BYTES_PER_STEP) / 1e9
        peak = final + self.processes * REPLAY_BYTES / 1e9
        before, after = self.hours(total.episodes), self.hours(total.trained)
        saved = ""
        if total.shared:
            saved = (
                f"shared beginnings save {before - after:.1f} of {before:.1f} core-hours "
                "(tabular runs count as DDPG's, which they are unless the table intervenes); "
            )
        return (
            f"{todo} of {total.runs} runs to do, about {steps / 1e6:.1f} million steps; {saved}"
            f"measured here {self.steps_per_second:.0f} steps/s a core: {after:.1f} core-hours, "
            f"{after / self.processes:.1f} h with {self.processes} at a time; "
            f"disk {final:.2f} GB, at most {peak:.2f} GB while it runs"
        )


def plan(cells: Sequence[Cell], processes: int, only_missing: bool = True) -> Plan:
    """Measure the first run's speed here, and add up the episodes that are still to do."""
    parts: dict[str, Part] = {}
    for status in map(status_of, cells):
        cell, began = status.cell, status.episode if only_missing else 0
        done = only_missing and status.state == "done"
        episodes = 0 if done else max(0, cell.config.episodes - began)
        shared = cell.shared if episodes and not began and _can_share(cell, only_missing) else 0
        old = parts.get(cell.config.study, Part(cell.config.study, 0, 0, 0, 0))
        new = Part(old.study, 1, int(done), episodes, shared)
        sums = (x + y for x, y in zip(old[1:], new[1:], strict=True))
        parts[old.study] = Part(old.study, *sums)
    speed = measure(cells[0].config) if cells else 1.0
    return Plan(list(parts.values()), steps_per_episode(cells), speed, processes)


def _can_share(cell: Cell, only_missing: bool) -> bool:
    """False if the trunk is there already and did not keep what this run needs."""
    if cell.trunk is None:
        return False
    begun = only_missing and RunFolder(cell.trunk).episodes_file.exists()
    kept = kept_file(cell.trunk, cell.shared).exists()
    if not begun or kept:
        return True
    return len(RunFolder(cell.trunk).read_episodes()) <= cell.shared


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
