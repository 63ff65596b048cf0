"""Each agent solves a trivial task in seconds, and gives equal weights for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from practice import SMALL, practise

from advice.agents.agent import Agent
from advice.agents.csc import CSC
from advice.runs.methods import AGENTS
from advice.shields.safety_critic import SafetyCriticShield
from marks import slow_but
from tiny import Speeding, Target

# every other agent takes seconds to compile
EACH = slow_but(["ddpg"], AGENTS)


def error(agent: Agent) -> float:
    targets = np.linspace(-0.8, 0.8, 9, dtype=np.float32)
    actions = [agent.act(np.array([target]), explore=False)[0] for target in targets]
    return float(np.abs(np.array(actions) - targets).mean())


@pytest.mark.parametrize("name", EACH)
def test_agent_learns_to_hit_the_target(name: str) -> None:
    env = Target()
    agent = AGENTS[name](env.observation_space, env.action_space, SMALL, seed=0)
    before = error(agent)
    practise(agent, env, 150)
    assert error(agent) < 0.1 < before


@pytest.mark.parametrize("name", EACH)
def test_same_seed_same_weights_other_seed_others(name: str) -> None:
    env = Target()
    weights = []
    for seed in (0, 0, 1):
        agent = AGENTS[name](env.observation_space, env.action_space, SMALL, seed)
        practise(agent, env, 6)
        weights.append(agent.snapshot()[0])
    for key in weights[0]:
        np.testing.assert_array_equal(weights[0][key], weights[1][key])
    assert any((weights[0][key] != weights[2][key]).any() for key in weights[0])


@pytest.mark.parametrize("name", EACH)
def test_a_restored_agent_goes_on_exactly(name: str) -> None:
    env = Target()
    first = AGENTS[name](env.observation_space, env.action_space, SMALL, seed=0)
    practise(first, env, 5)
    second = AGENTS[name](env.observation_space, env.action_space, SMALL, seed=9)
    second.restore(*first.snapshot())
    second.replay.put(0, first.replay.rows(0, first.replay.added))
    second.replay.added = first.replay.added
    for agent in (first, second):
        practise(agent, env, 3)
    for key, array in first.snapshot()[0].items():
        np.testing.assert_array_equal(array, second.snapshot()[0][key])


@pytest.fixture(scope="module")
def cost_of_ddpg() -> float:
    """The cost of the behaviour with the highest return."""
    return final_cost("ddpg")


def final_cost(name: str) -> float:
    """The mean cost of the last fifty of 200 episodes where speeding pays."""
    env = Speeding()
    agent = AGENTS[name](env.observation_space, env.action_space, SMALL, seed=0)
    shield = SafetyCriticShield(agent) if isinstance(agent, CSC) else None
    return float(np.mean(practise(agent, env, 200, shield)[-50:]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddpg-lag", "rcpo"])
def test_multipliers_more_than_halve_the_cost(name: str, cost_of_ddpg: float) -> None:
    assert cost_of_ddpg > 1.4  # most of the ten steps
    assert final_cost(name) < cost_of_ddpg / 2


@pytest.mark.slow
def test_csc_fails_less(cost_of_ddpg: float) -> None:
    assert final_cost("csc") < 0.75 * cost_of_ddpg
