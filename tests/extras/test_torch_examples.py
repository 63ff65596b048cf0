"""The examples and the guide that need PyTorch run as they stand."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import advice
from blocks import ROOT, run_blocks
from notebook import run_notebook


def run_example(monkeypatch: Any, name: str, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def test_cleanrl_style(monkeypatch: Any, capsys: Any) -> None:
    small = ["--total-timesteps=12000", "--construction-episodes=8", "--fit-steps=30"]
    run_example(monkeypatch, "cleanrl_ddpg.py", *small, "--learning-starts=11000")
    assert "Shield(armed" in capsys.readouterr().out


def test_sb3(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    run_example(monkeypatch, "sb3_td3.py", "--timesteps=1500", "--construction-episodes=1000")
    assert "Shield(unarmed" in capsys.readouterr().out
    assert not advice.Shield.load("td3.safetensors").armed


@pytest.mark.filterwarnings("ignore")  # of Box2D's and PyTorch's own
def test_the_notebook(tmp_path: Path, monkeypatch: Any) -> None:
    """Long enough for the shield to be armed and to be looked at; as committed it runs longer."""
    path = ROOT / "examples" / "quickstart.ipynb"
    committed = json.loads(path.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUICKSTART_STEPS", "5000")
    made = run_notebook(path)
    printed = "".join(
        "".join(output.get("text", []))
        for cell in made["cells"]
        for output in cell.get("outputs", [])
    )
    assert "Shield(armed" in printed
    assert "crashes in" in printed
    assert advice.Shield.load("shield.safetensors").armed
    kept = [cell["outputs"] for cell in committed["cells"] if cell["cell_type"] == "code"]
    assert sum(map(bool, kept)) >= 4  # committed with what it shows


def test_the_guide(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks("docs/guides/stable-baselines3.md")
    assert Path("td3.safetensors").exists()
    assert names["model"].num_timesteps == 500
