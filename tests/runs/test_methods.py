"""The table of methods: every row and composition runs everywhere and resumes bit for bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box
from helpers import DiesAfter, Killed, assert_same_run, small

from advice.config import (
    CSCConfig,
    EnvConfig,
    MultiplierConfig,
    TabularConfig,
    TrainConfig,
    from_dict,
    to_dict,
)
from advice.envs.tasks import TASKS
from advice.files import read_arrays
from advice.runs.loop import train
from advice.runs.methods import AGENTS, METHODS, SHIELDS, adopt_safety, build, find_method
from advice.runs.records import RunFolder
from advice.types import AdviceError
from marks import slow_but

OBS, ACT = Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)


def test_the_papers_methods_are_rows_of_the_table() -> None:
    assert list(METHODS) == ["ddpg", "ddpg-lag", "rcpo", "tabular", "csc", "advice"]
    assert all(row.agent in AGENTS and row.shield in SHIELDS for row in METHODS.values())


@pytest.mark.parametrize("shield", SHIELDS)
@pytest.mark.parametrize("agent", AGENTS)
def test_every_composition_can_be_built(agent: str, shield: str) -> None:
    config = small(f"{agent}+{shield}")
    if shield == "csc" != agent:  # the safety critic is the agent's
        with pytest.raises(AdviceError, match="unknown method"):
            build(config, OBS, ACT)
        return
    built = build(config, OBS, ACT)
    assert type(built[0]) is AGENTS[agent]
    assert type(built[1]) is type(SHIELDS[shield](OBS, ACT, config, built[0]))


def test_an_agent_alone_has_no_shield() -> None:
    assert find_method("sac")[:2] == ("sac", "none")


@pytest.mark.parametrize("name", ["rcpo+advise", "sac+", "+advice", "dppg", "none"])
def test_unknown_methods_are_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(AdviceError, match=r"ddpg-lag.*agent\+shield.*sac.*tabular"):
        find_method(name)


COMPOSED = ("td3+none", "sac+advice", "rcpo+advice", "csc+tabular")


@pytest.mark.parametrize(
    "method", slow_but(["ddpg", "ddpg-lag", "tabular", "advice"], [*METHODS, *COMPOSED])
)
def test_a_resumed_run_is_identical(method: str, tmp_path: Path) -> None:
    config = small(method, episodes=12)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(config, whole)
    with pytest.raises(Killed):
        train(config, cut, DiesAfter(10), checkpoint_seconds=0)
    train(config, cut)
    assert_same_run(whole, cut)


@pytest.mark.slow
def test_csc_starts_with_the_safety_critic_of_another_run(tmp_path: Path) -> None:
    train(small("csc", episodes=3), tmp_path / "source")
    config = dataclasses.replace(small("csc"), seed=5)
    agent, shield = build(config, Box(-1, 1, (2,), np.float32), ACT)
    adopt_safety(str(tmp_path / "source"), shield)
    source = read_arrays(tmp_path / "source" / "agent.safetensors", "agent", 1)[0]
    for name, array in agent.snapshot()[0].items():
        if name.startswith(".safety_critic"):
            np.testing.assert_array_equal(array, source[name])
    train(small("ddpg", episodes=2), tmp_path / "ddpg")
    with pytest.raises(AdviceError, match="that run has no shield"):
        adopt_safety(str(tmp_path / "ddpg"), shield)


@pytest.mark.slow
def test_the_records_show_what_each_method_does(tmp_path: Path) -> None:
    records = {}
    for method in ("ddpg", "ddpg-lag", "csc", "tabular"):
        folder = RunFolder(tmp_path / method)
        train(small(method, episodes=20), folder)
        records[method] = folder.read_episodes()
    assert {record.multiplier for record in records["ddpg"]} == {0.0}
    # λ after each episode: 0.1 + 0.01 per unit of cost so far
    cost = np.cumsum([record.cost for record in records["ddpg-lag"]])
    assert cost[-1] > 0
    found = [record.multiplier for record in records["ddpg-lag"]]
    np.testing.assert_allclose(found, 0.1 + 0.01 * cost)
    # an untrained safety critic replaces many proposals, and no penalty is stored for them
    assert sum(record.interventions for record in records["csc"]) > 0
    failed = np.cumsum([record.violation for record in records["csc"]])
    np.testing.assert_allclose([record.multiplier for record in records["csc"]], 1 + 0.04 * failed)
    state = RunFolder(tmp_path / "tabular").checkpoint / "state.safetensors"
    arrays, _ = read_arrays(state, "checkpoint", 1)
    fallen = sum(record.violation for record in records["tabular"])
    assert 0 < len(arrays["shield/pairs"]) <= fallen


PAIRS = [*((task, "advice") for task in TASKS), *(("randomised-button", x) for x in METHODS)]


@pytest.mark.parametrize(
    ("task", "method"),
    slow_but([pair for pair in PAIRS if pair[1] in ("ddpg", "tabular", "advice")], PAIRS),
)
def test_every_task_and_every_method_runs(task: str, method: str, tmp_path: Path) -> None:
    config = small(method, episodes=2, task=task, env=EnvConfig(max_episode_steps=12))
    result = train(config, tmp_path)
    assert result.finished
    assert len(result.folder.read_episodes()) == 2


def test_settings_of_methods_survive_json_and_unknown_ones_are_named() -> None:
    config = TrainConfig(tabular=TabularConfig(within=True))
    agent = dataclasses.replace(
        config.agent,
        rcpo=MultiplierConfig(initial=3.0),
        csc=CSCConfig(draws=7, multiplier=MultiplierConfig(limit=0.1)),
    )
    config = dataclasses.replace(config, agent=agent)
    document = json.loads(json.dumps(to_dict(config)))
    assert from_dict(TrainConfig, document) == config
    document["agent"]["csc"]["multiplier"]["speed"] = 1
    with pytest.raises(ValueError, match="MultiplierConfig has no setting 'speed'"):
        from_dict(TrainConfig, document)
