"""Which features are held out of the fit: whole episodes, of both kinds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def held_out_mask(
    safe: NDArray[np.bool_],
    episodes: NDArray[np.int64],
    share: float,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """(N,) mask of about ``share`` of the episodes, drawn among those with an unsafe feature and
    those without apart.

    Where whole episodes cannot leave both classes on both sides (a single long episode, say),
    features are drawn instead; where even that cannot be, nothing is held out.
    """
    with_unsafe = np.unique(episodes[~safe])
    without = np.setdiff1d(episodes, with_unsafe)
    drawn = np.concatenate([_draw(with_unsafe, share, rng), _draw(without, share, rng)])
    by_episode = np.isin(episodes, drawn)
    if _both_sides(safe, by_episode):
        return by_episode
    by_feature = np.zeros(len(safe), dtype=bool)
    by_feature[_draw(np.flatnonzero(safe), share, rng)] = True
    by_feature[_draw(np.flatnonzero(~safe), share, rng)] = True
    return by_feature if _both_sides(safe, by_feature) else np.zeros(len(safe), dtype=bool)


def _draw(items: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    count = min(max(round(share * len(items)), int(share > 0)), len(items) - 1)
    return rng.choice(items, max(count, 0), replace=False)


def _both_sides(safe: NDArray[np.bool_], held: NDArray[np.bool_]) -> bool:
    return all((a & b).any() for a in (safe, ~safe) for b in (held, ~held))
