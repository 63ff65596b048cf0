"""The examples that need no PyTorch run as they are, with small numbers."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import advice

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run_example(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_is_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 80, path.name


@pytest.mark.slow
def test_plain_loop(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    path = tmp_path / "shield.safetensors"
    small = ["--episodes=32", "--construction-episodes=30", "--max-steps=60", "--fit-steps=30"]
    run_example("plain_loop.py", *small, f"--save={path}", monkeypatch=monkeypatch)
    assert "episode 32:" in capsys.readouterr().out
    assert advice.Shield.load(path).armed


def test_plain_loop_stops_when_its_budget_is_spent(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    path = tmp_path / "shield.safetensors"
    small = ["--episodes=200", "--max-violations=2", "--max-steps=60"]
    run_example("plain_loop.py", *small, f"--save={path}", monkeypatch=monkeypatch)
    assert "max_violations=2" in capsys.readouterr().out
    assert "2 unsafe" in repr(advice.Shield.load(path))


BLOCKED = """
import runpy, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is not installed on this machine")
sys.meta_path.insert(0, Blocker())
sys.argv = {argv}
runpy.run_path({script}, run_name="__main__")
known = {{"numpy", "scipy", "advice", "charset_normalizer"}}  # NumPy takes the last where it is
allowed = known | set(sys.stdlib_module_names)
foreign = {{name.split(".")[0] for name in sys.modules if not name.startswith("_")}} - allowed
print("foreign:", sorted(x for x in foreign if getattr(sys.modules.get(x), "__file__", None)))
"""


def test_deploy_needs_numpy_and_scipy_only(fitted: str) -> None:
    blocked = {"jax", "jaxlib", "optax", "gymnasium", "mujoco", "tyro", "rich", "matplotlib"}
    script = BLOCKED.format(
        blocked=blocked,
        argv=["deploy.py", fitted, "--hz", "200", "--seconds", "0.5"],
        script=repr(str(EXAMPLES / "deploy.py")),
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"100 cycles at 200 Hz, \d+ late", done.stdout)
    assert re.search(r"guard latency: median [\d.]+ ms", done.stdout)
    assert "foreign: []" in done.stdout
