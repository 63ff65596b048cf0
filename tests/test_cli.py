"""The command line: help, mistakes, and every command run end to end on small runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from advice.cli import COMMANDS, main, parse
from advice.config import PRESETS, AgentConfig, EnvConfig, Preset, TrainConfig
from advice.runs.evaluate import evaluate
from advice.runs.loop import train
from advice.runs.methods import METHODS
from advice.runs.records import COLUMNS, RunFolder
from advice.threads import one_thread
from advice.types import AdviceError
from engine import run_here
from marks import slow_but

TESTS = Path(__file__).parent
PYTHONPATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    with pytest.raises(SystemExit) as end:
        main(words)
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"usage: advice {name}" in out


COMMON = ("--task", "--shield.construction-episodes", "--env.max-episode-steps", "--shield-from")
RARE = ("--agent.batch-size", "--agent.csc.draws", "--shield.margin", "--tabular.within")
RARE += ("--shield.fit-steps", "--shield.candidate-budget")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_train_fits_two_screens(
    flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "train", flag)
    assert code == 0
    assert len(out.splitlines()) <= 100
    assert all(f"{option} " in out for option in (*COMMON, "--help-all", "--preset"))
    assert not any(option in out for option in RARE)


@pytest.mark.parametrize("command", ["train", "bench"])
def test_help_all_lists_every_setting(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, command, "--help-all")
    assert code == 0
    assert all(option in out for option in (*COMMON[1:], *RARE))
    assert ("--task " in out) == (command == "train")


def test_hidden_options_are_still_options() -> None:
    call = parse("train", ["--agent.batch-size", "7", "--tabular.within", "--shield.l2", "0.5"])
    config = call.keywords["config"]  # type: ignore[attr-defined]
    assert (config.agent.batch_size, config.tabular.within, config.shield.l2) == (7, True, 0.5)


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys, advice.cli\n"
        "heavy = {'jax', 'mujoco', 'matplotlib', 'scipy', 'ray', 'torch'} & set(sys.modules)\n"
        "print(heavy or '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("trian",), "did you mean 'train'?"),
        (("train", "--method", "advise"), "did you mean 'advice'?"),
        (("train", "--task", "randomized-goal"), "did you mean 'randomised-goal'?"),
        (("train", "--env.options", "cubess", "3"), "cubes"),
        (("inspect", "nowhere"), "nowhere: no such file or folder"),
        (("check-env", "randomised-gaol"), "did you mean 'randomised-goal'?"),
        (("bench", "--suite", "cor"), "unknown suite 'cor', did you mean 'core'?\n"),
        (("bench", "--suite", "xyzzy"), "unknown suite 'xyzzy'; suites: smoke, core"),
        (("bench", "--status", "nowhere"), "nowhere: expected the folder of `advice bench --out`"),
        (("bench", "--suite", "core", "--task", "randomised-goal"), "--tasks"),
        (("train", "--task", "randomised-button", "--env.options", "buttons", "0"), "one button"),
        (("train", "--agent.gamma", "3"), "gamma: expected 0 to 1, found 3.0"),
        (("train", "--preset", "radar"), "invalid choice 'radar'"),
        (
            ("train", "--episodes", "1000", "--shield.arm", "fixed"),
            "more than the 1000 construction",
        ),
        (("train", "--env.terminal", "crash"), "invalid choice 'crash'"),
        (("eval", "nowhere", "--episodes", "0"), "episodes: expected more than 0, found 0"),
        (("bench", "--seeds", "0"), "seeds: expected more than 0, found 0"),
        (("demo", "--episodes", "5"), "expected more --episodes than the 200"),
        (("report", "nowhere"), "nowhere: no such folder"),
        (("report", __file__), "is a file, expected a folder"),
        (("eval", "nowhere"), "nowhere: no such folder"),
        (("replay", "."), ".: no run in this folder"),
        (("eval", __file__), "is a file, expected a run's folder"),
        (("inspect", __file__), "expected an advice shield"),
        (("check-env", "Foo-v0"), "no environment 'Foo-v0'; expected a task (semi-random-goal"),
        (("check-env", "CartPol-v1"), "no environment 'CartPol-v1', did you mean 'CartPole-v1'?"),
        (("replay", "nowhere", "--worst", "--first-violation"), "choose one of --episode N"),
        (("replay", "nowhere", "--any"), "--any goes with --first-violation"),
    ],
)
def test_mistakes_are_explained(
    words: tuple[str, ...],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 2
    assert expected in out + err


def test_unknown_option_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "train", "--shield.construction-episode", "5")
    assert code == 2
    assert "--shield.construction-episodes" in out + err


@pytest.mark.parametrize(
    ("words", "margin", "labels"),
    [
        ((), 3.0, "hindsight"),
        (("--preset", "paper"), 1.0, "paper"),
        (("--preset=paper", "--shield.margin", "2"), 2.0, "paper"),
        (("--shield.margin", "2", "--preset", "default"), 2.0, "hindsight"),
        (("--preset", "paper", "--shield.labels", "hindsight"), 1.0, "hindsight"),
    ],
)
def test_a_preset_gives_the_values_of_options_not_set(
    words: tuple[str, ...], margin: float, labels: str
) -> None:
    call = parse("train", words)
    shield = call.keywords["config"].shield  # type: ignore[attr-defined]
    assert (shield.margin, shield.labels) == (margin, labels)


@pytest.mark.parametrize(
    ("words", "gamma"),
    [((), 0.98), (("--agent.gamma", "0.95"), 0.95)],
)
def test_a_task_gives_the_values_of_options_not_set(words: tuple[str, ...], gamma: float) -> None:
    for task in ("randomised-circle", "advice/RandomisedCircle-v0"):
        config = parse("train", ("--task", task, *words)).keywords["config"]  # type: ignore[attr-defined]
        assert (config.task, config.agent.gamma) == ("randomised-circle", gamma)
        assert config.env.options == {"motor_gain": 0.02, "inward_reward": 1.0}
    own = ("--task", "randomised-circle", "--env.options", "cubes", "2", "motor_gain", "1")
    config = parse("train", (*own, *words)).keywords["config"]  # type: ignore[attr-defined]
    assert config.env.options == {"motor_gain": 1, "inward_reward": 1, "cubes": 2}
    assert parse("train", words).keywords["config"].env.options == {}  # type: ignore[attr-defined]


def test_every_preset_is_a_choice() -> None:
    assert get_args(Preset) == tuple(PRESETS)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert "advice/RandomisedGoal-v0" in run(capsys, "tasks")[1]
    out = run(capsys, "methods")[1]
    assert all(name in out for name in METHODS)


def test_examples_are_listed_and_copied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "example")
    names = [path.stem for path in (TESTS.parent / "examples").iterdir() if path.is_file()]
    assert code == 0
    assert len(names) >= 4
    assert all(re.search(rf"^{name} +\w", out, re.M) for name in names)
    assert run(capsys, "example", "deploy", "--out", str(tmp_path))[0] == 0
    original = TESTS.parent / "examples" / "deploy.py"
    assert (tmp_path / "deploy.py").read_bytes() == original.read_bytes()
    code, _, err = run(capsys, "example", "deploy.py", "--out", str(tmp_path))
    assert code == 2
    assert "exists already" in err
    code, _, err = run(capsys, "example", "depoly")
    assert code == 2
    assert "did you mean 'deploy'?" in err


def test_train_resume_evaluate_inspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training as the real program in a process of its own, then what comes after it."""
    monkeypatch.chdir(tmp_path)
    options = ("--method", "ddpg", "--episodes", "6", "--env.max-episode-steps", "25")
    options += ("--shield.construction-episodes", "3", "--shield.max-epochs", "2", "--out", "out")
    words = ("train", "--task", "advice/RandomisedGoal-v0", "--agent.hidden-size", "16", *options)
    first = subprocess.run(
        [sys.executable, "-m", "advice", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    assert first.returncode == 0, first.stderr
    assert "done: ddpg on randomised-goal, seed 0: 6/6 episodes" in first.stdout
    assert "violation probability so far 0.0% to" in first.stdout
    folder = RunFolder(tmp_path / "out" / "randomised-goal" / "ddpg" / "seed-0")
    assert folder.episodes_file.read_text().splitlines()[0] == ",".join(COLUMNS)
    threads = json.loads(folder.config_file.read_text())["provenance"]["threads"]
    assert threads["OMP_NUM_THREADS"] == "1"
    code, _, refused = run(capsys, "train", "--task", "randomised-goal", *options)  # its other name
    assert code == 2
    assert "agent.hidden_size: 16 there, 256 now" in refused
    code, table, _ = run(capsys, "eval", "out", "--episodes", "3", "--video", "episode.mp4")
    assert code == 0
    assert "violation probability per episode: at most" in table
    assert Path("episode.mp4").stat().st_size > 1000
    assert "6/6 episodes" in run(capsys, "inspect", "out")[1]


def test_check_env(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check-env", "tiny:Corridor")
    assert code == 0
    assert "shielding can work here" in out
    code, out, _ = run(capsys, "check-env", "tiny:Target")
    assert code == 1
    assert 'terminal="failure"' in out


def test_a_closed_pipe_prints_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "advice", "bench", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait() == 1


def test_one_thread_keeps_what_the_user_set() -> None:
    environment = one_thread({"OMP_NUM_THREADS": "4", "HOME": "/"})
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["HOME"] == "/"


def test_a_suite_keeps_its_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    grid = ("bench", "--suite", "core", "--dry-run", "--out", str(tmp_path))
    for words in (("--shield.arm", "fixed"), ("--preset", "paper")):
        code, _, err = run(capsys, *grid, *words)
        assert code == 2
        assert "the suite core sets" in err
        assert "shield.arm" in err
    words = ("bench", "--suite", "shift", "--dry-run", "--out", str(tmp_path))
    assert "sets env.options" in run(capsys, *words, "--env.options", "cubes", "3")[2]


def test_a_suite_without_the_runs_it_takes_shields_from_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("bench", "--suite", "transfer", "--out", str(tmp_path), "--dry-run")
    assert run(capsys, *words)[0] == 0
    code, _, err = run(capsys, *words, "--tasks", "semi-random-goal")
    assert code == 2
    assert "needs a shield that is not there" in err


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of two short runs, with and without a fitted shield, made by `advice bench`."""
    out = tmp_path_factory.mktemp("cli") / "grid"
    words = """bench --tasks randomised-goal --methods ddpg advice --seeds 1 --episodes 24
        --env.max-episode-steps 80 --env.options cubes 14 --shield.max-epochs 5
        --shield.construction-episodes 12 --shield.hidden-size 16 --shield.fit-steps 50
        --agent.hidden-size 16 --agent.noise-dt 0.5"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advice.runs.engines.run_local", run_here)
        with pytest.raises(SystemExit) as end:
            main((*words.split(), "--out", str(out)))
    assert end.value.code == 0
    return out


def test_a_folder_of_many_runs_names_them(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "eval", str(grid))
    assert code == 2
    assert f"{grid}: 2 runs in this folder, name one:\n  {grid}/randomised-goal/advice" in err


def test_a_dry_run_sums_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("advice.runs.plan.measure", lambda config: 100.0)
    code, out, _ = run(capsys, "bench", "--suite", "paper", "--dry-run", "--out", str(tmp_path))
    assert code == 0
    assert len(out.splitlines()) < 40
    assert re.search(r"core +120 +0 +240000 +60000 ", out)  # a quarter is shared
    assert re.search(r"shared beginnings save \d+\.\d of \d+\.\d core-hours", out)
    out = run(capsys, "bench", "--dry-run", "--out", str(tmp_path))[1]
    assert "shared beginnings" not in out  # one method shares nothing


def test_status_of_a_grid(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "bench", "--status", str(grid))
    assert code == 0
    assert out.count("24/24") == 2
    assert "2 done" in out


def test_inspect_prints_the_audit_of_a_fitted_shield(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = grid / "randomised-goal" / "advice" / "seed-0"
    for path in (folder, folder / "shield.safetensors"):
        code, out, _ = run(capsys, "inspect", str(path))
        assert code == 0
        assert "audit" in out.lower()
        assert "# Shield card: randomised-goal" in out


def test_eval_certifies_the_shield(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = grid / "randomised-goal" / "advice" / "seed-0"
    words = ("eval", str(folder), "--episodes", "2", "--certify")
    code, out, err = run(capsys, *words)
    assert (code, "certified: " in out) == (0, True), err
    assert "of 2 episodes, frozen agent and shield)" in (folder / "card.md").read_text()
    code, _, err = run(capsys, *words, "--no-shield")
    assert code == 2
    assert "expected episodes with a fitted ADVICE shield" in err


@pytest.mark.parametrize(
    "method", slow_but(["ddpg", "advice", "tabular"], ["ddpg", "advice", "tabular", "csc"])
)
def test_a_run_without_its_checkpoint_is_evaluated_by_its_files(
    method: str, grid: Path, tmp_path: Path
) -> None:
    folder = RunFolder(grid / "randomised-goal" / method / "seed-0")
    if not folder.path.exists():
        env = EnvConfig(max_episode_steps=80, options={"cubes": 14})
        agent = AgentConfig(hidden_size=16, noise_dt=0.5)
        folder = train(
            TrainConfig(method=method, episodes=6, agent=agent, env=env), tmp_path / "run"
        ).folder
    copy = tmp_path / "copy"
    shutil.copytree(folder.path, copy, ignore=shutil.ignore_patterns("checkpoint"))
    assert evaluate(RunFolder(copy), 3) == evaluate(folder, 3)
    for name in ("agent", *(["table"] if method == "tabular" else [])):
        (copy / f"{name}.safetensors").unlink()
        with pytest.raises(AdviceError, match=f"expected a checkpoint or {name}"):
            evaluate(RunFolder(copy), 1)
        shutil.copy(folder.path / f"{name}.safetensors", copy)


def test_report_of_a_grid(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "report", str(grid), "--out", str(tmp_path / "report"))
    assert code == 0
    assert f"report: {tmp_path / 'report' / 'index.html'}" in out
    page = (tmp_path / "report" / "index.html").read_text()
    assert "randomised-goal" in page
    assert list((tmp_path / "report" / "figures").iterdir())
    quantities = (tmp_path / "report/tables/randomised-goal-diagnostics.csv").read_text()
    delta_q = re.search(r"Theorem 3\)\"?,-?\d", quantities)  # a number: the critic was kept
    assert delta_q, quantities


@pytest.mark.parametrize("which", [(), ("--episode", "20", "--counterfactual")])
def test_replay_of_a_recorded_episode(
    which: tuple[str, ...], grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = grid / "randomised-goal" / "advice" / "seed-0", tmp_path / "replay.html"
    code, out, _ = run(capsys, "replay", str(folder), *which, "--out", str(page))
    assert code == 0
    assert f"replay: {page}" in out
    assert ("needed within 10 steps" in out) == ("--counterfactual" in which)
    assert page.stat().st_size > 10_000


def test_eval_without_the_shield(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = grid / "randomised-goal" / "advice" / "seed-0"
    code, out, _ = run(capsys, "eval", str(folder), "--episodes", "2", "--no-shield")
    assert code == 0
    assert "2 (without the shield)" in out


def test_eval_bounds_the_violation_probability() -> None:
    from advice.runs.evaluate import Evaluation, bound_in_words, summary_rows

    clean = Evaluation(10, 1.0, 0.0, False, True, 2, 1, False)
    assert "at most 1.0% with 95 % confidence" in bound_in_words([clean] * 300)
    crash = clean._replace(violation=True, success=False, under_fallback=True)
    assert "at most 1.6%" in bound_in_words([clean] * 299 + [crash])
    rows = dict(summary_rows([clean, crash, clean._replace(violation=True)]))
    assert rows["violations"] == "2"
    assert rows["  under the fallback"] == "1"
    assert rows["steps left to the fallback"] == "3"


@pytest.mark.slow
def test_demo_shows_both_runs_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    words = ("--task", "tiny:Corridor", "--episodes", "12", "--construction-episodes", "8")
    code, out, _ = run(capsys, "demo", *words, "--out", str(tmp_path))
    assert code == 0, out
    rows = [
        re.search(rf"{when} arming, {x} +(.*)", out)
        for when in ("before", "after")
        for x in ("DDPG", "ADVICE")
    ]
    before, same, _, after = (row[1] for row in rows if row)
    assert before == same
    assert (before.split()[0], after.split()[0]) == ("1-8", "9-12")
    assert "The shield was armed after episode 8; at the end the audit" in out
    assert "no video" in out  # the task cannot render
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert (tmp_path / "report" / "index.html").exists()
    commands = [line.split("#")[0] for line in out.splitlines() if line.startswith("  advice ")]
    assert len(commands) == 3
    for line in commands:
        parse(line.split()[1], line.split()[2:])  # they are commands as they stand
