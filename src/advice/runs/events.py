"""TensorBoard events: the same numbers as episodes.csv, live."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from advice.types import EpisodeRecord


class EventWriter:
    """One scalar per episode and metric; resumed at an episode, later ones are superseded."""

    def __init__(self, folder: Path, episodes: int) -> None:
        from tensorboardX import SummaryWriter  # takes a while to import

        purge = episodes + 1 if episodes else None
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=30)
        self._recent: deque[EpisodeRecord] = deque(maxlen=100)

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
            self._writer.add_scalar(name, float(value), record.episode)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
