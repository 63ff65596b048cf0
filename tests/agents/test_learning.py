"""Each agent solves a trivial task in seconds, and repeats itself from the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from advice.agents.agent import Agent
from advice.config import AgentConfig, CSCConfig
from advice.runs.methods import AGENTS
from advice.types import Transition
from tiny import Target

SMALL = AgentConfig(
    hidden_size=32,
    batch_size=32,
    noise_dt=0.5,
    gamma=0.5,
    # thousands of updates instead of millions: the safety critic must be as quick as the others
    csc=CSCConfig(learning_rate=2e-3, gamma=0.5, conservative_weight=0.05),
)


def practise(agent: Agent, env: Target, episodes: int) -> None:
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        agent.start_episode()
        ended = False
        while not ended:
            action = agent.act(obs)
            next_obs, reward, terminated, ended, _ = env.step(action)
            agent.observe(Transition(obs, action, reward, 0.0, next_obs, terminated))
            agent.learn()
            obs = next_obs
        agent.end_episode(0.0)


def error(agent: Agent) -> float:
    targets = np.linspace(-0.8, 0.8, 9, dtype=np.float32)
    actions = [agent.act(np.array([target]), explore=False)[0] for target in targets]
    return float(np.abs(np.array(actions) - targets).mean())


@pytest.mark.parametrize("name", AGENTS)
def test_agent_learns_to_hit_the_target(name: str) -> None:
    env = Target()
    agent = AGENTS[name](env.observation_space, env.action_space, SMALL, seed=0)
    before = error(agent)
    practise(agent, env, 150)
    assert error(agent) < 0.1 < before


@pytest.mark.parametrize("name", AGENTS)
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


@pytest.mark.parametrize("name", AGENTS)
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
