"""Grids of runs: what is to run, and where each run stands, from what is on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from advice.config import TrainConfig, from_dict, to_dict
from advice.files import write_json
from advice.runs.records import RunFolder, parse_line
from advice.types import AdviceError, EpisodeRecord


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

    def to_row(self, root: Path | None = None) -> dict[str, Any]:
        """JSON-ready values; paths are relative to ``root``, or absolute without one."""
        row: dict[str, Any] = {"folder": self.folder.path, "after": self.after, "trunk": self.trunk}
        for name, path in row.items():
            row[name] = path and (os.path.relpath(path, root) if root else os.path.abspath(path))
        return {**row, "shared": self.shared, "keep": self.keep, "config": to_dict(self.config)}

    @classmethod
    def from_row(cls, row: dict[str, Any], root: Path | str = "") -> Cell:
        after, trunk = (Path(root, row[x]) if row.get(x) else None for x in ("after", "trunk"))
        config, folder = from_dict(TrainConfig, row["config"]), RunFolder(Path(root, row["folder"]))
        return cls(config, folder, after, trunk, row.get("shared", 0), tuple(row.get("keep", ())))


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


def newest_episodes(path: Path) -> list[EpisodeRecord]:
    """About the last hundred episodes, from the file's end; other lines are ignored."""
    records: list[EpisodeRecord] = []
    with suppress(FileNotFoundError), open(path, "rb") as stream:
        stream.seek(max(0, os.path.getsize(path) - 8192))
        for line in stream.read().decode(errors="replace").split("\n")[:-1]:
            with suppress(ValueError, KeyError):  # the header, a line cut in two, a damaged one
                records.append(parse_line(line))
    return records


def write_grid(out: Path, cells: Sequence[Cell]) -> None:
    """Write grid.json, for `advice bench --status`."""
    write_json(out / "grid.json", {"cells": [cell.to_row(out) for cell in cells]})


def read_grid(out: Path) -> list[Cell]:
    path = out / "grid.json"
    if not path.is_file():
        found = "no grid.json in it" if out.is_dir() else "no such folder"
        raise AdviceError(f"{out}: expected the folder of `advice bench --out`, found {found}")
    return [Cell.from_row(row, out) for row in json.loads(path.read_text())["cells"]]
