"""`advice demo`: plain DDPG and ADVICE side by side; a table, a figure and a short video."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from advice.config import EnvConfig, ShieldConfig, TrainConfig
from advice.reports.plots import canvas
from advice.reports.style import INK, METHOD_LOOKS, method_label
from advice.runs.engines import run_local
from advice.runs.grid import Cell, status_of, write_grid
from advice.runs.records import RunFolder
from advice.types import AdviceError

HALVES = ("before the shield", "after")


def demo_cells(
    out: Path, task: str, seed: int, episodes: int, construction_episodes: int
) -> list[Cell]:
    """The same run twice: without and with the shield."""
    if episodes <= construction_episodes:
        raise AdviceError(
            f"expected more --episodes than the {construction_episodes} before the shield is "
            f"fitted (--construction-episodes), found {episodes}"
        )
    shield = ShieldConfig(construction_episodes=construction_episodes)
    env = EnvConfig(max_episode_steps=500)
    configs = [
        TrainConfig(task, method, seed, episodes, shield=shield, env=env)
        for method in ("ddpg", "advice")
    ]
    return [Cell(config, RunFolder.of(out / "runs", config)) for config in configs]


def train_pair(out: Path, cells: list[Cell], update: Callable[[], None]) -> bool:
    """Train both. False if it was interrupted; the same command again continues."""
    write_grid(out, cells)
    outcome = run_local(cells, update)
    for cell in outcome.failed:
        raise AdviceError(f"{cell.name} failed: {status_of(cell).reason or 'see its log.txt'}")
    return not outcome.stopped


def armed_after(cells: list[Cell]) -> int:
    """Episodes before the shield was armed, early or when it was due."""
    records = cells[1].folder.read_episodes()
    armed = (record.episode - 1 for record in records if record.k > 0)
    return next(armed, cells[1].config.shield.construction_episodes)


def demo_rows(cells: list[Cell]) -> list[tuple[str, ...]]:
    """Counts from the records: one row per method and half of the training."""
    rows: list[tuple[str, ...]] = []
    split = armed_after(cells)
    for cell in cells:
        records = cell.folder.read_episodes()
        for when, part in zip(HALVES, (records[:split], records[split:]), strict=True):
            rows.append(
                (
                    cell.config.method,
                    f"{when} (episodes {part[0].episode}-{part[-1].episode})",
                    str(sum(record.violation for record in part)),
                    str(sum(record.success for record in part)),
                    f"{np.mean([record.steps for record in part]):.0f}",
                    str(sum(record.interventions for record in part)),
                    f"{sum(record.seconds for record in part):.0f} s",
                )
            )
    return rows


def draw(cells: list[Cell], path: Path) -> None:
    """Plot cumulative violations and successes of both methods; a line marks when it was armed."""
    armed = armed_after(cells)
    counted = {"violation": "violations so far", "success": "goals reached so far"}
    with canvas(1, 2, (10, 4)) as (figure, axes):
        for axis, (what, title) in zip(axes, counted.items(), strict=True):
            for cell in cells:
                records = cell.folder.read_episodes()
                total = np.cumsum([getattr(record, what) for record in records])
                method = cell.config.method
                colour, dash, width = METHOD_LOOKS[method]
                axis.plot(
                    range(1, len(total) + 1),
                    total,
                    color=colour,
                    ls=dash,
                    lw=width,
                    label=method_label(method),
                )
            axis.axvline(armed, color=INK, ls=":", lw=1)
            axis.set(title=title, xlabel="episode")
        axes[0].legend()
        axes[0].annotate(" shield armed", (armed, axes[0].get_ylim()[1]), va="top", fontsize=9)
        figure.savefig(path, dpi=130, facecolor="white")
