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
from numpy.typing import NDArray

from advice.shields.warp import CELLS, Warp, no_warp

Floats = NDArray[np.float64]

SLOPE = 0.3
"""LeakyReLU's slope below zero."""
LIMIT = 8.0
"""Scaled inputs beyond this count as this: a feature that far out is far from all data anyway."""
_LARGE = 1e12  # what no weight exceeds
UNIT = 2.0**16  # inputs and hidden values are whole multiples of 1/UNIT


class EncoderWeights(NamedTuple):
    """``z = leaky(x @ w1 + b1) @ w2 + b2`` with x = (scaled feature, curves of its observation)."""

    offset: Floats
    """(d,) what is subtracted from a feature."""
    scale: Floats
    """(d,) and what it is divided by."""
    w1: Floats
    """(d + q, hidden)"""
    b1: Floats
    """(hidden,)"""
    w2: Floats
    """(hidden, latent)"""
    b2: Floats
    """(latent,)"""


def scaled(features: Floats, offset: Floats, scale: Floats) -> Floats:
    """``(f - offset) / scale``, clipped to +-LIMIT."""
    return _clip((features - offset) / scale)


def _clip(values: Floats) -> Floats:
    np.maximum(values, -LIMIT, out=values)
    return np.minimum(values, LIMIT, out=values)


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
        w1, d = _round(weights.w1, grid1), len(weights.offset)
        self._state_w1 = np.ascontiguousarray(np.concatenate([w1[:split], w1[d:]]))
        self._action_w1 = np.ascontiguousarray(w1[split:d])
        self._b1 = _round(weights.b1 * UNIT, grid1)
        self._w2 = _round(weights.w2, grid2)
        self._b2 = _round(weights.b2 * UNIT, grid2)
        self._state = weights.offset[:split], weights.scale[:split]
        self._action = weights.offset[split:], weights.scale[split:]

    def state_share(self, observations: Floats) -> Floats:
        """What (..., split) observations and the bias add to the hidden layer."""
        inputs = scaled(observations, *self._state)
        if len(self.warp.columns):
            curves = _clip(self.warp(observations))
            inputs = np.concatenate([inputs, curves], axis=-1)
        return _units(inputs) @ self._state_w1 + self._b1

    def action_share(self, actions: Floats) -> Floats:
        """What (..., d - split) actions add to the hidden layer."""
        return _units(scaled(actions, *self._action)) @ self._action_w1

    def finish(self, hidden: Floats) -> Floats:
        """Latent points from the summed shares, which are overwritten."""
        np.maximum(hidden, SLOPE * hidden, out=hidden)
        np.rint(hidden, out=hidden)
        latent = hidden @ self._w2
        latent += self._b2
        latent /= UNIT
        return latent

    def encode(self, features: Floats) -> Floats:
        """(..., d) raw features to (..., latent) points, a few thousand rows at a time."""
        if features.ndim == 1 or len(features) <= 4096:
            hidden = self.state_share(features[..., : self.split])
            hidden += self.action_share(features[..., self.split :])
            return self.finish(hidden)
        blocks = np.array_split(features, -(-len(features) // 4096))
        return np.concatenate([self.encode(block) for block in blocks])


def _units(inputs: Floats) -> Floats:
    inputs *= UNIT
    return np.rint(inputs, out=inputs)


def _grid(largest: float) -> float:
    """The finest power of two whose multiples up to ``largest * UNIT`` stay exact in float64."""
    return 2.0 ** -math.floor(51 - math.log2(UNIT * max(largest, 1.0)))


def _round(values: Floats, grid: float) -> Floats:
    return np.rint(values / grid) * grid


def _check(weights: EncoderWeights, split: int, warp: Warp) -> None:
    d, (hidden, latent), q = len(weights.offset), weights.w2.shape, len(warp.columns)
    shapes = ((d,), (d,), (d + q, hidden), (hidden,), (hidden, latent), (latent,))
    curves = ((q,), (q,), (q, CELLS + 1))
    arrays = [*zip(EncoderWeights._fields, weights, shapes, strict=True)]
    arrays += zip(Warp._fields[1:], warp[1:], curves, strict=True)
    for name, array, shape in arrays:
        if array.shape != shape or array.dtype != np.float64:
            raise ValueError(f"{name}: expected float64 {shape}, found {array.dtype} {array.shape}")
        if not (np.abs(array) < _LARGE).all():
            raise ValueError(f"{name}: expected numbers below {_LARGE:g}")
    smallest = min(weights.scale.min(initial=1.0), warp.width.min(initial=1.0))
    if smallest < 1 / _LARGE:
        raise ValueError(f"scale and width: expected at least {1 / _LARGE:g}, found {smallest:g}")
    if warp.columns.dtype != np.int64 or not ((warp.columns >= 0) & (warp.columns < split)).all():
        raise ValueError(f"columns: expected dimensions of {split} observations")
