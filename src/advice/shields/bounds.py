"""Statements about violations that hold, with where each comes from.

None of them says anything about actions that were vetoed: these are never tested.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, xlogy

Floats = NDArray[np.float64]
Numbers: TypeAlias = Any  # a number, a sequence of them or an array
_TILTS = np.geomspace(0.01, 8.0, 24)  # log odds ratios that the mixtures bet on
_ODDS = np.array([1.25, 1.5, 2.0, 3.0, 5.0, 10.0])  # rates that the alarm looks for


def _checked(name: str, value: float) -> float:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name}: expected a number between 0 and 1, found {value!r}")
    return float(value)


def _whole(name: str, value: float) -> int:
    if not float(value).is_integer():
        raise ValueError(f"{name}: expected a whole number, found {value!r}")
    return int(value)


def clopper_pearson(violations: int, episodes: int, confidence: float = 0.95) -> float:
    """Upper bound on the violation probability per episode (Clopper and Pearson, Biometrika 1934).

    The p at which at most ``violations`` of ``episodes`` have probability 1 - confidence: 0 of 300
    gives 1.0 % at 95 %. It holds for a frozen agent and shield, independent episodes and one look.
    """
    _checked("confidence", confidence)
    violations, episodes = _whole("violations", violations), _whole("episodes", episodes)
    if not 0 <= violations <= episodes or episodes < 1:
        raise ValueError(
            f"expected 0 <= violations <= episodes and an episode, found {violations} of {episodes}"
        )
    if violations == episodes:
        return 1.0
    return float(betaincinv(violations + 1, episodes - violations, confidence))


def running_bounds(
    totals: Numbers, counts: Numbers, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """(low, high) on the average violation probability of the first ``counts`` episodes, in which
    there were ``totals`` violations; valid for all counts together.

    With p_i the probability of a violation in episode i given all before it, and a fixed tilt a,
    exp(a S_t) / prod(1 + p_i (e^a - 1)) is a martingale. As log(1 + p (e^a - 1)) is concave in p,
    it is at least exp(a S_t) / (1 + m (e^a - 1))^t with m the average of the p_i. By Ville's
    inequality a mixture of these over a exceeds 2 / alpha, ever, with probability at most alpha / 2
    for a > 0 (too many violations: the lower bound) and for a < 0 (the upper one). Sub-Bernoulli
    mixture: Robbins 1970; Howard et al., Ann. Statist. 2021.
    """
    _checked("confidence", confidence)
    total, count = np.broadcast_arrays(np.asarray(totals, float), np.asarray(counts, float))
    if not ((total >= 0) & (total <= count)).all():
        raise ValueError(f"expected 0 <= totals <= counts, found {totals} and {counts}")

    def crossing(side: int, outside: Floats) -> Floats:
        """Between the observed average and ``outside``, where a mean begins to be excluded."""
        inside = total / np.maximum(count, 1.0)
        for _ in range(30):
            middle = (inside + outside) / 2
            far = excludes(total, count, middle, side, confidence)
            outside, inside = np.where(far, middle, outside), np.where(far, inside, middle)
        return outside

    return crossing(1, np.zeros(total.shape)), crossing(-1, np.ones(total.shape))


def excludes(
    total: Numbers, count: Numbers, mean: Numbers, side: int, confidence: float = 0.95
) -> NDArray[np.bool_]:
    """Whether an average probability lies below the lower bound (``side`` 1) or above the upper one
    (-1), for arrays of equal shape."""
    tilts, limit = side * _TILTS, math.log(2 * len(_TILTS) / (1.0 - confidence))
    total, count, mean = (np.asarray(x, float)[..., None] for x in (total, count, mean))
    logs = total * tilts - count * np.log1p(mean * np.expm1(tilts))
    return np.asarray(np.exp(np.minimum(logs - limit, 1.0)).sum(-1) >= 1.0)


class ConfidenceSequence:
    """Bounds on the average violation probability so far, valid at every look.

    With probability ``confidence`` the average of the probabilities that the episodes so far had,
    each given what came before it, is within the bounds after every episode. The policy may change
    as it likes. See :func:`running_bounds`.
    """

    def __init__(self, confidence: float = 0.95) -> None:
        self.confidence = _checked("confidence", confidence)
        self.total, self.count = 0.0, 0

    def update(self, x: float) -> tuple[float, float]:
        """Add an episode with (1) or without (0) a violation; the bounds on the average so far."""
        if not 0.0 <= x <= 1.0:
            raise ValueError(f"x: expected a number from 0 to 1, found {x!r}")
        self.total, self.count = self.total + float(x), self.count + 1
        return self.bounds

    @property
    def bounds(self) -> tuple[float, float]:
        """(low, high) now; (0, 1) before the first episode."""
        low, high = running_bounds(self.total, self.count, self.confidence)
        return float(low), float(high)


class DriftAlarm:
    """Tells that the violation probability has risen above a certified one.

    While every episode's probability is at most ``certified``, whatever else changes, the alarm is
    given, ever, with probability at most ``false_alarms``: a mixture, over when the rate rises and
    to what, of likelihood ratios (Shiryaev 1963; Ville).
    """

    def __init__(self, certified: float, false_alarms: float = 0.05) -> None:
        self.certified = _checked("certified", certified)
        self.false_alarms = _checked("false_alarms", false_alarms)
        self._started = np.zeros(len(_ODDS))  # evidence of rises that have begun
        self.episodes, self.violations = 0, np.zeros((), int)
        self.evidence, self.alarmed = np.ones(()), np.zeros((), bool)

    def update(self, violation: Numbers) -> Any:
        """Add one episode, or with an array one each of several runs; True from the alarm on."""
        violation, certified = np.asarray(violation, bool), self.certified
        self.episodes += 1
        self.violations = self.violations + violation
        raised = _ODDS * certified / (1 + (_ODDS - 1) * certified)
        ratio = np.where(violation[..., None], raised / certified, (1 - raised) / (1 - certified))
        begins = 1.0 / (self.episodes * (self.episodes + 1))  # prior probability in this episode
        self._started = (self._started + begins / len(_ODDS)) * ratio
        self.evidence = self._started.sum(-1) + 1.0 / (self.episodes + 1)
        self.alarmed = self.alarmed | (self.evidence >= 1.0 / self.false_alarms)
        return self.alarmed

    @property
    def warning(self) -> str:
        """What to say once the alarm is given."""
        return (
            f"{self.violations} of the last {self.episodes} episodes had a violation, more than "
            f"the {self.certified:.1%} that were certified allow; the task, the agent or the "
            f"shield is no longer as it was (false with probability at most "
            f"{self.false_alarms:.0%})"
        )


class Tested(NamedTuple):
    """What :func:`learn_then_test` found."""

    chosen: int | None  # the loosest setting that is good enough; None if not even the first is
    needed: int  # episodes from which on no loss at all would show that the rate is small enough


def hoeffding_bentkus(mean: Numbers, count: int, limit: float) -> Floats:
    """p-value of "the expected loss exceeds ``limit``" for ``count`` losses of [0, 1] (Bates et al.
    2021)."""
    mean = np.minimum(np.asarray(mean, float), limit)
    gap = xlogy(mean, mean / limit) + xlogy(1 - mean, (1 - mean) / (1 - limit))
    bentkus = math.e * bdtr(np.ceil(count * mean - 1e-9), count, limit)
    return np.minimum(np.minimum(np.exp(-count * gap), bentkus), 1.0)


def learn_then_test(losses: Numbers, limit: float, confidence: float = 0.9) -> Tested:
    """The loosest of m settings whose expected loss is at most ``limit``, with ``confidence``.

    ``losses``: (n, m), the loss in [0, 1] of each setting on each of n held-out episodes, the
    strictest setting first. The settings are tested in that order, which must not come from these
    episodes, and the first failure ends the tests, so they need not share the confidence
    (Angelopoulos et al. 2021). The episodes are drawn independently.
    """
    losses = np.asarray(losses, float)
    if not ((losses >= 0) & (losses <= 1)).all():
        raise ValueError("losses: expected numbers from 0 to 1")
    delta = 1.0 - _checked("confidence", confidence)
    limit, count = _checked("limit", limit), len(losses)
    needed = math.ceil(math.log(delta) / math.log1p(-limit) - 1e-9)
    if count == 0:
        return Tested(None, needed)
    failed = hoeffding_bentkus(losses.mean(axis=0), count, limit) > delta
    passed = int(np.append(failed, True).argmax())  # settings before the first failure
    return Tested(passed - 1 if passed else None, needed)


def conformal_threshold(scores: Numbers, exceeded: float = 0.05) -> float:
    """What a further score exceeds with probability at most ``exceeded`` (Vovk et al. 2005).

    ``scores``: one per held-out episode, exchangeable with the further one. Infinite where there
    are fewer than 1 / exceeded - 1 of them.
    """
    ordered = np.sort(np.asarray(scores, float))
    rank = math.ceil((len(ordered) + 1) * (1.0 - _checked("exceeded", exceeded)) - 1e-9)
    return float(ordered[rank - 1]) if rank <= len(ordered) else math.inf


class Certificate(NamedTuple):
    """What an evaluation of the frozen shield with a frozen agent has shown."""

    violations: int
    episodes: int

    @property
    def bound(self) -> float:
        """The violation probability per episode is at most this, with 95 % confidence."""
        return clopper_pearson(*self)
