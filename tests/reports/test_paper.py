"""The paper's claims are answered from the runs, and the reproduction page says what they say."""

from __future__ import annotations

import dataclasses
import importlib.util
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import write_grid, write_run

from advice.config import ShieldConfig, TrainConfig
from advice.reports.claims import (
    DIFFERS,
    HOLDS,
    IN_THE_MEAN,
    MISSING,
    OPEN,
    _in_time,
    _less,
    _never_acts,
    _ratio,
    paper_table,
)
from advice.reports.load import Run, load
from advice.runs.records import COLUMNS, RunFolder
from advice.types import BrokenFileError

ROOT = Path(__file__).parents[2]
FEW = {0: 10.0, 1: 12.0, 2: 11.0}
MANY = {0: 50.0, 1: 52.0, 2: 51.0}
FIVE = MANY | {3: 49.0, 4: 53.0}


@pytest.mark.parametrize(
    ("ours", "theirs", "below", "least", "verdict"),
    [
        (FEW, MANY, 0.5, 0.0, HOLDS),
        (MANY, FEW, 0.5, 0.0, DIFFERS),
        (FEW, FEW, 0.5, 0.0, DIFFERS),
        (FEW, FEW, 1.0, 0.0, OPEN),
        ({0: 1.0, 1: 40.0, 2: 4.0}, MANY, 0.5, 0.0, IN_THE_MEAN),  # the interval includes 1
        ({0: 20.0, 1: 24.0, 2: 28.0}, MANY, 0.5, 0.0, IN_THE_MEAN),  # below 1, but not below half
        ({0: 20.0, 1: 25.0, 2: 39.0}, MANY, 0.5, 0.0, OPEN),  # perhaps half, but not in the mean
        ({0: 40.0, 1: 41.0, 2: 42.0}, MANY, 0.5, 0.0, DIFFERS),  # fewer, but not half
        ({0: 0.0, 1: 0.0, 2: 0.0}, MANY, 0.5, 0.0, IN_THE_MEAN),  # has no interval
        (dict.fromkeys(range(5), 0.0), FIVE, 0.5, 0.0, HOLDS),  # by the rank test
        (dict.fromkeys(range(5), 0.0), dict.fromkeys(range(5), 1.0), 0.5, 0.0, IN_THE_MEAN),
        ({0: 10.0, 1: 12.0}, MANY, 0.5, 0.0, OPEN),  # too few seeds
        (FEW, MANY, 1.0, 0.7, DIFFERS),  # far fewer, not somewhat
        (MANY, FEW, np.inf, 1.0, HOLDS),
        (FEW, MANY, np.inf, 1.0, DIFFERS),
        ({0: 45.0, 1: 53.0, 2: 58.0}, MANY, np.inf, 1.0, IN_THE_MEAN),
        ({0: 45.0, 1: 50.0, 2: 55.0}, MANY, np.inf, 1.0, OPEN),
        ({}, MANY, 0.5, 0.0, MISSING),
    ],
)
def test_verdicts_of_ratios(
    ours: dict[int, float], theirs: dict[int, float], below: float, least: float, verdict: str
) -> None:
    assert _ratio(ours, theirs, below, least).verdict == verdict


def test_verdicts_of_paired_differences() -> None:
    assert _less(FEW, MANY, "").verdict == HOLDS
    assert _less(MANY, FEW, "").verdict == DIFFERS
    assert _less(FEW, {0: 1.0, 1: 40.0, 2: 4.0}, "").verdict == IN_THE_MEAN
    assert _less({0: 1.0, 1: 40.0, 2: 4.0}, FEW, "").verdict == OPEN
    assert _less(FEW, FEW, "").verdict == OPEN
    assert _less(FEW, {0: 50.0, 1: 52.0}, "").verdict == OPEN  # too few seeds
    assert _less(FEW, {7: 1.0}, "").verdict == MISSING


@pytest.mark.parametrize(
    ("late", "verdict", "here"),
    [
        ((50, 60, 55), HOLDS, "55 [43, 67]"),
        ((50, 60, 160), IN_THE_MEAN, "90 [0, 241]"),
        ((80, 90, 160), OPEN, "110 [2, 218]"),
        ((150, 160, 155), DIFFERS, "155 [142, 168]"),
        ((50, 60), OPEN, "55 [0, 119]"),  # too few seeds
    ],
)
def test_timeouts_have_an_interval(late: tuple[int, ...], verdict: str, here: str) -> None:
    runs = []
    for seed, count in enumerate(late):
        table = np.zeros((1100, len(COLUMNS)))
        table[100 + count :, COLUMNS.index("success")] = 1
        table[:50, COLUMNS.index("interventions")] = count > 100
        runs.append(Run(RunFolder("run"), TrainConfig(seed=seed, episodes=1100), {}, table))
    answer = _in_time(runs, 100)
    assert (answer.verdict, answer.here) == (verdict, f"{here} in 1,000 episodes")
    acts = {HOLDS: HOLDS, DIFFERS: DIFFERS}  # in none of the runs, in 50 of 1,100 episodes of each
    assert _never_acts(runs).verdict == acts.get(verdict, OPEN)


def set_violations(folder: RunFolder, every: int) -> None:
    """Let every so-manyth episode be violated, the others succeed."""
    lines = folder.episodes_file.read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    for i, row in enumerate(rows):
        violated = (i + folder.read_config().seed) % every == 0
        row[COLUMNS.index("violation")] = str(int(violated))
        row[COLUMNS.index("success")] = str(int(not violated))
        row[COLUMNS.index("cost")] = str(0.2 * violated)
    folder.episodes_file.write_text("\n".join([lines[0], *(",".join(r) for r in rows)]) + "\n")


def test_claims_from_runs(tmp_path: Path) -> None:
    for run in write_grid(tmp_path / "core", methods=("ddpg", "advice"), episodes=160):
        set_violations(run, 3 if run.read_config().method == "ddpg" else 20)
    shield = ShieldConfig(construction_episodes=60, k_rule="fixed")
    for k, every in ((3, 5), (5, 25)):
        for seed in range(3):
            fixed = dataclasses.replace(shield, k=k)
            config = TrainConfig("randomised-goal", "advice", seed, 160, shield=fixed)
            set_violations(write_run(tmp_path / f"fixed-k-{k}", config), every)
    table = paper_table(load([tmp_path]).tasks)
    assert table is not None
    found = {str(row["claim"]): row["verdict"] for row in table.rows}
    assert found["at most half the best other's violations"] == HOLDS
    assert found["as many goals as DDPG"] == HOLDS
    assert found["at most 100 timeouts (not in the paper)"] == HOLDS
    assert found["a larger K gives fewer violations"] == HOLDS
    assert "the lowest cost" not in found  # no runs
    assert all(row["task"] == "randomised-goal" for row in table.rows)


def test_runs_armed_early_are_compared_on_the_same_seeds_and_episodes(tmp_path: Path) -> None:
    for run in write_grid(tmp_path / "core", methods=("ddpg",), seeds=range(4), episodes=160):
        set_violations(run, 2 if run.read_config().seed == 3 else 4)

    def answer(root: Path, episodes: int) -> Any:
        shield = ShieldConfig(arm="early")
        for seed in range(3):
            config = TrainConfig("randomised-goal", "advice", seed, episodes, shield=shield)
            set_violations(write_run(root / "early", config), 16)
        table = paper_table(load([tmp_path / "core", root]).tasks)
        return table.rows[-1] if table else None

    row = answer(tmp_path / "alike", 160)
    assert (row["verdict"], row["seeds"]) == (IN_THE_MEAN, "3 (few)")  # equal runs, no interval
    assert "(10 against 40)" in row["here"]  # without the seed that ADVICE does not have
    assert "armed early" in row["claim"]
    assert answer(tmp_path / "shorter", 80) is None


def test_runs_without_a_study_answer_no_claim(tmp_path: Path) -> None:
    write_grid(tmp_path / "mine", methods=("ddpg", "advice"))
    assert paper_table(load([tmp_path]).tasks) is None


def page_script(name: str = "reproduction_page") -> Any:
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_has_a_row_for_each_task_with_enough_seeds(tmp_path: Path) -> None:
    script = page_script()
    tasks = ("randomised-goal", "constrained-randomised-goal")
    for seeds, rows in ((range(2), 0), (range(3), 2)):
        root = tmp_path / f"{len(seeds)}" / "core"
        write_grid(root, tasks, ("ddpg", "rcpo", "advice"), seeds, 2000, construction=1000)
        text = script.as_published(load([root]).tasks)
        assert text.count("3 seeds (few)") == rows
    assert "constrained-randomised-goal, cost" in text
    write_grid(tmp_path / "short" / "core", tasks, ("ddpg", "advice"), episodes=160)
    assert script.as_published(load([tmp_path / "short"]).tasks) == ""


def test_keeping_a_run_replaces_all_of_the_one_before(tmp_path: Path) -> None:
    script = page_script("keep")
    (run,) = write_grid(tmp_path / "grid" / "core", methods=("ddpg",), seeds=[0], episodes=9)
    run.actions_file.write_bytes(b"new")
    run.mark_done()
    to = RunFolder(tmp_path / "results" / run.path.relative_to(tmp_path / "grid"))
    to.path.mkdir(parents=True)
    to.shield_file.write_bytes(b"of another run")
    script.keep(run, to, tmp_path / "grid", whole=True)
    to.check_done()
    assert not to.shield_file.exists()
    assert lzma.decompress(to.packed_file.read_bytes()) == b"new"
    run.actions_file.write_bytes(b"changed")
    with pytest.raises(BrokenFileError, match="was changed after the run was done"):
        script.keep(run, to, tmp_path / "grid", whole=True)
    to.check_done()  # what was kept before is still there
    assert lzma.decompress(to.packed_file.read_bytes()) == b"new"
    with pytest.raises(SystemExit, match="another folder"):
        script.keep(to, to, tmp_path / "results", whole=True)


def test_page_and_readme_are_those_of_the_records() -> None:
    """After new records: python benchmarks/reproduction_page.py."""
    script = page_script()
    pages = script.PAGE.read_text(), script.README.read_text()
    assert script.written(*pages, ROOT / "results") == pages
