"""The quantities of the paper's theorems, measured on latent points.

The bounds assume separate classes with Gaussian noise: :func:`why_no_bound` checks that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from advice.shields.encoder import Floats

_FEWEST = 30  # features of a class that a check of the assumptions needs
_SKEWNESS, _KURTOSIS = 0.5, 1.0  # more of it (excess kurtosis) is not Gaussian
_MOST = 1000  # examples per class of which all pairs make the quantiles


@dataclass(frozen=True)
class Margin:
    """A quantile of the safe-to-unsafe distances and the misclassification bound it gives."""

    quantile: float
    gamma: float
    gamma_over_sigma: float
    bound: float
    """exp(-gamma^2 / 2 sigma^2), Theorem 1."""


def pooled_spread(points: Floats, safe: NDArray[np.bool_]) -> float:
    """sigma: root mean square deviation from the class means, per dimension (N - 2 dividing)."""
    groups = [group for group in (points[safe], points[~safe]) if len(group)]
    squares = sum(float(np.square(group - group.mean(0)).sum()) for group in groups)
    freedom = (len(points) - len(groups)) * points.shape[1]
    return math.sqrt(squares / freedom) if freedom else math.nan


def binned_entropy(points: Floats, bins: int = 16) -> float:
    """-sum p log p over the occupied cells of a grid with ``bins`` cells per dimension."""
    low, width = points.min(0), np.maximum(np.ptp(points, axis=0), 1e-12)
    cells = np.minimum((points - low) / width * bins, bins - 1).astype(np.int64)
    p = np.unique(cells, axis=0, return_counts=True)[1] / len(points)
    return float(-(p * np.log(p)).sum())


def continuous_entropy(points: Floats, k: int = 3) -> float:
    """Kozachenko-Leonenko: psi(N) - psi(k) + log V_d + (d/N) sum log r_i, r_i the distance to the
    k-th neighbour and V_d the volume of the unit ball; over distinct points."""
    distinct = np.unique(points, axis=0)
    n, d = distinct.shape
    if n <= k:
        return math.nan
    distances, _ = cKDTree(distinct).query(distinct, k=[k + 1])
    volume = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    spread = float(np.log(np.maximum(distances, 1e-300)).mean())
    return float(digamma(n) - digamma(k) + volume + d * spread)


def margins_of(safe: Floats, unsafe: Floats, sigma: float) -> list[Margin]:
    """For the minimum, the 1 % and the 5 % quantile of the distances between two classes."""
    if not len(safe) or not len(unsafe):
        return []
    gammas = {0.0: float(cKDTree(safe).query(unsafe)[0].min())}
    distances = cdist(*(x[:: -(-len(x) // _MOST)] for x in (safe, unsafe)))
    gammas |= {quantile: float(np.quantile(distances, quantile)) for quantile in (0.01, 0.05)}
    return [
        Margin(quantile, gamma, gamma / sigma if sigma > 0 else math.nan, bound(gamma**2, sigma))
        for quantile, gamma in gammas.items()
    ]


def bound(exponent: float, sigma: float) -> float:
    """exp(-exponent / 2 sigma^2)."""
    return math.exp(-exponent / (2 * sigma * sigma)) if sigma > 0 else math.nan


def why_no_bound(safe: Floats, unsafe: Floats) -> str:
    """Why the theorems' assumptions do not hold for (N, latent) features of two classes, or "".

    Separate classes: along the line through both means, the 1 % of each class that is nearest to
    the other leaves a gap. Gaussian noise: in each dimension, deviations from the class means have
    little skewness and excess kurtosis.
    """
    if min(len(safe), len(unsafe)) < _FEWEST:
        return f"fewer than {_FEWEST} held-out features of a class"
    direction = safe.mean(0) - unsafe.mean(0)
    if np.quantile(safe @ direction, 0.01) <= np.quantile(unsafe @ direction, 0.99):
        return "the classes overlap in the latent space"
    noise = np.concatenate([x - x.mean(0) for x in (safe, unsafe)])
    spread = noise.std(0)
    if (spread < 1e-12).any():
        return "a latent dimension is constant within the classes"
    noise /= spread
    skewness, kurtosis = np.abs((noise**3).mean(0)), np.abs((noise**4).mean(0) - 3)
    if (skewness > _SKEWNESS).any() or (kurtosis > _KURTOSIS).any():
        return "the spread within the classes is not Gaussian"
    return ""
