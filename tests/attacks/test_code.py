"""A folder that was received from someone runs no code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from advice.cli import main
from advice.config import EnvConfig, TrainConfig
from advice.envs.make import make_from_name
from advice.runs.evaluate import evaluate
from advice.runs.records import RunFolder
from advice.types import SettingError


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return int(ended.value.code or 0)


def doctored(run: Path, **settings: Any) -> Path:
    """``run`` with other settings in its config.json."""
    file = run / "config.json"
    document = json.loads(file.read_text())
    document["config"] |= settings
    file.write_text(json.dumps(document))
    return run


COMMANDS = {
    "eval": ("eval", "--episodes", "1"),
    "replay": ("replay", "--episode", "1"),
    "report": ("report",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_task_that_is_a_command_is_not_called(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = tmp_path / "proof"
    options = {"args": f"touch {proof}", "shell": True}
    doctored(run, task="subprocess:Popen", env={"options": options})
    out = () if name == "eval" else ("--out", tmp_path / "out.html")
    code = command(*COMMANDS[name], run, *out)
    said = capsys.readouterr()
    assert not proof.exists()
    assert code == 2
    assert "options.args: expected a number" in said.err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_module_beside_the_folder_is_not_imported(
    name: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    proof = tmp_path / "proof"
    (tmp_path / "evilmod.py").write_text(
        f"import pathlib\npathlib.Path({str(proof)!r}).touch()\nfrom tiny import Corridor as Env\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "evilmod", raising=False)
    doctored(run, task="evilmod:Env")
    out = () if name == "eval" else ("--out", "out.html")
    code = command(*COMMANDS[name], run, *out)
    said = capsys.readouterr()
    assert not proof.exists()
    page = Path("out.html/index.html").read_text() if name == "report" else said.err
    assert code == (0 if name == "report" else 2)
    assert "--trust-task" in page
    command(*COMMANDS[name], run, *out, "--trust-task")
    assert proof.exists()


def test_what_is_called_is_an_environment(run: Path) -> None:
    for name in ("subprocess:Popen", "os:system", "math:pi", "helpers:small"):
        with pytest.raises(SettingError, match=r"expected a subclass of gymnasium\.Env"):
            make_from_name(name)
    with pytest.raises(SettingError, match=r"tiny:Corridor.*--trust-task"):
        evaluate(RunFolder(run), 1)
    assert evaluate(RunFolder(run, trust_task=True), 1)


def test_an_option_called_like_a_parameter_is_an_option() -> None:
    for option in ("name", "task", "trust_task"):
        with pytest.raises(SettingError, match=option):
            make_from_name("randomised-goal", **{option: 1})


@pytest.mark.parametrize("value", ["3", [3], {"a": 1}, None, float("nan")])
def test_options_are_numbers(value: Any) -> None:
    with pytest.raises(SettingError, match=r"options\.arena: expected a number"):
        EnvConfig(options={"arena": value})
    with pytest.raises(SettingError, match="options: expected names and numbers"):
        EnvConfig(options=[value])  # type: ignore[arg-type]


def test_numbers_of_a_task_are_bounded() -> None:
    for name in ("cubes", "lidar_bins"):
        with pytest.raises(SettingError, match=f"{name}: expected a whole number from . to 1000"):
            make_from_name("randomised-goal", **{name: 1e9})


@pytest.mark.parametrize(
    "name", [3, ["a"], None, "", "..", "/etc", "a" * 300, "$\\frac{$", "\x1b[2J"]
)
def test_names_can_be_printed_and_be_a_part_of_a_path(name: Any) -> None:
    for setting in ("task", "method", "study"):
        if name or setting != "study":
            with pytest.raises(SettingError, match=f"{setting}: expected a name"):
                TrainConfig(**{setting: name})
