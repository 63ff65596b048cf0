"""The encoder as the guard uses it: NumPy alone, and exact.

Training hands over one hidden layer with batch norm already folded in. Here inputs, hidden values
and weights are rounded to multiples of powers of two, coarse enough that every product and every
partial sum fits the 53 bits of a float64. Sums then carry no rounding error, so their order does
not matter: one row or a thousand, the whole feature or the observation's and the action's shares
added up, this BLAS or another, all give the same bits. What is rounded away is about 1e-5 of the
scaled input.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from advice.shields.spaces import LARGE, Floats, Ints, check_array
from advice.shields.warp import CELLS, Warp, no_warp

SLOPE = 0.3
"""LeakyReLU's slope below zero."""
LIMIT = 8.0
"""Scaled inputs beyond this count as this: a feature that far out is far from all data anyway."""
_BATCH = 256  # rows that are encoded together
_BLOCK = 32  # rows of a hidden layer that are computed together
UNIT = 2.0**16  # inputs and hidden values are whole multiples of 1/UNIT


class EncoderWeights(NamedTuple):
    """``z = leaky(x @ w1 + b1) @ w2 + b2`` with x = (scaled feature, curves of its observation)."""

    offset: Floats  # (d,) what is subtracted from a feature
    scale: Floats  # (d,) and what it is divided by
    w1: Floats  # (d + q, hidden)
    b1: Floats  # (hidden,)
    w2: Floats  # (hidden, latent)
    b2: Floats  # (latent,)


def scaled(features: Floats, offset: Floats, scale: Floats) -> Floats:
    """``(f - offset) / scale``, clipped to +-LIMIT."""
    return np.clip((features - offset) / scale, -LIMIT, LIMIT)


class Encoder:
    """Raw features to latent points, exactly (see the module's text).

    The first ``split`` columns of a feature are the observation, the others the action.
    """

    def __init__(self, weights: EncoderWeights, split: int, warp: Warp | None = None) -> None:
        self.weights, self.split, self.warp = weights, split, warp or no_warp()
        _check(weights, split, self.warp)
        top = LIMIT + float(np.abs(weights.b1).max())
        hidden = float((np.abs(weights.w1).sum(0) * LIMIT + np.abs(weights.b1)).max())
        latent = float((np.abs(weights.w2).sum(0) * hidden + np.abs(weights.b2)).max())
        grid1, grid2 = _grid(max(hidden, top)), _grid(max(latent, hidden))
        w1, b1 = _round(weights.w1, grid1), _round(weights.b1 * UNIT, grid1)
        d, curves = len(weights.offset), np.arange(len(weights.offset), len(weights.w1))
        whole, state, action = np.arange(d), np.arange(split), np.arange(split, d)
        self._whole = _Layer(weights, self.warp, w1, np.append(whole, curves), b1)
        self.state_share = _Layer(weights, self.warp, w1, np.append(state, curves), b1)
        """What (..., split) observations and the bias add to the hidden layer."""
        self.action_share = _Layer(weights, no_warp(), w1, action, np.zeros_like(b1))
        """What (..., d - split) actions add to the hidden layer."""
        self._w2 = _round(weights.w2, grid2)
        self._b2 = _round(weights.b2 * UNIT, grid2)

    def finish(self, shares: Floats, state: Floats | float = 0.0) -> Floats:
        """Latent points of one or (N, hidden) shares; ``state`` is added to every row of them.

        Some rows at a time and in the same memory: what is computed on the way then stays in the
        processor's cache.
        """
        if shares.ndim == 1:
            hidden = shares + state
            np.maximum(hidden, SLOPE * hidden, out=hidden)
            latent: Floats = np.rint(hidden, out=hidden) @ self._w2
        else:
            latent = np.empty((len(shares), self._w2.shape[1]))
            memory = np.empty((2, min(_BLOCK, len(shares)), shares.shape[1]))
            for i in range(0, len(shares), _BLOCK):
                rows = shares[i : i + _BLOCK]
                hidden, sloped = memory[:, : len(rows)]
                np.add(rows, state, out=hidden)
                np.multiply(hidden, SLOPE, out=sloped)
                np.maximum(hidden, sloped, out=hidden)
                np.matmul(np.rint(hidden, out=hidden), self._w2, out=latent[i : i + _BLOCK])
        latent += self._b2
        latent /= UNIT
        return latent

    def hidden(self, features: Floats) -> Floats:
        """(N, hidden) values of the hidden layer of (N, d) raw features."""
        values = self._whole(features)
        np.maximum(values, SLOPE * values, out=values)
        return np.rint(values) / UNIT

    def encode(self, features: Floats) -> Floats:
        """One raw feature (d,) or (N, d) to latent points, some hundred rows at a time."""
        if features.ndim == 1 or len(features) <= _BATCH:
            return self.finish(self._whole(features))
        blocks = range(0, len(features), _BATCH)
        return np.concatenate([self.encode(features[i : i + _BATCH]) for i in blocks])


class _Layer:
    """Some rows of the first layer with what their inputs need; the last may be the curves'.

    A call takes (..., m) values, the numbers of a feature that the other rows stand for.
    """

    def __init__(
        self, weights: EncoderWeights, warp: Warp, w1: Floats, rows: Ints, bias: Floats
    ) -> None:
        plain = rows[: len(rows) - len(warp.columns)]
        self._offset, self._scale, self._warp = weights.offset[plain], weights.scale[plain], warp
        self._w1, self._bias = np.ascontiguousarray(w1[rows]), bias

    def __call__(self, values: Floats) -> Floats:
        inputs = (values - self._offset) / self._scale
        if len(self._warp.columns):
            inputs = np.concatenate([inputs, self._warp(values)], axis=-1)
        np.maximum(inputs, -LIMIT, out=inputs)
        np.minimum(inputs, LIMIT, out=inputs)
        inputs *= UNIT
        np.rint(inputs, out=inputs)
        hidden: Floats = inputs @ self._w1
        hidden += self._bias
        return hidden


def _grid(largest: float) -> float:
    """The finest power of two whose multiples up to ``largest * UNIT`` stay exact in float64."""
    return 2.0 ** -math.floor(51 - math.log2(UNIT * max(largest, 1.0)))


def _round(values: Floats, grid: float) -> Floats:
    return np.rint(values / grid) * grid


def _check(weights: EncoderWeights, split: int, warp: Warp) -> None:
    d, (hidden, latent), q = len(weights.offset), weights.w2.shape, len(warp.columns)
    shapes = ((d,), (d,), (d + q, hidden), (hidden,), (hidden, latent), (latent,))
    for name, array, shape in zip(weights._fields, weights, shapes, strict=True):
        check_array(name, array, np.float64, shape)
    for name, shape in (("low", (q,)), ("width", (q,)), ("table", (q, CELLS + 1))):
        check_array(name, getattr(warp, name), np.float64, shape)
    smallest = min(weights.scale.min(initial=1.0), warp.width.min(initial=1.0))
    if smallest < 1 / LARGE:
        raise ValueError(f"scale and width: expected at least {1 / LARGE:g}, found {smallest:g}")
    check_array("columns", warp.columns, np.int64, (q,))
    if not ((warp.columns >= 0) & (warp.columns < split)).all():
        raise ValueError(f"columns: expected dimensions of {split} observations")
