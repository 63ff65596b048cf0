"""Grids: what the suites hold, and real processes that are killed and go on."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers import assert_same_run, small

from advice.cli import main
from advice.config import AgentConfig, ShieldConfig, TrainConfig
from advice.runs import plan as plans
from advice.runs.branching import share_beginnings
from advice.runs.engines import run_local, run_ray
from advice.runs.grid import Cell, read_grid, status_of, write_grid
from advice.runs.loop import train
from advice.runs.records import COLUMNS, RunFolder
from advice.runs.studies import (
    FOUR_TASKS,
    SHIFTS,
    SUITES,
    Study,
    cells_of,
    find_suite,
    with_settings,
)
from advice.threads import one_thread
from advice.types import AdviceError
from engine import run_here
from marks import slow_but

SEARCHED = os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")))


def suite_cells(name: str, seeds: int = 5) -> list[Cell]:
    return cells_of(SUITES[name], range(seeds), Path("out"), TrainConfig())


def test_core_is_four_tasks_times_six_methods() -> None:
    cells = suite_cells("core")
    assert len(cells) == 4 * 6 * 5
    assert {cell.config.episodes for cell in cells} == {2000}
    tuned = {cell.config.method for cell in cells if cell.config.shield != ShieldConfig()}
    assert tuned == {"advice"}
    on_circle = dataclasses.replace(AgentConfig(), gamma=0.98)
    for task in FOUR_TASKS:
        usual = on_circle if task == "randomised-circle" else AgentConfig()
        own = [cell.config for cell in cells if cell.config.task == task]
        tuned = {config.method for config in own if config.agent != usual}
        assert tuned == {"csc", "ddpg-lag", "rcpo"}


def test_suites_hold_the_papers_studies() -> None:
    counts = {name: len(suite_cells(name, seeds=1)) for name in SUITES}
    assert counts == {
        "smoke": 2,
        "core": 24,
        "constrained": 6,
        "paper-settings": 2,
        "transfer": 9,
        "long-episodes": 6,
        "k-sweep": 4,
        "activation-sweep": 4,
        "windows": 6,
        "early": 4,
        "shift": 13,
        "foreign": 10,
        "paper": 24 + 6 + 6 + 6 + 3 + 3 + 5 + 1 + 4,
    }
    foreign = [cell.config for cell in suite_cells("foreign")]
    assert {c.shield for c in foreign} == {ShieldConfig()}  # one configuration for all of them
    assert len({str(c.agent) for c in foreign}) == 1
    shift = suite_cells("shift", seeds=1)
    frozen = [c for c in shift if c.config.study.endswith("frozen")]
    assert [c.config.env.options for c in frozen] == list(SHIFTS.values())
    assert {c.config.shield.refit_episodes for c in frozen} == {0}
    assert all(c.after and c.config.shield_from for c in shift if c.config.study != "core")
    assert {c.config.shield for c in suite_cells("early")} == {ShieldConfig()}
    assert {
        c.config.shield.k for c in suite_cells("k-sweep") if c.config.shield.k_rule == "fixed"
    } == {3, 4, 5}
    assert {c.config.env.max_episode_steps for c in suite_cells("long-episodes")} == {2000}


def test_the_paper_comes_in_its_order() -> None:
    names = list(dict.fromkeys(cell.config.study for cell in suite_cells("paper", seeds=1)))
    assert names[:5] == ["core", "constrained", "transfer", "long-episodes", "fixed-k-3"]
    assert names[-2:] == ["paper-settings", "early"]
    core = [c.config for c in suite_cells("core") if c.config.method == "advice"]
    assert {(c.shield.arm, c.shield.construction_episodes) for c in core} == {("fixed", 1000)}


def test_the_plan_says_what_shared_beginnings_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "measure", lambda config: 150.0)  # an episode takes a second
    cells = share_beginnings(cells_of(SUITES["paper"], range(5), tmp_path, TrainConfig()))
    rows, words = plans.plan(cells, processes=2)
    parts = {study: tuple(map(float, figures)) for study, *figures in rows}
    runs, done, episodes, shared, alone, hours = parts["core"]
    assert (runs, done, episodes) == (4 * 6 * 5, 0, 4 * 6 * 5 * 2000)
    # per task and seed: ADVICE's first 1,000 episodes and all of the tabular shield's
    assert shared == 4 * 5 * (1000 + 2000)
    # the plain methods and the table are the first 1,000 episodes of core's
    assert parts["transfer"][3] == 5 * 4 * 1000
    assert [parts[f"activation-{e}"][3] for e in (250, 500, 750)] == [1250, 2500, 3750]
    assert parts["windows-2-10"][3] == parts["fixed-k-3"][3] == parts["paper-settings"][3] == 5000
    assert parts["early"][3] == 0
    runs, done, episodes, shared, alone, hours = parts["all"]
    assert (runs, done) == (58 * 5, 0)
    assert alone == pytest.approx(episodes / 3600, abs=0.05)
    assert alone - hours == pytest.approx(0.85 * shared / 3600, abs=0.1)
    assert f"of {alone} core-hours" in words
    # a trunk that has gone on without keeping its agent shares nothing
    write_run(cells[0], episodes=1500)
    again = {study: tuple(map(float, figures)) for study, *figures in plans.plan(cells, 2)[0]}
    lost = parts["core"][3] - again["core"][3]
    assert lost == 1000  # of ADVICE on this task and seed; the table's part is still to come


def write_run(cell: Cell, episodes: int) -> None:
    cell.folder.path.mkdir(parents=True)
    rows = [f"{i},5,{5 * i},1.0,0.2,0,0,0,0,0,0.0,1.0" for i in range(1, episodes + 1)]
    cell.folder.episodes_file.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")


def test_no_cell_twice_and_shields_before_the_runs_that_need_them() -> None:
    cells = suite_cells("paper")
    order = [cell.folder.path for cell in cells]
    assert max(Counter(order).values()) == 1
    assert max(Counter(str(cell.config) for cell in cells).values()) == 1
    dependent = [cell for cell in cells if cell.after]
    assert len(dependent) == 15
    for cell in dependent:
        assert order.index(cell.after) < order.index(cell.folder.path)
        assert cell.config.shield_from == str(cell.after)


def test_a_part_of_a_suite() -> None:
    part = find_suite("paper", TrainConfig(), ("randomised-goal",), ("advice", "csc"))
    assert {(task, m) for study in part for task in study.tasks for m in study.methods} == {
        ("randomised-goal", "advice"),
        ("randomised-goal", "csc"),
    }
    assert not any(study.name in ("constrained", "transfer") for study in part)
    assert find_suite("core", TrainConfig()) == SUITES["core"]
    with pytest.raises(AdviceError, match="no tasks nowhere: expected some of semi-random-goal"):
        find_suite("core", TrainConfig(), ("nowhere",))


def test_unknown_suite_and_setting_are_named() -> None:
    with pytest.raises(AdviceError, match="did you mean 'core'"):
        find_suite("cor", TrainConfig())
    with pytest.raises(AdviceError, match="ShieldConfig has no setting 'kk'"):
        with_settings(TrainConfig(), {"shield.kk": 3})


# ---- real processes


def grid(out: Path) -> list[Cell]:
    configs = [dataclasses.replace(small(episodes=14), seed=0), small("ddpg", episodes=300)]
    cells = [Cell(config, RunFolder.of(out, config)) for config in configs]
    dependent = dataclasses.replace(
        small(episodes=3, shield_from=str(cells[0].folder.path)), seed=7
    )
    return [*cells, Cell(dependent, RunFolder.of(out, dependent), cells[0].folder.path)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """The same grid, trained one after the other in this very process."""
    cells = grid(tmp_path_factory.mktemp("undisturbed"))
    for cell in cells:
        train(cell.config, cell.folder)
    return cells


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes find the tiny environments."""
    monkeypatch.setenv("PYTHONPATH", SEARCHED)


def kill_worker(folder: RunFolder) -> bool:
    """SIGKILL the process that trains in ``folder``."""
    found = subprocess.run(["pgrep", "-f", str(folder.path)], capture_output=True, text=True)
    victims = [int(word) for word in found.stdout.split() if int(word) != os.getpid()]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    return bool(victims)


def compare(cells: list[Cell], undisturbed: list[Cell]) -> None:
    for cell, whole in zip(cells, undisturbed, strict=True):
        assert status_of(cell).state == "done"
        assert_same_run(whole.folder.path, cell.folder.path)


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_a_killed_worker_is_retried_and_a_cell_that_cannot_write_hurts_no_other(
    undisturbed: list[Cell], tmp_path: Path
) -> None:
    cells = grid(tmp_path)
    config = dataclasses.replace(small("ddpg", episodes=5), seed=99)
    unwritable = Cell(config, RunFolder.of(tmp_path, config))
    unwritable.folder.path.mkdir(parents=True)
    unwritable.folder.write_config(config)
    unwritable.folder.checkpoint.symlink_to("/dev/full")  # nothing can be written there
    killed = []

    def on_poll() -> None:
        ready = status_of(cells[1])
        if not killed and ready.state == "running" and ready.episode >= 3:
            killed.append(kill_worker(cells[1].folder))

    outcome = run_local([unwritable, *cells], on_poll, processes=2, attempts=2)
    assert killed == [True]
    assert [cell.folder.path for cell in outcome.failed] == [unwritable.folder.path]
    assert "File exists" in status_of(unwritable).reason
    compare(cells, undisturbed)
    said = (cells[0].folder.path / "log.txt").read_text()
    assert re.search(r"^after episode \d+: the shield is fitted and armed: ", said, re.MULTILINE)


@pytest.mark.parametrize("methods", slow_but(["ddpg"], ["ddpg", "ddpg advice"]))
def test_a_killed_bench_goes_on_where_it_was(methods: str, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "advice", "bench", "--tasks", "tiny:Corridor"),
        *("--methods", *methods.split(), "--seeds", "1", "--episodes", "14"),
        *("--agent.hidden-size", "16", "--agent.batch-size", "16", "--agent.noise-dt", "0.5"),
        *("--agent.replay-capacity", "300", "--shield.construction-episodes", "8"),
        *("--shield.hidden-size", "16", "--shield.fit-steps", "60", "--out", str(tmp_path)),
    ]
    environment = one_thread({**os.environ, "PYTHONPATH": SEARCHED})
    quiet = {"stdout": subprocess.DEVNULL, "env": environment}
    first = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    began = time.monotonic()
    while not any(tmp_path.rglob("episodes.csv")):
        assert first.poll() is None
        assert time.monotonic() - began < 120
        time.sleep(0.05)
    first.kill()
    first.wait()
    assert {cell.config.method for cell in read_grid(tmp_path)} == {*methods.split()}
    subprocess.run(command, check=True, **quiet)  # type: ignore[call-overload]
    for cell in read_grid(tmp_path):
        assert status_of(cell).state == "done"
        assert cell.folder.read_document()["provenance"]["command"] == command[3:]
        whole = tmp_path / "whole" / cell.config.method
        train(cell.config, whole)
        assert_same_run(whole, cell.folder.path)


def test_status_is_read_from_the_folders(tmp_path: Path) -> None:
    cells = grid(tmp_path)
    write_grid(tmp_path, cells)
    assert [status_of(cell).state for cell in read_grid(tmp_path)] == ["queued"] * 3
    cells[0].folder.path.mkdir(parents=True)
    with cells[0].folder.locked():
        assert status_of(cells[0]).state == "running"
    cells[0].folder.error_file.write_text("it broke\n")
    failed = status_of(cells[0])
    assert (failed.state, failed.reason) == ("failed", "it broke")
    with pytest.raises(AdviceError, match="found no such folder"):
        read_grid(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(AdviceError, match=r"found no grid\.json in it"):
        read_grid(tmp_path / "elsewhere")


def test_a_damaged_record_stops_no_view_of_the_grid(tmp_path: Path) -> None:
    cell = grid(tmp_path)[0]
    train(dataclasses.replace(cell.config, episodes=5), cell.folder)
    lines = cell.folder.episodes_file.read_text().splitlines()
    seconds = [float(line.split(",")[-1]) for line in lines[1:]]
    assert status_of(cell).seconds_per_episode == pytest.approx(sum(seconds) / 5)
    lines[3], lines[5] = "3,oh", lines[5].replace("5,", "fünf,", 1)
    cell.folder.episodes_file.write_text("\n".join(lines) + "\n6,12,")
    status = status_of(cell)
    assert status.episode == 4
    assert status.seconds_per_episode == pytest.approx((seconds[0] + seconds[1] + seconds[3]) / 3)


def bench(out: Path, *words: str) -> int:
    grid = ("--tasks", "tiny:Corridor", "--methods", "ddpg", "--seeds", "1", "--out", str(out))
    small = ("--agent.hidden-size", "16", "--agent.batch-size", "16", "--episodes", "3")
    with pytest.raises(SystemExit) as ended:
        main(["bench", *grid, *small, *words])
    return int(ended.value.code or 0)


def test_finished_runs_of_other_settings_are_refused_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advice.runs.engines.run_local", run_here)
    with RunFolder(tmp_path).locked():
        assert bench(tmp_path) == 2
    assert "in use by another process" in capsys.readouterr().err
    assert bench(tmp_path) == 0
    folder = RunFolder.of(tmp_path, TrainConfig(task="tiny:Corridor", method="ddpg"))
    assert bench(tmp_path) == 0
    assert bench(tmp_path, "--agent.gamma", "0.5") == 2
    assert "agent.gamma: 0.95 there, 0.5 now" in capsys.readouterr().err
    with folder.locked():
        assert bench(tmp_path, "--no-only-missing") == 2
    assert folder.done_file.exists()
    assert bench(tmp_path, "--no-only-missing", "--agent.gamma", "0.5") == 0
    assert folder.read_config().agent.gamma == 0.5


def test_the_path_of_a_shield_is_compared_as_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_config(small(shield_from=str(tmp_path / "first")))
    monkeypatch.chdir(tmp_path)
    folder.refuse_other_settings(small(shield_from="first"))
    with pytest.raises(AdviceError, match=r"shield_from: .*/first' there, .*/other' now"):
        folder.refuse_other_settings(small(shield_from="other"))


class FakeRay(ModuleType):
    """Calls at once what Ray would call on a node."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def is_initialized(self) -> bool:
        return True

    def remote(self, **options: Any) -> Any:
        def call(function: Any, *args: Any) -> Any:
            try:
                return function(*args)
            except RuntimeError as error:
                return error

        def task(function: Any) -> Any:
            named = SimpleNamespace(remote=lambda *args: call(function, *args))
            return SimpleNamespace(options=lambda name: named)

        return task

    def wait(self, refs: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        return refs, []

    def get(self, ref: Any) -> Any:
        if isinstance(ref, RuntimeError):
            raise ref
        return ref


def test_ray_runs_each_cell_and_names_the_one_that_fails(
    undisturbed: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay("ray"))
    monkeypatch.setattr(sys, "argv", ["advice", "bench"])
    cells = grid(tmp_path)
    config = dataclasses.replace(small("ddpg", episodes=5), seed=99)
    broken = Cell(config, RunFolder.of(tmp_path, config))
    broken.folder.path.mkdir(parents=True)
    broken.folder.checkpoint.write_text("in the way")
    outcome = run_ray([*cells, broken], lambda: None, "auto")
    assert outcome.failed == [broken]
    assert "Not a directory" in status_of(broken).reason
    compare(cells, undisturbed)


def test_runs_of_the_circle_start_from_its_own_settings(tmp_path: Path) -> None:
    def of_task(**given: Any) -> TrainConfig:
        base = with_settings(TrainConfig(), given)
        study = Study("", tasks=("randomised-circle", "randomised-goal"), method_settings={})
        circle, goal = cells_of([study], [0], tmp_path, base)
        assert goal.config == dataclasses.replace(base, task="randomised-goal")
        return circle.config

    config = of_task()
    assert (config.agent.gamma, config.env.max_episode_steps) == (0.98, 250)
    assert config.env.options == {"motor_gain": 0.02, "inward_reward": 1.0}
    assert of_task(**{"agent.gamma": 0.9}).agent.gamma == 0.9
