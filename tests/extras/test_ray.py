"""A real two-node Ray cluster on this machine: a node dies, the grid completes, bit for bit."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

TESTS = Path(__file__).parents[1]
SEARCHED = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
sys.path.insert(0, str(TESTS / "runs"))

from helpers import assert_same_run, small  # noqa: E402

from advice.runs.engines import run_local, run_ray  # noqa: E402
from advice.runs.grid import Cell, status_of  # noqa: E402
from advice.runs.records import RunFolder  # noqa: E402
from advice.threads import ONE_THREAD  # noqa: E402

EPISODES = 60

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own warnings are not ours to fix


def grid(out: Path) -> list[Cell]:
    configs = [
        small("advice", episodes=EPISODES),
        small("ddpg", episodes=EPISODES),
    ]
    cells = [Cell(config, RunFolder.of(out, config)) for config in configs]
    first = cells[0].folder.path
    dependent = dataclasses.replace(small(episodes=3, shield_from=str(first)), seed=7)
    return [*cells, Cell(dependent, RunFolder.of(out, dependent), first)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """The same grid by the local engine."""
    cells = grid(tmp_path_factory.mktemp("local"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SEARCHED)
        assert not run_local(cells, lambda: None).failed
    return cells


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PYTHONPATH", SEARCHED)
    monkeypatch.setenv("RAY_DEDUP_LOGS", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    environment = {"env_vars": {**ONE_THREAD, "PYTHONPATH": SEARCHED}}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_lost_node_costs_nothing_but_time(
    local: list[Cell], cluster: Any, tmp_path: Path
) -> None:
    cells = grid(tmp_path)
    lost = []

    def on_poll() -> None:
        """Once both nodes are at work, take one away, with the run that is on it."""
        started = all(c.folder.episodes_file.exists() for c in cells[:2])
        if not lost and started and ray.available_resources().get("CPU", 0) == 0:
            cluster.remove_node(cluster.second)
            lost.append(cluster.add_node(num_cpus=1))

    outcome = run_ray(cells, on_poll, cluster.address, attempts=4)
    assert lost
    assert not outcome.failed
    for cell, whole in zip(cells, local, strict=True):
        assert status_of(cell).state == "done"
        assert_same_run(whole.folder.path, cell.folder.path)
