"""`advice demo`: unshielded DDPG and ADVICE side by side; a table, a figure and a short video."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from advice.config import TrainConfig
from advice.runs.engines import run_local
from advice.runs.evaluate import evaluate
from advice.runs.grid import Cell, status_of, write_grid
from advice.runs.records import RunFolder
from advice.types import AdviceError, EpisodeRecord

BEFORE_AFTER = ("before the shield", "after")


def demo_cells(out: Path, config: TrainConfig) -> list[Cell]:
    """The same run twice: once without and once with the shield."""
    configs = [dataclasses.replace(config, method=method) for method in ("ddpg", "advice")]
    return [Cell(config, RunFolder.of(out / "runs", config)) for config in configs]


def train_pair(out: Path, cells: list[Cell], watch: Callable[[], None]) -> bool:
    """Train both; False if it was interrupted (the same command continues)."""
    write_grid(out, cells)
    outcome = run_local(cells, watch)
    for cell in outcome.failed:
        raise AdviceError(f"{cell.name} failed: {status_of(cell).reason or 'see its log.txt'}")
    return not outcome.stopped


def demo_rows(cells: list[Cell]) -> list[tuple[str, ...]]:
    """What happened, counted from the records: one row per method and half of the training."""
    rows: list[tuple[str, ...]] = []
    for cell in cells:
        records = cell.folder.read_episodes()
        split = cell.config.shield.construction_episodes
        for when, part in zip(BEFORE_AFTER, (records[:split], records[split:]), strict=True):
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
    """Cumulative violations and successes of both methods, with the moment of arming."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = {"ddpg": "#7f7f7f", "advice": "#d1495b"}

    def plot(axis: plt.Axes, title: str, count: Callable[[EpisodeRecord], bool]) -> None:
        for cell in cells:
            total = np.cumsum([count(record) for record in cell.folder.read_episodes()])
            method = cell.config.method
            axis.plot(np.arange(1, len(total) + 1), total, color=colours[method], label=method)
        axis.axvline(cells[0].config.shield.construction_episodes, color="black", ls=":", lw=1)
        axis.set(title=title, xlabel="episode")
        axis.spines[["top", "right"]].set_visible(False)

    plot(axes[0], "violations so far", lambda record: record.violation)
    plot(axes[1], "goals reached so far", lambda record: record.success)
    axes[0].legend(frameon=False)
    axes[0].annotate(
        " shield armed",
        (cells[0].config.shield.construction_episodes, axes[0].get_ylim()[1]),
        va="top",
        fontsize=9,
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def film(cells: list[Cell], path: Path) -> None:
    """Three greedy episodes of the shielded agent."""
    evaluate(cells[1].folder, episodes=3, video=path)
