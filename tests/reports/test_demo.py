"""The demo's figure, table and film, from made-up and from driven runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from made_up import write_run
from matplotlib.image import imread

from advice.demo import (
    TITLES,
    Pair,
    conclusion,
    demo_cells,
    demo_rows,
    draw,
    read_pair,
    side_by_side,
)
from advice.runs.records import RunFolder
from advice.runs.resimulate import film, resimulate
from advice.types import EpisodeRecord


def record(
    episode: int, violation: bool = False, success: bool = False, k: int = 0
) -> EpisodeRecord:
    return EpisodeRecord(
        episode, 10, 10 * episode, 0.0, 0.0, violation, success, 4 if k else 0, 0, k, 0.0, 0.1
    )


def test_the_table_splits_where_the_shield_was_armed() -> None:
    before = [record(1, violation=True), record(2, success=True)]
    plain = [*before, record(3, violation=True), record(4, violation=True), record(5)]
    shielded = [*before, record(3, k=4), record(4, success=True, k=4), record(5, True, k=4)]
    pair = Pair(plain, shielded, 2)
    assert demo_rows(pair) == [
        ("before arming, both the same", "1-2", "1", "1", "0", "10", "0%"),
        ("after arming, DDPG", "3-5", "2", "0", "1", "10", "0%"),
        ("after arming, ADVICE", "3-5", "1", "1", "1", "10", "40%"),
    ]
    assert all(len(row) == len(TITLES) for row in demo_rows(pair))
    said = " ".join(conclusion(pair))
    assert "ADVICE 1 violations, DDPG 2 (0.50 times as many); ADVICE 1 goals, DDPG 0" in said
    other = pair._replace(plain=[record(1), *plain[1:]])
    assert [row[0] for row in demo_rows(other)][:2] == [
        "before arming, DDPG",
        "before arming, ADVICE",
    ]


def test_a_shield_that_was_never_armed_is_said() -> None:
    pair = Pair([record(1), record(2)], [record(1), record(2)], 2)
    assert demo_rows(pair) == [("before arming, both the same", "1-2", "0", "0", "2", "10", "0%")]
    assert "not armed" in conclusion(pair)[0]


def test_the_figure_counts_from_arming_on(tmp_path: Path) -> None:
    cells = demo_cells(tmp_path, "randomised-goal", 0, episodes=50, construction_episodes=30)
    for cell in cells:
        write_run(tmp_path / "runs", cell.config)
    pair = read_pair(cells)
    assert pair.armed_after == 30
    draw(pair, tmp_path / "demo.png")
    picture = imread(tmp_path / "demo.png")
    assert picture.shape[1] == 1300
    assert len({tuple(pixel) for pixel in picture.reshape(-1, picture.shape[2])[::7]}) > 20


def test_the_film_shows_both_runs_with_captions(driven: dict[str, RunFolder]) -> None:
    folders = [*driven.values()]
    frames = side_by_side(folders, [13, 14])
    replays = [resimulate(folder, 13) for folder in folders]
    assert len({frame.shape for frame in frames}) == 1
    height, width, _ = film(folders[0], replays[0], every=1000)[0].shape
    assert frames[0].shape[0] > height
    assert frames[0].shape[1] >= 2 * width
    longest = max(len(replay.executed) for replay in replays) // 2
    ended = frames[longest + 2]  # both have ended: a coloured strip below each
    assert np.ptp(ended[-3, 5].astype(int)) > 5 or ended[-3, 5].max() < 200
    assert (frames[0][-3] > 240).all()  # nothing has happened yet
