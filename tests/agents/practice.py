"""Settings and a minimal loop for agents that learn tiny tasks in seconds."""

from __future__ import annotations

from typing import Any

import jax

from advice.agents.agent import Agent
from advice.config import AgentConfig, CSCConfig, MultiplierConfig
from advice.shields.safety_critic import SafetyCriticShield
from advice.types import Transition

SMALL = AgentConfig(
    warmup_steps=0,
    hidden_size=32,
    batch_size=32,
    replay_capacity=4000,
    noise_dt=0.5,
    gamma=0.5,
    # thousands of updates instead of millions: multipliers and the safety critic learn faster
    lagrangian=MultiplierConfig(learning_rate=0.05),
    rcpo=MultiplierConfig(initial=0.0, learning_rate=0.05),
    csc=CSCConfig(learning_rate=2e-3, gamma=0.5, conservative_weight=0.05),
)


def updated(agent: Agent, state: Any) -> Any:
    """``state`` after one update with everything in the agent's replay buffer."""
    copied = jax.tree.map(jax.numpy.copy, state)  # the update reuses the memory of its argument
    return agent._update(copied, agent.replay.rows(0, agent.replay.added), *agent.update_inputs())


def practise(
    agent: Agent, env: Any, episodes: int, shield: SafetyCriticShield | None = None
) -> list[float]:
    """Train for some episodes; returns the cost of each."""
    costs = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        agent.start_episode()
        total, ended = 0.0, False
        while not ended:
            action = agent.act(obs)
            if shield:
                action = shield.guard(obs, action).action
            next_obs, reward, terminated, truncated, info = env.step(action)
            cost = info.get("cost", 0.0)
            agent.observe(Transition(obs, action, reward, cost, next_obs, terminated))
            agent.learn()
            obs, ended, total = next_obs, terminated or truncated, total + cost
        agent.end_episode(total)
        costs.append(total)
    return costs
