"""The demo's table and film, from made-up and from driven runs."""

from __future__ import annotations

import numpy as np

from advice.config import TrainConfig
from advice.demo import counts, side_by_side
from advice.reports.load import Run
from advice.runs.records import RunFolder
from advice.runs.resimulate import film, resimulate
from advice.types import EpisodeRecord


def record(
    episode: int, violation: bool = False, success: bool = False, k: int = 0
) -> EpisodeRecord:
    return EpisodeRecord(
        episode, 10, 10 * episode, 0.0, 0.0, violation, success, 4 if k else 0, 0, k, 0.0, 0.1
    )


def test_the_table_counts_episodes() -> None:
    before = [record(1, violation=True), record(2, success=True)]
    shielded = [*before, record(3, k=4), record(4, success=True, k=4), record(5, True, k=4)]
    run = Run(RunFolder("run"), TrainConfig(), {}, np.array(shielded, dtype=float))
    assert run.armed_after == 2
    assert counts(run, slice(2)) == ("1-2", "1", "1", "0", "10", "0%")
    assert counts(run, slice(2, None)) == ("3-5", "1", "1", "1", "10", "40%")


def test_the_film_shows_both_runs_with_captions(driven: dict[str, RunFolder]) -> None:
    folders = [*driven.values()]
    frames = side_by_side(folders, [13])
    replays = [resimulate(folder, 13) for folder in folders]
    assert len({frame.shape for frame in frames}) == 1
    height, width, _ = film(folders[0], replays[0], every=1000)[0].shape
    assert frames[0].shape[0] > height
    assert frames[0].shape[1] >= 2 * width
    strip = (2, 10)  # the caption's colour says that something has happened
    assert frames[0][strip].tolist() == [32, 38, 46]
    assert frames[-1][strip].tolist() != frames[0][strip].tolist()
