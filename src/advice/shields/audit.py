"""How well a shield tells safe from unsafe, on episodes held out of its fit.

The theorems' quantities are diagnostics, not guarantees: the bound assumes Gaussian noise around a
margin, which embeddings seldom have. Compare it with the counted rates.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from advice.shields.cautiousness import required_votes
from advice.shields.encoder import Floats
from advice.shields.neighbours import Neighbours

_FEW = 30  # unsafe examples below which a rate says little
_MOST = 1000  # examples per class of which all pairs make the quantiles


@dataclass(frozen=True)
class Rate:
    """``count`` of ``total`` with its 95 % Wilson interval; NaN where there was nothing."""

    count: int
    total: int
    rate: float
    low: float
    high: float

    def __str__(self) -> str:
        if not self.total:
            return "no examples"
        return f"{self.rate:6.1%} ({self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class AtK:
    """The confusion matrix when K safe neighbours are asked for."""

    k: int
    safe_judged_safe: int
    safe_judged_unsafe: int
    unsafe_judged_safe: int
    unsafe_judged_unsafe: int
    false_safe: Rate
    """Share of the unsafe that would have been endorsed."""
    false_unsafe: Rate
    """Share of the safe that would have been refused."""
    balanced_accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Of the examples with so many safe neighbours, how many were safe."""

    safe_neighbours: int
    safe: Rate


@dataclass(frozen=True)
class Margin:
    """A quantile of the safe-to-unsafe distances and the misclassification bound it gives."""

    quantile: float
    gamma: float
    gamma_over_sigma: float
    bound: float
    """exp(-gamma^2 / 2 sigma^2), Theorem 1."""


@dataclass(frozen=True)
class Audit:
    """What :meth:`Shield.audit` found; prints as a report."""

    k: int
    k_max: int
    train_safe: int
    train_unsafe: int
    held_out_safe: int
    held_out_unsafe: int
    held_out_episodes: int
    at_k: list[AtK]
    calibration: list[Calibration]
    far: Rate
    """Held-out examples whose last voter is farther away than for 99 % of the training features."""
    sigma: float
    """Pooled within-class standard deviation per latent dimension."""
    margins: list[Margin]
    """For the minimum, the 1 % and the 5 % quantile."""
    entropy_binned: float
    """Of the fitted features in the latent space, 16 bins a dimension, in nats."""
    entropy_continuous: float
    """Kozachenko-Leonenko estimate of the same, in nats."""
    entropy_bound: float
    """exp(-H / 2 sigma^2) with the binned entropy, Theorem 2."""
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [
            f"Fitted on {self.train_safe} safe and {self.train_unsafe} unsafe features; audited on "
            f"{self.held_out_safe} safe and {self.held_out_unsafe} unsafe",
            f"of {self.held_out_episodes} held-out episodes. K is {self.k} of {self.k_max}.",
            *(f"WARNING: {warning}" for warning in self.warnings),
            "",
            " K   false safe (95 % interval)    false unsafe (95 % interval)  balanced accuracy",
        ]
        for row in self.at_k:
            mark = ">" if row.k == self.k else " "
            lines.append(
                f"{mark}{row.k}   {row.false_safe!s:<29} {row.false_unsafe!s:<29} "
                f"{row.balanced_accuracy:.3f}"
            )
        lines += ["", " K   safe: let through, refused    unsafe: let through, refused"]
        for row in self.at_k:
            mark = ">" if row.k == self.k else " "
            lines.append(
                f"{mark}{row.k}   {row.safe_judged_safe:>10} {row.safe_judged_unsafe:>10}"
                f"          {row.unsafe_judged_safe:>10} {row.unsafe_judged_unsafe:>10}"
            )
        lines += ["", "Calibration: safe neighbours -> share that was safe"]
        lines += [
            f"    {row.safe_neighbours}  {row.safe!s} of {row.safe.total}"
            for row in self.calibration
        ]
        lines += [
            "",
            f"Far from the training features: {self.far}",
            f"Spread within classes (sigma): {self.sigma:.4g}",
        ]
        lines += [
            f"Margin (gamma, {'minimum' if m.quantile == 0 else f'{m.quantile:.0%} quantile'}): "
            f"{m.gamma:.4g}, gamma/sigma {m.gamma_over_sigma:.3g}, "
            f"bound exp(-gamma^2/2 sigma^2) {m.bound:.3g}"
            for m in self.margins
        ]
        lines.append(
            f"Entropy: {self.entropy_binned:.3f} nats binned, {self.entropy_continuous:.3f} "
            f"Kozachenko-Leonenko; bound exp(-H/2 sigma^2) {self.entropy_bound:.3g}"
        )
        return "\n".join(lines)


def audit(
    latent: Floats,
    safe: NDArray[np.bool_],
    episodes: NDArray[np.int64],
    held_out: NDArray[np.bool_],
    k: int,
    k_max: int,
) -> Audit:
    """Classify the held-out (N, latent) points by their neighbours among the others."""
    train, test = latent[~held_out], latent[held_out]
    train_safe, test_safe = safe[~held_out], safe[held_out]
    neighbours = Neighbours(train, k_max)
    voters = min(k_max, len(train))
    if len(test):
        nearest = neighbours.query(test)
        votes = np.count_nonzero(train_safe[nearest.indices], axis=1)
        farthest = np.sqrt(nearest.squared[:, -1])
    else:
        votes, farthest = np.zeros(0, np.int64), np.zeros(0)
    usual = np.quantile(cKDTree(train).query(train, k=[min(k_max + 1, len(train))])[0], 0.99)
    sigma = pooled_spread(test, test_safe)
    entropy = binned_entropy(latent)
    return Audit(
        k=k,
        k_max=k_max,
        train_safe=int(train_safe.sum()),
        train_unsafe=int((~train_safe).sum()),
        held_out_safe=int(test_safe.sum()),
        held_out_unsafe=int((~test_safe).sum()),
        held_out_episodes=len(np.unique(episodes[held_out])),
        at_k=[
            _at_k(x, required_votes(x, k_max, len(train)), votes, test_safe)
            for x in range(1, k_max + 1)
        ],
        calibration=[
            Calibration(x, wilson(int(test_safe[votes == x].sum()), int((votes == x).sum())))
            for x in range(voters + 1)
        ],
        far=wilson(int((farthest > usual).sum()), len(farthest)),
        sigma=sigma,
        margins=_margins(test[test_safe], test[~test_safe], sigma),
        entropy_binned=entropy,
        entropy_continuous=continuous_entropy(latent),
        entropy_bound=_bound(entropy, sigma),
        warnings=_warnings(train_safe, test_safe),
    )


def wilson(count: int, total: int) -> Rate:
    """A share with its 95 % Wilson score interval."""
    if total == 0:
        return Rate(0, 0, math.nan, math.nan, math.nan)
    z, p = 1.959963984540054, count / total
    scale = 1 + z * z / total
    middle = (p + z * z / (2 * total)) / scale
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total)) / scale
    return Rate(count, total, p, max(0.0, middle - half), min(1.0, middle + half))


def pooled_spread(points: Floats, safe: NDArray[np.bool_]) -> float:
    """sigma: root mean square deviation from the class means, per dimension (N - 2 dividing)."""
    groups = [points[safe], points[~safe]]
    squares = sum(float(np.square(group - group.mean(0)).sum()) for group in groups if len(group))
    freedom = sum(max(len(group) - 1, 0) for group in groups) * points.shape[1]
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


def _at_k(k: int, required: int, votes: NDArray[np.int64], safe: NDArray[np.bool_]) -> AtK:
    passed = votes >= required
    kept, refused, missed, caught = (
        int((a & b).sum()) for a in (safe, ~safe) for b in (passed, ~passed)
    )
    false_safe, false_unsafe = wilson(missed, missed + caught), wilson(refused, kept + refused)
    balanced = 1 - (false_safe.rate + false_unsafe.rate) / 2
    return AtK(k, kept, refused, missed, caught, false_safe, false_unsafe, balanced)


def _margins(safe: Floats, unsafe: Floats, sigma: float) -> list[Margin]:
    if not len(safe) or not len(unsafe):
        return []
    nearest = float(cKDTree(safe).query(unsafe)[0].min())
    distances = cdist(*(x[:: -(-len(x) // _MOST)] for x in (safe, unsafe)))
    rows = []
    for quantile in (0.0, 0.01, 0.05):
        gamma = float(np.quantile(distances, quantile)) if quantile else nearest
        ratio = gamma / sigma if sigma > 0 else math.nan
        rows.append(Margin(quantile, gamma, ratio, _bound(gamma * gamma, sigma)))
    return rows


def _bound(exponent: float, sigma: float) -> float:
    return math.exp(-exponent / (2 * sigma * sigma)) if sigma > 0 else math.nan


def _warnings(train_safe: NDArray[np.bool_], test_safe: NDArray[np.bool_]) -> list[str]:
    warnings = []
    if len(test_safe) == 0:
        warnings.append(
            "nothing could be held out: too few episodes of both kinds. The rates are unknown."
        )
    unsafe = int((~test_safe).sum())
    if 0 < unsafe < _FEW:
        worst = wilson(0, unsafe).high
        warnings.append(
            f"only {unsafe} unsafe examples were held out: even if none was endorsed, the true "
            f"rate may be up to {worst:.0%}. Use more construction episodes."
        )
    if (~train_safe).sum() < _FEW:
        warnings.append(
            f"only {int((~train_safe).sum())} unsafe examples to learn from: the shield "
            "cannot refuse what is unlike any of them."
        )
    return warnings
