"""How well a shield tells safe from unsafe, on episodes held out of its fit.

Accuracy alone says little: a shield that judges the state and never the action can be accurate and
of no use. So the audit also says how often the verdict depends on the action and how often steps
that survived are refused. The theorems' bounds are given only where the held-out features are as
the theorems assume, and they are no guarantees.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from advice.shields import theorems
from advice.shields.cautiousness import required_votes
from advice.shields.encoder import Floats
from advice.shields.fit import DangerBin, Evidence, FitSummary
from advice.shields.neighbours import Neighbours

_FEW = 30  # unsafe examples below which a rate says little
LOW_ACCURACY = 0.7
"""The audit warns of a balanced accuracy below this."""
ACTION_MATTERS = 0.2
"""And where the verdict depends on the action in fewer states near danger than this share."""


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
    calibration: list[Rate]
    """Of the examples with 0, 1, ... safe neighbours, how many were safe."""
    far: Rate
    """Held-out examples whose last voter is farther away than for 99 % of the training features."""
    sigma: float
    """Pooled within-class standard deviation per latent dimension."""
    margins: list[theorems.Margin]
    """For the minimum, the 1 % and the 5 % quantile."""
    entropy_binned: float
    """Of the fitted features in the latent space, 16 bins a dimension, in nats."""
    entropy_continuous: float
    """Kozachenko-Leonenko estimate of the same, in nats."""
    entropy_bound: float
    """exp(-H / 2 sigma^2) with the binned entropy, Theorem 2."""
    no_bound: str
    """Why the theorems' bounds do not apply; empty if their assumptions hold."""
    evidence: Evidence
    """What the fit measured near danger: does the action matter, is there a safe one?"""
    nearness: list[DangerBin]
    """Refusals of held-out steps by the danger of their states; none with the paper's labels."""
    warnings: list[str]

    @property
    def balanced_accuracy(self) -> float:
        """At the present K."""
        return self.at_k[max(self.k, 1) - 1].balanced_accuracy

    @property
    def survived_refused(self) -> Rate:
        """Steps near danger that survived and yet are refused."""
        near = self.nearness[1:]
        return wilson(sum(x.survived_refused for x in near), sum(x.survived for x in near))

    @property
    def line(self) -> str:
        """The verdict, the most important figures and the warnings, in one line."""
        verdict = "the audit warns" if self.warnings else "the audit finds nothing against it"
        refused = ""
        if self.nearness:
            share = _share(self.survived_refused.rate)
            refused = f", {share} of the steps that survived there are refused"
        warned = "".join(f". WARNING: {x.rstrip('.')}" for x in self.warnings)
        return (
            f"{verdict} (balanced accuracy {_share(self.balanced_accuracy)}, near danger the "
            f"verdict depends on the action in {_share(self.evidence.action_matters)} of the "
            f"states, no action is safe in {_share(self.evidence.no_safe_action)}{refused}){warned}"
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
            " K   false safe (95 % interval)    false unsafe (95 % interval)  balanced accuracy",
        ]
        marked = [(">" if row.k == self.k else " ", row) for row in self.at_k]
        lines += [
            f"{mark}{row.k}   {row.false_safe!s:<29} {row.false_unsafe!s:<29} "
            f"{row.balanced_accuracy:.3f}"
            for mark, row in marked
        ]
        lines += ["", " K   safe: let through, refused    unsafe: let through, refused"]
        lines += [
            f"{mark}{row.k}   {row.safe_judged_safe:>10} {row.safe_judged_unsafe:>10}"
            f"          {row.unsafe_judged_safe:>10} {row.unsafe_judged_unsafe:>10}"
            for mark, row in marked
        ]
        lines += [
            "",
            "Near danger the verdict depends on the action in "
            f"{_share(self.evidence.action_matters)} of the held-out states; no candidate is safe "
            f"in {_share(self.evidence.no_safe_action)}.",
        ]
        if self.nearness:
            lines.append(
                "Danger of the state   survived: steps, refused   led to a violation: "
                "steps, refused"
            )
        for x in self.nearness:
            survived = f"{x.survived_refused / x.survived:.0%}" if x.survived else "-"
            led = f"{x.led_refused / x.led:.0%}" if x.led else "-"
            lines.append(
                f"{x.low:>8.0%} to {x.high:<6.0%} {x.survived:>14} {survived:>10}"
                f" {x.led:>26} {led:>10}"
            )
        lines += ["", "Calibration: safe neighbours -> share that was safe"]
        lines += [f"    {n}  {row} of {row.total}" for n, row in enumerate(self.calibration)]
        lines += [
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


def _share(value: float) -> str:
    return "an unknown share" if math.isnan(value) else f"{value:.0%}"


def audit(
    latent: Floats,
    safe: NDArray[np.bool_],
    episodes: NDArray[np.int64],
    held_out: NDArray[np.bool_],
    k: int,
    k_max: int,
    summary: FitSummary | None = None,
    labels: str = "hindsight",
) -> Audit:
    """Classify the held-out (N, latent) points by their neighbours among the others.

    ``summary`` and ``labels`` are those of the fit.
    """
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
        kept, refused, missed, caught = (
            int((a & b).sum()) for a in (test_safe, ~test_safe) for b in (passed, ~passed)
        )
        false_safe, false_unsafe = wilson(missed, missed + caught), wilson(refused, kept + refused)
        balanced = 1 - (false_safe.rate + false_unsafe.rate) / 2
        cells = kept, refused, missed, caught
        at_k.append(AtK(asked, *cells, false_safe, false_unsafe, balanced))
    voted = [test_safe[votes == x] for x in range(min(k_max, len(train)) + 1)]
    sigma, entropy = theorems.pooled_spread(test, test_safe), theorems.binned_entropy(latent)
    classes = test[test_safe], test[~test_safe]
    evidence = summary.evidence if summary else Evidence()
    accuracy = at_k[max(k, 1) - 1].balanced_accuracy
    return Audit(
        k=k,
        k_max=k_max,
        train_safe=int(train_safe.sum()),
        train_unsafe=int((~train_safe).sum()),
        held_out_safe=int(test_safe.sum()),
        held_out_unsafe=int((~test_safe).sum()),
        held_out_episodes=len(np.unique(episodes[held_out])),
        at_k=at_k,
        calibration=[wilson(int(x.sum()), len(x)) for x in voted],
        far=wilson(int((farthest > usual).sum()), len(farthest)),
        sigma=sigma,
        margins=theorems.margins_of(*classes, sigma),
        entropy_binned=entropy,
        entropy_continuous=theorems.continuous_entropy(latent),
        entropy_bound=theorems.bound(entropy, sigma),
        no_bound=theorems.why_no_bound(*classes),
        evidence=evidence,
        nearness=list(summary.nearness) if summary else [],
        warnings=_warnings(train_safe, test_safe, accuracy, evidence.action_matters, labels),
    )


def _warnings(
    train_safe: NDArray[np.bool_],
    test_safe: NDArray[np.bool_],
    accuracy: float,
    action_matters: float,
    labels: str,
) -> list[str]:
    """What to know before relying on the shield: too few examples, or it cannot help."""
    learnt, unsafe = (int((~x).sum()) for x in (train_safe, test_safe))
    worst = wilson(0, unsafe).high
    cases = [
        (
            len(test_safe) == 0,
            "nothing could be held out: too few episodes of both kinds. The rates are unknown.",
        ),
        (
            0 < unsafe < _FEW,
            f"only {unsafe} unsafe examples were held out: even if none was endorsed, the true "
            f"rate may be up to {worst:.0%}. Use more construction episodes.",
        ),
        (
            learnt < _FEW,
            f"only {learnt} unsafe examples to learn from: the shield cannot refuse what is unlike "
            "any of them.",
        ),
        (
            labels == "paper",
            "safe examples are first steps and goals only: the shield learns where danger is, "
            "hardly which action leads there.",
        ),
        (
            action_matters < ACTION_MATTERS,
            f"near danger the verdict depends on the action in {action_matters:.0%} of the states "
            "only: replacing actions helps little.",
        ),
        (
            accuracy < LOW_ACCURACY,
            f"the balanced accuracy on held-out episodes is {accuracy:.2f}: the shield cannot tell "
            "safe from unsafe steps well.",
        ),
    ]
    return [warning for applies, warning in cases if applies]
