"""The contrastive autoencoder: similar features close together, dissimilar ones a margin apart.

Only this module of the shields uses JAX and optax; guarding uses the folded encoder in NumPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from advice.config import ShieldConfig
from advice.shields.encoder import SLOPE, EncoderWeights
from advice.shields.lookahead import padded
from advice.shields.spaces import Bools, Floats, Ints
from advice.types import Array

_BATCH_NORM_MEMORY = 0.95
_BATCH_NORM_EPS = 1e-3
_STEPS = (200, 500)  # gradient steps an epoch takes at least and at most
_NOISE = 2**25  # random bytes on the device at once
_VALIDATION_PAIRS = 1024
_MIN_IMPROVEMENT = 1e-4
_NADAM = optax.scale_by_adam(nesterov=True)

Params = dict[str, Any]


class FitProgress(NamedTuple):
    """What the progress callback gets after each epoch."""

    epoch: int
    max_epochs: int
    loss: float
    validation_loss: float
    learning_rate: float


class FitState(NamedTuple):
    """Everything a gradient step changes."""

    params: Params
    norms: Params  # running mean and variance of the two batch norms
    optimiser: Any


class Pairs(NamedTuple):
    """Pairs of features with their dropout; for many gradient steps, stacked along a first axis."""

    first: Any  # (..., B) row numbers
    second: Any
    similar: Any  # (..., B) 1 if they are of one class, else 0
    noise: Any = None  # (..., 2, 2 B, hidden) random bytes, for encoder and decoder


def contrastive_loss(distance: Any, similar: Any, margin: float, form: str) -> Any:
    """Contrastive loss per pair (Eq. 1); distance and similar are (B,).

    released: y d^2 + (1-y) max(0, m-d)^2. printed: y d^2 + (1-y) max(0, m-d^2), whose gradient
    vanishes at d = 0.
    """
    if form == "released":
        apart = jnp.maximum(0.0, margin - distance) ** 2
    else:
        apart = jnp.maximum(0.0, margin - distance**2)
    return similar * distance**2 + (1.0 - similar) * apart


def fit_autoencoder(
    features: NDArray[np.float32],
    safe: Bools,
    held_out: Bools,
    offset: Floats,
    scale: Floats,
    config: ShieldConfig,
    seed: int,
    progress: Callable[[FitProgress], None] | None = None,
) -> tuple[EncoderWeights, int, float]:
    """Train on scaled (N, d) features not held out; the held-out ones decide when to stop.

    Returns the folded encoder of the best epoch, the number of epochs and the best validation loss.
    """
    rng = np.random.default_rng(seed)
    train, rest = (
        (np.flatnonzero(safe & part), np.flatnonzero(~safe & part))
        for part in (~held_out, held_out)
    )
    validation = sample_pairs(rng, *(rest if min(map(len, rest)) else train), _VALIDATION_PAIRS)
    state = _start(jax.random.key(seed), features.shape[1], config)
    rows = padded(features)
    steps, calls = _plan(int((~held_out).sum()), config)

    rate = config.learning_rate
    best_loss, best_state = np.inf, state
    stale = since_drop = epoch = 0
    for epoch in range(1, config.max_epochs + 1):
        losses = []
        for _ in range(calls):
            state, loss = _descend(state, rows, _batches(rng, *train, steps, config), rate, config)
            losses.append(float(loss))
        validation_loss = float(_validation_loss(state, rows, validation, config))
        if progress is not None:
            loss = float(np.mean(losses))
            progress(FitProgress(epoch, config.max_epochs, loss, validation_loss, rate))
        if validation_loss < best_loss - _MIN_IMPROVEMENT:
            best_loss, best_state, stale, since_drop = validation_loss, state, 0, 0
            continue
        stale, since_drop = stale + 1, since_drop + 1
        if stale >= config.stop_patience:
            break
        if since_drop >= config.plateau_patience:
            rate, since_drop = max(rate * config.plateau_factor, config.min_learning_rate), 0
    return _fold(best_state, offset, scale), epoch, best_loss


def sample_pairs(rng: np.random.Generator, safe: Ints, unsafe: Ints, count: int) -> Pairs:
    """Balanced pairs of rows: half of one class (as many safe as unsafe), half of both.

    The expectation is that of all pairs of the paper's list, with its classes balanced.
    """
    alike = count // 4
    members = [_two_of(rng, safe, alike), _two_of(rng, unsafe, alike)]
    mixed = count - 2 * alike
    members.append((rng.choice(safe, mixed), rng.choice(unsafe, mixed)))
    first, second = (np.concatenate(x).astype(np.int32) for x in zip(*members, strict=True))
    return Pairs(first, second, (np.arange(count) < 2 * alike).astype(np.float32))


def _two_of(rng: np.random.Generator, rows: Ints, count: int) -> tuple[Array, Array]:
    """Uniform ordered pairs of distinct rows (of the one row, if there is just one)."""
    first = rng.integers(len(rows), size=count)
    step = rng.integers(1, max(len(rows), 2), size=count)
    return rows[first], rows[(first + step) % len(rows)]


def _plan(features: int, config: ShieldConfig) -> tuple[int, int]:
    """Gradient steps per call and calls per epoch: about one pair per feature, within bounds."""
    steps = int(np.clip(-(-features // config.fit_batch_size), *_STEPS))
    at_once = max(1, min(steps, _NOISE // (4 * config.fit_batch_size * config.hidden_size)))
    return at_once, -(-steps // at_once)


def _batches(
    rng: np.random.Generator, safe: Ints, unsafe: Ints, steps: int, config: ShieldConfig
) -> Pairs:
    """``steps`` batches, each with its share of every kind of pair."""
    pairs = sample_pairs(rng, safe, unsafe, steps * config.fit_batch_size)
    shape = (steps, 2, 2 * config.fit_batch_size, config.hidden_size)
    words = rng.integers(2**64, size=-(-math.prod(shape) // 8), dtype=np.uint64)
    noise = words.view(np.uint8)[: math.prod(shape)].reshape(shape)
    stacked = (np.ascontiguousarray(x.reshape(-1, steps).T) for x in pairs[:3])
    return Pairs(*stacked)._replace(noise=noise)


def _start(key: Any, size: int, config: ShieldConfig) -> FitState:
    """Glorot-uniform weights, zero biases, unit batch norms.

    Every matrix has the hidden layer as its second axis (w1 and w3 are used transposed): XLA
    computes their gradients several times faster in this layout.
    """
    outer = (size, config.latent_size, config.latent_size, size)
    hidden = config.hidden_size
    glorot = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, 4)
    params: Params = {f"w{i}": glorot(keys[i], (outer[i], hidden), jnp.float32) for i in range(4)}
    biases = (hidden, config.latent_size, hidden, size)
    params |= {f"b{i}": jnp.zeros(biases[i]) for i in range(4)}
    norms: Params = {}
    for part in ("encoder", "decoder"):
        params[f"{part}.scale"], params[f"{part}.shift"] = jnp.ones(hidden), jnp.zeros(hidden)
        norms[part] = jnp.zeros(hidden), jnp.ones(hidden)
    return FitState(params, norms, _NADAM.init(params))


def _hidden(
    x: Any, part: str, layer: int, params: Params, norms: Params, noise: Any, config: ShieldConfig
) -> tuple[Any, Any]:
    """Dense, LeakyReLU, batch norm, dropout; without noise, as in use. Also the new statistics."""
    h = jax.nn.leaky_relu(x @ params[f"w{layer}"] + params[f"b{layer}"], SLOPE)
    mean, variance = running = norms[part]
    if noise is not None:
        old, keep = running, _BATCH_NORM_MEMORY
        mean, variance = h.mean(0), h.var(0)
        running = keep * old[0] + (1 - keep) * mean, keep * old[1] + (1 - keep) * variance
    h = (h - mean) * jax.lax.rsqrt(variance + _BATCH_NORM_EPS)
    h = h * params[f"{part}.scale"] + params[f"{part}.shift"]
    kept = round(256 * (1 - config.dropout))  # a unit is kept if its random byte is below this
    if noise is not None and kept < 256:
        h = jnp.where(noise < kept, h * (256 / kept), 0.0)
    return h, running


def _loss(
    params: Params, norms: Params, rows: Any, pairs: Pairs, config: ShieldConfig
) -> tuple[Any, Params]:
    """Two reconstruction losses plus the contrastive one; with noise, as in training."""
    x = rows[jnp.concatenate([pairs.first, pairs.second])]
    encoder_noise, decoder_noise = (None, None) if pairs.noise is None else pairs.noise
    h, encoder_norm = _hidden(x, "encoder", 0, params, norms, encoder_noise, config)
    z = h @ params["w1"].T + params["b1"]
    h, decoder_norm = _hidden(z, "decoder", 2, params, norms, decoder_noise, config)
    y = h @ params["w3"].T + params["b3"]
    # The mean over both members at once is half the sum of the two losses.
    reconstruction = 2.0 * jnp.mean((y - x) ** 2)
    z_first, z_second = jnp.split(z, 2)
    distance = jnp.sqrt(jnp.sum((z_first - z_second) ** 2, axis=1) + 1e-12)
    contrastive = contrastive_loss(distance, pairs.similar, config.margin, config.contrastive_form)
    total = config.reconstruction_weight * reconstruction
    total += config.contrastive_weight * contrastive.mean()
    if pairs.noise is not None:
        total += config.l2 * sum(jnp.sum(params[f"w{i}"] ** 2) for i in range(4))
    return total, {"encoder": encoder_norm, "decoder": decoder_norm}


@functools.partial(jax.jit, static_argnames="config")
def _descend(
    state: FitState, rows: Any, batches: Pairs, rate: float, config: ShieldConfig
) -> tuple[FitState, Any]:
    """One gradient step per batch; the mean loss beside the new state."""

    def step(state: FitState, pairs: Pairs) -> tuple[FitState, Any]:
        (loss, norms), gradient = jax.value_and_grad(_loss, has_aux=True)(
            state.params, state.norms, rows, pairs, config
        )
        update, optimiser = _NADAM.update(gradient, state.optimiser)
        params = jax.tree.map(lambda p, u: p - rate * u, state.params, update)
        return FitState(params, norms, optimiser), loss

    state, losses = jax.lax.scan(step, state, batches)
    return state, losses.mean()


@functools.partial(jax.jit, static_argnames="config")
def _validation_loss(state: FitState, rows: Any, pairs: Pairs, config: ShieldConfig) -> Any:
    return _loss(state.params, state.norms, rows, pairs, config)[0]


def _fold(state: FitState, offset: Floats, scale: Floats) -> EncoderWeights:
    """Batch norm is affine and comes after the activation, so it folds into the next layer."""
    params = {name: np.asarray(value, np.float64) for name, value in state.params.items()}
    mean, variance = (np.asarray(x, np.float64) for x in state.norms["encoder"])
    gain = params["encoder.scale"] / np.sqrt(variance + _BATCH_NORM_EPS)
    shift = params["encoder.shift"] - mean * gain
    w2, b2 = (params["w1"] * gain).T, params["b1"] + params["w1"] @ shift
    return EncoderWeights(offset, scale, params["w0"], params["b0"], w2, b2)
