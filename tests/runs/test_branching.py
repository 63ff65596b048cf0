"""A run that branches off another is the same to the bit as one from the start."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import LOOK_AHEAD, SMALL_SHIELD, assert_same_run, small

from advice.config import EnvConfig, TabularConfig, TrainConfig
from advice.files import write_json
from advice.runs.branching import may_branch, share_beginnings, unshielded
from advice.runs.engines import DONE, run_cell
from advice.runs.grid import Cell
from advice.runs.loop import train
from advice.runs.records import RunFolder
from advice.runs.studies import SUITES, cells_of
from advice.shields import tabular

FIXED = dataclasses.replace(LOOK_AHEAD, arm="fixed")
TRUNK = small("ddpg", episodes=20)
BRANCHES: dict[str, TrainConfig] = {
    "paper": small(episodes=14),
    "default": small(episodes=14, shield=FIXED),
    "fixed-k": small(episodes=14, shield=dataclasses.replace(FIXED, k=3, k_rule="fixed")),
    "windows": small(episodes=14, shield=dataclasses.replace(SMALL_SHIELD, recent_window=2)),
    "earlier": small(
        episodes=12, shield=dataclasses.replace(SMALL_SHIELD, construction_episodes=6)
    ),
    "shorter": small("ddpg", episodes=4),
    "tabular": small("tabular", episodes=20),
    "tabular-acts": small("tabular", episodes=20, tabular=TabularConfig(within=True)),
}


def cell_in(root: Path, config: TrainConfig, name: str) -> Cell:
    return Cell(config, RunFolder(root / name))


def run(cell: Cell) -> Path:
    assert run_cell(Cell.from_row(json.loads(json.dumps(cell.to_row()))), []) == DONE
    return cell.folder.path


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    """The trunk, trained, and the cells that branch off it."""
    root = tmp_path_factory.mktemp("grid")
    configs = {"trunk": TRUNK, **BRANCHES}
    cells = share_beginnings([cell_in(root, c, name) for name, c in configs.items()])
    run(cells[0])
    return dict(zip(configs, cells, strict=True))


def provenance(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = RunFolder(folder).read_document()["provenance"]
    return found


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_is_the_run_from_the_start(
    name: str, grid: dict[str, Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "tabular-acts":
        monkeypatch.setattr(tabular, "REACH", 0.12)  # so that it soon matches something
    train(BRANCHES[name], tmp_path / "whole")
    branched = run(grid[name])
    assert_same_run(branched, tmp_path / "whole")
    agents = [(run / "agent.safetensors").read_bytes() for run in (branched, tmp_path / "whole")]
    assert agents[0] == agents[1]
    records = RunFolder(branched).read_episodes()
    acted = any(record.interventions for record in records)
    source = provenance(branched).get("branched", {"after_episode": 0})
    if name == "tabular-acts":  # it intervened, so less is shared
        assert acted
        assert source["after_episode"] == 4  # the last kept point before episode 6
    else:
        assert source["after_episode"] == grid[name].shared > 0
        assert acted == (name not in ("shorter", "tabular"))
    shared = source["after_episode"]
    assert records[:shared] == grid["trunk"].folder.read_episodes()[:shared]  # with its seconds


def test_where_the_grid_branches(grid: dict[str, Cell]) -> None:
    trunk = grid["trunk"]
    assert {name: cell.shared for name, cell in grid.items() if cell.trunk} == {
        **dict.fromkeys(("paper", "default", "fixed-k", "windows"), 8),
        **{"earlier": 6, "shorter": 4, "tabular": 20, "tabular-acts": 20},
    }
    assert trunk.keep == (4, 6, 8, 20)
    assert all(trunk.folder.kept_file(point).exists() for point in trunk.keep)
    assert may_branch(trunk.folder.path, 8)
    assert not may_branch(trunk.folder.path.parent / "nowhere", 8)


def test_other_beginnings_are_not_shared(tmp_path: Path) -> None:
    others = {
        "seed": dataclasses.replace(TRUNK, seed=1),
        "limit": dataclasses.replace(TRUNK, env=EnvConfig(max_episode_steps=50)),
        "agent": dataclasses.replace(TRUNK, agent=dataclasses.replace(TRUNK.agent, hidden_size=17)),
        "method": dataclasses.replace(TRUNK, method="rcpo"),
        "budget": dataclasses.replace(TRUNK, stop_after_violations=3),
        "early": small(shield=LOOK_AHEAD),
        "transfer": small(shield_from="elsewhere"),
    }
    cells = [cell_in(tmp_path, config, name) for name, config in {"a": TRUNK, **others}.items()]
    assert [cell.trunk for cell in share_beginnings(cells)] == [None] * len(cells)
    assert [unshielded(others[name]) for name in ("early", "transfer", "limit")] == [0, 0, 20]


def test_without_plain_runs_the_first_shielded_one_is_the_trunk() -> None:
    cells = share_beginnings(cells_of(SUITES["k-sweep"], [0], Path("out"), TrainConfig()))
    first, *others = cells
    assert first.keep == (1000,)
    assert {(cell.trunk, cell.shared) for cell in others} == {(first.folder.path, 1000)}


def test_a_trunk_of_other_code_is_not_used(grid: dict[str, Cell], tmp_path: Path) -> None:
    trunk = grid["trunk"].folder
    document = trunk.read_document()
    changed = {**document["provenance"], "training": -1}
    try:
        write_json(trunk.config_file, document | {"provenance": changed})
        cell = grid["shorter"]._replace(folder=RunFolder(tmp_path / "run"))
        assert "branched" not in provenance(run(cell))
    finally:
        write_json(trunk.config_file, document)


def test_a_trunk_that_cannot_be_repeated_is_not_used(grid: dict[str, Cell], tmp_path: Path) -> None:
    """As on a machine that computes otherwise."""
    trunk = RunFolder(tmp_path / "trunk")
    shutil.copytree(grid["trunk"].folder.path, trunk.path)
    actions = np.fromfile(trunk.actions_file, "<f4")
    (-actions).tofile(trunk.actions_file)
    folder = RunFolder(tmp_path / "run")
    branched = run(grid["shorter"]._replace(folder=folder, trunk=trunk.path))
    train(BRANCHES["shorter"], tmp_path / "whole")
    assert_same_run(branched, tmp_path / "whole")
    assert "branched" not in provenance(branched)


@pytest.mark.parametrize("lost", ["checkpoint", "actions.bin"])
def test_a_trunk_that_was_kept_in_part_is_not_used(
    lost: str, grid: dict[str, Cell], tmp_path: Path
) -> None:
    trunk, folder = tmp_path / "trunk", RunFolder(tmp_path / "run")
    shutil.copytree(grid["trunk"].folder.path, trunk, ignore=shutil.ignore_patterns(lost))
    run(grid["tabular"]._replace(folder=folder, trunk=trunk))
    assert len(folder.read_episodes()) == BRANCHES["tabular"].episodes
    assert "branched" not in provenance(folder.path)
