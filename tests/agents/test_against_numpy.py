"""One update of each agent at its real sizes against the same update by hand in NumPy float64.

A compiler that sums wrongly shows here: a gradient that misses one of the 64 transitions is off by
about 1e-2, and float32 by about 1e-6.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from gymnasium.spaces import Box

from advice.agents.agent import Agent, Batch, as_batch
from advice.agents.networks import Layer, Learner, next_key
from advice.agents.td3_sac import LOG_STD
from advice.config import AgentConfig
from advice.runs.methods import AGENTS
from advice.types import Array, Transition
from marks import slow_but

BATCH = 64
CONFIG = AgentConfig(warmup_steps=0, replay_capacity=200)


class Sizes(NamedTuple):
    obs: int
    act: int
    hidden: int = 256


NAVIGATION = {"goal": Sizes(32, 2), "button": Sizes(64, 2)}
FOREIGN = {
    "LunarLander": Sizes(8, 2, 128),
    "BipedalWalker": Sizes(24, 4, 128),
    "Walker2d": Sizes(17, 6, 128),
    "Ant": Sizes(105, 8, 128),
    "InvertedDoublePendulum": Sizes(9, 1, 128),
}
SIZES = {**NAVIGATION, **FOREIGN}
CASES = [*((name, task) for task in NAVIGATION for name in AGENTS), *(("sac", x) for x in FOREIGN)]
FAST = [(name, "goal") for name in ("ddpg", "ddpg-lag", "rcpo")]


def forward(network: Any, x: Array) -> tuple[Array, list[Array]]:
    """The network's output, and the input of every layer."""
    inputs = [x]
    for layer in network[:-1]:
        inputs.append(np.maximum(inputs[-1] @ layer.weight + layer.bias, 0))
    return inputs[-1] @ network[-1].weight + network[-1].bias, inputs


def backward(network: Any, inputs: list[Array], slope: Array) -> tuple[Any, Array]:
    """The gradients of the layers and of the input, from that of the output."""
    layers: list[Layer] = []
    for index in reversed(range(len(network))):
        layers.insert(0, Layer(inputs[index].T @ slope, slope.sum(axis=0)))
        slope = slope @ network[index].weight.T
        if index:
            slope = slope * (inputs[index] > 0)
    return tuple(layers), slope


def value(critic: Any, obs: Array, action: Array) -> tuple[Array, list[Array]]:
    output, inputs = forward(critic, np.concatenate([obs, action], axis=1))
    return output[:, 0], inputs


def weights_slope(critic: Any, inputs: list[Array], slope: Array) -> Any:
    return backward(critic, inputs, slope[:, None])[0]


def action_slope(critic: Any, inputs: list[Array], slope: Array, act: int) -> Array:
    return backward(critic, inputs, slope[:, None])[1][:, -act:]


def adam(learner: Learner, gradient: Any, rate: float) -> Learner:
    moments, rest = learner.optimiser[0], learner.optimiser[1:]
    count = int(moments.count) + 1
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments.mu, gradient)
    nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, moments.nu, gradient)
    network = jax.tree.map(
        lambda w, m, v: (
            w - rate * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
        ),
        learner.network,
        mu,
        nu,
    )
    return learner._replace(
        network=network, optimiser=(moments._replace(count=count, mu=mu, nu=nu), *rest)
    )


def lag_behind(learner: Learner, tau: float) -> Learner:
    target = jax.tree.map(
        lambda old, new: (1 - tau) * old + tau * new, learner.target, learner.network
    )
    return learner._replace(target=target)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def critic_step(critic: Learner, actor: Learner, batch: Batch, signal: Array) -> Learner:
    next_action = np.tanh(forward(actor.target, batch.next_obs)[0])
    next_value = value(critic.target, batch.next_obs, next_action)[0]
    target = signal + CONFIG.gamma * (1 - batch.terminated) * next_value
    found, inputs = value(critic.network, batch.obs, batch.action)
    gradient = weights_slope(critic.network, inputs, 2 * (found - target) / len(target))
    return lag_behind(adam(critic, gradient, CONFIG.critic_learning_rate), CONFIG.tau)


def actor_step(actor: Learner, batch: Batch, slope_at: Any) -> Learner:
    """``slope_at(action)`` is the gradient of the loss in the actions."""
    output, inputs = forward(actor.network, batch.obs)
    action = np.tanh(output)
    gradient, _ = backward(actor.network, inputs, slope_at(action) * (1 - action**2))
    return lag_behind(adam(actor, gradient, CONFIG.actor_learning_rate), CONFIG.tau)


def value_slope(critic: Any, batch: Batch, action: Array) -> Array:
    """d mean Q(s, a) / da."""
    _, inputs = value(critic, batch.obs, action)
    return action_slope(critic, inputs, np.full(len(action), 1 / len(action)), action.shape[1])


def ddpg(state: Any, batch: Batch, keys: Any) -> Any:
    critic = critic_step(state.critic, state.actor, batch, batch.reward)
    actor = actor_step(state.actor, batch, lambda a: -value_slope(critic.network, batch, a))
    return state._replace(actor=actor, critic=critic)


def rcpo(state: Any, batch: Batch, keys: Any, multiplier: float) -> Any:
    return ddpg(state, batch._replace(reward=batch.reward - multiplier * batch.cost), keys)


def ddpg_lag(state: Any, batch: Batch, keys: Any, multiplier: float) -> Any:
    critic = critic_step(state.critic, state.actor, batch, batch.reward)
    cost_critic = critic_step(state.cost_critic, state.actor, batch, batch.cost)

    def slope_at(action: Array) -> Array:
        dangerous = multiplier * value_slope(cost_critic.network, batch, action)
        return (dangerous - value_slope(critic.network, batch, action)) / (1 + multiplier)

    actor = actor_step(state.actor, batch, slope_at)
    return state._replace(actor=actor, critic=critic, cost_critic=cost_critic)


def csc(state: Any, batch: Batch, keys: Any, multiplier: float) -> Any:
    settings, act = CONFIG.csc, batch.action.shape[1]
    critic = critic_step(state.critic, state.actor, batch, batch.reward)

    noise_key, uniform_key = jax.random.split(keys)
    states = batch.obs[: settings.conservative_states]
    shape = (len(states), settings.conservative_actions, act)
    noise = np.asarray(jax.random.normal(noise_key, shape), np.float64)
    near = np.tanh(forward(state.actor.network, states)[0])[:, None] + settings.draw_noise * noise
    uniform = np.asarray(jax.random.uniform(uniform_key, shape, minval=-1), np.float64)
    drawn = np.concatenate([np.clip(near, -1, 1), uniform], axis=1)

    network, old_target = state.safety_critic.network, state.safety_critic.target
    next_action = np.tanh(forward(state.actor.target, batch.next_obs)[0])
    next_danger = sigmoid(value(old_target, batch.next_obs, next_action)[0])
    failed = (batch.cost > 0).astype(np.float64)
    target = failed + (1 - failed) * settings.gamma * (1 - batch.terminated) * next_danger
    logit, inputs = value(network, batch.obs, batch.action)
    danger, weight = sigmoid(logit), settings.conservative_weight
    slope = danger * (1 - danger) * (danger - target + weight) / len(target)
    on_data = weights_slope(network, inputs, slope)
    repeated = np.repeat(states, drawn.shape[1], axis=0)
    logit, inputs = value(network, repeated, drawn.reshape(-1, act))
    danger = sigmoid(logit)
    on_policy = weights_slope(network, inputs, -weight * danger * (1 - danger) / len(danger))
    gradient = jax.tree.map(np.add, on_data, on_policy)
    safety_critic = adam(state.safety_critic, gradient, settings.learning_rate)
    safety_critic = lag_behind(safety_critic, settings.tau)

    def slope_at(action: Array) -> Array:
        logit, inputs = value(safety_critic.network, batch.obs, action)
        danger = sigmoid(logit)
        slope = danger * (1 - danger) / len(danger)
        dangerous = multiplier * action_slope(safety_critic.network, inputs, slope, act)
        return (dangerous - value_slope(critic.network, batch, action)) / (1 + multiplier)

    actor = actor_step(state.actor, batch, slope_at)
    return state._replace(actor=actor, critic=critic, safety_critic=safety_critic)


def twin_step(critics: Learner, batch: Batch, next_value: Array) -> Learner:
    target = batch.reward + CONFIG.gamma * (1 - batch.terminated) * next_value
    gradients = []
    for critic in critics.network:
        found, inputs = value(critic, batch.obs, batch.action)
        gradients.append(weights_slope(critic, inputs, 2 * (found - target) / len(target)))
    return adam(critics, tuple(gradients), CONFIG.critic_learning_rate)


def least(critics: Any, obs: Array, action: Array) -> Array:
    return np.minimum(value(critics[0], obs, action)[0], value(critics[1], obs, action)[0])


def td3(state: Any, batch: Batch, keys: Any) -> Any:
    next_action = np.tanh(forward(state.actor.target, batch.next_obs)[0])
    noise = np.asarray(jax.random.normal(keys, next_action.shape), np.float64)
    limit = CONFIG.td3.target_noise_limit
    next_action = next_action + np.clip(CONFIG.td3.target_noise * noise, -limit, limit)
    next_value = least(state.critics.target, batch.next_obs, np.clip(next_action, -1, 1))
    critics = twin_step(state.critics, batch, next_value)
    first = critics.network[0]
    actor = actor_step(state.actor, batch, lambda a: -value_slope(first, batch, a))
    return state._replace(actor=actor, critics=lag_behind(critics, CONFIG.tau))


def sac(state: Any, batch: Batch, keys: Any) -> Any:
    temperature = np.exp(state.log_temperature.network)
    target_key, actor_key = jax.random.split(keys)

    def draw(obs: Array, key: Any) -> tuple[Array, ...]:
        output, inputs = forward(state.actor.network, obs)
        mean, raw = np.split(output, 2, axis=1)
        log_std = np.clip(raw, *LOG_STD)
        noise = np.asarray(jax.random.normal(key, mean.shape), np.float64)
        u = mean + np.exp(log_std) * noise
        gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
        log_density = (gaussian - np.log(1 - np.tanh(u) ** 2)).sum(axis=1)
        return np.tanh(u), log_density, noise * np.exp(log_std), raw == log_std, inputs

    next_action, next_log, *_ = draw(batch.next_obs, target_key)
    next_value = least(state.critics.target, batch.next_obs, next_action)
    critics = twin_step(state.critics, batch, next_value - temperature * next_log)

    action, log_density, spread, inside, inputs = draw(batch.obs, actor_key)
    values, tapes = zip(
        *(value(critic, batch.obs, action) for critic in critics.network), strict=True
    )
    lower = values[0] < values[1]
    slope_of_action = sum(
        action_slope(critic, tape, chosen / len(action), action.shape[1])
        for critic, tape, chosen in zip(critics.network, tapes, (lower, ~lower), strict=True)
    )
    slope_of_u = 2 * temperature * action / len(action) - slope_of_action * (1 - action**2)
    slope_of_log_std = (slope_of_u * spread - temperature / len(action)) * inside
    slope = np.concatenate([slope_of_u, slope_of_log_std], axis=1)
    gradient, _ = backward(state.actor.network, inputs, slope)
    surplus = action.shape[1] - log_density.mean()
    rate = CONFIG.sac.temperature_learning_rate
    return state._replace(
        actor=adam(state.actor, gradient, CONFIG.actor_learning_rate),
        critics=lag_behind(critics, CONFIG.tau),
        log_temperature=adam(state.log_temperature, surplus, rate),
    )


BY_HAND = {"ddpg": ddpg, "ddpg-lag": ddpg_lag, "rcpo": rcpo, "csc": csc, "td3": td3, "sac": sac}


def experienced(name: str, sizes: Sizes) -> Agent:
    """An agent after five updates, so that Adam's moments and the targets are in use."""
    config = dataclasses.replace(CONFIG, hidden_size=sizes.hidden)
    agent = AGENTS[name](Box(0, 1, (sizes.obs,)), Box(-1, 1, (sizes.act,)), config, seed=1)
    rng = np.random.default_rng(2)
    for step in range(200):
        seen = rng.random((2, sizes.obs))
        crash = step % 9 == 0
        reward, cost = rng.normal(), 0.2 * crash
        action = rng.uniform(-1, 1, sizes.act)
        agent.observe(Transition(seen[0], action, reward, cost, seen[1], crash))
    agent.multiplier = 0.7  # after the rewards and costs were stored
    for _ in range(5):
        agent.learn()
    return agent


def check_equal(found: Any, expected: Any, before: Any) -> None:
    """Adam's moments, which hold the gradients, to 2e-5; steps of weights and targets to 3e-4.

    Float32 itself is off by 1e-6 and 2e-5.
    """
    for learner in (name for name in found._fields if name != "clock"):
        ours, theirs, old = (getattr(state, learner) for state in (found, expected, before))
        for moment in ("mu", "nu"):
            pair = (getattr(x.optimiser[0], moment) for x in (ours, theirs))
            for x, y in zip(*map(jax.tree.leaves, pair), strict=True):
                assert np.linalg.norm(x - y) <= 2e-5 * np.linalg.norm(y), (learner, moment)
        for part in ("network", "target"):
            three = (jax.tree.leaves(getattr(x, part)) for x in (ours, theirs, old))
            for x, y, z in zip(*three, strict=True):
                rounding = 1e-7 * np.linalg.norm(y)
                assert np.linalg.norm(x - y) <= 3e-4 * np.linalg.norm(y - z) + rounding, (
                    learner,
                    part,
                )


@pytest.mark.parametrize(("name", "task"), slow_but(FAST, CASES))
def test_an_update_is_the_one_worked_out_in_float64(name: str, task: str) -> None:
    sizes = SIZES[task]
    agent = experienced(name, sizes)
    first, second, _ = agent.state.actor.network
    assert (first.weight.shape, second.weight.shape) == (
        (sizes.obs, sizes.hidden),
        (sizes.hidden, sizes.hidden),
    )
    rows = agent.replay.sample(np.random.default_rng(3), BATCH)
    before = jax.tree.map(lambda x: np.array(x, np.float64), agent.state)
    keys = next_key(agent.state.clock)[0] if hasattr(agent.state, "clock") else None
    found = agent._update(agent.state, rows, *agent.update_inputs())

    batch = Batch(*(np.asarray(column, np.float64) for column in as_batch(rows, sizes.obs)))
    inputs = [float(x) for x in agent.update_inputs()]
    check_equal(found, BY_HAND[name](before, batch, keys, *inputs), before)
    without_one = Batch(*(np.concatenate([column[:-1], column[:1]]) for column in batch))
    with pytest.raises(AssertionError):
        check_equal(found, BY_HAND[name](before, without_one, keys, *inputs), before)
