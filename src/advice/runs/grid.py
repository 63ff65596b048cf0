"""Grids of runs: tasks x methods x seeds, and the paper's suites of them, as data."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from advice.config import PRESETS, TUNED, TrainConfig, from_dict, to_dict
from advice.files import write_json
from advice.runs.records import RunFolder, newest_episodes
from advice.types import AdviceError

GOALS = ("semi-random-goal", "randomised-goal", "randomised-button", "randomised-circle")
SIX = ("ddpg", "ddpg-lag", "rcpo", "tabular", "csc", "advice")
RANDOMISED = ("randomised-goal",)


class Study(NamedTuple):
    """One row of a suite: every task with every method and seed, under the same settings."""

    label: str
    """The folder of its runs, below the grid's own."""
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    settings: Mapping[str, Any] = {}
    """Settings that differ from the defaults, by dotted name."""
    shields_of: tuple[str, str] | None = None
    """(study, task) whose runs lend their fitted shields to this one's."""
    tuned: bool = True
    """Runs start from :data:`TUNED`."""

    def settings_of(self, method: str) -> dict[str, Any]:
        """What this study sets for a method."""
        settings: dict[str, Any] = {}
        for part in method.split("+") if self.tuned else ():
            settings |= TUNED.get(part, {})
        return settings | dict(self.settings)


def _fixed_k(k: int) -> Study:
    settings = {"shield.k": k, "shield.k_rule": "fixed"}
    return Study(f"fixed-k-{k}", RANDOMISED, ("advice",), settings)


def _activation(episodes: int) -> Study:
    settings = {"shield.construction_episodes": episodes, "episodes": episodes + 1000}
    return Study(f"activation-{episodes}", RANDOMISED, ("advice",), settings)


def _windows(recent: int, distant: int) -> Study:
    settings = {"shield.recent_window": recent, "shield.distant_window": distant}
    return Study(f"windows-{recent}-{distant}", RANDOMISED, ("advice",), settings)


CORE = Study("core", GOALS, SIX)
CONSTRAINED = Study(
    "constrained",
    ("constrained-randomised-goal",),
    SIX,
    # inside a hazard nothing is safe, and the least risky action does not lead out of it
    {"shield.fallback": "proposed"},
)
LENDERS = Study("core", RANDOMISED, ("advice", "tabular", "csc"))
TRANSFER = Study(
    "transfer",
    ("semi-random-goal",),
    ("advice", "tabular", "csc"),
    {"episodes": 1000},
    shields_of=("core", "randomised-goal"),
)
LONG = Study("long-episodes", RANDOMISED, SIX, {"env.max_episode_steps": 2000})
PAPER_SETTINGS = Study(
    "paper-settings",
    RANDOMISED,
    ("advice",),
    {name: getattr(PRESETS["paper"], name.removeprefix("shield.")) for name in TUNED["advice"]},
    tuned=False,
)
ADAPTIVE = Study("core", RANDOMISED, ("advice",))
K_SWEEP = (_fixed_k(3), _fixed_k(4), _fixed_k(5), ADAPTIVE)
ACTIVATION = (*map(_activation, (250, 500, 750)), ADAPTIVE)
WINDOWS = (
    *(_windows(recent, distant) for recent in (2, 4) for distant in (10, 25)),
    *(_windows(3, 10), ADAPTIVE),
)
SMOKE = Study(
    "smoke",
    RANDOMISED,
    ("ddpg", "advice"),
    {
        "episodes": 6,
        "env.max_episode_steps": 30,
        "shield.construction_episodes": 3,
        "shield.max_epochs": 5,
    },
)

SUITES: dict[str, tuple[Study, ...]] = {
    "smoke": (SMOKE,),
    "core": (CORE,),
    "constrained": (CONSTRAINED,),
    "paper-settings": (PAPER_SETTINGS, ADAPTIVE),
    "transfer": (LENDERS, TRANSFER),
    "long-episodes": (LONG,),
    "k-sweep": K_SWEEP,
    "activation-sweep": ACTIVATION,
    "windows": WINDOWS,
    "paper": (
        *(CORE, CONSTRAINED, PAPER_SETTINGS, TRANSFER, LONG),
        *(*K_SWEEP, *ACTIVATION, *WINDOWS),
    ),
}


class Cell(NamedTuple):
    """One run of a grid."""

    config: TrainConfig
    folder: RunFolder
    after: Path | None = None
    """The run whose shield it needs first."""

    @property
    def name(self) -> str:
        return "/".join(self.folder.path.parts[-4:])


def cells_of(
    studies: Iterable[Study], seeds: Sequence[int], out: Path, base: TrainConfig
) -> list[Cell]:
    """All runs of the studies, each once, lenders of shields before their borrowers."""
    cells: dict[Path, Cell] = {}
    for study in studies:
        for task in study.tasks:
            for seed in seeds:
                for method in study.methods:
                    config = dataclasses.replace(base, task=task, method=method, seed=seed)
                    config = with_settings(config, study.settings_of(method))
                    root = out / study.label
                    lender = None
                    if study.shields_of:
                        label, source = study.shields_of
                        lender = RunFolder.of(
                            out / label, dataclasses.replace(config, task=source)
                        ).path
                        config = dataclasses.replace(config, shield_from=str(lender))
                    folder = RunFolder.of(root, config)
                    cells.setdefault(folder.path, Cell(config, folder, lender))
    return list(cells.values())


def check_lenders(cells: Sequence[Cell]) -> None:
    """Every shield that a cell needs is there, or will be made by another one."""
    needed = {cell.after for cell in cells if cell.after and not (cell.after / "done").exists()}
    if absent := sorted(needed - {cell.folder.path for cell in cells}):
        raise AdviceError(f"this part of the suite needs a shield that is not there: {absent[0]}")


def find_suite(name: str) -> tuple[Study, ...]:
    if name not in SUITES:
        close = difflib.get_close_matches(name, SUITES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise AdviceError(f"unknown suite {name!r}: expected one of {', '.join(SUITES)}.{hint}")
    return SUITES[name]


def narrowed(
    studies: Sequence[Study], tasks: Sequence[str], methods: Sequence[str]
) -> tuple[Study, ...]:
    """The part of a suite with these tasks and methods; none named means all."""
    found = [
        study._replace(
            tasks=tuple(task for task in study.tasks if task in (tasks or study.tasks)),
            methods=tuple(name for name in study.methods if name in (methods or study.methods)),
        )
        for study in studies
    ]
    for asked, field in ((tasks, "tasks"), (methods, "methods")):
        offered = dict.fromkeys(name for study in studies for name in getattr(study, field))
        if unknown := [name for name in asked if name not in offered]:
            raise AdviceError(
                f"the suite has no {field} {', '.join(unknown)}: expected some of "
                f"{', '.join(offered)}"
            )
    return tuple(study for study in found if study.tasks and study.methods)


def set_by(studies: Iterable[Study]) -> set[str]:
    """Dotted names of all settings that the studies decide."""
    return {
        name for study in studies for method in study.methods for name in study.settings_of(method)
    }


def with_settings(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """``config`` with some settings changed by their dotted names."""
    values = to_dict(config)
    for dotted, value in settings.items():
        *path, last = dotted.split(".")
        inner = values
        for name in path:
            inner = inner[name]
        if last not in inner:
            raise KeyError(dotted)
        inner[last] = value
    return from_dict(TrainConfig, values)


# ---- where a grid stands, from what lies on disk


class Status(NamedTuple):
    """One cell as a second terminal can see it."""

    cell: Cell
    state: str
    """queued, running, stopped, done or failed."""
    episode: int
    steps_per_second: float
    seconds_per_episode: float
    reason: str = ""


def status_of(cell: Cell) -> Status:
    """Where a cell stands, read from its folder."""
    folder = cell.folder
    newest = newest_episodes(folder.episodes_file)
    episode = newest[-1].episode if newest else 0
    speed = newest[-1].steps / max(newest[-1].seconds, 1e-9) if newest else 0.0
    pace = sum(record.seconds for record in newest) / max(1, len(newest))
    state, reason = "stopped" if episode else "queued", ""
    if folder.done_file.exists():
        state = "done"
    elif folder.is_locked():
        state = "running"
    elif folder.error_file.exists():
        state, reason = "failed", folder.error_file.read_text().strip()
    return Status(cell, state, episode, speed, pace, reason)


def write_grid(out: Path, cells: Sequence[Cell]) -> None:
    """Remember a grid's cells for `advice bench --status`."""
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
