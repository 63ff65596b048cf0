"""What a person sees while something long runs: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from advice.config import TrainConfig
from advice.runs.checkpoints import Counters
from advice.runs.loop import Listener
from advice.runs.records import RunFolder
from advice.shields.autoencoder import FitProgress
from advice.types import EpisodeRecord

PLAIN_SECONDS = 15.0
"""Off a terminal, at most one line per this many seconds."""


class TrainingDisplay(Listener):
    """Episode, return, recent violations and successes, interventions, K, steps/s, time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._recent: deque[EpisodeRecord] = deque(maxlen=100)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._last_line = time.monotonic()
        self._total = 0

    def __enter__(self) -> TrainingDisplay:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def started(self, config: TrainConfig, folder: RunFolder, counters: Counters) -> None:
        self._total = config.episodes
        self._task = self._progress.add_task(
            "training", total=config.episodes, completed=counters.episode, status=""
        )
        verb = f"resuming after episode {counters.episode}" if counters.episode else "training"
        self.said(f"{verb}: {config.method} on {config.task}, seed {config.seed} -> {folder.path}")

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        self._recent.append(record)
        status = self._status(record)
        self._progress.update(
            self._task, completed=record.episode, description="training", status=status
        )
        last = record.episode == self._total
        if not self._console.is_terminal and (
            last or time.monotonic() - self._last_line >= PLAIN_SECONDS
        ):
            self._last_line = time.monotonic()
            left = (self._total - record.episode) * self._seconds_per_episode()
            self.said(f"episode {record.episode}/{self._total}  {status}  {left / 60:.1f} min left")

    def fitting(self, progress: FitProgress) -> None:
        status = f"epoch {progress.epoch}, validation loss {progress.validation_loss:.4f}"
        self._progress.update(self._task, description="fitting the shield", status=status)

    def said(self, message: str) -> None:
        self._console.print(message, soft_wrap=True, highlight=False)

    def _seconds_per_episode(self) -> float:
        return sum(record.seconds for record in self._recent) / len(self._recent)

    def _status(self, record: EpisodeRecord) -> str:
        recent = self._recent
        spent = sum(r.seconds for r in recent)
        return (
            f"return {sum(r.episode_return for r in recent) / len(recent):+.2f}  "
            f"last {len(recent)}: {sum(r.violation for r in recent)} violations, "
            f"{sum(r.success for r in recent)} successes, "
            f"{sum(r.interventions for r in recent)} interventions  "
            f"K {record.k or '-'}  {sum(r.steps for r in recent) / max(spent, 1e-9):.0f} steps/s"
        )
