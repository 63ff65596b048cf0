"""What loggers get of a run, episode by episode: TensorBoard always, Weights & Biases if asked."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any

from advice.config import TrainConfig, flat
from advice.types import AdviceError, EpisodeRecord


class EventWriter:
    """The numbers of episodes.csv for TensorBoard; what an earlier run wrote beyond is void."""

    def __init__(self, folder: Path, episode: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # takes a while to import
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self._file = EventsWriter(str(folder / "events"))
        self._event, self._scalar = Event, scalar
        self.flush, self.close = self._file.flush, self._file.close
        if episode:
            start = SessionLog(status=SessionLog.START)
            self._file.write_event(Event(step=episode + 1, session_log=start))

    def write(self, record: EpisodeRecord, recent: Collection[EpisodeRecord]) -> None:
        for name, value in scalars_of(record, recent).items():
            summary, now = self._scalar(name, value), time.time()
            event = self._event(summary=summary, step=record.episode, wall_time=now)
            self._file.write_event(event)


class WandbWriter:
    """The same for Weights & Biases; a resumed run goes on in its wandb run, by the kept id."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        try:
            import wandb
        except ImportError:
            raise AdviceError("--wandb needs: pip install 'advice-rl[wandb]'") from None
        name = folder / "wandb-id.txt"
        if not name.exists():
            name.write_text(uuid.uuid4().hex[:8])
        self._run: Any = wandb.init(
            project="advice",
            name=f"{config.task} {config.method} seed {config.seed}",
            id=name.read_text(),
            resume="allow",
            dir=str(folder),
            config=flat(config),
            settings=wandb.Settings(silent=True),
        )
        self._run.define_metric("*", step_metric="episode")
        self.close = self._run.finish

    def write(self, record: EpisodeRecord, recent: Collection[EpisodeRecord]) -> None:
        self._run.log({"episode": record.episode, **scalars_of(record, recent)})

    def flush(self) -> None: ...


def scalars_of(record: EpisodeRecord, recent: Collection[EpisodeRecord]) -> dict[str, float]:
    """What loggers get of an episode, by name; ``recent`` ends with it."""
    scalars = {
        "episode/return": record.episode_return,
        "episode/steps": record.steps,
        "episode/cost": record.cost,
        "episode/violation": record.violation,
        "episode/success": record.success,
        "recent/violation_rate": sum(r.violation for r in recent) / len(recent),
        "recent/success_rate": sum(r.success for r in recent) / len(recent),
        "shield/interventions": record.interventions,
        "shield/no_safe_action": record.no_safe_action,
        "shield/k": record.k,
        "agent/multiplier": record.multiplier,
    }
    return {name: float(value) for name, value in scalars.items()}
