"""From stored steps to a fitted model: the paper's labels, or hindsight and look-ahead.

JAX is imported by the functions that fit, so that guarding does without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.config import ShieldConfig
from advice.shields.cautiousness import required_votes
from advice.shields.encoder import LIMIT, Encoder, EncoderWeights, scaled
from advice.shields.memory import Steps, held_out_mask
from advice.shields.model import FittedModel, Points
from advice.shields.neighbours import Neighbours
from advice.shields.spaces import Bools, FeatureSpace, Floats, Ints, spread_out
from advice.shields.warp import at_most, fit_warp
from advice.types import OneClassError, Outcome

MOST_POINTS = 6000
"""Steps that vote after a look-ahead fit, half of them unsafe."""
NEAR_DANGER = 0.05
"""A state counts as near danger from this danger on."""
MISSED = 0.03
"""Share of the steps that led to violations whose risk may lie below the threshold."""
OBSERVATION_WEIGHT = 0.1
"""Size of the plain observations beside their curves: enough where the sign of a dimension decides
which action is safe, too little for many dimensions to be learnt by heart."""
DANGER_EDGES = (0.0, NEAR_DANGER, 0.3, 0.7, 1.0)
"""Bins of nearness to danger."""
MOST_ROWS = 2000
"""Steps of each kind that are counted in a bin."""
CROWDED = 0.1
"""Where more than this share of the steps comes just before a violation, a state's danger also
counts whether better actions would avoid the violation."""
MOST_SPREAD = 40
"""Actions that are tried in every state to see whether a violation can be avoided."""
FEW_WAYS_OUT = 0.2
"""Of the states in which an action is refused, another one must pass in more than this share."""
FEW = 10
"""Fewer held-out steps than that say nothing."""
MOST_STATES = 200
"""States of held-out episodes on which the evidence asks for every candidate's verdict."""


class Evidence(NamedTuple):
    """What held-out episodes say about a fit; NaN where nothing does."""

    caught: float = np.nan
    """Share of the steps just before a violation that are refused."""
    passed: float = np.nan
    """Share of the steps near danger that came to nothing and that pass; of all steps that came to
    nothing, where there are hardly any near danger."""
    action_matters: float = np.nan
    """Share of the states near danger in which some candidates pass and some do not."""
    no_safe_action: float = np.nan
    """Share of the states near danger in which no candidate passes."""
    last_caught: float = np.nan
    """Share of the very last steps before a violation that are refused."""

    @property
    def is_blind(self) -> bool:
        """True if hardly any action passes in the states near danger in which one is refused."""
        least = FEW_WAYS_OUT * (self.action_matters + self.no_safe_action)
        return not self.action_matters > max(least, 0.01)

    @property
    def tells_actions_apart(self) -> bool:
        """Good enough to guard: it refuses the way into a violation, or, where the last step alone
        decides, that step and hardly any other."""
        on_the_way = self.caught >= 0.6 and self.passed >= 0.2
        at_the_end = self.last_caught >= 0.6 and self.passed >= 0.8
        return (on_the_way or at_the_end) and not self.is_blind


class DangerBin(NamedTuple):
    """Held-out steps whose states have a danger from ``low`` to ``high``, by what came of them."""

    low: float
    high: float
    survived: int  # steps that no violation followed within the look-ahead
    survived_refused: int  # how many of them are refused
    led: int  # the last steps before a violation
    led_refused: int


class FitSummary(NamedTuple):
    """How a fit went."""

    steps: int
    """Gradient steps, or epochs with the paper's labels."""
    validation_loss: float
    features: int
    held_out: int
    evidence: Evidence
    horizon: int
    """Steps before a violation that count as leading to it."""
    hold: int
    """Steps for which a replacement may be held: the slower observations change, the more."""
    nearness: tuple[DangerBin, ...] = ()
    """Refusals by nearness to danger, by the votes of the fitted episodes alone; none with the
    paper's labels, which know no danger of a state."""

    def __str__(self) -> str:
        shares = ("an unknown share" if np.isnan(x) else f"{x:.0%}" for x in self.evidence)
        caught, passed, matters, none, _ = shares
        return (
            f"on held-out episodes it refuses {caught} of the last {self.horizon} steps before a "
            f"violation and passes {passed} of the harmless steps near danger; near "
            f"danger the verdict depends on the action in {matters} of the states, and no action "
            f"is safe in {none}"
        )

    def to_list(self) -> list[Any]:
        """Plain values; NaN as a string."""
        plain: list[Any] = list(self)
        plain[1], plain[4] = repr(self.validation_loss), [repr(x) for x in self.evidence]
        return plain

    @staticmethod
    def from_list(values: list[Any]) -> FitSummary:
        """The summary that :meth:`to_list` described."""
        steps, loss, features, held_out, evidence, horizon, hold, *nearness = values
        counts = int(steps), float(loss), int(features), int(held_out)
        bins = [DangerBin(float(x[0]), float(x[1]), *map(int, x[2:])) for y in nearness for x in y]
        found = Evidence(*map(float, evidence))
        return FitSummary(*counts, found, int(horizon), int(hold), tuple(bins))


Fit = tuple[FittedModel, FitSummary]
Progress = Callable[..., None] | None


def fit_model(
    steps: Steps,
    space: FeatureSpace,
    config: ShieldConfig,
    rng: np.random.Generator,
    progress: Progress = None,
    reach: int = 1,
) -> Fit:
    """Fit by ``config.labels``; raises :class:`OneClassError` if a class of steps is missing.

    With hindsight labels the fit looks ``reach`` times as far ahead as usual; 0: it learns only
    what a step itself does.
    """
    if config.labels == "paper":
        return _fit_paper(steps, space, config, rng, progress)
    return _fit_look_ahead(steps, space, config, rng, reach)


def _need_both_classes(safe: int, unsafe: int) -> None:
    if min(safe, unsafe) == 0:
        raise OneClassError(
            f"a fit needs safe and unsafe steps, found {safe} safe and {unsafe} unsafe"
        )


def _fit_paper(
    steps: Steps,
    space: FeatureSpace,
    config: ShieldConfig,
    rng: np.random.Generator,
    progress: Progress,
) -> Fit:
    """Eq. 2: what was said about each step is its label; contrastive autoencoder as published."""
    said = steps.outcomes != Outcome.INCONCLUSIVE
    features, safe = steps.features[said], steps.outcomes[said] == Outcome.SAFE
    episodes = steps.episodes[said]
    _need_both_classes(int(safe.sum()), int((~safe).sum()))
    from advice.shields.autoencoder import fit_autoencoder

    offset, scale = space.scaling(features)
    held_out = held_out_mask(safe, episodes, config.held_out, rng)
    raw = features.astype(np.float64)
    inputs = scaled(raw, offset, scale).astype(np.float32)
    weights, epochs, loss = fit_autoencoder(
        inputs, safe, held_out, offset, scale, config, int(rng.integers(2**31)), progress
    )
    encoder = Encoder(weights, space.observation.size)
    points = Points(encoder.encode(raw), safe, held_out, episodes)
    model = FittedModel(encoder, points, space.action, config)
    led, quiet = raw[held_out & ~safe], raw[held_out & safe]
    evidence = _evidence(model, (led, led), quiet, led, config)
    return model, FitSummary(epochs, loss, len(raw), int(held_out.sum()), evidence, 1, 0)


def _fit_look_ahead(
    steps: Steps, space: FeatureSpace, config: ShieldConfig, rng: np.random.Generator, reach: int
) -> Fit:
    """Danger of states, look-ahead targets of steps, encoder and risk (see ``lookahead``)."""
    unsafe = steps.outcomes == Outcome.UNSAFE
    _need_both_classes(int((~unsafe).sum()), int(unsafe.sum()))
    from advice.shields import lookahead

    raw, split = steps.features.astype(np.float64), space.observation.size
    usual, ahead = lookahead.horizons(steps)
    near, ahead = max(1, reach) * usual, max(1, reach) * ahead
    until, _ = lookahead.steps_until_violation(steps)
    held_out = held_out_mask(~unsafe, steps.episodes, config.held_out, rng)
    fitted = ~held_out
    warp = fit_warp(raw[fitted, :split], (until <= near)[fitted], rng)
    offset, scale = _scaling(space, raw)
    curves = np.clip(warp(raw[:, :split]), -LIMIT, LIMIT)
    weight = np.ones(space.size)
    weight[:split] = OBSERVATION_WEIGHT if len(warp.columns) and reach else 1.0
    parts = [weight * scaled(raw, offset, scale), curves]
    inputs = np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")
    states = np.delete(inputs, np.s_[split : space.size], axis=1)
    danger = lookahead.fit_danger(states, steps, fitted, near, config.fit_steps, rng)
    foreseen = reach > 0 and lookahead.is_foreseen(danger, until, near, held_out)
    crowded = foreseen and bool(np.mean(until <= usual) > CROWDED)
    if crowded:  # what the agent runs into is no measure where it fails all the time
        taken, others = inputs[:, split : space.size], _spread_actions(space, offset, scale)
        count = config.fit_steps
        lost = lookahead.fit_unavoidable(states, taken, others, steps, fitted, count, rng)
        danger = np.sqrt(danger * lost)
    if not foreseen:  # only what a step itself does is learnt
        near, ahead, danger = 1, 0, np.zeros(len(raw))
    target = lookahead.targets(steps, danger, near, ahead)
    value, usable = target.value, target.known & fitted
    close = (danger > NEAR_DANGER) | (value > 0.3) | (not foreseen)
    some = np.flatnonzero(usable)
    pools = (usable & (value > 0.5), usable & (value <= 0.5) & close)
    rows = tuple(np.flatnonzero(pool) if pool.any() else some for pool in pools)
    fit = lookahead.fit_encoder(inputs, value, (*rows, some), config, rng)
    w1 = fit.w1 * np.append(weight, np.ones(len(fit.w1) - space.size))[:, None]
    encoder = Encoder(EncoderWeights(offset, scale, w1, fit.b1, fit.w2, fit.b2), split, warp)

    latent = encoder.encode(raw)
    risk = latent @ fit.risk + fit.risk_bias
    led = target.leads_in & (steps.outcomes != Outcome.SAFE)
    threshold = float(np.quantile(risk[led & fitted], MISSED))
    safe = value <= np.clip(lookahead.sigmoid(np.array(threshold)), 0.05, 0.5 if crowded else 0.9)
    voters = _voters(safe, target.known, close, rng)
    _need_both_classes(int(safe[voters].sum()), int((~safe[voters]).sum()))
    points = Points(latent[voters], safe[voters], held_out[voters], steps.episodes[voters])
    model = FittedModel(encoder, points, space.action, config, fit.risk)
    survived = target.known & (until > ahead)
    quiet = held_out & target.known & close & safe & ~led
    if quiet.sum() < FEW:  # nothing near danger comes to nothing: judge by what does
        quiet = held_out & survived
    approach = held_out & (until > near) & (until <= 3 * near)
    led_there = raw[held_out & led], raw[held_out & led & (until == 1)]
    evidence = _evidence(model, led_there, raw[quiet], raw[quiet | approach], config)
    errors = (lookahead.sigmoid(risk) - value)[held_out & target.known]
    loss = float(np.mean(errors**2)) if len(errors) else np.nan
    counts = config.fit_steps, loss, int(target.known.sum()), int(held_out.sum())
    last = min(near, lookahead.LAST)
    nearness = _nearness(points, latent, held_out, danger, survived, led, config)
    return model, FitSummary(*counts, evidence, last, _hold(steps, raw[:, :split]), nearness)


def _spread_actions(space: FeatureSpace, offset: Floats, scale: Floats) -> NDArray[np.float32]:
    """(C, k) scaled actions from all over the action space."""
    split = space.observation.size
    if space.action.kind == "discrete":
        one_hot = np.eye(space.size - split)[:MOST_SPREAD]
        return ((one_hot - offset[split:]) / scale[split:]).astype(np.float32)
    return spread_out(MOST_SPREAD, space.size - split).astype(np.float32)


def _nearness(
    points: Points,
    latent: Floats,
    held_out: Bools,
    danger: Floats,
    survived: Bools,
    led: Bools,
    config: ShieldConfig,
) -> tuple[DangerBin, ...]:
    """Refusals among held-out steps by the danger of their states; fitted episodes vote."""
    voting = ~points.held_out
    if not (held_out.any() and voting.any()):
        return ()
    neighbours, safe = Neighbours(points.latent[voting], config.k_max), points.safe[voting]
    required = required_votes(config.k, config.k_max, len(neighbours))

    def refused(rows: Bools) -> tuple[int, int]:
        """How many rows there are, at most MOST_ROWS, and how many are refused."""
        some = np.flatnonzero(rows)
        some = some[:: -(-len(some) // MOST_ROWS) or 1]
        if len(some) == 0:
            return 0, 0
        votes = np.count_nonzero(safe[neighbours.sets(latent[some])], axis=1)
        return len(some), int((votes < required).sum())

    bins = []
    for low, high in itertools.pairwise(DANGER_EDGES):
        inside = held_out & (danger >= low) & ((danger < high) | (high == 1))
        bins.append(DangerBin(low, high, *refused(inside & survived), *refused(inside & led)))
    return tuple(bins)


def _hold(steps: Steps, observations: Floats) -> int:
    """1.5 over the mean ratio of an observation's change in a step to its spread, at most 15."""
    changes = np.diff(observations, axis=0)[steps.continues[:-1]]
    spread = observations.std(axis=0)
    moving = spread > 1e-9
    if not (len(changes) and moving.any()):
        return 1
    ratio = float((changes.std(axis=0)[moving] / spread[moving]).mean())
    return int(np.clip(round(1.5 / max(ratio, 0.1)), 1, 15))


def _scaling(space: FeatureSpace, raw: Floats) -> tuple[Floats, Floats]:
    """Observations by their mean and deviation, actions by their bounds."""
    offset, scale = space.scaling(raw)
    split = space.observation.size
    offset[:split], deviation = raw[:, :split].mean(0), raw[:, :split].std(0)
    scale[:split] = np.where(deviation > 1e-9, deviation, 1.0)
    return offset, scale


def _voters(safe: Bools, known: Bools, close: Bools, rng: np.random.Generator) -> Ints:
    """Rows that vote: unsafe ones, safe ones near danger, and other safe ones for the rest."""
    half = MOST_POINTS // 2
    unsafe = at_most(half, np.flatnonzero(known & ~safe), rng)
    near = at_most(2 * half // 3, np.flatnonzero(known & safe & close), rng)
    rest = at_most(half - len(near), np.flatnonzero(known & safe & ~close), rng)
    return np.concatenate([unsafe, near, rest])


def _evidence(
    model: FittedModel,
    led: tuple[Floats, Floats],
    quiet: Floats,
    near: Floats,
    config: ShieldConfig,
) -> Evidence:
    """From held-out features: steps that led to a violation, all and the very last, steps near
    danger that came to nothing, and states near danger. Only steps of the fitted episodes vote."""
    model = model.without_held_out(config)
    required = required_votes(config.k, config.k_max, len(model.neighbours))
    passed = [
        float((model.votes(model.encoder.encode(x)) >= required).mean()) if len(x) else np.nan
        for x in (*led, quiet)
    ]
    states = near[:: max(1, len(near) // MOST_STATES)]
    verdicts: list[Any] = [model.consider(x).safe_neighbours >= required for x in states]
    matters = [bool(v.any() and not v.all()) for v in verdicts]
    none = [not v.any() for v in verdicts]
    dependent, hopeless = (float(np.mean(x)) if x else np.nan for x in (matters, none))
    return Evidence(1.0 - passed[0], passed[2], dependent, hopeless, 1.0 - passed[1])
