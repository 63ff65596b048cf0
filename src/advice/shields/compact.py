"""A shield for small machines: it guards with fewer points and a smaller file, and no more.

Points are left out as long as no decision on the recorded steps and their candidates changes, at
any K. The encoder's weights are stored as float32 or int8 (the second layer is then fitted anew, to
make up for the rounding of the first); decisions are computed in float64, so a shield decides alike
on every machine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from advice.shields.cautiousness import required_votes
from advice.shields.model import FittedModel
from advice.shields.neighbours import Neighbours
from advice.shields.spaces import Bools, Floats, Ints
from advice.types import AdviceError, Array

if TYPE_CHECKING:
    from advice.shields.shield import Shield

_QUERIES, _STATES, _ROWS = 20_000, 100, 6000
_TRIALS, _LEAST = 150, 16  # groups of points that are tried, and their smallest size
_LARGE = ("encoder.w1", "encoder.w2", "points.latent")


def compact(shield: Shield, weights: Literal["float32", "int8"] = "float32") -> Shield:
    """A copy of a fitted shield that guards and is saved, and no more.

    It has no steps, so it cannot be fitted again or audited; it keeps the card, the rules, the far
    check and what was certified. Its K follows the violations as before.
    """
    if weights not in ("float32", "int8"):
        raise ValueError(f"weights: expected float32 or int8, found {weights!r}")
    if shield.compacted is not None:
        raise AdviceError("the shield is compact already")
    model, config, card = shield._fitted(), shield.config, str(shield.card())
    some = _at_most(_QUERIES, shield._memory.all().features.astype(np.float64))
    arrays, document = shield.snapshot()
    arrays = {x: y for x, y in arrays.items() if not x.startswith("steps.")}
    small = FittedModel.restored(expand(shrink(arrays, weights)), shield.space, config)
    if weights == "int8":
        arrays |= _second_layer(model, small, _at_most(_ROWS, some))
        small = FittedModel.restored(expand(shrink(arrays, weights)), shield.space, config)
    latent = model.neighbours.points.astype(np.float32).astype(np.float64)
    states = [small.consider(x).latents for x in _at_most(_STATES, some)]
    queries = np.concatenate([small.encoder.encode(some), *states])
    kept = condense(latent, model.safe, queries, config.k_max)
    arrays |= {"points.latent": latent[kept], "points.safe": model.safe[kept]}
    copy = type(shield)(shield.observation_space, shield.action_space, config)
    stored, memory = copy._memory.snapshot()
    document |= {"memory": memory, "compacted": {"weights": weights, "card": card}}
    copy.restore(shrink(arrays, weights) | {f"steps.{x}": y for x, y in stored.items()}, document)
    copy.certificate, copy.fallback = shield.certificate, shield.fallback
    return copy


def _at_most(count: int, rows: Floats) -> Floats:
    return rows[:: -(-len(rows) // count) or 1]


def _second_layer(model: FittedModel, small: FittedModel, features: Floats) -> dict[str, Array]:
    """Second-layer weights with which small first-layer ones give nearly the same latent points.

    Least squares for what is missing, with a small penalty on the change.
    """
    hidden = np.column_stack([small.encoder.hidden(features), np.ones(len(features))])
    missing = model.encoder.encode(features) - small.encoder.encode(features)
    gram = hidden.T @ hidden
    gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
    change = np.linalg.solve(gram, hidden.T @ missing)
    weights = small.encoder.weights
    return {"encoder.w2": weights.w2 + change[:-1], "encoder.b2": weights.b2 + change[-1]}


def condense(points: Floats, safe: Bools, queries: Floats, k_max: int) -> Ints:
    """Rows of the points that are enough: no vote on the queries falls on another side at any K.

    The points deepest inside their class are tried first, in ever smaller groups.
    """
    if len(np.unique(safe)) < 2 or len(points) <= 4 * k_max:
        return np.arange(len(points))
    limits = [required_votes(k, k_max, k_max) for k in range(math.ceil(k_max / 2), k_max + 1)]

    def decisions(kept: Bools) -> Bools:
        voters = Neighbours(points[kept], k_max).sets(queries)
        return np.count_nonzero(safe[kept][voters], axis=1) >= np.array(limits)[:, None]

    depth = np.zeros(len(points))
    for kind in (safe, ~safe):
        depth[kind] = Neighbours(points[~kind], 1).query(points[kind]).squared[:, 0]
    order, kept = np.argsort(-depth), np.ones(len(points), bool)
    wanted, at, group = decisions(kept), 0, max(_LEAST, len(points) // 4)
    for _ in range(_TRIALS):
        trial = kept.copy()
        trial[order[at : at + group]] = False
        if trial.sum() > 2 * k_max and np.array_equal(decisions(trial), wanted):
            kept, at, group = trial, at + group, 2 * group
        elif group > _LEAST:
            group = max(_LEAST, group // 4)
        else:
            at += group
        if at >= len(points):
            break
    return np.flatnonzero(kept)


def shrink(arrays: dict[str, Array], weights: str) -> dict[str, Array]:
    """The arrays of a model as a compact shield stores them."""
    dropped = (*_LARGE, "points.held_out", "points.episodes")
    small = {name: array for name, array in arrays.items() if name not in dropped}
    for name in _LARGE:
        values = arrays[name]
        if weights == "int8" and name == "encoder.w1":
            scale = np.maximum(np.abs(values).max(axis=0), 1e-30) / 127
            scale = scale.astype(np.float32).astype(np.float64)  # products with int8 are exact
            small[f"{name}_int8"] = np.rint(values / scale).astype(np.int8)
            small[f"{name}_scale"] = scale
        else:
            small[f"{name}_float32"] = values.astype(np.float32)
    return small


def expand(arrays: dict[str, Array]) -> dict[str, Array]:
    """What :func:`shrink` left, as arrays of a model; ValueError if a shape is wrong."""
    full = dict(arrays)
    for name in _LARGE:
        if f"{name}_int8" in full:
            values, scale = full.pop(f"{name}_int8"), full.pop(f"{name}_scale")
            if values.dtype != np.int8 or values.ndim != 2 or scale.shape != values.shape[1:]:
                raise ValueError(f"{name}: expected int8 weights with a scale per column")
            full[name] = values * scale
        else:
            full[name] = full.pop(f"{name}_float32").astype(np.float64)
    count = len(full["points.latent"])
    full["points.held_out"], full["points.episodes"] = np.zeros(count, bool), np.zeros(count, int)
    return full
