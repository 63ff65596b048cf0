"""K and a limit of the risk, chosen on held-out episodes so that few dangerous actions pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from advice.shields.bounds import learn_then_test
from advice.shields.cautiousness import required_votes
from advice.shields.memory import Steps
from advice.shields.model import FittedModel
from advice.shields.spaces import Bools
from advice.types import AdviceError, Outcome

if TYPE_CHECKING:
    from advice.shields.shield import Shield

# the limits of the risk that are tried: such shares of the safe fitted points lie below
_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class Calibrated(NamedTuple):
    """What was chosen, and what it promises for episodes like the held-out ones.

    With ``confidence`` the share of dangerous actions that pass, averaged over episodes with a
    violation, is at most ``false_safe``. Dangerous are the last ``horizon`` actions before a
    violation.
    """

    k: int  # K does not fall below this
    risk_limit: float | None  # actions with more risk are refused; None: no limit
    false_safe: float
    confidence: float
    episodes: int  # held-out episodes with a violation
    passed: float  # share of their dangerous actions that pass
    refused: float  # share of the other held-out steps that are refused: the price
    horizon: int

    def __str__(self) -> str:
        limit = "" if self.risk_limit is None else f" and a risk of at most {self.risk_limit:.3g}"
        return (
            f"K = {self.k}{limit}: at most {self.false_safe:.0%} of the dangerous actions pass, "
            f"with {self.confidence:.0%} confidence ({self.passed:.1%} of those of the "
            f"{self.episodes} held-out episodes with a violation); {self.refused:.0%} of the other "
            "steps are refused"
        )


def read_calibrated(values: list[Any], k_max: int) -> Calibrated:
    """The result that a file holds; ValueError or TypeError if it cannot be one."""
    found = Calibrated(*values)
    shares = (found.false_safe, found.confidence, found.passed, found.refused)
    limit = 0.0 if found.risk_limit is None else found.risk_limit
    counted = found.k in range(1, k_max + 1) and min(found.episodes, found.horizon) >= 1
    if not (counted and math.isfinite(limit) and all(0 <= x <= 1 for x in shares)):
        raise ValueError(f"expected a calibration, found {found}")
    return found


def dangerous(steps: Steps, horizon: int) -> Bools:
    """(N,) the last ``horizon`` steps before each violation, the violating one included."""
    led = steps.outcomes == Outcome.UNSAFE
    for _ in range(horizon - 1):
        led[:-1] |= led[1:] & steps.continues[:-1]
    return led & (steps.outcomes != Outcome.SAFE)


def calibrate(
    model: FittedModel, steps: Steps, shield: Shield, false_safe: float, confidence: float
) -> Calibrated:
    """Learn-then-Test over settings from strict to loose; fitted episodes alone vote.

    First K_max with ever looser limits of the risk, then without a limit, then smaller K. Raises
    AdviceError if not even the strictest is shown to be good enough.
    """
    k_max, points = shield.config.k_max, model.points
    horizon = shield.summary.horizon if shield.summary else 1
    apart = np.setdiff1d(points.episodes[points.held_out], points.episodes[~points.held_out])
    rows = np.isin(steps.episodes, apart)
    led = dangerous(steps, horizon)[rows]
    voters = model.without_held_out(shield.config)
    latents = model.encoder.encode(steps.features[rows].astype(np.float64))
    votes = voters.votes(latents) if len(latents) else np.zeros(0, np.int64)
    settings = [(k, math.inf) for k in range(k_max, math.ceil(k_max / 2) - 1, -1)]
    risk = np.zeros(len(latents))
    if model.risk is not None:
        risk = latents @ model.risk
        safe = voters.neighbours.points[voters.safe] @ model.risk
        settings = [(k_max, float(x)) for x in np.quantile(safe, _SHARES)] + settings
    passes_anyway = np.zeros(len(latents), bool)  # what passes whatever the votes say
    if shield.config.far == "endorse" and shield._far is not None and len(latents):
        passes_anyway = shield._far.distances(steps.features[rows]) > shield._far.threshold
    episodes, which = np.unique(steps.episodes[rows][led], return_inverse=True)
    passes = [
        passes_anyway
        | (votes >= required_votes(k, k_max, len(voters.neighbours))) & (risk <= limit)
        for k, limit in settings
    ]
    losses = np.zeros((len(episodes), len(settings)))  # shares of each episode's dangerous actions
    for setting, passed in enumerate(passes):
        np.add.at(losses[:, setting], which, passed[led])
    losses /= np.bincount(which, minlength=len(episodes))[:, None]
    chosen, needed = learn_then_test(losses, false_safe, confidence)
    if chosen is None:
        why = f"{needed} are needed"
        if len(episodes) >= needed:
            why = f"and {losses[:, 0].mean():.1%} of their dangerous actions pass the strictest one"
        raise AdviceError(
            f"no setting is shown to let at most {false_safe:.0%} of the dangerous actions pass, "
            f"with {confidence:.0%} confidence: {len(episodes)} episodes with a violation were "
            f"held out, {why}"
        )
    k, limit = settings[chosen]
    refused = float((~passes[chosen][~led]).mean()) if not led.all() else 0.0
    found = len(episodes), float(losses[:, chosen].mean()), refused, horizon
    return Calibrated(k, limit if limit < math.inf else None, false_safe, confidence, *found)
