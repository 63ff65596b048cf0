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
    fixed: tuple[float, float] | None = None
    """A given position, not a random one."""
    ring: tuple[float, float] | None = None
    """Smallest and largest distance of the centre from the origin, instead of the whole arena."""


class PlacementError(AdviceError):
    """The objects do not fit into the arena."""


def place(spots: Sequence[Spot], arena: float, rng: np.random.Generator) -> Array:
    """Positions (n, 2) for ``spots`` in the square from -arena to +arena, by rejection.

    Random discs are inside the square; the centre of a ring spot is in its ring. No random disc
    overlaps another, random or fixed; fixed positions are not checked.
    """
    if any(_impossible(spot, arena) for spot in spots if spot.fixed is None):
        raise _does_not_fit(spots, arena)
    for _ in range(LAYOUTS):
        places = _attempt(spots, arena, rng)
        if places is not None:
            return np.array(places, dtype=np.float64).reshape(-1, 2)
    raise _does_not_fit(spots, arena)


def _impossible(spot: Spot, arena: float) -> bool:
    if spot.ring is None:
        return spot.keepout > arena
    inner, outer = spot.ring
    return inner > outer


def _attempt(
    spots: Sequence[Spot], arena: float, rng: np.random.Generator
) -> list[tuple[float, float]] | None:
    """Place one spot after the other; None if one finds no free position."""
    places = [spot.fixed for spot in spots]
    taken = [(*spot.fixed, spot.keepout) for spot in spots if spot.fixed is not None]
    for i, spot in enumerate(spots):
        if spot.fixed is None:
            found = _free_place(spot, taken, arena, rng)
            if found is None:
                return None
            places[i] = found
            taken.append((*found, spot.keepout))
    return places  # type: ignore[return-value]  # every spot has a position now


def _free_place(
    spot: Spot, taken: list[tuple[float, float, float]], arena: float, rng: np.random.Generator
) -> tuple[float, float] | None:
    """The first of some random positions that overlaps nothing in ``taken``."""
    for x, y in _candidates(spot, arena, rng).tolist():
        if all(
            math.hypot(x - other_x, y - other_y) >= spot.keepout + keepout
            for other_x, other_y, keepout in taken
        ):
            return x, y
    return None


def _candidates(spot: Spot, arena: float, rng: np.random.Generator) -> Array:
    if spot.ring is None:
        limit = arena - spot.keepout
        return rng.uniform(-limit, limit, size=(DRAWS_PER_SPOT, 2))
    inner, outer = spot.ring
    # Uniform over the ring's area: the squared radius is uniform.
    radius = np.sqrt(rng.uniform(inner**2, outer**2, size=DRAWS_PER_SPOT))
    angle = rng.uniform(0.0, 2.0 * math.pi, size=DRAWS_PER_SPOT)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)


def as_places(value: Any, count: int, kind: str) -> Array:
    """``count`` rows x, y, yaw from rows of two or three finite numbers."""
    try:
        places = np.atleast_2d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(
            f"layout {kind}: expected {count} rows x, y, yaw, found {value!r}"
        ) from None
    if places.shape not in ((count, 2), (count, 3)) or not np.isfinite(places).all():
        raise ValueError(
            f"layout {kind}: expected {count} rows of finite x, y and optionally yaw, "
            f"found shape {places.shape}: {places.tolist()}"
        )
    return np.column_stack((places, np.zeros((count, 3 - places.shape[1]))))


def _does_not_fit(spots: Sequence[Spot], arena: float) -> PlacementError:
    keepouts = ", ".join(sorted({f"{spot.keepout:g}" for spot in spots}))
    return PlacementError(
        f"no layout found for {len(spots)} objects with keep-outs {keepouts} m in an arena of "
        f"+-{arena:g} m: none found in {LAYOUTS} attempts; "
        "use fewer or smaller objects, or a larger arena"
    )
