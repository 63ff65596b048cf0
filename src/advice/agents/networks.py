"""Small fully connected networks: initialised and differentiated in JAX, run in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
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
    for index, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        key, weight_key = jax.random.split(key)
        limit = np.sqrt(6 / (inputs + outputs))
        if last is not None and index == len(sizes) - 2:
            limit = last
        weight = jax.random.uniform(weight_key, (inputs, outputs), jnp.float32, -limit, limit)
        layers.append(Layer(weight, jnp.zeros(outputs, jnp.float32)))
    return tuple(layers)


def apply(network: Network, x: Any) -> Any:
    """The network's output for a batch (n, inputs), with ReLU between the layers."""
    for layer in network[:-1]:
        x = jax.nn.relu(x @ layer.weight + layer.bias)
    return x @ network[-1].weight + network[-1].bias


def actor_action(actor: Network, obs: Any) -> Any:
    """Deterministic policy: actions in [-1, 1], shape (n, action size)."""
    return jnp.tanh(apply(actor, obs))


def critic_value(critic: Network, obs: Any, action: Any) -> Any:
    """Q(s, a) for a batch, shape (n,)."""
    return apply(critic, jnp.concatenate([obs, action], axis=-1))[:, 0]


def soft_update(target: Any, online: Any, tau: float) -> Any:
    """target + tau * (online - target), for every weight."""
    return jax.tree.map(lambda old, new: old + tau * (new - old), target, online)


def init_actor_critic(
    key: Any, obs_size: int, action_size: int, hidden: int
) -> tuple[Network, Network]:
    """A fresh actor (last layer within ±0.003, so it starts near zero) and critic."""
    actor_key, critic_key = jax.random.split(key)
    actor = init_network(actor_key, (obs_size, hidden, hidden, action_size), last=0.003)
    critic = init_network(critic_key, (obs_size + action_size, hidden, hidden, 1))
    return actor, critic


def descend(
    loss: Any, network: Network, optimiser: Any, learning_rate: float
) -> tuple[Network, Any]:
    """One Adam step down ``loss``: the moved network and the optimiser's new memory."""
    gradient = jax.grad(loss)(network)
    change, optimiser = adam(learning_rate).update(gradient, optimiser)
    return optax.apply_updates(network, change), optimiser


def adam(learning_rate: float) -> Any:
    """The optimiser of every network here."""
    return optax.adam(learning_rate)


def to_numpy(network: Network) -> Network:
    """A copy of the weights that NumPy owns (updates recycle JAX's own memory)."""
    return tuple(Layer(np.array(weight), np.array(bias)) for weight, bias in network)


def apply_numpy(network: Network, x: Array) -> Array:
    """The same function as :func:`apply`, in NumPy."""
    for layer in network[:-1]:
        x = np.maximum(x @ layer.weight + layer.bias, 0)
    return np.asarray(x @ network[-1].weight + network[-1].bias)


def rate_numpy(critic: Network, obs: Array, actions: Array) -> Array:
    """Q(s, a) for one state and many actions (n, action size); the state enters layer one once."""
    first = critic[0]
    shared = obs @ first.weight[: len(obs)] + first.bias
    hidden = np.maximum(actions @ first.weight[len(obs) :] + shared, 0)
    return apply_numpy(critic[1:], hidden)[:, 0]
