"""Progress of long commands: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from advice.config import TrainConfig
from advice.runs.checkpoints import Counters
from advice.runs.grid import Cell, Status, status_of
from advice.runs.loop import Listener
from advice.runs.records import RunFolder
from advice.shields.autoencoder import FitProgress
from advice.shields.bounds import running_bounds
from advice.types import EpisodeRecord, printable

PLAIN_SECONDS = 15.0
"""Off a terminal, at most one line per this many seconds."""


def _progress(console: Console, description: str, unit: str = "") -> Progress:
    """Bars with a description, how far each is, its status, the time left; on a terminal only."""
    return Progress(
        TextColumn(description),
        BarColumn(bar_width=20),
        TextColumn(unit + "{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not console.is_terminal,
    )


class TrainingDisplay(Listener):
    """Progress, what the last 100 episodes brought, K, steps/s and the time left.

    Also a 95 % confidence sequence of the violation probability, averaged over the episodes so far.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._recent: deque[EpisodeRecord] = deque(maxlen=100)
        self._progress = _progress(console, "{task.description}")
        self._last_line = time.monotonic()
        self._total = 0

    def __enter__(self) -> TrainingDisplay:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def started(self, config: TrainConfig, folder: RunFolder, counters: Counters) -> None:
        self._total = config.episodes
        if counters.episode:  # a resumed run goes on counting
            self._recent.extend(folder.read_episodes()[: counters.episode])
        self._task = self._progress.add_task(
            "training", total=config.episodes, completed=counters.episode, status=""
        )
        verb = f"resuming after episode {counters.episode}" if counters.episode else "training"
        self.said(f"{verb}: {config.method} on {config.task}, seed {config.seed} -> {folder.path}")

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        self._recent.append(record)
        status = self._status(record, counters)
        self._progress.update(
            self._task,
            completed=record.episode,
            description="training",
            status="\n".join(status),
        )
        last = record.episode == self._total
        if not self._console.is_terminal and (
            last or time.monotonic() - self._last_line >= PLAIN_SECONDS
        ):
            self._last_line = time.monotonic()
            left = (self._total - record.episode) * self._seconds_per_episode()
            line = "; ".join((*status, f"{left / 60:.1f} min left"))
            self.said(f"episode {record.episode}/{self._total}  {line}")

    def fitting(self, progress: FitProgress) -> None:
        status = f"epoch {progress.epoch}, validation loss {progress.validation_loss:.4f}"
        self._progress.update(self._task, description="fitting the shield", status=status)

    def said(self, message: str) -> None:
        self._console.print(printable(message), soft_wrap=True, highlight=False, markup=False)

    def _seconds_per_episode(self) -> float:
        return sum(record.seconds for record in self._recent) / len(self._recent)

    def _status(self, record: EpisodeRecord, counters: Counters) -> list[str]:
        """What the last episodes brought, and what the shield did; short lines."""
        recent = self._recent
        low, high = running_bounds(counters.violations, counters.episode)
        spent, steps = sum(r.seconds for r in recent), sum(r.steps for r in recent)
        shield = ""
        if record.k:
            shield = (
                f"{sum(r.interventions for r in recent) / steps:.0%} of steps replaced, "
                f"{sum(r.no_safe_action for r in recent) / steps:.1%} without a safe action, "
                f"K {record.k}"
            )
        lines = [
            f"last {len(recent)}: {sum(r.violation for r in recent)} violations, "
            f"{sum(r.success for r in recent)} successes, "
            f"return {sum(r.episode_return for r in recent) / len(recent):+.2f}, "
            f"{steps / max(spent, 1e-9):.0f} steps/s",
            shield,
            f"violation probability so far {low:.1%} to {high:.1%}",
        ]
        return [line for line in lines if line]


class GridDisplay:
    """A grid's cells: queued, running with episode and speed, done, failed with the reason."""

    def __init__(self, console: Console, cells: Sequence[Cell], parallel: int) -> None:
        self._console, self._cells, self._parallel = console, cells, parallel
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._known: dict[str, str] = {}
        self._last = -math.inf
        self._last_line = -math.inf

    def __enter__(self) -> GridDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._last = -math.inf
        self.update()
        self._live.stop()

    def said(self, message: str) -> None:
        self._console.print(printable(message), soft_wrap=True, markup=False)

    def update(self) -> None:
        """Read the folders and redraw, at most once a second."""
        if time.monotonic() - self._last < 1.0:
            return
        self._last = time.monotonic()
        statuses = [status_of(cell) for cell in self._cells]
        if self._console.is_terminal:
            rows = max(5, self._console.height - 6)
            self._live.update(grid_table(statuses, self._parallel, rows), refresh=True)
            return
        for status in statuses:
            if self._known.get(status.cell.name, "queued") != status.state:
                reason = f": {status.reason}" if status.reason else ""
                line = f"{status.cell.name} {status.state}{reason}"
                self._console.print(printable(line), soft_wrap=True, markup=False)
            self._known[status.cell.name] = status.state
        if time.monotonic() - self._last_line >= PLAIN_SECONDS:
            self._last_line = time.monotonic()
            line = grid_line(statuses, self._parallel)
            self._console.print(line, soft_wrap=True, markup=False)


class PairDisplay:
    """Two runs side by side: progress, violations and goals of each, and when one is armed."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self._console, self._cells = console, cells
        self._progress = _progress(console, "{task.description:<7}", "episode ")
        self._tasks = [
            self._progress.add_task(
                cell.config.method.upper(), total=cell.config.episodes, status=""
            )
            for cell in cells
        ]
        self._last = self._last_line = time.monotonic()
        self._printed: dict[TaskID, int] = {}

    def __enter__(self) -> PairDisplay:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._last = -math.inf
        self.update()
        self._progress.stop()

    def update(self) -> None:
        """Read the records and redraw, at most once a second."""
        now = time.monotonic()
        if now - self._last < 1.0:
            return
        self._last = now
        plain = not self._console.is_terminal and now - self._last_line >= PLAIN_SECONDS
        for cell, task in zip(self._cells, self._tasks, strict=True):
            records = cell.folder.read_episodes() if cell.folder.episodes_file.exists() else []
            status = pair_status(records)
            self._progress.update(task, completed=len(records), status=status)
            if plain and self._printed.get(task) != len(records):  # a finished run is said once
                self._printed[task] = len(records)
                name = cell.config.method.upper()
                line = f"{name} episode {len(records)}/{cell.config.episodes}: {status}"
                self._console.print(line, soft_wrap=True, markup=False)
        if plain:
            self._last_line = now


def pair_status(records: Sequence[EpisodeRecord]) -> str:
    """Violations and goals, since arming where the shield is armed."""
    armed = [record for record in records if record.k]
    part = armed or records
    when = f"armed at {armed[0].episode - 1}, since then " if armed else ""
    return (
        f"{when}{sum(r.violation for r in part)} violations, "
        f"{sum(r.success for r in part)} goals in {len(part)}"
    )


def grid_table(statuses: Sequence[Status], parallel: int, rows: int) -> Table:
    """The cells, running and failed ones first, with the whole grid in the caption."""
    order = {"running": 0, "failed": 1, "stopped": 2, "queued": 3, "done": 4}
    table = Table("cell", "state", "episode", "steps/s", "", box=None, pad_edge=False)
    table.caption = grid_line(statuses, parallel)
    table.caption_justify = "left"
    shown = sorted(statuses, key=lambda status: order[status.state])[:rows]
    styles = {"running": "green", "failed": "red", "done": "dim"}
    for status in shown:
        table.add_row(
            escape(printable(status.cell.name)),
            status.state,
            f"{status.episode}/{status.cell.config.episodes}",
            f"{status.steps_per_second:.0f}" if status.state == "running" else "",
            escape(printable(status.reason)),
            style=styles.get(status.state, ""),
        )
    if len(statuses) > len(shown):
        table.add_row(f"... and {len(statuses) - len(shown)} more")
    return table


def grid_line(statuses: Sequence[Status], parallel: int) -> str:
    """How many cells are where, total progress and the time left."""
    counts = Counter(status.state for status in statuses)
    states = ", ".join(
        f"{counts[s]} {s}" for s in ("running", "done", "failed", "stopped", "queued")
    )
    total = sum(status.cell.config.episodes for status in statuses)
    finished = sum(
        status.cell.config.episodes if status.state == "done" else status.episode
        for status in statuses
    )
    paces = [status.seconds_per_episode for status in statuses if status.episode]
    left = "time left unknown yet"
    if paces:
        seconds = (total - finished) * sum(paces) / len(paces) / max(1, parallel)
        soon = "less than a minute left" if seconds < 60 else f"about {seconds / 60:.0f} min left"
        left = soon if finished < total else "complete"
    return f"{states}; {100 * finished / max(1, total):.1f} % of {total} episodes; {left}"
