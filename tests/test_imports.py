"""What the folders of the package import, directly and through others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from import_graph import cycle, graph, guard_depth, imports_of, modules, reached

SHARED = ("types", "config", "files", "threads")
ALLOWED: dict[str, tuple[str, ...]] = {
    # folder or file: what it may import in the end, besides itself
    "types": (),
    "threads": (),
    "config": ("types",),
    "files": ("types",),
    "envs": SHARED,
    "agents": SHARED,
    "shields": (*SHARED, "envs.signals"),
    "integrations": (*SHARED, "envs.signals", "shields"),
    "runs": (*SHARED, "envs", "agents", "shields"),
}
RECORDS_ONLY = (
    "runs.records",
    "runs.grid",
    "runs.studies",
    "shields.cautiousness",
    "shields.bounds",
)
RE_SIMULATING = ("shields", "page", "replay_page")
"""Modules of reports that re-simulate episodes, or import one that does."""


def within(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of the places or inside one; ``advice`` itself always is."""
    ways = tuple(f"advice.{place}" for place in places)
    return name == "advice" or any(name == way or name.startswith(f"{way}.") for way in ways)


def forbidden(folder: str, edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    """(module of the folder, module that it must not import in the end)."""
    places = (folder, *ALLOWED[folder])
    # the package's __init__ loads its parts when they are first asked for; they are checked alone
    edges = {**edges, "advice": set()}
    # a package's __init__ runs before its modules
    inside = [name for name in edges if within(name, (folder,)) and name != "advice"]
    return {
        (name, target)
        for name in inside
        for target in reached(edges, name)
        if not within(target, places) and target not in packages(places)
    }


def packages(places: tuple[str, ...]) -> set[str]:
    """The packages around the places: importing a module imports them too."""
    return {f"advice.{place.rpartition('.')[0]}" for place in places if "." in place}


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    assert not forbidden(folder, graph(with_module_alone=False))


def test_reports_import_records_unless_they_re_simulate() -> None:
    edges = {**graph(with_module_alone=True), "advice": set()}
    for name in edges:
        if within(name, ("reports",)) and name != "advice":
            extra = () if name.rpartition(".")[2] not in RE_SIMULATING else ("runs", "envs")
            extra += ("agents", "shields") if extra else ()
            places = (*SHARED, "reports", *RECORDS_ONLY, *extra)
            wrong = {n for n in reached(edges, name) if not within(n, places)}
            assert not wrong, name


def test_no_cycle_of_imports() -> None:
    assert cycle(graph(with_module_alone=True)) == []


def test_a_cycle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from advice.agents.ddpg import DDPG", {"advice.agents.ddpg": True}),
        ("def f():\n    import advice.agents.ddpg", {"advice.agents.ddpg": False}),
        ("from ..agents import ddpg", {"advice.agents.ddpg": True}),
        ("from advice import agents", {"advice.agents": True}),
        ("if TYPE_CHECKING:\n    from advice.agents import ddpg", {}),
        ("import numpy", {}),
    ],
)
def test_every_form_of_import_is_found(source: str, expected: dict[str, bool]) -> None:
    assert imports_of(source, "advice.shields.module", set(modules())) == expected


def test_an_import_through_another_module_is_found() -> None:
    edges = {
        "advice.shields.x": {"advice.types"},
        "advice.types": {"advice.agents.y"},
        "advice.agents.y": set(),
    }
    assert forbidden("shields", edges) == {("advice.shields.x", "advice.agents.y")}


@pytest.mark.slow
def test_a_guard_call_is_at_most_four_functions_deep() -> None:
    assert guard_depth() <= 4


def test_guarding_needs_no_training_libraries() -> None:
    code = (
        "import sys, advice\nadvice.Shield\n"
        "print({'jax', 'mujoco', 'optax', 'matplotlib', 'torch'} & set(sys.modules) or '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
