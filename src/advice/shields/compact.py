"""A shield for small machines: it guards from a smaller file, and no more.

The encoder's weights and the points are stored as float32; decisions are computed in float64, so a
shield decides alike on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from advice.types import AdviceError, Array

if TYPE_CHECKING:
    from advice.shields.shield import Shield

_LARGE = ("encoder.w1", "encoder.w2", "points.latent")


def compact(shield: Shield) -> Shield:
    """A copy of a fitted shield that guards and is saved, and no more.

    It has no steps, so it cannot be fitted again or audited; it keeps the card, the rules, the far
    check and what was certified. Its K follows the violations as before.
    """
    if shield.compacted is not None:
        raise AdviceError("the shield is compact already")
    model, card = shield._fitted(), str(shield.card())
    arrays, document = shield.snapshot()
    arrays |= {"points.latent": model.neighbours.points, "points.safe": model.safe}
    copy = type(shield)(shield.observation_space, shield.action_space, shield.config)
    steps, memory = copy._memory.snapshot()
    document |= {"memory": memory, "compacted": {"weights": "float32", "card": card}}
    copy.restore(shrink(arrays) | {f"steps.{x}": y for x, y in steps.items()}, document)
    copy.certificate = shield.certificate
    return copy


def shrink(arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays of a model as a compact shield stores them."""
    dropped = (*_LARGE, "points.held_out", "points.episodes")
    small = {name: array for name, array in arrays.items() if name not in dropped}
    return small | {f"{name}_float32": arrays[name].astype(np.float32) for name in _LARGE}


def expand(arrays: dict[str, Array]) -> dict[str, Array]:
    """What :func:`shrink` left, as arrays of a model."""
    full = dict(arrays)
    for name in _LARGE:
        full[name] = full.pop(f"{name}_float32").astype(np.float64)
    count = len(full["points.latent"])
    full["points.held_out"], full["points.episodes"] = np.zeros(count, bool), np.zeros(count, int)
    return full
