"""The doors between the rooms stay where the design put them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import advice

HOUSE = Path(advice.__file__).parent
SHARED = {"types", "config", "files", "threads"}
DOORS = {
    # room: the rooms it may import, besides itself and the shared words
    "types": set(),
    "config": {"types"},
    "files": {"types"},
    "threads": set(),
    "envs": set(),
    "agents": set(),
    "shields": {"envs.signals"},
    "runs": {"envs", "agents", "shields"},
    "reports": {
        "runs.records",
        "runs.studies",
        "runs.resimulate",
        "shields.cautiousness",
        "Shield",
    },
    "integrations": {"shields", "envs.signals"},
}


def imports_of(source: str, module: str) -> set[str]:
    """Modules of ours that a module's source imports, wherever in it the import stands."""
    package = module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: climb from the package
                climbed = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*climbed, base]).rstrip(".")
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "advice"}


def forbidden(room: str, imported: set[str]) -> set[str]:
    """Those imports for which the room has no door."""
    allowed = DOORS[room] | {room} | (SHARED if room not in SHARED else set())
    ways = tuple(f"advice.{way}" for way in allowed)
    return {
        name
        for name in imported
        if not any(name == way or name.startswith(way + ".") for way in ways)
    }


def modules_of(room: str) -> list[Path]:
    alone = HOUSE / f"{room}.py"
    return [alone] if alone.exists() else sorted((HOUSE / room).rglob("*.py"))


@pytest.mark.parametrize("room", DOORS)
def test_each_room_imports_only_through_its_doors(room):
    modules = modules_of(room)
    assert modules
    for path in modules:
        name = ".".join(("advice", *path.relative_to(HOUSE).with_suffix("").parts))
        assert not forbidden(room, imports_of(path.read_text(), name)), path


@pytest.mark.parametrize(
    ("room", "source", "caught"),
    [
        ("shields", "from advice.agents.ddpg import DDPG", True),
        ("shields", "def f():\n    import advice.agents", True),
        ("shields", "from ..agents import ddpg", True),
        ("shields", "from advice import agents", True),
        ("shields", "from advice.types import Array", False),
        ("reports", "from advice.runs.records import RunFolder", False),
        ("reports", "from advice.runs.loop import train", True),
        ("types", "from advice.config import ShieldConfig", True),
        ("files", "from advice.types import Array", False),
        ("envs", "import numpy", False),
    ],
)
def test_the_walls_hold(room, source, caught):
    assert bool(forbidden(room, imports_of(source, f"advice.{room}.module"))) is caught
