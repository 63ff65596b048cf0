"""TD3: two critics, smoothed targets, a delayed actor."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from practice import SMALL

from advice.agents.networks import Layer
from advice.agents.td3_sac import TD3, least_value, smoothed_action
from advice.config import TD3Config
from advice.types import Array, Transition

OBS = ACT = Box(-1, 1, (1,), np.float32)


def make() -> TD3:
    agent = TD3(OBS, ACT, SMALL, seed=0)  # as in test_learning.py: compiled once
    rng = np.random.default_rng(0)
    for _ in range(SMALL.batch_size):
        step = Transition(rng.normal(size=1), rng.uniform(-1, 1, 1), 1.0, 0.0, np.zeros(1), False)
        agent.observe(step)
    return agent


def test_the_lower_critic_by_hand() -> None:
    constant = tuple((Layer(jnp.zeros((3, 1)), jnp.array([value])),) for value in (1.0, 3.0))
    found = least_value(constant, jnp.zeros((2, 2)), jnp.zeros((2, 1)))
    np.testing.assert_array_equal(found, [1, 1])


def test_smoothing_is_bounded_twice() -> None:
    action = jnp.full((1000, 1), 0.8)
    smoothed = np.asarray(smoothed_action(jax.random.key(0), action, noise=5.0, limit=0.3))
    assert smoothed.min() == np.float32(0.5)
    assert smoothed.max() == 1.0


def test_actor_and_targets_change_at_every_second_update() -> None:
    agent = make()

    def parts() -> list[list[Array]]:
        learners = (agent.state.actor.network, agent.state.critics.target)
        return [
            [np.array(x) for x in jax.tree.leaves(part)]
            for part in (*learners, agent.state.critics.network)
        ]

    def changed(before: list[list[Array]]) -> list[bool]:
        return [
            any((x != y).any() for x, y in zip(a, b, strict=True))
            for a, b in zip(before, parts(), strict=True)
        ]

    moves = []
    for _ in range(4):
        before = parts()
        agent.learn()
        moves.append(changed(before))
    critics_only, everything = [False, False, True], [True, True, True]
    assert moves == [critics_only, everything, critics_only, everything]


def test_exploration_is_gaussian_around_the_policy() -> None:
    config = dataclasses.replace(SMALL, td3=TD3Config(exploration_noise=0.05))
    agent = TD3(OBS, ACT, config, seed=0)
    obs = np.zeros(1, np.float32)
    actions = np.array([agent.act(obs) for _ in range(2000)])
    np.testing.assert_allclose(actions.mean(), agent.greedy(obs)[0], atol=0.005)
    np.testing.assert_allclose(actions.std(), 0.05, rtol=0.1)


def test_candidates_are_rated_by_the_lower_critic() -> None:
    agent = make()
    obs, actions = np.array([0.3], np.float32), np.linspace(-1, 1, 5)[:, None]
    expected = least_value(
        agent.state.critics.network, jnp.tile(obs, (5, 1)), jnp.asarray(actions, jnp.float32)
    )
    np.testing.assert_allclose(agent.rate_actions(obs, actions), expected, rtol=1e-5)
