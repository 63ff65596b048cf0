"""Progress of long commands: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Sequence

from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from advice.config import TrainConfig
from advice.printing import console, printable, say
from advice.runs.checkpoints import Counters
from advice.runs.grid import Cell, Status, status_of
from advice.runs.loop import Listener
from advice.runs.records import RunFolder
from advice.shields.autoencoder import FitProgress
from advice.shields.bounds import running_bounds
from advice.types import EpisodeRecord

PLAIN_SECONDS = 15.0  # between two lines off a terminal, at least
STYLES = {"running": "green", "failed": "red", "stopped": "", "queued": "", "done": "dim"}
"""Of the states of a grid's cells, in the order of the table."""


class TrainingDisplay(Listener):
    """Progress, what the last 100 episodes brought, K, steps/s and the time left.

    Also a 95 % confidence sequence of the violation probability, averaged over the episodes so far.
    Use it inside ``with display.progress``.
    """

    def __init__(self) -> None:
        self._recent: deque[EpisodeRecord] = deque(maxlen=100)
        self._last_line = time.monotonic()
        self.progress = Progress(
            *("{task.description}", BarColumn(bar_width=20), MofNCompleteColumn()),
            *("{task.fields[status]}", TimeRemainingColumn(elapsed_when_finished=True)),
            console=console(),
            disable=not console().is_terminal,
        )

    def started(self, config: TrainConfig, folder: RunFolder, counters: Counters) -> None:
        self._total, begun = config.episodes, counters.episode
        if begun:  # a resumed run goes on counting
            self._recent.extend(folder.read_episodes()[:begun])
        self._task = self.progress.add_task("", total=self._total, completed=begun, status="")
        verb = f"resuming after episode {begun}" if begun else "training"
        say(f"{verb}: {config.method} on {config.task}, seed {config.seed} -> {folder.path}")

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        self._recent.append(record)
        recent, count = self._recent, len(self._recent)
        spent, steps = sum(r.seconds for r in recent), sum(r.steps for r in recent)
        low, high = running_bounds(counters.violations, counters.episode)
        status = [
            f"last {count}: {sum(r.violation for r in recent)} violations, "
            f"{sum(r.success for r in recent)} successes, "
            f"return {sum(r.episode_return for r in recent) / count:+.2f}, "
            f"{steps / max(spent, 1e-9):.0f} steps/s",
            f"violation probability so far {low:.1%} to {high:.1%}",
        ]
        if record.k:
            status.append(
                f"{sum(r.interventions for r in recent) / steps:.0%} of steps replaced, "
                f"{sum(r.no_safe_action for r in recent) / steps:.1%} without a safe action, "
                f"K {record.k}"
            )
        doing, shown = "training", "\n".join(status)
        self.progress.update(self._task, completed=record.episode, description=doing, status=shown)
        now, left = time.monotonic(), self._total - record.episode
        if not console().is_terminal and (not left or now - self._last_line >= PLAIN_SECONDS):
            self._last_line = now
            line = "; ".join((*status, f"{left * spent / count / 60:.1f} min left"))
            say(f"episode {record.episode}/{self._total}  {line}")

    def fitting(self, progress: FitProgress) -> None:
        status = f"epoch {progress.epoch}, validation loss {progress.validation_loss:.4f}"
        self.progress.update(self._task, description="fitting the shield", status=status)

    def said(self, message: str) -> None:
        say(message)


class GridDisplay:
    """A grid's cells: queued, running with episode and speed, stopped, done or failed."""

    def __init__(self, cells: Sequence[Cell], parallel: int) -> None:
        self._cells, self._parallel = cells, parallel
        self._live = Live(console=console(), auto_refresh=False, vertical_overflow="crop")
        self._known: dict[str, str] = {}
        self._last = self._last_line = -math.inf

    def __enter__(self) -> GridDisplay:
        if console().is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._last = -math.inf
        self.update()
        self._live.stop()

    def update(self) -> None:
        """Read the folders and redraw, at most once a second."""
        now = time.monotonic()
        if now - self._last < 1.0:
            return
        self._last = now
        statuses = [status_of(cell) for cell in self._cells]
        if console().is_terminal:
            self._live.update(grid_table(statuses, self._parallel), refresh=True)
            return
        for status in statuses:
            name = status.cell.name
            if self._known.get(name, "queued") != status.state:
                say(f"{name} {status.state}" + (f": {status.reason}" if status.reason else ""))
            self._known[name] = status.state
        if now - self._last_line >= PLAIN_SECONDS:
            self._last_line = now
            say(grid_line(statuses, self._parallel))


def grid_table(statuses: Sequence[Status], parallel: int) -> Table:
    """The cells, running and failed ones first, with the whole grid in the title."""
    table = Table("cell", "state", "", "episode", "steps/s", "", box=None, pad_edge=False)
    table.title, table.title_justify = grid_line(statuses, parallel), "left"
    for status in sorted(statuses, key=lambda status: [*STYLES].index(status.state)):
        table.add_row(
            escape(printable(status.cell.name)),
            status.state,
            ProgressBar(status.cell.config.episodes, status.episode, width=16),
            f"{status.episode}/{status.cell.config.episodes}",
            f"{status.steps_per_second:.0f}" if status.state == "running" else "",
            escape(printable(status.reason)),
            style=STYLES[status.state],
        )
    return table


def grid_line(statuses: Sequence[Status], parallel: int) -> str:
    """How many cells are where, total progress and the time left."""
    counts = Counter(status.state for status in statuses)
    total = sum(status.cell.config.episodes for status in statuses)
    done = [x.cell.config.episodes if x.state == "done" else x.episode for x in statuses]
    finished, paces = sum(done), [x.seconds_per_episode for x in statuses if x.episode]
    left = "complete" if finished >= total else "time left unknown yet"
    if paces and finished < total:
        seconds = (total - finished) * sum(paces) / len(paces) / max(1, parallel)
        left = f"about {math.ceil(seconds / 60)} min left"
    states = ", ".join(f"{counts[state]} {state}" for state in STYLES)
    return f"{states}; {100 * finished / max(1, total):.1f} % of {total} episodes; {left}"
