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

Floats = NDArray[np.float64]

SLOPE = 0.3
"""LeakyReLU's slope below zero."""
REACH = 8.0
"""Scaled inputs beyond this count as this: a feature that far out is far from all data anyway."""
_LARGE = 1e12  # what no weight exceeds
UNIT = 2.0**16  # inputs and hidden values are whole multiples of 1/UNIT


class EncoderWeights(NamedTuple):
    """``z = leaky(scaled(f) @ w1 + b1) @ w2 + b2`` for a raw feature f."""

    offset: Floats
    """(d,) what is subtracted from a feature."""
    scale: Floats
    """(d,) and what it is divided by."""
    w1: Floats
    """(d, hidden)"""
    b1: Floats
    """(hidden,)"""
    w2: Floats
    """(hidden, latent)"""
    b2: Floats
    """(latent,)"""


def scaled(features: Floats, offset: Floats, scale: Floats, power: NDArray[np.int64]) -> Floats:
    """``(f - offset) / scale``, clipped; columns with a power above 1 (all the same) are raised.

    Their position between the bounds, 0 at the lower and 1 at the upper one, is raised to that
    power, which spreads out values near the upper bound. Only products are used, so the bits do not
    depend on the machine.
    """
    return _raise_power(_clip((features - offset) / scale), int(power.max()), power > 1)


def _clip(values: Floats) -> Floats:
    np.maximum(values, -REACH, out=values)
    return np.minimum(values, REACH, out=values)


def _raise_power(values: Floats, exponent: int, columns: NDArray[np.bool_]) -> Floats:
    if exponent == 1:
        return values
    raised = position = np.maximum(0.5 * values + 0.5, 0.0)
    for bit in f"{exponent:b}"[1:]:
        raised = raised * raised * position if bit == "1" else raised * raised
    return np.where(columns, np.minimum(2.0 * raised - 1.0, REACH), values)


class Encoder:
    """Raw features to latent points, exactly (see the module's text).

    ``power`` is a whole number per column of a feature, see :func:`scaled`; 1 if not given.
    """

    def __init__(self, weights: EncoderWeights, power: NDArray[np.int64] | None = None) -> None:
        _check(weights)
        self.weights = weights
        self.power = np.ones(len(weights.offset), np.int64) if power is None else power
        self._exponent, self._raised = int(self.power.max()), self.power > 1
        top = REACH + float(np.abs(weights.b1).max())
        hidden = float((np.abs(weights.w1).sum(0) * REACH + np.abs(weights.b1)).max())
        latent = float((np.abs(weights.w2).sum(0) * hidden + np.abs(weights.b2)).max())
        grid1, grid2 = _grid(max(hidden, top)), _grid(max(latent, hidden))
        self.w1 = _round(weights.w1, grid1)
        self.b1 = _round(weights.b1 * UNIT, grid1)
        self.w2 = np.ascontiguousarray(_round(weights.w2, grid2).T)
        self.b2 = _round(weights.b2 * UNIT, grid2)

    def units(self, features: Floats, first: int = 0) -> Floats:
        """Scaled, clipped and rounded inputs; ``features`` may start at column ``first``."""
        part = slice(first, first + features.shape[-1])
        values = _clip((features - self.weights.offset[part]) / self.weights.scale[part])
        units = _raise_power(values, self._exponent, self._raised[part])
        units *= UNIT
        return np.rint(units, out=units)

    def share(self, features: Floats, first: int = 0) -> Floats:
        """What columns ``first`` onwards add to the hidden layer before its activation."""
        return self.units(features, first) @ self.w1[first : first + features.shape[-1]]

    def finish(self, hidden: Floats) -> Floats:
        """Latent points from the summed shares and bias ``b1``, which are overwritten."""
        np.maximum(hidden, SLOPE * hidden, out=hidden)
        np.rint(hidden, out=hidden)
        latent = hidden @ self.w2.T
        latent += self.b2
        latent /= UNIT
        return latent

    def encode(self, features: Floats) -> Floats:
        """(..., d) raw features to (..., latent) points, a few thousand rows at a time."""
        if features.ndim == 1 or len(features) <= 4096:
            return self.finish(self.units(features) @ self.w1 + self.b1)
        blocks = np.array_split(features, -(-len(features) // 4096))
        return np.concatenate([self.encode(block) for block in blocks])


def _grid(largest: float) -> float:
    """The finest power of two whose multiples up to ``largest * UNIT`` stay exact in float64."""
    return 2.0 ** -math.floor(51 - math.log2(UNIT * max(largest, 1.0)))


def _round(values: Floats, grid: float) -> Floats:
    return np.rint(values / grid) * grid


def _check(weights: EncoderWeights) -> None:
    d, (hidden, latent) = len(weights.offset), weights.w2.shape
    shapes = ((d,), (d,), (d, hidden), (hidden,), (hidden, latent), (latent,))
    for name, array, shape in zip(EncoderWeights._fields, weights, shapes, strict=True):
        if array.shape != shape or array.dtype != np.float64:
            raise ValueError(f"{name}: expected float64 {shape}, found {array.dtype} {array.shape}")
        if not (np.abs(array) < _LARGE).all():
            raise ValueError(f"{name}: expected numbers below {_LARGE:g}")
    if not (weights.scale >= 1 / _LARGE).all():
        raise ValueError(f"scale: expected numbers of at least {1 / _LARGE:g}")
