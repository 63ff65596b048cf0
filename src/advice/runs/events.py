"""TensorBoard events: the same numbers as episodes.csv, live."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from advice.types import EpisodeRecord


class EventWriter:
    """One scalar per episode and metric, written by the caller's own thread.

    Opened after the ``earlier`` episodes of a resumed run; what was written beyond is superseded.
    """

    def __init__(self, folder: Path, earlier: Iterable[EpisodeRecord] = ()) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # takes a while to import
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"))
        self._event, self._scalar = Event, scalar
        self._recent: deque[EpisodeRecord] = deque(earlier, maxlen=100)
        if self._recent:
            start = SessionLog(status=SessionLog.START)
            self._file.write_event(Event(step=self._recent[-1].episode + 1, session_log=start))

    def episode(self, record: EpisodeRecord) -> None:
        self._recent.append(record)
        scalars = {
            "episode/return": record.episode_return,
            "episode/steps": record.steps,
            "episode/cost": record.cost,
            "episode/violation": record.violation,
            "episode/success": record.success,
            "recent/violation_rate": sum(r.violation for r in self._recent) / len(self._recent),
            "recent/success_rate": sum(r.success for r in self._recent) / len(self._recent),
            "shield/interventions": record.interventions,
            "shield/no_safe_action": record.no_safe_action,
            "shield/k": record.k,
            "agent/multiplier": record.multiplier,
        }
        for name, value in scalars.items():
            summary = self._scalar(name, float(value))
            self._file.write_event(
                self._event(summary=summary, step=record.episode, wall_time=time.time())
            )

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
