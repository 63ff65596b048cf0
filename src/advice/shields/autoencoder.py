"""The contrastive autoencoder: similar features close together, dissimilar ones a margin apart.

JAX and optax live here alone and only while fitting; guarding uses the folded encoder in NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from advice.config import ShieldConfig
from advice.shields.encoder import SLOPE, EncoderWeights, Floats

_BATCH_NORM_MEMORY = 0.95
_BATCH_NORM_EPS = 1e-3
_MAX_STEPS = 500  # gradient steps an epoch takes at most
_VALIDATION_PAIRS = 1024
_MIN_IMPROVEMENT = 1e-4

Params = dict[str, Any]


class FitProgress(NamedTuple):
    """What the progress callback is told after each epoch."""

    epoch: int
    max_epochs: int
    loss: float
    validation_loss: float
    learning_rate: float


class FitState(NamedTuple):
    """Everything a gradient step changes."""

    params: Params
    norms: Params
    """Running mean and variance of the two batch norms."""
    optimiser: Any
    key: Any


class Data(NamedTuple):
    """The features on the device, and where each class is."""

    features: Any
    """(N, d) scaled."""
    safe: Any
    """(S,) indices of the safe ones."""
    unsafe: Any
    """(U,) indices of the unsafe ones."""


class Pairs(NamedTuple):
    """Two features a row, and whether they are of one class."""

    first: Any
    second: Any
    similar: Any


def contrastive_loss(distance: Any, similar: Any, margin: float, form: str) -> Any:
    """Contrastive loss per pair (Eq. 1); distance and similar are (B,).

    released: y d^2 + (1-y) max(0, m-d)^2. printed: y d^2 + (1-y) max(0, m-d^2), whose gradient
    vanishes at d = 0.
    """
    apart = (
        jnp.maximum(0.0, margin - distance) ** 2
        if form == "released"
        else jnp.maximum(0.0, margin - distance**2)
    )
    return similar * distance**2 + (1.0 - similar) * apart


def fit_autoencoder(
    features: NDArray[np.float32],
    safe: NDArray[np.bool_],
    held_out: NDArray[np.bool_],
    centre: Floats,
    reach: Floats,
    config: ShieldConfig,
    seed: int,
    progress: Callable[[FitProgress], None] | None = None,
) -> tuple[EncoderWeights, int, float]:
    """Train on scaled (N, d) features not held out; the held-out ones decide when to stop.

    Returns the folded encoder of the best epoch, the number of epochs and the best validation loss.
    """
    train, rest = _data(features, safe, ~held_out), _data(features, safe, held_out)
    validate_on = rest if min(len(rest.safe), len(rest.unsafe)) > 0 else train
    key, pairs_key, start_key = jax.random.split(jax.random.key(seed), 3)
    validation = _sample_pairs(pairs_key, validate_on, _VALIDATION_PAIRS)
    state = _start(start_key, key, features.shape[1], config)
    steps = min(_MAX_STEPS, -(-int((~held_out).sum()) // config.fit_batch_size))

    rate = config.learning_rate
    best_loss, best_state = np.inf, state
    stale = since_drop = epoch = 0
    for epoch in range(1, config.max_epochs + 1):
        state, loss = _epoch(state, train, rate, steps, config)
        validation_loss = float(_validation_loss(state, validation, config))
        if progress is not None:
            progress(FitProgress(epoch, config.max_epochs, float(loss), validation_loss, rate))
        if validation_loss < best_loss - _MIN_IMPROVEMENT:
            best_loss, best_state, stale, since_drop = validation_loss, state, 0, 0
            continue
        stale, since_drop = stale + 1, since_drop + 1
        if stale >= config.stop_patience:
            break
        if since_drop >= config.plateau_patience:
            rate, since_drop = max(rate * config.plateau_factor, config.min_learning_rate), 0
    return _fold(best_state, centre, reach), epoch, best_loss


def _data(features: NDArray[np.float32], safe: NDArray[np.bool_], part: NDArray[np.bool_]) -> Data:
    return Data(
        jnp.asarray(features),
        jnp.asarray(np.flatnonzero(safe & part)),
        jnp.asarray(np.flatnonzero(~safe & part)),
    )


def _sample_pairs(key: Any, data: Data, count: int) -> Pairs:
    """Balanced pairs: a quarter safe-safe, a quarter unsafe-unsafe, half of one each."""
    alike = count // 4
    keys = jax.random.split(key, 4)
    first_safe, second_safe = _two_of(keys[0], data.safe, alike)
    first_unsafe, second_unsafe = _two_of(keys[1], data.unsafe, alike)
    mixed = count - 2 * alike
    one = jax.random.choice(keys[2], data.safe, (mixed,))
    other = jax.random.choice(keys[3], data.unsafe, (mixed,))
    first = jnp.concatenate([first_safe, first_unsafe, one])
    second = jnp.concatenate([second_safe, second_unsafe, other])
    similar = (jnp.arange(count) < 2 * alike).astype(jnp.float32)
    return Pairs(data.features[first], data.features[second], similar)


def _two_of(key: Any, members: Any, count: int) -> tuple[Any, Any]:
    """Uniform ordered pairs of distinct members (of the one member, if there is just one)."""
    first_key, step_key = jax.random.split(key)
    first = jax.random.randint(first_key, (count,), 0, len(members))
    step = jax.random.randint(step_key, (count,), 1, max(len(members), 2))
    return members[first], members[(first + step) % len(members)]


def _start(start_key: Any, key: Any, size: int, config: ShieldConfig) -> FitState:
    """Glorot-uniform weights, zero biases, unit batch norms."""
    widths = (size, config.hidden_size, config.latent_size, config.hidden_size, size)
    glorot = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(start_key, 4)
    params: Params = {
        f"w{i}": glorot(keys[i], (widths[i], widths[i + 1]), jnp.float32) for i in range(4)
    }
    params |= {f"b{i}": jnp.zeros(widths[i + 1]) for i in range(4)}
    for part in ("encoder", "decoder"):
        params[f"{part}.scale"] = jnp.ones(config.hidden_size)
        params[f"{part}.shift"] = jnp.zeros(config.hidden_size)
    norms: Params = {
        part: (jnp.zeros(config.hidden_size), jnp.ones(config.hidden_size))
        for part in ("encoder", "decoder")
    }
    return FitState(params, norms, _nadam().init(params), key)


def _nadam() -> Any:
    return optax.scale_by_adam(nesterov=True)


def _hidden(
    x: Any, part: str, layer: int, params: Params, norms: Params, key: Any, dropout: float
) -> tuple[Any, Any]:
    """Dense, LeakyReLU, batch norm, dropout; with no key, as in use. Also the new statistics."""
    h = jax.nn.leaky_relu(x @ params[f"w{layer}"] + params[f"b{layer}"], SLOPE)
    mean, variance = norms[part]
    if key is not None:
        batch_mean, batch_variance = h.mean(0), h.var(0)
        keep = _BATCH_NORM_MEMORY
        running = (
            keep * mean + (1 - keep) * batch_mean,
            keep * variance + (1 - keep) * batch_variance,
        )
        mean, variance = batch_mean, batch_variance
    else:
        running = (mean, variance)
    h = (h - mean) * jax.lax.rsqrt(variance + _BATCH_NORM_EPS)
    h = h * params[f"{part}.scale"] + params[f"{part}.shift"]
    if key is not None:
        h = jnp.where(jax.random.bernoulli(key, 1 - dropout, h.shape), h / (1 - dropout), 0.0)
    return h, running


def _loss(
    params: Params, norms: Params, pairs: Pairs, key: Any, config: ShieldConfig
) -> tuple[Any, Params]:
    """Two reconstruction losses plus the contrastive one; with a key, as in training."""
    keys = (None, None) if key is None else jax.random.split(key)
    x = jnp.concatenate([pairs.first, pairs.second])
    h, encoder_norm = _hidden(x, "encoder", 0, params, norms, keys[0], config.dropout)
    z = h @ params["w1"] + params["b1"]
    h, decoder_norm = _hidden(z, "decoder", 2, params, norms, keys[1], config.dropout)
    y = h @ params["w3"] + params["b3"]
    # The mean over both members at once is half the sum of the two losses.
    reconstruction = 2.0 * jnp.mean((y - x) ** 2)
    z_first, z_second = jnp.split(z, 2)
    distance = jnp.sqrt(jnp.sum((z_first - z_second) ** 2, axis=1) + 1e-12)
    contrastive = contrastive_loss(distance, pairs.similar, config.margin, config.contrastive_form)
    total = (
        config.reconstruction_weight * reconstruction
        + config.contrastive_weight * contrastive.mean()
    )
    if key is not None:
        total += config.l2 * sum(jnp.sum(params[f"w{i}"] ** 2) for i in range(4))
    return total, {"encoder": encoder_norm, "decoder": decoder_norm}


@functools.partial(jax.jit, static_argnames=("steps", "config"))
def _epoch(
    state: FitState, data: Data, rate: float, steps: int, config: ShieldConfig
) -> tuple[FitState, Any]:
    """``steps`` gradient steps on freshly sampled pairs; the mean loss beside the new state."""

    def step(state: FitState, _: None) -> tuple[FitState, Any]:
        key, pairs_key, dropout_key = jax.random.split(state.key, 3)
        pairs = _sample_pairs(pairs_key, data, config.fit_batch_size)
        (loss, norms), gradient = jax.value_and_grad(_loss, has_aux=True)(
            state.params, state.norms, pairs, dropout_key, config
        )
        update, optimiser = _nadam().update(gradient, state.optimiser)
        params = jax.tree.map(lambda p, u: p - rate * u, state.params, update)
        return FitState(params, norms, optimiser, key), loss

    state, losses = jax.lax.scan(step, state, None, length=steps)
    return state, losses.mean()


@functools.partial(jax.jit, static_argnames="config")
def _validation_loss(state: FitState, pairs: Pairs, config: ShieldConfig) -> Any:
    return _loss(state.params, state.norms, pairs, None, config)[0]


def _fold(state: FitState, centre: Floats, reach: Floats) -> EncoderWeights:
    """Batch norm is affine and comes after the activation, so it folds into the next layer."""
    params = {name: np.asarray(value, np.float64) for name, value in state.params.items()}
    mean, variance = (np.asarray(x, np.float64) for x in state.norms["encoder"])
    scale = params["encoder.scale"] / np.sqrt(variance + _BATCH_NORM_EPS)
    shift = params["encoder.shift"] - mean * scale
    return EncoderWeights(
        centre,
        reach,
        params["w0"],
        params["b0"],
        scale[:, None] * params["w1"],
        params["b1"] + shift @ params["w1"],
    )
