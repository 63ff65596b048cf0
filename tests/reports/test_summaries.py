"""The tables: what each method did, the studies, drift, all tasks together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_up import write_grid

from advice.config import EnvConfig, ShieldConfig, TrainConfig
from advice.reports.load import Run, TaskRuns, Variant, load
from advice.reports.summaries import (
    comparison_table,
    drift_table,
    study_table,
    summary_table,
    violation_probability,
)
from advice.reports.tables import shown
from advice.runs.records import COLUMNS, RunFolder
from advice.runs.studies import SHIFTS
from advice.shields.bounds import running_bounds

V, S, K = (COLUMNS.index(name) for name in ("violation", "success", "k"))


def test_a_study_keeps_the_order_of_the_methods(tmp_path: Path) -> None:
    write_grid(tmp_path / "core", seeds=[0])
    write_grid(tmp_path / "long-episodes", seeds=[0], env=EnvConfig(max_episode_steps=2000))
    (task,) = load([tmp_path]).tasks
    table = study_table(task, "steps")
    usual = [row["runs"] for row in table.rows[:6]]
    names = ("DDPG", "DDPG-Lag", "RCPO", "Tabular shield", "CSC", "ADVICE")
    assert usual == [f"{name}, as compared above" for name in names]


def test_the_drift_table_says_whether_the_alarm_is_given(tmp_path: Path) -> None:
    write_grid(tmp_path / "core", seeds=[0], methods=("advice",))
    for name in ("no shift", "slippery floor"):
        study = f"shift-{name.replace(' ', '-')}-frozen"
        changes = {"study": study, "shield_from": "x", "env": EnvConfig(options=SHIFTS[name])}
        write_grid(tmp_path / study, methods=("advice",), episodes=400, **changes)
    for seed in range(2):  # every episode of the second half has a violation
        path = tmp_path / f"shift-slippery-floor-frozen/randomised-goal/advice/seed-{seed}"
        head, *lines = (path / "episodes.csv").read_text().splitlines()
        rows = [line.split(",") for line in lines]
        for row in rows[200:]:
            row[V], row[S] = "1", "0"
        (path / "episodes.csv").write_text("\n".join([head, *map(",".join, rows)]) + "\n")
    (task,) = load([tmp_path]).tasks
    table = drift_table(task)
    assert table is not None
    rows_by_name = {row["runs"]: row for row in table.rows}
    calm, shifted = (rows_by_name[f"{x}, frozen"] for x in ("no shift", "slippery floor"))
    assert calm["alarms"] == "0 of 3"
    assert shifted["alarms"] == "2 of 3"
    assert shifted["episodes until the alarm"] < 30
    assert shifted["violation probability"].value > calm["violation probability"].high
    ends = [run.table[200:] for run in task.variants["shift"][0].runs]
    assert calm["violations per goal"].value == pytest.approx(
        sum(end[:, V].sum() for end in ends) / sum(end[:, S].sum() for end in ends)
    )
    idle = [sum(not e[V] and not e[S] for e in end) for end in ends]
    assert calm["timeouts in 1,000 episodes"].value == pytest.approx(5 * np.mean(idle))
    slippery = [v for v in task.variants["shift"] if "slip" in v.label]
    assert drift_table(task._replace(variants={"shift": slippery})) is None


def test_the_summary_by_hand(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg", "advice"), seeds=range(2))
    (task,) = load([tmp_path]).tasks
    row = summary_table(task).rows[1]
    counts = [run.column("violation")[60:].sum() for run in task.methods["advice"]]
    half = 12.7062 * abs(counts[0] - counts[1]) / 2  # Student's t of one degree of freedom
    by_hand = (np.mean(counts), max(0, np.mean(counts) - half), np.mean(counts) + half)
    assert row["violations"] == pytest.approx(by_hand, abs=1e-3)
    assert row["seeds"] == "2 (few)"
    ends = [run.table[60:] for run in task.methods["advice"]]
    idle = [sum(not e[V] and not e[S] for e in end) for end in ends]
    rate, spread = np.mean(counts) / 60, half / 60
    by_hand = (rate, max(0, rate - spread), min(1, rate + spread))
    assert row["violation probability"] == pytest.approx(by_hand, abs=1e-5)
    assert row["timeouts"].value == pytest.approx(np.mean(idle))
    goals = sum(end[:, S].sum() for end in ends)
    assert row["violations per goal"].value == pytest.approx(sum(counts) / goals)
    armed = [run.column("k")[60:] for run in task.methods["advice"]]
    changes = [np.count_nonzero(np.diff(k)) for k in armed]
    by_hand = (np.mean(changes), abs(changes[0] - changes[1]) / 2, 2)
    assert row["changes of K"] == pytest.approx(by_hand)
    assert row["K"].value == pytest.approx(np.mean(armed))
    assert shown(summary_table(task).rows[0]["K"]) == "–"  # DDPG has none


def test_the_violation_probability_is_the_mean_over_runs() -> None:
    runs = [np.repeat([1.0, 0.0], [count, 1000 - count]) for count in (10, 30, 110)]
    # shares 0.01, 0.03, 0.11: mean 0.05, error 0.0306, t of 2 degrees of freedom 4.303
    found = violation_probability(runs)
    assert found == pytest.approx((0.05, 0.0, 0.05 + 4.302653 * np.sqrt(0.0028 / 3)), abs=1e-6)
    low, high = map(float, running_bounds(10, 1000))  # a single run has its confidence sequence
    assert violation_probability(runs[:1]) == pytest.approx((0.01, low, high))
    assert np.isnan(violation_probability([]).value)
    assert violation_probability([np.ones(5), np.array([1.0, 0])]).high == 1


def run_with(config: TrainConfig, **columns: list[float]) -> Run:
    """A run with these columns, the others zero."""
    table = np.zeros((config.episodes, len(COLUMNS)))
    for name, values in columns.items():
        table[:, COLUMNS.index(name)] = values
    return Run(RunFolder("run"), config, {}, table)


def test_studies_of_k_count_the_episodes_in_a_row() -> None:
    shield = ShieldConfig(construction_episodes=2)
    config = TrainConfig("randomised-goal", "advice", episodes=10, shield=shield)
    moving = run_with(config, k=[0, 0, 4, 4, 3, 0, 3, 3, 4, 4])  # a probe does not end a stretch
    steady = run_with(config, k=[0, 0, 4, 4, 4, 4, 4, 4, 4, 4])
    windows = [Variant("h_r = 2, h_d = 10", "advice", [moving, steady])]
    task = TaskRuns("randomised-goal", {"advice": [steady]}, {"windows": windows, "x": windows}, "")
    usual, row = study_table(task, "windows").rows
    assert row["in a row at K = 3"].value == 3
    assert row["in a row at K = 4"] == pytest.approx((5, 3, 2))  # means 2 and 8
    assert usual["in a row at K = 4"].value == 8
    assert shown(row["in a row at K = 5"]) == "–"
    assert "in a row at K = 3" not in study_table(task, "x").rows[0]


def test_timeouts_of_all_tasks_are_paired_by_seed() -> None:
    def runs(task: str, method: str, late: list[int]) -> list[Run]:
        return [
            run_with(TrainConfig(task, method, seed, 10), success=[1] * (10 - n) + [0] * n)
            for seed, n in enumerate(late)
        ]

    tasks = [
        TaskRuns(x, {m: runs(x, m, late) for m, late in found.items()}, {}, "")
        for x, found in (
            ("randomised-goal", {"ddpg": [0, 1, 0], "advice": [1, 3, 2]}),
            ("semi-random-goal", {"ddpg": [1, 1, 0, 9], "advice": [2, 1, 2, 0]}),
        )
    ]
    table = comparison_table(tasks)
    assert table is not None
    (row,) = table.rows
    # seeds 0 to 2: 1 2 2 and 1 0 2 more in 10 episodes, means 1, 1 and 2
    half = 4.302653 * 100 / 3
    by_hand = (400 / 3, 400 / 3 - half, 400 / 3 + half)
    assert row["timeouts in 1,000 episodes, difference"] == pytest.approx(by_hand, abs=1e-3)
