"""The demo's figure and table, from made-up runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from made_up import write_run
from matplotlib.image import imread

from advice.demo import demo_cells, demo_rows, draw
from advice.runs.records import COLUMNS, RunFolder


def test_the_demo_counts_both_halves_and_draws_them(tmp_path: Path) -> None:
    cells = demo_cells(tmp_path, "randomised-goal", 0, episodes=50, construction_episodes=30)
    for cell in cells:
        write_run(tmp_path / "runs", cell.config)
    rows = demo_rows(cells)
    assert [row[0] for row in rows] == ["ddpg", "ddpg", "advice", "advice"]
    assert rows[3][1] == "after (episodes 31-50)"
    late = cells[1].folder.read_episodes()[30:]
    assert rows[3][2] == str(sum(record.violation for record in late))
    early = cells[1]._replace(folder=RunFolder(tmp_path / "early"))
    shutil.copytree(cells[1].folder.path, early.folder.path)
    table = early.folder.episodes_file.read_text().splitlines()
    k = COLUMNS.index("k")
    for number in range(13, 31):  # armed after episode 12, before it was due
        values = table[number].split(",")
        table[number] = ",".join([*values[:k], "4", *values[k + 1 :]])
    early.folder.episodes_file.write_text("\n".join(table) + "\n")
    assert [row[1] for row in demo_rows([cells[0], early])[1::2]] == ["after (episodes 13-50)"] * 2
    draw(cells, tmp_path / "demo.png")
    picture = imread(tmp_path / "demo.png")
    assert picture.shape[:2] == (520, 1300)
    assert len({tuple(pixel) for pixel in picture.reshape(-1, picture.shape[2])[::7]}) > 20
