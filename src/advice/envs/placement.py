"""Where things start: random places that keep their distance, or a clear error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advice.types import AdviceError, Array

DRAWS_PER_SPOT = 64
LAYOUTS = 100


class Spot(NamedTuple):
    """Something to be placed: a disc that no other disc may overlap."""

    keepout: float
    fixed: tuple[float, float] | None = None
    """A place that is given, not drawn."""
    ring: tuple[float, float] | None = None
    """Smallest and largest distance of the centre from the origin, instead of the whole arena."""


class PlacementError(AdviceError):
    """The things do not fit into the arena."""


def place(spots: Sequence[Spot], arena: float, rng: np.random.Generator) -> Array:
    """Positions (n, 2) for ``spots`` in the square from -arena to +arena, by rejection.

    Drawn discs stay inside the square, except that of a ring spot only the centre does. No drawn
    disc overlaps another, drawn or fixed; fixed ones are taken as they are.
    """
    keepouts = np.array([spot.keepout for spot in spots], dtype=np.float64)
    drawn = [i for i, spot in enumerate(spots) if spot.fixed is None]
    for i in drawn:
        spot = spots[i]
        if (spot.ring is None and spot.keepout > arena) or (spot.ring and spot.ring[0] > spot.ring[1]):
            raise _does_not_fit(spots, arena)
    places = np.array([spot.fixed or (math.inf, math.inf) for spot in spots], dtype=np.float64)
    places = places.reshape(-1, 2)
    for _ in range(LAYOUTS):
        places[drawn] = math.inf  # infinitely far away: not placed yet
        if all(_place_one(i, spots[i], places, keepouts, arena, rng) for i in drawn):
            return places
    raise _does_not_fit(spots, arena)


def _place_one(
    i: int, spot: Spot, places: Array, keepouts: Array, arena: float, rng: np.random.Generator
) -> bool:
    """Draw candidates for one spot and take the first that keeps its distance."""
    candidates = _candidates(spot, arena, rng)
    gaps = candidates[:, None, :] - places
    near_squared = np.einsum("cij,cij->ci", gaps, gaps)
    free = (near_squared >= (keepouts + spot.keepout) ** 2).all(axis=1)
    free &= (np.abs(candidates) <= arena).all(axis=1)
    first = int(free.argmax())
    if free[first]:
        places[i] = candidates[first]
    return bool(free[first])


def _candidates(spot: Spot, arena: float, rng: np.random.Generator) -> Array:
    if spot.ring is None:
        reach = arena - spot.keepout
        return rng.uniform(-reach, reach, size=(DRAWS_PER_SPOT, 2))
    inner, outer = spot.ring
    # Uniform over the ring's area: the radius is the root of a uniform square.
    radius = np.sqrt(rng.uniform(inner**2, outer**2, size=DRAWS_PER_SPOT))
    angle = rng.uniform(0.0, 2.0 * math.pi, size=DRAWS_PER_SPOT)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)


def _does_not_fit(spots: Sequence[Spot], arena: float) -> PlacementError:
    keepouts = ", ".join(f"{spot.keepout:g}" for spot in spots)
    return PlacementError(
        f"no layout found for {len(spots)} things with keep-outs {keepouts} m in an arena of "
        f"+-{arena:g} m: expected room for all, found none in {LAYOUTS} attempts; "
        "use fewer or smaller things, or a larger arena"
    )
