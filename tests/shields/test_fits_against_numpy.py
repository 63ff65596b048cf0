"""The shield's fits at their real sizes against the same fits by hand in NumPy float64.

A compiler that sums wrongly shows here: most arrays have to differ from what they would be if one
row, pair or action were another one.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from advice.config import PRESETS, ShieldConfig
from advice.shields import autoencoder, lookahead
from advice.shields.encoder import SLOPE
from advice.shields.fit import MOST_SPREAD
from advice.shields.lookahead import BETTER, DANGER_SIZES, padded
from advice.types import Array
from marks import slow_but


class Sizes(NamedTuple):
    obs: int
    act: int
    curves: int


NAVIGATION = {
    "goal": Sizes(32, 2, 18),
    "goal, all curves": Sizes(32, 2, 32),
    "button": Sizes(64, 2, 46),
    "button, all curves": Sizes(64, 2, 64),
}
FOREIGN = {
    "LunarLander": Sizes(8, 2, 8),
    "BipedalWalker": Sizes(24, 4, 24),
    "Walker2d": Sizes(17, 6, 17),
    "Ant": Sizes(105, 8, 105),
    "InvertedDoublePendulum": Sizes(9, 1, 9),
}
SIZES = {**NAVIGATION, **FOREIGN}
ROWS, STEPS = 20_000, 20
CONFIG, PAPER = ShieldConfig(), PRESETS["paper"]


def errors(found: Any, expected: Any) -> list[float]:
    """The relative error of each array of a tree, in its norm."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return [float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs]


def check(found: Any, expected: Any, with_another: Any, tolerance: float) -> None:
    assert all(error <= tolerance for error in errors(found, expected))
    assert np.median(errors(found, with_another)) > tolerance


def in_float64(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.array(x, np.float64), tree)


def minus(one: Any, other: Any) -> Any:
    return jax.tree.map(np.subtract, one, other)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def cross_entropy(logit: Array, value: Array) -> tuple[float, Array]:
    """The mean, and its gradient in the logits."""
    loss = np.mean(np.logaddexp(0, logit) - value * logit)
    return float(loss), (sigmoid(logit) - value) / len(value)


def leaky(x: Array) -> Array:
    return np.where(x > 0, x, SLOPE * x)


def leaky_slope(x: Array) -> Array:
    return np.where(x > 0, 1.0, SLOPE)


# -- look-ahead fits -----------------------------------------------------------------------------


def forward(layers: Any, x: Array) -> tuple[Array, list[Array]]:
    """The network's output, and the input of every layer."""
    inputs = [x]
    for weight, bias in layers[:-1]:
        inputs.append(leaky(inputs[-1] @ weight + bias))
    return inputs[-1] @ layers[-1][0] + layers[-1][1], inputs


def backward(layers: Any, inputs: list[Array], slope: Array) -> tuple[Any, Array]:
    """The gradients of the layers and of the input, from that of the output."""
    gradient: list[Any] = []
    for index in reversed(range(len(layers))):
        gradient.insert(0, (inputs[index].T @ slope, slope.sum(axis=0)))
        slope = slope @ layers[index][0].T
        if index:
            slope = slope * leaky_slope(inputs[index])
    return gradient, slope


def danger_by_hand(layers: Any, inputs: Array, value: Array) -> tuple[float, Any]:
    output, tape = forward(layers, inputs)
    loss, slope = cross_entropy(output[:, 0], value)
    return loss, backward(layers, tape, slope[:, None])[0]


def encoder_by_hand(params: Any, inputs: Array, value: Array) -> tuple[float, Any]:
    z, tape = forward(params["encoder"], inputs)
    half = len(z) // 2
    difference = z[:half] - z[half:]
    distance = np.sqrt((difference**2).sum(axis=1) + 1e-9)
    apart = np.abs(value[:half] - value[half:])
    room = np.maximum(0, CONFIG.margin - distance)
    contrastive = np.mean((1 - apart) * distance**2 + apart * room**2)
    rebuilt, decoder_tape = forward(params["decoder"], z)
    weight, bias = params["risk"]
    entropy, of_risk = cross_entropy((z @ weight + bias)[:, 0], value)
    loss = CONFIG.contrastive_weight * contrastive + entropy
    loss += CONFIG.reconstruction_weight * np.mean((rebuilt - inputs) ** 2)

    of_distance = CONFIG.contrastive_weight * 2 * ((1 - apart) * distance - apart * room) / half
    of_difference = (of_distance / distance)[:, None] * difference
    of_rebuilt = CONFIG.reconstruction_weight * 2 * (rebuilt - inputs) / inputs.size
    decoder, of_z = backward(params["decoder"], decoder_tape, of_rebuilt)
    of_z = of_z + np.concatenate([of_difference, -of_difference]) + of_risk[:, None] @ weight.T
    encoder, _ = backward(params["encoder"], tape, of_z)
    risk = (z.T @ of_risk[:, None], of_risk.sum(keepdims=True))
    return loss, {"encoder": encoder, "decoder": decoder, "risk": risk}


def adamw_by_hand(by_hand: Any, params: Any, data: Any, rows: Array, decay: float) -> Any:
    mu = nu = jax.tree.map(np.zeros_like, params)
    for step, batch in enumerate(rows):
        _, gradient = by_hand(params, *(x[batch] for x in data))
        rate = 3e-3 * (1 + np.cos(np.pi * step / len(rows))) / 2
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, gradient)
        nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, nu, gradient)
        first, second = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
        change = jax.tree.map(
            lambda p, m, v, f=first, s=second: m / f / (np.sqrt(v / s) + 1e-8) + decay * p,
            *(params, mu, nu),
        )
        params = jax.tree.map(lambda p, c, r=rate: p - r * c, params, change)
    return params


@functools.partial(jax.jit, static_argnums=0)
def loss_and_gradient(loss: Any, params: Any, data: Any, batch: Any) -> Any:
    return jax.value_and_grad(loss)(params, tuple(x[batch] for x in data))


def check_fit(
    loss: Any, by_hand: Any, params: Any, inputs: Array, value: Array, size: int, decay: float
) -> None:
    """Some steps of the fit, then the loss and its gradient after them.

    Where a unit's input is within rounding of LeakyReLU's kink its slope may be either of the two,
    which makes up to 1e-3 in some steps; the gradient is taken where no unit is so close.
    """
    data, rows = (inputs, value), np.random.default_rng(1).integers(ROWS, size=(STEPS, size))
    on_device, start = (padded(inputs), padded(value)), in_float64(params)
    others = rows.copy()
    others[:, -1] = others[:, 0]
    ends = (
        in_float64(lookahead._descend(loss, params, on_device, rows, decay)),
        adamw_by_hand(by_hand, start, data, rows, decay),
        adamw_by_hand(by_hand, start, data, others, decay),
    )
    check(*(minus(end, start) for end in ends), 4e-3)

    after = jax.tree.map(np.float32, ends[1])
    exact = in_float64(after)
    step = next(i for i, batch in enumerate(rows) if from_kink(exact, inputs[batch]) > 1e-6)
    found = loss_and_gradient(loss, after, on_device, rows[step])
    expected, with_another = (
        by_hand(exact, *(x[some[step]] for x in data)) for some in (rows, others)
    )
    check(found, expected, with_another, 2e-5)


def from_kink(params: Any, x: Array) -> float:
    """The smallest absolute value behind a LeakyReLU."""
    least = np.inf
    for layers in [params["encoder"], params["decoder"]] if isinstance(params, dict) else [params]:
        x, (_, *hidden) = forward(layers, x)
        least = min(least, *(np.abs(y).min() for y in hidden))
    return float(least)


def made_layers(*sizes: int) -> list[tuple[Array, Array]]:
    """As a fit starts, but with biases; jax.random would have to be compiled for each shape."""
    rng = np.random.default_rng(2)
    drawn = [
        (rng.standard_normal(x) * np.sqrt(2 / x[0]), 0.1 * rng.standard_normal(x[1]))
        for x in pairwise(sizes)
    ]
    return [(weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in drawn]


def made_data(width: int) -> tuple[Array, Array]:
    """Inputs and targets between 0 and 1, most of them 0 or 1, as float32 holds them."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((ROWS, width)).astype(np.float32)
    value = np.clip(0.7 * inputs[:, 0] + 0.7 * rng.standard_normal(ROWS) + 0.5, 0, 1)
    return inputs.astype(np.float64), value.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("task", slow_but([], SIZES))
def test_the_fit_of_danger_is_the_one_worked_out_in_float64(task: str) -> None:
    sizes = SIZES[task]
    inputs, value = made_data(sizes.obs + sizes.curves)
    layers = made_layers(inputs.shape[1], *DANGER_SIZES, 1)
    check_fit(lookahead._danger_loss, danger_by_hand, layers, inputs, value.round(), 256, 1e-2)


@pytest.mark.parametrize("task", slow_but([], SIZES))
def test_the_fit_of_unavoidable_danger_is_the_one_worked_out_in_float64(task: str) -> None:
    inputs, value = made_data(sum(SIZES[task]))
    layers = made_layers(inputs.shape[1], *DANGER_SIZES, 1)
    check_fit(lookahead._danger_loss, danger_by_hand, layers, inputs, value, 256, 1e-2)


@pytest.mark.parametrize("task", slow_but(["goal"], SIZES))
def test_the_fit_of_the_encoder_is_the_one_worked_out_in_float64(task: str) -> None:
    inputs, value = made_data(sum(SIZES[task]))
    width, hidden, latent = inputs.shape[1], CONFIG.hidden_size, CONFIG.latent_size
    assert (hidden, latent, lookahead._PAIRS) == (512, 2, 64)
    params = {
        "encoder": made_layers(width, hidden, latent),
        "decoder": made_layers(latent, hidden, width),
        "risk": made_layers(latent, 1)[0],
    }
    weights = CONFIG.margin, CONFIG.contrastive_weight, CONFIG.reconstruction_weight
    loss = lookahead._encoder_loss(*weights)
    check_fit(loss, encoder_by_hand, params, inputs, value, 128, 1e-4)


@pytest.mark.parametrize(
    ("task", "count"),
    slow_but(
        [("goal", 1000)],
        [("goal", 1000), ("goal", 40_000), ("button", 40_000), *((x, 1000) for x in FOREIGN)],
    ),
)
def test_the_better_actions_are_those_worked_out_in_float64(task: str, count: int) -> None:
    sizes = SIZES[task]
    width, rng = sizes.obs + sizes.curves, np.random.default_rng(0)
    layers = made_layers(width + sizes.act, *DANGER_SIZES, 1)
    states = np.asarray(padded(rng.standard_normal((count, width))))
    actions = rng.uniform(-1, 1, (MOST_SPREAD, sizes.act)).astype(np.float32)
    found = np.asarray(lookahead._better_risk(layers, states, actions))

    layers, actions = in_float64((layers, actions))
    for begin in range(0, len(states), 512):
        block = np.repeat(states[begin : begin + 512].astype(np.float64), MOST_SPREAD, axis=0)
        pairs = np.concatenate([block, np.tile(actions, (512, 1))], axis=1)
        logits = forward(layers, pairs)[0].reshape(512, MOST_SPREAD)
        expected, without_one = (
            sigmoid(np.quantile(some, BETTER, axis=1)) for some in (logits, logits[:, 1:])
        )
        check(found[begin : begin + 512], expected, without_one, 1e-6)
        np.testing.assert_allclose(found[begin : begin + 512], expected, rtol=1e-5)


# -- the paper's fit -----------------------------------------------------------------------------


def hidden_by_hand(
    x: Array, part: str, layer: int, params: Any, norms: Any, noise: Any
) -> tuple[Array, Any, Any]:
    """The hidden layer's output; what the way back needs; the new running mean and variance."""
    before = x @ params[f"w{layer}"] + params[f"b{layer}"]
    h = leaky(before)
    mean, variance = running = norms[part]
    mask = np.ones(h.shape)
    if noise is not None:
        mean, variance = h.mean(axis=0), ((h - h.mean(axis=0)) ** 2).mean(axis=0)
        running = 0.95 * running[0] + 0.05 * mean, 0.95 * running[1] + 0.05 * variance
        kept = round(256 * (1 - PAPER.dropout))
        mask = (noise < kept) * 256 / kept
    spread = np.sqrt(variance + 1e-3)
    normal = (h - mean) / spread
    output = (normal * params[f"{part}.scale"] + params[f"{part}.shift"]) * mask
    return output, (x, before, normal, spread, mask), running


def hidden_slopes(part: str, layer: int, params: Any, tape: Any, slope: Array) -> tuple[Any, Array]:
    """The gradients of the layer's weights and of its input, with the batch's own statistics."""
    x, before, normal, spread, mask = tape
    slope = slope * mask
    gradient = {f"{part}.scale": (slope * normal).sum(axis=0), f"{part}.shift": slope.sum(axis=0)}
    slope = slope * params[f"{part}.scale"]
    slope = slope - slope.mean(axis=0) - normal * (slope * normal).mean(axis=0)
    slope = slope / spread * leaky_slope(before)
    gradient |= {f"w{layer}": x.T @ slope, f"b{layer}": slope.sum(axis=0)}
    return gradient, slope @ params[f"w{layer}"].T


def autoencoder_by_hand(
    params: Any, norms: Any, features: Array, pairs: autoencoder.Pairs
) -> tuple[float, Any, Any]:
    """Loss, gradient, running statistics; without noise the loss alone."""
    noises = (None, None) if pairs.noise is None else pairs.noise
    x = features[np.concatenate([pairs.first, pairs.second])]
    h, tape, encoder_norm = hidden_by_hand(x, "encoder", 0, params, norms, noises[0])
    z = h @ params["w1"].T + params["b1"]
    g, decoder_tape, decoder_norm = hidden_by_hand(z, "decoder", 2, params, norms, noises[1])
    error = g @ params["w3"].T + params["b3"] - x
    difference = np.subtract(*np.split(z, 2))
    distance = np.sqrt((difference**2).sum(axis=1) + 1e-12)
    room, alike = np.maximum(0, PAPER.margin - distance), pairs.similar.astype(np.float64)
    contrastive = np.mean(alike * distance**2 + (1 - alike) * room**2)
    loss = PAPER.contrastive_weight * contrastive
    loss += 2 * PAPER.reconstruction_weight * np.mean(error**2)
    if pairs.noise is None:
        return loss, None, None
    loss += PAPER.l2 * sum((params[f"w{i}"] ** 2).sum() for i in range(4))

    of_y = 4 * PAPER.reconstruction_weight * error / error.size
    gradient = {"w3": of_y.T @ g, "b3": of_y.sum(axis=0)}
    more, of_z = hidden_slopes("decoder", 2, params, decoder_tape, of_y @ params["w3"])
    of_distance = 2 * (alike * distance - (1 - alike) * room) / len(distance)
    of_difference = (PAPER.contrastive_weight * of_distance / distance)[:, None] * difference
    of_z = of_z + np.concatenate([of_difference, -of_difference])
    gradient |= {**more, "w1": of_z.T @ h, "b1": of_z.sum(axis=0)}
    gradient |= hidden_slopes("encoder", 0, params, tape, of_z @ params["w1"])[0]
    for name in ("w0", "w1", "w2", "w3"):
        gradient[name] = gradient[name] + 2 * PAPER.l2 * params[name]
    return loss, gradient, {"encoder": encoder_norm, "decoder": decoder_norm}


def nadam_by_hand(state: Any, features: Array, batches: autoencoder.Pairs, rate: float) -> Any:
    """Parameters, running statistics, both moments and the mean loss after all batches."""
    params, norms, losses = state.params, state.norms, []
    mu = nu = jax.tree.map(np.zeros_like, params)
    for step in range(1, len(batches.first) + 1):
        pairs = autoencoder.Pairs(*(x[step - 1] for x in batches))
        loss, gradient, norms = autoencoder_by_hand(params, norms, features, pairs)
        losses.append(loss)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, gradient)
        nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, nu, gradient)
        after, now, second = 1 - 0.9 ** (step + 1), 1 - 0.9**step, 1 - 0.999**step
        ahead = jax.tree.map(lambda m, g, a=after, n=now: 0.9 * m / a + 0.1 * g / n, mu, gradient)
        params = jax.tree.map(
            lambda p, m, v, s=second: p - rate * m / (np.sqrt(v / s) + 1e-8), params, ahead, nu
        )
    return params, norms, mu, nu, np.mean(losses)


@pytest.mark.parametrize("width", slow_but([], [34, 66]))
def test_the_papers_fit_is_the_one_worked_out_in_float64(width: int) -> None:
    """The least number of steps at once, with a step size at which rounding errors stay small."""
    assert (PAPER.hidden_size, PAPER.latent_size, PAPER.fit_batch_size) == (512, 2, 32)
    rng, count, rate = np.random.default_rng(0), autoencoder._STEPS[0], 1e-5
    features = rng.standard_normal((ROWS, width)).astype(np.float32)
    safe = features[:, 0] + rng.standard_normal(ROWS) > 0
    pools = np.flatnonzero(safe), np.flatnonzero(~safe)
    batches = autoencoder._batches(rng, *pools, count, PAPER)
    state, rows = autoencoder._start(jax.random.key(0), width, PAPER), padded(features)
    found, found_loss = autoencoder._descend(state, rows, batches, rate, PAPER)

    others = batches._replace(first=batches.first.copy())
    others.first[:, -1] = others.first[:, 0]
    exact, start = features.astype(np.float64), in_float64(state._replace(optimiser=None))
    after = in_float64((found.params, found.norms, found.optimiser.mu, found.optimiser.nu))
    *expected, loss = nadam_by_hand(start, exact, batches, rate)
    *with_another, other_loss = nadam_by_hand(start, exact, others, rate)
    check(float(found_loss), loss, other_loss, 1e-5)
    ends = (
        (minus(params, start.params), *rest) for params, *rest in (after, expected, with_another)
    )
    check(*ends, 4e-3)

    pairs = autoencoder.sample_pairs(rng, *pools, autoencoder._VALIDATION_PAIRS)
    others = pairs._replace(first=np.append(pairs.first[:-1], pairs.first[0]))
    expected, with_another = (
        autoencoder_by_hand(*after[:2], exact, some)[0] for some in (pairs, others)
    )
    check(autoencoder._validation_loss(found, rows, pairs, PAPER), expected, with_another, 2e-6)
