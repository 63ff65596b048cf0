"""Grids of runs: what is to run, and where each run stands, from what is on disk."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from advice.config import TrainConfig, from_dict, to_dict
from advice.files import write_json
from advice.runs.episodes import newest_episodes
from advice.runs.records import RunFolder
from advice.runs.studies import WITH_SHIELD, Study, with_settings
from advice.types import AdviceError


class Cell(NamedTuple):
    """One run of a grid."""

    config: TrainConfig
    folder: RunFolder
    after: Path | None = None  # must finish first: this one starts with its shield
    trunk: Path | None = None  # its first ``shared`` episodes are this one's too
    shared: int = 0
    keep: tuple[int, ...] = ()  # episodes after which others branch off (runs/branching.py)

    @property
    def name(self) -> str:
        return "/".join(self.folder.path.parts[-4:])


def cells_of(
    studies: Iterable[Study], seeds: Sequence[int], out: Path, base: TrainConfig
) -> list[Cell]:
    """All runs of the studies, each once; a run comes after the one whose shield it needs."""
    cells: dict[Path, Cell] = {}
    for study in studies:
        for task, seed, method in itertools.product(study.tasks, seeds, study.methods):
            name = study.name or base.study
            config = dataclasses.replace(base, task=task, method=method, seed=seed, study=name)
            config = with_settings(config, study.settings_of(method))
            after = None
            if study.shields_from and method in WITH_SHIELD:
                name, other_task = study.shields_from
                after = RunFolder.of(out / name, dataclasses.replace(config, task=other_task)).path
                config = dataclasses.replace(config, shield_from=str(after))
            folder = RunFolder.of(out / study.name, config)
            cells.setdefault(folder.path, Cell(config, folder, after))
    return list(cells.values())


def check_shields(cells: Sequence[Cell]) -> None:
    """Raise AdviceError unless each shield that a cell starts with exists or is in the grid."""
    needed = {cell.after for cell in cells if cell.after and not (cell.after / "done").exists()}
    if absent := sorted(needed - {cell.folder.path for cell in cells}):
        raise AdviceError(f"this part of the suite needs a shield that is not there: {absent[0]}")


class Status(NamedTuple):
    """Where one cell stands."""

    cell: Cell
    state: str  # queued, running, stopped, done or failed
    episode: int
    steps_per_second: float
    seconds_per_episode: float
    reason: str = ""


def status_of(cell: Cell) -> Status:
    """Where a cell stands, read from its folder."""
    folder, newest = cell.folder, newest_episodes(cell.folder.episodes_file)
    episode = newest[-1].episode if newest else 0
    speed = newest[-1].steps / max(newest[-1].seconds, 1e-9) if newest else 0.0
    pace = sum(record.seconds for record in newest) / max(1, len(newest))
    state, reason = "stopped" if episode else "queued", ""
    if folder.done_file.exists():
        state = "done"
    elif folder.is_locked():
        state = "running"
        quiet = time.time() - os.stat(folder.lock_file).st_mtime
        reason = f"no step for {quiet / 60:.0f} min" if quiet >= 60 else ""
    elif folder.error_file.exists():
        state, reason = "failed", folder.error_file.read_text().strip()
    return Status(cell, state, episode, speed, pace, reason)


def write_grid(out: Path, cells: Sequence[Cell]) -> None:
    """Write grid.json, for `advice bench --status`."""
    rows = [
        {
            "config": to_dict(cell.config),
            "folder": str(cell.folder.path.relative_to(out)),
            "after": str(cell.after.relative_to(out)) if cell.after else None,
        }
        for cell in cells
    ]
    write_json(out / "grid.json", {"cells": rows})


def read_grid(out: Path) -> list[Cell]:
    path = out / "grid.json"
    if not path.is_file():
        raise AdviceError(f"{out}: expected a grid's folder (with a grid.json), found none")
    return [
        Cell(
            from_dict(TrainConfig, row["config"]),
            RunFolder(out / row["folder"]),
            out / row["after"] if row["after"] else None,
        )
        for row in json.loads(path.read_text())["cells"]
    ]
