"""Small fully connected networks: initialised and differentiated in JAX, evaluated in NumPy."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from advice.types import Array


class Layer(NamedTuple):
    """One dense layer: x -> x @ weight + bias."""

    weight: Any  # (inputs, outputs)
    bias: Any  # (outputs,)


Network = tuple[Layer, ...]


def init_network(key: Any, sizes: Sequence[int], last: float | None = None) -> Network:
    """Glorot-uniform layers of the given sizes; ``last`` draws the final one from ±last instead."""
    layers = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        key, weight_key = jax.random.split(key)
        limit = np.sqrt(6 / (inputs + outputs))
        if last is not None and index == len(sizes) - 2:
            limit = last
        weight = jax.random.uniform(weight_key, (inputs, outputs), jnp.float32, -limit, limit)
        layers.append(Layer(weight, jnp.zeros(outputs, jnp.float32)))
    return tuple(layers)


def init_actor(key: Any, obs_size: int, outputs: int, hidden: int) -> Network:
    """An untrained policy; its last layer is within ±0.003, so its actions start near zero."""
    return init_network(key, (obs_size, hidden, hidden, outputs), last=0.003)


def init_critic(key: Any, obs_size: int, action_size: int, hidden: int) -> Network:
    """An untrained Q(s, a)."""
    return init_network(key, (obs_size + action_size, hidden, hidden, 1))


def apply(network: Network, x: Any, relu: Any = jax.nn.relu) -> Any:
    """The network's output for a batch (n, inputs), with ReLU between the layers."""
    for layer in network[:-1]:
        x = relu(x @ layer.weight + layer.bias)
    return x @ network[-1].weight + network[-1].bias


def actor_action(actor: Network, obs: Any) -> Any:
    """Deterministic policy: actions in [-1, 1], shape (n, action size)."""
    return jnp.tanh(apply(actor, obs))


def critic_value(critic: Network, obs: Any, action: Any) -> Any:
    """Q(s, a) for a batch, shape (n,)."""
    return apply(critic, jnp.concatenate([obs, action], axis=-1))[:, 0]


def critic_values(critic: Network, obs: Any, actions: Any, relu: Any = jax.nn.relu) -> Any:
    """Q(s, a) of many actions (..., m, action size) per state (..., obs size), shape (..., m).

    The state's share of the first layer is computed once.
    """
    first, size = critic[0], obs.shape[-1]
    shared = obs @ first.weight[:size] + first.bias
    hidden = relu(shared[..., None, :] + actions @ first.weight[size:])
    values = apply(critic[1:], hidden.reshape(-1, hidden.shape[-1]), relu)
    return values.reshape(actions.shape[:-1])


def _relu_numpy(x: Array) -> Array:
    return np.maximum(x, 0)


apply_numpy = functools.partial(apply, relu=_relu_numpy)
"""The same function as :func:`apply`, in NumPy."""
rate_numpy = functools.partial(critic_values, relu=_relu_numpy)
"""The same function as :func:`critic_values`, in NumPy."""


class Learner(NamedTuple):
    """A network (or several with one loss), the state of Adam, and a target that lags behind."""

    network: Any
    optimiser: Any
    target: Any = None


def init_learner(network: Any, target: bool = True) -> Learner:
    """An untrained learner."""
    copy = jax.tree.map(jnp.copy, network) if target else None
    return Learner(network, optax.adam(0.0).init(network), copy)


def descend(learner: Learner, loss: Any, learning_rate: float) -> Learner:
    """One Adam step down ``loss(network)``; the target does not change."""
    gradient = jax.grad(loss)(learner.network)
    change, optimiser = optax.adam(learning_rate).update(gradient, learner.optimiser)
    network = optax.apply_updates(learner.network, change)
    return learner._replace(network=network, optimiser=optimiser)


def update_target(learner: Learner, tau: float) -> Learner:
    """target + tau * (network - target), for every weight."""
    moved = jax.tree.map(lambda old, new: old + tau * (new - old), learner.target, learner.network)
    return learner._replace(target=moved)


def init_clock(key: Any) -> Any:
    """The source of an update's random keys, as two int32: a seed and the number of updates."""
    return jnp.stack([jax.random.randint(key, (), 0, 2**31 - 1), jnp.int32(0)])


def next_key(clock: Any) -> tuple[Any, Any]:
    """A key for this update alone, and the clock for the next one."""
    return jax.random.fold_in(jax.random.key(clock[0]), clock[1]), clock.at[1].add(1)
