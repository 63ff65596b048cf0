"""The command line: help, mistakes, and one real run from training to evaluation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advice.cli import COMMANDS, main
from advice.runs.methods import METHODS
from advice.runs.records import COLUMNS, RunFolder
from advice.threads import one_thread

TESTS = Path(__file__).parent


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


def test_every_config_field_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "train", "--help")
    for option in (
        "--shield.construction-episodes",
        "--agent.batch-size",
        "--env.max-episode-steps",
        "--stop-after-violations",
        "--shield-from",
    ):
        assert option in out


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
        (("eval", "nowhere"), "expected the folder of one run"),
        (("inspect", "nowhere.safetensors"), "no such file"),
        (("check-env", "randomised-gaol"), "did you mean 'randomised-goal'?"),
        (("bench", "--suite", "cor"), "did you mean 'core'?"),
        (("bench", "--status", "nowhere"), "grid.json"),
        (("bench", "--suite", "core", "--task", "randomised-goal"), "--tasks"),
        (("train", "--task", "randomised-button", "--env.options", "buttons", "0"), "one button"),
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
    ("words", "margin", "power"),
    [
        ((), 1.0, 1),
        (("--preset", "lidar"), 5.0, 8),
        (("--preset=lidar", "--shield.margin", "3"), 3.0, 8),
        (("--shield.margin", "3", "--preset", "paper"), 3.0, 1),
    ],
)
def test_a_preset_is_where_the_other_options_start_from(
    words: tuple[str, ...], margin: float, power: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    monkeypatch.setitem(
        COMMANDS, "train", COMMANDS["train"]._replace(run=lambda x: chosen.append(x) or 0)
    )
    with pytest.raises(SystemExit):
        main(("train", *words))
    assert (chosen[0].shield.margin, chosen[0].shield.observation_power) == (margin, power)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert "advice/RandomisedGoal-v0" in run(capsys, "tasks")[1]
    out = run(capsys, "methods")[1]
    assert all(name in out for name in METHODS)


def test_train_resume_evaluate_inspect(tmp_path: Path) -> None:
    """The whole way, as a user goes it, with the real program."""

    def advice(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "advice", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    options = ("--task", "randomised-goal", "--episodes", "6", "--env.max-episode-steps", "25")
    options += ("--shield.construction-episodes", "3", "--shield.max-epochs", "2", "--out", "out")
    first = advice("train", *options, "--method", "ddpg", "--agent.hidden-size", "16")
    folder = RunFolder(tmp_path / "out" / "randomised-goal" / "ddpg" / "seed-0")
    assert "done: ddpg on randomised-goal, seed 0: 6/6 episodes" in first
    assert folder.episodes_file.read_text().splitlines()[0] == ",".join(COLUMNS)
    threads = json.loads(folder.config_file.read_text())["provenance"]["threads"]
    assert threads["OMP_NUM_THREADS"] == "1"
    refused = advice("train", *options, "--method", "ddpg", code=2)
    assert "agent.hidden_size: 16 there, 256 now" in refused
    table = advice("eval", "out", "--episodes", "3", "--video", "episode.mp4")
    assert "violations" in table
    assert (tmp_path / "episode.mp4").stat().st_size > 1000
    assert "6/6 episodes" in advice("inspect", "out")
    assert "ERROR" not in advice("check-env", "tiny:Corridor")


def test_a_task_has_one_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--method", "ddpg", "--episodes", "1", "--env.max-episode-steps", "5"]
    for name in ("advice/RandomisedGoal-v0", "randomised-goal"):
        code, _, _ = run(capsys, "train", "--task", name, "--out", str(tmp_path), *words)
        assert code == 0
    assert (tmp_path / "randomised-goal" / "ddpg" / "seed-0" / "done").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["randomised-goal"]


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "advice", "bench", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as complaints:
        assert complaints.read() == b""
    assert process.wait() == 1


def test_one_thread_keeps_what_the_user_set() -> None:
    environment = one_thread({"OMP_NUM_THREADS": "4", "HOME": "/"})
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["HOME"] == "/"


def test_a_suite_keeps_its_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (("--shield.margin", "3"), ("--preset", "lidar")):
        code, _, err = run(capsys, "bench", "--suite", "core", *words, "--out", str(tmp_path))
        assert code == 2
        assert "the suite core decides" in err
        assert "shield.margin" in err


def test_a_part_of_a_suite_without_its_lenders_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("bench", "--suite", "transfer", "--out", str(tmp_path), "--dry-run")
    assert run(capsys, *words)[0] == 0
    code, _, err = run(capsys, *words, "--tasks", "semi-random-goal")
    assert code == 2
    assert "needs a shield that is not there" in err
