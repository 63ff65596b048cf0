"""How well a shield tells safe from unsafe, on episodes held out of its fit.

Accuracy alone says little: a shield that judges the state and never the action can be accurate and
of no use. So the audit also says how often the verdict depends on the action and how often steps
that survived are refused. The bounds of the paper's theorems assume separate classes with Gaussian
noise; they are given only where the held-out features are like that, and they are no guarantees.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from advice.shields.cautiousness import required_votes
from advice.shields.fit import DangerBin, Evidence, FitSummary
from advice.shields.model import Points
from advice.shields.neighbours import Neighbours
from advice.shields.spaces import Bools, Floats

_FEW = 30  # examples of a class below which a rate or a check of assumptions says little
MOST_WITHOUT_SAFE_ACTION = 0.5
"""The audit warns where no action is safe in more than this share of the states near danger."""
LOW_ACCURACY, ACTION_MATTERS = 0.7, 0.2
"""The audit warns of a balanced accuracy below the first if held-out episodes do not show either
that the shield tells actions apart, and where the verdict depends on the
action in fewer states near danger than the second, a share."""
_SKEWNESS, _KURTOSIS = 0.5, 1.0  # more of it (excess kurtosis) is not Gaussian
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
        interval = f"({self.low:.1%} to {self.high:.1%})"
        return f"{self.count} of {self.total}: {self.rate:.1%} {interval}"


def wilson(count: int, total: int) -> Rate:
    """A share with its 95 % Wilson score interval."""
    if total == 0:
        return Rate(0, 0, math.nan, math.nan, math.nan)
    z, p = 1.959963984540054, count / total
    scale = 1 + z * z / total
    middle = (p + z * z / (2 * total)) / scale
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total)) / scale
    return Rate(count, total, p, max(0.0, middle - half), min(1.0, middle + half))


@dataclass(frozen=True)
class AtK:
    """What K safe neighbours being asked for means for the held-out examples."""

    k: int
    false_safe: Rate  # of the unsafe, those that would have been endorsed
    false_unsafe: Rate  # of the safe, those that would have been refused
    balanced_accuracy: float


@dataclass(frozen=True)
class Margin:
    """A quantile of the safe-to-unsafe distances and the misclassification bound it gives."""

    quantile: float
    gamma: float
    gamma_over_sigma: float
    bound: float  # exp(-gamma^2 / 2 sigma^2), Theorem 1


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
    calibration: list[Rate]  # of the examples with 0, 1, ... safe neighbours, the safe ones
    far: Rate  # held-out examples with a last voter farther away than for 99 % of the fitted ones
    sigma: float  # pooled within-class standard deviation per latent dimension
    margins: list[Margin]  # for the minimum, the 1 % and the 5 % quantile
    entropy_binned: float  # of the features in the latent space, 16 bins a dimension, in nats
    entropy_continuous: float  # Kozachenko-Leonenko estimate of the same, in nats
    entropy_bound: float  # exp(-H / 2 sigma^2) with the binned entropy, Theorem 2
    no_bound: str  # why the theorems' bounds do not apply; empty if their assumptions hold
    evidence: Evidence  # near danger: does the action matter, is there a safe one?
    nearness: list[DangerBin]  # refusals by the danger of the state; none with the paper's labels
    warnings: list[str]

    @property
    def balanced_accuracy(self) -> float:
        """At the present K."""
        return self.at_k[max(self.k, 1) - 1].balanced_accuracy

    @property
    def line(self) -> str:
        """The verdict, the most important figures and the warnings, in one line."""
        verdict = "the audit warns" if self.warnings else "the audit finds nothing against it"
        near, refused = self.nearness[1:], ""
        if self.nearness:
            rate = wilson(sum(x.survived_refused for x in near), sum(x.survived for x in near)).rate
            refused = f", {_share(rate)} of the steps that survived there are refused"
        warned = "".join(f". WARNING: {x.rstrip('.')}" for x in self.warnings)
        return (
            f"{verdict} (balanced accuracy {_share(self.balanced_accuracy, 'unknown')}, near "
            f"danger the verdict depends on the action in {_share(self.evidence.action_matters)} "
            f"of the states, no action is safe in {_share(self.evidence.no_safe_action)}{refused})"
            f"{warned}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        near = [x._asdict() for x in self.nearness]
        return dataclasses.asdict(self) | {"evidence": self.evidence._asdict(), "nearness": near}

    def __str__(self) -> str:
        lines = [
            f"Fitted on {self.train_safe} safe and {self.train_unsafe} unsafe features; audited on "
            f"{self.held_out_safe} safe and {self.held_out_unsafe} unsafe",
            f"of {self.held_out_episodes} held-out episodes. K is {self.k} of {self.k_max}.",
            *(f"WARNING: {warning}" for warning in self.warnings),
            "",
            " K   false safe (95 % interval)           false unsafe (95 % interval)         "
            "balanced accuracy",
        ]
        for row in self.at_k:
            rates = f"{row.false_safe!s:<36} {row.false_unsafe!s:<36} {row.balanced_accuracy:.3f}"
            lines.append(f"{'>' if row.k == self.k else ' '}{row.k}   {rates}")
        matters, none = _share(self.evidence.action_matters), _share(self.evidence.no_safe_action)
        lines += [
            "",
            f"Near danger the verdict depends on the action in {matters} of the held-out states; "
            f"no candidate is safe in {none}.",
        ]
        if self.nearness:
            led = "led to a violation: steps, refused"
            lines.append(f"Danger of the state   survived: steps, refused   {led}")
        for x in self.nearness:
            survived = f"{x.survived_refused / x.survived:.0%}" if x.survived else "-"
            led = f"{x.led_refused / x.led:.0%}" if x.led else "-"
            counts = f"{x.survived:>14} {survived:>10} {x.led:>26} {led:>10}"
            lines.append(f"{x.low:>8.0%} to {x.high:<6.0%} {counts}")
        lines += [
            "",
            "Calibration: safe neighbours -> share that was safe",
            *(f"    {n}  {row}" for n, row in enumerate(self.calibration)),
            "",
            f"Far from the training features: {self.far}",
            f"Spread within classes (sigma): {self.sigma:.4g}",
        ]
        for m in self.margins:
            which = f"{m.quantile:.0%} quantile" if m.quantile else "minimum"
            bound = "" if self.no_bound else f", bound exp(-gamma^2/2 sigma^2) {m.bound:.3g}"
            ratio = f"gamma/sigma {m.gamma_over_sigma:.3g}"
            lines.append(f"Margin (gamma, {which}): {m.gamma:.4g}, {ratio}{bound}")
        bound = "" if self.no_bound else f"; bound exp(-H/2 sigma^2) {self.entropy_bound:.3g}"
        lines.append(
            f"Entropy: {self.entropy_binned:.3f} nats binned, {self.entropy_continuous:.3f} "
            f"Kozachenko-Leonenko{bound}"
        )
        if self.no_bound:
            lines.append(f"The theorems' bounds are not given: {self.no_bound}.")
        return "\n".join(lines)


def _share(value: float, unknown: str = "an unknown share") -> str:
    return unknown if math.isnan(value) else f"{value:.0%}"


def audit(
    points: Points,
    k: int,
    k_max: int,
    summary: FitSummary | None = None,
    labels: str = "hindsight",
) -> Audit:
    """Classify the held-out points by their neighbours among the others.

    ``summary`` and ``labels`` are those of the fit.
    """
    latent, safe, held_out, episodes = points
    train, test = latent[~held_out], latent[held_out]
    train_safe, test_safe = safe[~held_out], safe[held_out]
    votes, farthest = np.zeros(0, np.int64), np.zeros(0)
    if len(test):
        nearest = Neighbours(train, k_max).query(test)
        votes = np.count_nonzero(train_safe[nearest.indices], axis=1)
        farthest = np.sqrt(nearest.squared[:, -1])
    usual = np.quantile(cKDTree(train).query(train, k=[min(k_max + 1, len(train))])[0], 0.99)
    at_k = []
    for asked in range(1, k_max + 1):
        passed = votes >= required_votes(asked, k_max, len(train))
        missed, refused = passed[~test_safe], ~passed[test_safe]
        rates = wilson(int(missed.sum()), len(missed)), wilson(int(refused.sum()), len(refused))
        at_k.append(AtK(asked, *rates, 1 - (rates[0].rate + rates[1].rate) / 2))
    voted = [test_safe[votes == x] for x in range(min(k_max, len(train)) + 1)]
    sigma, entropy = pooled_spread(test, test_safe), binned_entropy(latent)
    classes = test[test_safe], test[~test_safe]
    found = Audit(
        k=k,
        k_max=k_max,
        train_safe=int(train_safe.sum()),
        train_unsafe=int((~train_safe).sum()),
        held_out_safe=len(classes[0]),
        held_out_unsafe=len(classes[1]),
        held_out_episodes=len(np.unique(episodes[held_out])),
        at_k=at_k,
        calibration=[wilson(int(x.sum()), len(x)) for x in voted],
        far=wilson(int((farthest > usual).sum()), len(farthest)),
        sigma=sigma,
        margins=margins_of(*classes, sigma),
        entropy_binned=entropy,
        entropy_continuous=continuous_entropy(latent),
        entropy_bound=_bound(entropy, sigma),
        no_bound=why_no_bound(*classes),
        evidence=summary.evidence if summary else Evidence(),
        nearness=list(summary.nearness) if summary else [],
        warnings=[],
    )
    found.warnings.extend(_warnings(found, labels))
    return found


def _warnings(found: Audit, labels: str) -> list[str]:
    """Too few examples, or signs that the shield cannot help."""
    warnings, unsafe = [], found.held_out_unsafe
    if found.held_out_safe + unsafe == 0:
        warnings.append("nothing could be held out: too few episodes of both kinds.")
    if 0 < unsafe < _FEW:
        high = wilson(0, unsafe).high
        worst = f"even if none was endorsed, the true rate may be up to {high:.0%}"
        warnings.append(f"only {unsafe} unsafe examples were held out: {worst}.")
    if found.train_unsafe < _FEW:
        unlike = "the shield cannot refuse what is unlike any of them"
        warnings.append(f"only {found.train_unsafe} unsafe examples to learn from: {unlike}.")
    if labels == "paper":
        hardly = "the shield learns where danger is, hardly which action leads there"
        warnings.append(f"safe examples are first steps and goals only: {hardly}.")
    if (matters := found.evidence.action_matters) < ACTION_MATTERS and found.evidence.is_blind:
        where = f"near danger the verdict depends on the action in {matters:.0%} of the states only"
        warnings.append(f"{where}: replacing actions helps little.")
    if (none := found.evidence.no_safe_action) > MOST_WITHOUT_SAFE_ACTION:
        where = f"in {none:.0%} of the states near danger no action is safe"
        warnings.append(f"{where}: there the shield comes too late, or is too cautious.")
    accuracy = found.balanced_accuracy  # behind a good shield many steps come close to danger
    if accuracy < LOW_ACCURACY and not found.evidence.tells_actions_apart:
        low = f"the balanced accuracy on held-out episodes is {accuracy:.2f}"
        warnings.append(f"{low}: the shield cannot tell safe from unsafe steps well.")
    return warnings


# -- the quantities of the paper's theorems, measured on latent points -------------------------


def pooled_spread(points: Floats, safe: Bools) -> float:
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
        Margin(quantile, gamma, gamma / sigma if sigma > 0 else math.nan, _bound(gamma**2, sigma))
        for quantile, gamma in gammas.items()
    ]


def _bound(exponent: float, sigma: float) -> float:
    """exp(-exponent / 2 sigma^2)."""
    return math.exp(-exponent / (2 * sigma * sigma)) if sigma > 0 else math.nan


def why_no_bound(safe: Floats, unsafe: Floats) -> str:
    """Why the theorems' assumptions do not hold for (N, latent) features of two classes, or "".

    Separate classes: along the line through both means, the 1 % of each class that is nearest to
    the other leaves a gap. Gaussian noise: in each dimension, deviations from the class means have
    little skewness and excess kurtosis.
    """
    if min(len(safe), len(unsafe)) < _FEW:
        return f"fewer than {_FEW} held-out features of a class"
    direction = safe.mean(0) - unsafe.mean(0)
    if np.quantile(safe @ direction, 0.01) <= np.quantile(unsafe @ direction, 0.99):
        return "the classes overlap in the latent space"
    noise = np.concatenate([x - x.mean(0) for x in (safe, unsafe)])
    spread = noise.std(0)
    if (spread < 1e-12).any():
        return "a latent dimension is constant within the classes"
    noise /= spread
    skewness, kurtosis = np.abs((noise**3).mean(0)), np.abs((noise**4).mean(0) - 3)
    gaussian = (skewness <= _SKEWNESS).all() and (kurtosis <= _KURTOSIS).all()
    return "" if gaussian else "the spread within the classes is not Gaussian"
