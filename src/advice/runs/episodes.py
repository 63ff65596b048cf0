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
    records: list[EpisodeRecord] = []
    with suppress(FileNotFoundError), open(path, "rb") as stream:
        stream.seek(max(0, os.path.getsize(path) - 8192))
        for line in stream.read().decode(errors="replace").split("\n")[:-1]:
            with suppress(ValueError, KeyError):  # the header, a line cut in two, a damaged one
                records.append(_record(line))
    return records


def parse_episodes(path: Path, content: bytes) -> list[EpisodeRecord]:
    """The complete lines of ``content``; BrokenFileError names the first that is no episode."""
    text = content.decode(errors="replace")
    header, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
    if header != ",".join(COLUMNS):
        raise BrokenFileError(f"{path}: expected the columns {','.join(COLUMNS)}")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_record(line))
        except (ValueError, KeyError):
            what = f"line {number + 1} is not an episode: {line[:200]!r}"
            raise BrokenFileError(f"{path}: {what}") from None
        if records[-1].episode != number:
            found = records[-1].episode
            raise BrokenFileError(f"{path}: expected episode {number}, found {found}")
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
    for name, limits in bounds.items():
        low, high = (np.broadcast_to(limit, steps.shape) for limit in limits)
        found = columns[name]
        for row in np.flatnonzero(~((low <= found) & (found <= high)))[:1]:
            raise BrokenFileError(
                f"{path}: line {row + 2}: expected {name} in {low[row]:g} to {high[row]:g}, "
                f"found {found[row]:g}"
            )
    if len(records) > config.episodes:
        raise BrokenFileError(
            f"{path}: expected at most {config.episodes} episodes, found {len(records)}"
        )


def episode_line(record: EpisodeRecord) -> str:
    cells = (str(int(cell)) if isinstance(cell, bool) else repr(cell) for cell in record)
    return ",".join(cells) + "\n"


def _record(line: str) -> EpisodeRecord:
    kinds = zip(_TYPES.values(), line.split(","), strict=True)
    return EpisodeRecord(*(_FLAGS[cell] if kind is bool else kind(cell) for kind, cell in kinds))
