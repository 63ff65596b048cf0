"""Types that all folders share: outcomes, verdicts, records and errors."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

RateActions: TypeAlias = Callable[[Array, Array], Array]
"""The agent's critic: ``rate_actions(obs, actions) -> values``, one value per row of actions."""

FallbackAction: TypeAlias = Callable[[Any, Any], Any]
"""Your own fallback: ``fallback(obs, proposed) -> action``, a brake or a recovery policy."""

Terminal: TypeAlias = Literal["failure", "success"]
"""What the termination of an episode means."""


class Outcome(enum.IntEnum):
    """The label of one step."""

    UNSAFE = 0
    """The step led into a violation."""
    SAFE = 1
    """The step is known to be harmless, such as one that reached the goal; not any ordinary step,
    which is INCONCLUSIVE: it may be the one before a violation."""
    INCONCLUSIVE = 2
    """Nothing is known of the step; hindsight labels decide when the episode ends."""


class Verdict(NamedTuple):
    """A shield's answer to one proposed action; ``Verdict(action)`` endorses it."""

    action: Any
    """What to execute: the proposal itself, bit for bit, or its replacement."""
    intervened: bool = False
    """True if the proposal is unsafe and another action replaces it."""
    safe_neighbours: int = 0
    """How many of the proposal's K_max nearest neighbours are safe."""
    no_safe_action: bool = False
    """True if the proposal is unsafe and no candidate is safe either."""
    candidates: int = 0
    """How many alternatives were examined."""
    held: bool = False
    """True if the action is an earlier replacement that is still safe."""
    neighbours: Array | None = None
    """On request: indices of the proposal's nearest neighbours in the shield's memory."""
    distances: Array | None = None
    """On request: latent distances to those neighbours."""
    fallback: bool = False
    """True if the fallback decided: no candidate is safe, or ``far="fallback"`` applies."""
    reason: str = ""
    """What decided in place of the votes: "forbidden", "allowed", "far", "risk", or "probe" in an
    episode without the shield that says whether it helps."""


class Transition(NamedTuple):
    """One step as an agent learns from it."""

    obs: Array
    action: Array
    reward: float
    cost: float
    next_obs: Array
    terminated: bool


class EpisodeRecord(NamedTuple):
    """One line of ``episodes.csv``."""

    episode: int
    steps: int
    total_steps: int
    episode_return: float
    cost: float
    violation: bool
    success: bool
    interventions: int
    no_safe_action: int
    k: int
    multiplier: float
    seconds: float


class AdviceError(Exception):
    """An error that the user can fix; the message says what was expected and what was found."""


class SettingError(AdviceError, ValueError):
    """A setting has an unknown name or an invalid value."""


class NotFittedError(AdviceError, RuntimeError):
    """``guard`` was called before ``fit``."""


class OneClassError(AdviceError, ValueError):
    """A fit needs safe and unsafe features, and one of the two is missing."""


class SpaceMismatchError(AdviceError, ValueError):
    """Spaces differ from the ones the shield was made for, or are of an unsupported kind."""


class BudgetSpentError(AdviceError, RuntimeError):
    """The violation budget is used up; the shield is saved."""


class BrokenFileError(AdviceError, ValueError):
    """A file is truncated, edited, of another kind or of an unknown version."""


def suggest(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` with the nearest known name, or an empty string.

    Versions of Gymnasium ids do not count: ``Foo-v0`` is not near to every other ``-v0``.
    """

    def stem(name: str) -> str:
        return re.sub(r"-v\d+$", "", str(name))

    stems = {stem(one): one for one in known}
    near = difflib.get_close_matches(stem(name), stems, n=1)
    return f", did you mean {stems[near[0]]!r}?" if near else ""


def as_float_vector(value: Any, size: int, what: str) -> NDArray[np.float64]:
    """``value`` as ``size`` finite float64 numbers, or a ValueError naming expected and found."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what}: expected {size} numbers, found {value!r}") from None
    if vector.shape != (size,):
        raise ValueError(f"{what}: expected shape ({size},), found {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{what}: expected finite numbers, found {vector}")
    return vector
