"""Initial positions: random, without overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advice.types import AdviceError, Array

DRAWS_PER_SPOT = 32
LAYOUTS = 100


class Spot(NamedTuple):
    """An object to place: a disc that no other disc may overlap."""

    keepout: float
    fixed: tuple[float, float] | None = None  # a given position, not a random one
    ring: tuple[float, float] | None = None  # limits of the distance from the origin

    def limits(self, arena: float) -> tuple[float, float]:
        """Of the distance from the origin in a ring, else of both coordinates."""
        return self.ring or (self.keepout - arena, arena - self.keepout)


class PlacementError(AdviceError):
    """The objects do not fit into the arena."""


def place(spots: Sequence[Spot], arena: float, rng: np.random.Generator) -> Array:
    """Positions (n, 2) for ``spots`` in the square from -arena to +arena, by rejection.

    Random discs are inside the square; the centre of a ring spot is in its ring. No random disc
    overlaps another, random or fixed; fixed positions are not checked.
    """
    limits = [spot.limits(arena) for spot in spots if spot.fixed is None]
    possible = all(low <= high for low, high in limits)
    for _ in range(LAYOUTS if possible else 0):
        places = _attempt(spots, arena, rng)
        if places is not None:
            return np.array(places, dtype=np.float64).reshape(-1, 2)
    keepouts = ", ".join(sorted({f"{spot.keepout:g}" for spot in spots}))
    raise PlacementError(
        f"no layout found for {len(spots)} objects with keep-outs {keepouts} m in an arena of "
        f"+-{arena:g} m: none found in {LAYOUTS} attempts; "
        "use fewer or smaller objects, or a larger arena"
    )


def _attempt(
    spots: Sequence[Spot], arena: float, rng: np.random.Generator
) -> list[tuple[float, float]] | None:
    """Place one spot after the other; None if one finds no free position."""
    taken = {i: spot.fixed for i, spot in enumerate(spots) if spot.fixed is not None}
    for i, spot in enumerate(spots):
        if spot.fixed is not None:
            continue
        for x, y in _candidates(spot, arena, rng).tolist():
            if all(
                math.hypot(x - other_x, y - other_y) >= spot.keepout + spots[other].keepout
                for other, (other_x, other_y) in taken.items()
            ):
                taken[i] = x, y
                break
        else:
            return None
    return [taken[i] for i in range(len(spots))]


def _candidates(spot: Spot, arena: float, rng: np.random.Generator) -> Array:
    """Random positions to try, (n, 2)."""
    low, high = spot.limits(arena)
    if spot.ring is None:
        return rng.uniform(low, high, size=(DRAWS_PER_SPOT, 2))
    # Uniform over the ring's area: the squared radius is uniform.
    radius = np.sqrt(rng.uniform(low**2, high**2, size=DRAWS_PER_SPOT))
    angle = rng.uniform(0.0, 2.0 * math.pi, size=DRAWS_PER_SPOT)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)


def as_places(value: Any, count: int, kind: str) -> Array:
    """``count`` rows x, y, yaw from rows of two or three finite numbers."""
    try:
        places = np.atleast_2d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        places = np.empty(0)
    if places.shape not in ((count, 2), (count, 3)) or not np.isfinite(places).all():
        raise ValueError(
            f"layout {kind}: expected {count} rows of finite x, y and optionally yaw, "
            f"found {value!r}"
        )
    return np.column_stack((places, np.zeros((count, 3 - places.shape[1]))))
