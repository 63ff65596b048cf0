"""Targets and fits of the action-aware shield: what may come of a step, seen from its end.

1. A state's danger D(s): the probability of a violation within the next ``near`` steps as the agent
   acts. Where violations are frequent, its geometric mean with the probability of a violation
   within :data:`ITERATIONS` steps that better actions do not avoid either.
2. The target of a step: the largest danger among the states that followed it within ``ahead``
   steps, 1 if a violation was among them. Near misses then teach as much as crashes do.
3. The encoder: contrastive loss between steps with different targets, reconstruction, and a linear
   risk on the latent space that predicts the target.

JAX and optax are used here and in the paper's autoencoder alone.
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
from scipy.stats import rankdata

from advice.config import ShieldConfig
from advice.shields.encoder import SLOPE
from advice.shields.memory import Steps
from advice.shields.spaces import Bools, Floats, Ints
from advice.types import Outcome

DANGER_SIZES = (64, 64)
ITERATIONS = 6
"""Steps ahead for which :func:`fit_unavoidable` looks for a way out."""
BETTER = 0.2
"""Share of the actions that count as the better ones; the best alone is often an error."""
_NEAR_ROWS = 16  # steps before a violation that half of a batch is drawn from
_PAIRS = 64
FAR = 1 << 30
LAST = 3
"""At most this many steps before a violation set the threshold of what is refused."""
_RATE = 3e-3


class Targets(NamedTuple):
    """What hindsight says about N steps."""

    value: Floats  # (N,) 0 (nothing came of it) to 1 (a violation)
    known: Bools  # (N,) False where the episode was cut before enough steps followed
    leads_in: Bools  # (N,) True for the last steps before a violation, LAST or ``near`` of them


def horizons(steps: Steps) -> tuple[int, int]:
    """(near, ahead): how many steps before a violation count as danger, and how far to look.

    The square root of the mean number of steps per violation, within 2 to 5, and 0.7 times as much,
    within 2 to 8: 4 and 3 where a pole falls after twenty steps, 5 and 8 from 130 on.
    """
    violations = max(1, int((steps.outcomes == Outcome.UNSAFE).sum()))
    root = np.sqrt(steps.seen / violations)
    return int(np.clip(round(root), 2, 5)), int(np.clip(round(0.7 * root), 2, 8))


def steps_until_violation(steps: Steps) -> tuple[Ints, Ints]:
    """(N,) steps until the next violation (1: this very step violates; FAR: none is known) and
    (N,) how many of the following steps are known (FAR: all until the episode's end)."""
    index, last = np.arange(len(steps.outcomes)), _last_row(steps)
    unsafe = np.where(steps.outcomes == Outcome.UNSAFE, index, FAR)
    following = np.minimum.accumulate(unsafe[::-1])[::-1]
    until = np.where(following <= last, following - index + 1, FAR)
    ended = steps.outcomes[last] != Outcome.INCONCLUSIVE
    return until, np.where(ended, FAR, last - index)


def _last_row(steps: Steps) -> Ints:
    """(N,) the row up to which an episode is stored without a gap, for each of its rows."""
    index = np.arange(len(steps.outcomes))
    ends = np.where(steps.continues, FAR, index)
    return np.minimum.accumulate(ends[::-1])[::-1]


def targets(steps: Steps, danger: Floats, near: int, ahead: int) -> Targets:
    """Look-ahead targets from the danger of every step's state (see the module's text)."""
    until, known = steps_until_violation(steps)
    index, last = np.arange(len(danger)), _last_row(steps)
    value = np.zeros(len(danger))
    for lag in range(1, ahead + 1):
        later = np.minimum(index + lag, last)
        value = np.maximum(value, np.where(later > index, danger[later], 0.0))
    value = np.where(until <= ahead, 1.0, value)
    said = steps.outcomes != Outcome.INCONCLUSIVE
    value = np.where(said, (steps.outcomes == Outcome.UNSAFE).astype(np.float64), value)
    return Targets(value, said | (known >= ahead) | (until <= ahead), until <= min(near, LAST))


# -- networks ----------------------------------------------------------------------------------


def _init(key: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    keys = jax.random.split(key, len(sizes) - 1)
    layers = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.random.normal(k, (a, b)) * np.sqrt(2 / a), jnp.zeros(b)) for k, a, b in layers]


def _forward(layers: Any, x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jax.nn.leaky_relu(x @ weight + bias, SLOPE)
    return x @ layers[-1][0] + layers[-1][1]


def _forward_numpy(layers: Any, x: Any) -> Floats:
    for weight, bias in layers[:-1]:
        x = x @ weight + bias
        x = np.maximum(x, SLOPE * x)
    return (x @ layers[-1][0] + layers[-1][1]).astype(np.float64)


def padded(rows: NDArray[Any]) -> Any:
    """Zero rows up to a power of two, so that a growing memory seldom compiles anew."""
    size = 1 << max(8, (len(rows) - 1).bit_length())
    pad = np.zeros((size - len(rows), *rows.shape[1:]), np.float32)
    return jnp.asarray(np.concatenate([rows.astype(np.float32), pad]))


@functools.partial(jax.jit, static_argnums=(0, 4))
def _descend(loss: Any, params: Any, data: Any, rows: Any, decay: float) -> Any:
    """AdamW with a cosine schedule over the (steps, B) ``rows`` of the data."""
    optimiser = optax.adamw(optax.cosine_decay_schedule(_RATE, len(rows)), weight_decay=decay)

    def step(carry: Any, batch: Any) -> tuple[Any, None]:
        params, state = carry
        gradient = jax.grad(loss)(params, tuple(x[batch] for x in data))
        change, state = optimiser.update(gradient, state, params)
        return (optax.apply_updates(params, change), state), None

    return jax.lax.scan(step, (params, optimiser.init(params)), rows)[0][0]


def _danger_loss(layers: Any, data: Any) -> Any:
    inputs, value = data
    return optax.sigmoid_binary_cross_entropy(_forward(layers, inputs)[:, 0], value).mean()


def fit_danger(
    inputs: NDArray[np.float32],
    steps: Steps,
    fitted: Bools,
    near: int,
    count: int,
    rng: np.random.Generator,
) -> Floats:
    """(N,) danger of every step's state, learnt from the ``fitted`` ones, both classes balanced.

    ``inputs``: (N, m) what the network sees of each state.
    """
    until, known = steps_until_violation(steps)
    positive = np.flatnonzero(fitted & (until <= near))
    negative = np.flatnonzero(fitted & (until > near) & (known >= near))
    if len(negative) == 0:
        return np.ones(len(inputs))
    drawn = [rng.choice(pool, (count, 128)) for pool in (positive, negative)]
    layers = _init(jax.random.key(int(rng.integers(2**31))), (inputs.shape[1], *DANGER_SIZES, 1))
    data, rows = (padded(inputs), padded(until <= near)), np.concatenate(drawn, axis=1)
    layers = jax.tree.map(np.asarray, _descend(_danger_loss, layers, data, rows, 1e-2))
    return sigmoid(_forward_numpy(layers, inputs)[:, 0])


def fit_unavoidable(
    states: NDArray[np.float32],
    taken: NDArray[np.float32],
    candidates: NDArray[np.float32],
    steps: Steps,
    fitted: Bools,
    count: int,
    rng: np.random.Generator,
) -> Floats:
    """(N,) how surely a violation follows each step's state even if a better action is chosen.

    Fitted Q iteration on the (N, m) states and (N, k) actions taken: Q(s, a) = 1 if the step
    violates, else what Q says of the next state, there the :data:`BETTER` quantile over the (C, k)
    candidates. It starts from 0, so each of the iterations looks one step further ahead.
    """
    until, _ = steps_until_violation(steps)
    violates, follows = steps.outcomes == Outcome.UNSAFE, steps.continues
    usable = np.flatnonzero(fitted & (follows | (steps.outcomes != Outcome.INCONCLUSIVE)))
    near = usable[until[usable] <= _NEAR_ROWS]
    inputs, actions = np.hstack([states, taken]), jnp.asarray(candidates)
    everywhere = padded(states)
    sizes = inputs.shape[1], *DANGER_SIZES, 1
    layers = _init(jax.random.key(int(rng.integers(2**31))), sizes)
    danger = np.zeros(len(states))
    for _ in range(ITERATIONS):
        value = np.where(follows, np.append(danger[1:], 0.0), 0.0)
        value = np.where(steps.outcomes == Outcome.INCONCLUSIVE, value, violates)
        drawn = [rng.choice(pool, (max(1, count // 5), 128)) for pool in (usable, near)]
        data = padded(inputs), padded(value)
        layers = _descend(_danger_loss, layers, data, np.concatenate(drawn, axis=1), 1e-2)
        danger = np.asarray(_better_risk(layers, everywhere, actions), np.float64)[: len(states)]
    return danger


@jax.jit
def _better_risk(layers: Any, states: Any, actions: Any) -> Any:
    """(N,) BETTER quantile over (C, k) actions of what a network says of them in (N, m) states."""
    (weight, bias), *rest = layers
    split = states.shape[1]
    shares, of_actions = states @ weight[:split] + bias, actions @ weight[split:]

    def block(rows: Any) -> Any:
        hidden = jax.nn.leaky_relu(rows[:, None] + of_actions, SLOPE)
        return jnp.quantile(_forward(rest, hidden)[..., 0], BETTER, axis=1)

    blocks = shares.reshape(-1, 256, shares.shape[1])  # all at once would take gigabytes
    return jax.nn.sigmoid(jax.lax.map(block, blocks).ravel())


def is_foreseen(danger: Floats, until: Ints, near: int, rows: Bools) -> bool:
    """Whether a state's danger tells that a violation is near, judged by some of the rows.

    True if a state at most ``near`` steps before a violation has more danger than another state
    in at least 65 % of the pairs. Else the action of the step itself decides.
    """
    rows = rows if rows.any() else np.ones(len(rows), bool)
    ranks, positive = rankdata(danger[rows]), until[rows] <= near
    count, others = int(positive.sum()), int((~positive).sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return bool(above >= 0.65 * count * others) and min(count, others) > 0


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


class EncoderFit(NamedTuple):
    """Weights of the fitted encoder and of the linear risk on its latent space."""

    w1: Floats
    b1: Floats
    w2: Floats
    b2: Floats
    risk: Floats  # (latent,)
    risk_bias: float


@functools.lru_cache(maxsize=8)
def _encoder_loss(margin: float, contrastive: float, reconstruction: float) -> Callable[..., Any]:
    """Contrastive loss with the similarity 1 - |y1 - y2| (Eq. 1 where targets are 0 or 1), plus
    reconstruction, plus the cross-entropy of the risk. Rows i and i + B/2 of a batch are a pair."""

    def loss(params: Any, data: Any) -> Any:
        inputs, value = data
        z = _forward(params["encoder"], inputs)
        first, second = jnp.split(z, 2)
        distance = jnp.sqrt(jnp.sum((first - second) ** 2, axis=1) + 1e-9)
        apart = jnp.abs(jnp.subtract(*jnp.split(value, 2)))
        pairs = (1 - apart) * distance**2 + apart * jnp.maximum(0.0, margin - distance) ** 2
        rebuilt = jnp.mean((_forward(params["decoder"], z) - inputs) ** 2)
        risk = (z @ params["risk"][0] + params["risk"][1])[:, 0]
        cross_entropy = optax.sigmoid_binary_cross_entropy(risk, value).mean()
        return contrastive * pairs.mean() + reconstruction * rebuilt + cross_entropy

    return loss


def fit_encoder(
    inputs: NDArray[np.float32],
    value: Floats,
    pools: tuple[Ints, ...],
    config: ShieldConfig,
    rng: np.random.Generator,
) -> EncoderFit:
    """Fit d -> hidden -> latent on (N, d) inputs and (N,) targets.

    A quarter of each batch comes from ``pools[0]`` (dangerous), half from ``pools[1]`` (near
    danger and yet safe) and a quarter from ``pools[2]`` (any step), so that a state alone seldom
    tells the members of a pair apart.
    """
    sizes = (_PAIRS // 4, _PAIRS // 2, _PAIRS // 4)
    count = config.fit_steps

    def side() -> Ints:
        drawn = [rng.choice(pool, (count, size)) for pool, size in zip(pools, sizes, strict=True)]
        return np.concatenate(drawn, axis=1)

    rows = np.concatenate([side(), side()[:, rng.permutation(_PAIRS)]], axis=1)
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), 3)
    width, hidden, latent = inputs.shape[1], config.hidden_size, config.latent_size
    params = {
        "encoder": _init(keys[0], (width, hidden, latent)),
        "decoder": _init(keys[1], (latent, hidden, width)),
        "risk": (0.3 * jax.random.normal(keys[2], (latent, 1)), jnp.zeros(1)),
    }
    loss = _encoder_loss(config.margin, config.contrastive_weight, config.reconstruction_weight)
    params = _descend(loss, params, (padded(inputs), padded(value)), rows, 1e-4)
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    (w1, b1), (w2, b2) = params["encoder"]
    risk, bias = params["risk"]
    return EncoderFit(w1, b1, w2, b2, risk[:, 0], float(bias[0]))
