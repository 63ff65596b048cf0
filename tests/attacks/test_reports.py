"""A report repeats no doctored record, and one odd folder does not end it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up import write_grid, write_run

from advice.config import TrainConfig
from advice.reports.load import load
from advice.reports.page import write_report
from advice.runs.records import COLUMNS, RunFolder


def edit(folder: RunFolder, change: Callable[[list[list[str]]], None]) -> None:
    """Change the cells of episodes.csv; line 0 is the header."""
    lines = [line.split(",") for line in folder.episodes_file.read_text().splitlines()]
    change(lines)
    folder.episodes_file.write_text("\n".join(map(",".join, lines)) + "\n")


def put(column: str, value: str, line: int = 5) -> Callable[[list[list[str]]], None]:
    def change(lines: list[list[str]]) -> None:
        lines[line][COLUMNS.index(column)] = value

    return change


def no_violations(lines: list[list[str]]) -> None:
    for line in lines[1:]:
        line[COLUMNS.index("violation")] = "0"


DOCTORED = {
    "violations zeroed while cost stays": (no_violations, "expected cost in"),
    "K = 99": (put("k", "99"), "expected k in 0 to 5, found 99"),
    "negative steps": (put("steps", "-4"), "expected steps in 1"),
    "a wrong total": (put("total_steps", "12345678"), "expected total_steps in"),
    "more interventions than steps": (put("interventions", "99999"), "expected interventions in"),
    "a return beyond measure": (put("return", "1e300"), "expected return in"),
    "a return that is no number": (put("return", "nan"), "expected return in"),
    "negative time": (put("seconds", "-1"), "expected seconds in"),
    "a violation of 7": (put("violation", "7"), "line 6 is not an episode"),
}


@pytest.mark.parametrize("what", DOCTORED)
def test_records_that_no_run_can_have_are_left_out_and_named(what: str, tmp_path: Path) -> None:
    folders = write_grid(tmp_path, methods=("ddpg",), episodes=80)
    change, why = DOCTORED[what]
    edit(folders[1], change)
    collection = load([tmp_path])
    ((path, said),) = collection.left_out.items()
    assert path == folders[1].path
    assert why in said


def test_more_episodes_than_asked_for_are_left_out(tmp_path: Path) -> None:
    config = TrainConfig(method="ddpg", episodes=30)
    write_run(tmp_path, config, episodes=40)
    write_run(tmp_path, TrainConfig(method="ddpg", episodes=30, seed=1))
    ((_, said),) = load([tmp_path]).left_out.items()
    assert "expected at most 30 episodes, found 40" in said


@pytest.mark.usefixtures("undrawn")
def test_one_run_copied_under_other_seeds_counts_once(tmp_path: Path) -> None:
    """Also if each copy gets times of its own."""
    write_grid(tmp_path, methods=("ddpg",), seeds=range(5))
    (original,) = write_grid(tmp_path, methods=("advice",), seeds=(0,))
    for seed in range(1, 5):
        copy = RunFolder(original.path.with_name(f"seed-{seed}"))
        shutil.copytree(original.path, copy.path)
        document = json.loads(copy.config_file.read_text())
        document["config"]["seed"] = seed
        copy.config_file.write_text(json.dumps(document))
        edit(copy, put("seconds", f"0.{seed}"))
    report = write_report([tmp_path], tmp_path / "report")
    assert len(report.collection.left_out) == 4
    assert all("another seed: a copy" in why for why in report.collection.left_out.values())
    assert len(report.collection.tasks[0].methods["advice"]) == 1
    assert "too few seeds to claim anything" in report.claims[0].sentence
    assert "another seed: a copy" in report.page.read_text()


def test_the_same_episodes_of_two_methods_are_no_copies(tmp_path: Path) -> None:
    """Before it is armed a shield changes nothing."""
    folders = write_grid(tmp_path, methods=("ddpg", "advice"), seeds=(0, 1), episodes=20)
    for plain, shielded in zip(folders[:2], folders[2:], strict=True):
        shutil.copy(plain.episodes_file, shielded.episodes_file)
    assert not load([tmp_path]).left_out


def test_runs_with_shields_of_different_lenders_are_not_the_same(tmp_path: Path) -> None:
    def lent(seed: int, path: str) -> TrainConfig:
        return TrainConfig(episodes=20, seed=seed, shield_from=path)

    write_run(tmp_path, lent(0, "/a/core/randomised-goal/advice/seed-0"))
    write_run(tmp_path, lent(1, "elsewhere/core/randomised-goal/advice/seed-1"))
    write_run(tmp_path, lent(2, "/a/core/randomised-circle/advice/seed-2"))
    ((path, said),) = load([tmp_path]).left_out.items()
    assert path.name == "seed-2"
    assert "shield_from is 'core/randomised-circle', elsewhere 'core/randomised-goal'" in said


def test_records_changed_after_the_end_are_left_out(tmp_path: Path) -> None:
    folders = write_grid(tmp_path, methods=("ddpg",))
    for folder in folders:
        folder.mark_done()
    assert not load([tmp_path]).left_out
    edit(folders[0], put("return", "9.5"))
    ((path, said),) = load([tmp_path]).left_out.items()
    assert path == folders[0].path
    assert "changed after the run was done" in said


ODD: dict[str, Any] = {
    "task": [3, ["a"], None, {"a": 1}, "x" * 300, "$\\frac{$", "\x1b[2J", "../../up", "", True],
    "method": [3, [], "$_{$", "y" * 300],
    "study": [5, ["s"], "$\\bad{$"],
    "seed": ["0", -1, 1.5, None],
    "episodes": ["many", 0, 1e300],
    "shield": [None, 3, {"k_max": "five"}, {"k": 99}],
    "env": [{"options": "x"}, {"options": {"arena": "2"}}, {"max_episode_steps": -2}],
    "shield_from": [3, ["a"]],
}
ODD_PROVENANCE = [
    None,
    [],
    "x",
    {"versions": 3},
    {"versions": {"advice-rl": ["1"]}},
    {"commit": 3},
    {"resumed": 3},
    {"resumed": [3]},
    {"resumed": [{"versions": []}]},
    {"fit_seconds": "long"},
    {"fit_seconds": -1},
]


@pytest.mark.usefixtures("undrawn")
def test_odd_settings_leave_out_their_run_alone(tmp_path: Path) -> None:
    (good,) = write_grid(tmp_path / "good", methods=("ddpg",), seeds=(0,), episodes=10)
    document = json.loads(good.config_file.read_text())
    odd = [
        {"config": document["config"] | {name: value}, "provenance": document["provenance"]}
        for name, values in ODD.items()
        for value in values
    ]
    odd += [{"config": document["config"], "provenance": value} for value in ODD_PROVENANCE]
    odd += [[], 3, None, {"config": []}, {"config": document["config"]}]
    texts = [json.dumps(value) for value in odd] + ["[" * 100_000, "", "{", '{"config": ' * 5000]
    for number, text in enumerate(texts):
        folder = shutil.copytree(good.path, tmp_path / "odd" / str(number))
        (folder / "config.json").write_text(text)
    report = write_report([tmp_path / "good", tmp_path / "odd"], tmp_path / "report")
    assert len(report.collection.left_out) == len(texts)
    assert [run.folder.path for run in report.collection.tasks[0].methods["ddpg"]] == [good.path]
    assert "cannot be read" not in str(report.collection.left_out)  # each has a reason of its own
