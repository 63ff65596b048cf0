"""Lines of ``episodes.csv``: written, read, and checked against each other and the settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from advice.config import TrainConfig
from advice.types import BrokenFileError, EpisodeRecord

COLUMNS = tuple("return" if name == "episode_return" else name for name in EpisodeRecord._fields)
_TYPES = get_type_hints(EpisodeRecord)
_FLAGS = {"0": False, "1": True}
_LARGE = 1e15  # what no return, cost or time exceeds


def is_finished(config: TrainConfig, episodes: int, violations: int) -> bool:
    """True if a run has all its episodes, or has spent its violation budget."""
    budget = config.stop_after_violations
    return episodes >= config.episodes or (budget is not None and violations >= budget)


def newest_episodes(path: Path) -> list[EpisodeRecord]:
    """About the last hundred episodes, from the file's end; other lines are ignored."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.path.getsize(path) - 8192))
            lines = stream.read().decode(errors="replace").split("\n")[:-1]
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        with suppress(ValueError, KeyError):  # the header, a line cut in two, a damaged one
            records.append(_record(line.split(",")))
    return records


def parse_episodes(path: Path, content: bytes) -> list[EpisodeRecord]:
    """The complete lines of ``content``; BrokenFileError names the first that is no episode."""
    text = content.decode(errors="replace")
    lines = text[: text.rfind("\n") + 1].splitlines()
    if not lines or tuple(lines[0].split(",")) != COLUMNS:
        raise BrokenFileError(f"{path}: expected the columns {','.join(COLUMNS)}")
    records = []
    for number, line in enumerate((line.split(",") for line in lines[1:]), start=1):
        try:
            record = _record(line)
        except (ValueError, KeyError):
            what = f"line {number + 1} is not an episode: {str(line)[:200]}"
            raise BrokenFileError(f"{path}: {what}") from None
        if record.episode != number:
            raise BrokenFileError(f"{path}: expected episode {number}, found {record.episode}")
        records.append(record)
    return records


def check_episodes(path: Path, records: Sequence[EpisodeRecord], config: TrainConfig) -> None:
    """Raise BrokenFileError if no run with these settings can have such episodes."""
    table = np.array(records, np.float64).reshape(-1, len(COLUMNS))
    columns = dict(zip(COLUMNS, table.T, strict=True))
    steps, total = columns["steps"], np.cumsum(columns["steps"])
    bounds: dict[str, tuple[Any, Any]] = {
        "steps": (1, config.env.max_episode_steps or _LARGE),
        "total_steps": (total, total),
        "return": (-_LARGE, _LARGE),
        "cost": (-_LARGE, np.where(columns["violation"], _LARGE, 0)),  # a cost is a violation
        "interventions": (0, steps),
        "no_safe_action": (0, steps),
        "k": (0, config.shield.k_max),
        "multiplier": (0, _LARGE),
        "seconds": (0, _LARGE),
    }
    for name, (low, high) in bounds.items():
        bad = np.flatnonzero(~((low <= columns[name]) & (columns[name] <= high)))
        if len(bad):
            line, value = bad[0] + 2, columns[name][bad[0]]
            least, most = (np.broadcast_to(x, steps.shape)[bad[0]] for x in (low, high))
            raise BrokenFileError(
                f"{path}: line {line}: expected {name} in {least:g} to {most:g}, found {value:g}"
            )
    if len(records) > config.episodes:
        raise BrokenFileError(
            f"{path}: expected at most {config.episodes} episodes, found {len(records)}"
        )


def episode_row(record: EpisodeRecord) -> Sequence[str]:
    return [str(int(cell)) if isinstance(cell, bool) else repr(cell) for cell in record]


def _record(cells: Sequence[str]) -> EpisodeRecord:
    kinds = zip(_TYPES.values(), cells, strict=True)
    return EpisodeRecord(*(_FLAGS[cell] if kind is bool else kind(cell) for kind, cell in kinds))
