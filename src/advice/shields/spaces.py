"""Gymnasium spaces as a shield uses them: to check, scale and rebuild values, and to choose
alternatives from.

Spaces are read by their attributes, so a saved shield guards where Gymnasium is not installed.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advice.types import Array, SettingError, SpaceMismatchError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
_DTYPES = {np.dtype(code).name: np.dtype(code) for code in "efdbhilqBHILQ"}
_MOST_VALUES = 4096  # of a Discrete space, all of which are candidates
LARGE = 1e12  # numbers of this size or more are refused: no encoder could scale them
_WIDE = 1e6  # a Box bound beyond this does not tell the scale of the values
# in many dimensions a proposal is also tried weaker and reversed, these times its distance from
# the middle, and with noise of these shares of the range around it
FACTORS, RADII = (0.5, 0.0, -0.5, -1.0), (0.05, 0.15, 0.4)
_MOST_NUMBERS, _MOST_HIDDEN = 2**21, 2**23


@dataclass(frozen=True, eq=False)
class Space:
    """A Box of any shape, or a Discrete space of ``n`` values from ``start``."""

    kind: Literal["box", "discrete"]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: Floats  # flattened bounds; empty for a Discrete space
    high: Floats
    n: int = 0
    start: int = 0

    @property
    def size(self) -> int:
        """How many numbers one value takes in a feature (a Discrete value is one-hot)."""
        return self.n if self.kind == "discrete" else len(self.low)

    @property
    def bounded(self) -> Bools:
        """Per number of a Box: do the bounds tell its scale?"""
        return (np.abs(self.low) < _WIDE) & (np.abs(self.high) < _WIDE)

    def __str__(self) -> str:
        if self.kind == "discrete":
            return f"Discrete({self.n}, start={self.start})"
        ends = [np.unique(x) for x in (self.low, self.high)]
        low, high = ("..".join(f"{y:g}" for y in (x if len(x) == 1 else x[[0, -1]])) for x in ends)
        return f"Box(low {low}, high {high}, shape {self.shape}, {self.dtype})"

    def matches(self, other: Space) -> bool:
        """Same kind, shape and bounds (to float32 precision; the dtype is free)."""
        kinds = [(x.kind, x.shape, x.n, x.start) for x in (self, other)]
        bounds = [np.concatenate([x.low, x.high], dtype=np.float32) for x in (self, other)]
        return kinds[0] == kinds[1] and np.array_equal(bounds[0], bounds[1])

    def check(self, values: Any, what: str, batch: bool = False) -> Array:
        """``values``, one or a ``batch``, as an array of this space's shape and a real dtype, or a
        ValueError. That the numbers are finite is checked once, on the whole feature."""
        array = np.asarray(values)
        if (array.dtype.kind, self.kind) == ("b", "box") and self.dtype.kind in "iu":  # MultiBinary
            array = array.astype(self.dtype)
        if batch and (array.ndim == 0 or len(array) == 0):
            raise ValueError(f"{what}: expected a batch of at least one, found shape {array.shape}")
        shape = (len(array), *self.shape) if batch else self.shape
        discrete = self.kind == "discrete"
        if array.dtype.kind not in ("iu" if discrete else "fiu"):
            numbers = "integers" if discrete else "numbers"
            found = repr(values) if array.size == 1 else f"dtype {array.dtype}"
            raise ValueError(f"{what}: expected {numbers} of {self}, found {found}")
        if array.shape != shape:
            raise ValueError(f"{what}: expected shape {shape}, found {array.shape}")
        if discrete and (array.min() < self.start or array.max() >= self.start + self.n):
            raise ValueError(f"{what}: expected a value of {self}, found {array}")
        return array

    def flat(self, values: Array) -> Array:
        """Checked values (one, or a stack if one axis more) as rows of numbers for a feature."""
        if self.kind == "discrete":
            one_hot = np.zeros((*values.shape, self.n))
            np.put_along_axis(one_hot, (values.astype(np.int64) - self.start)[..., None], 1.0, -1)
            return one_hot
        return values.reshape(*values.shape[: values.ndim - len(self.shape)], -1)

    def scaling(self, columns: Array) -> tuple[Floats, Floats]:
        """Offset and scale per number, so that ``(x - offset) / scale`` is about -1..1: from the
        bounds where they are narrow enough; otherwise from the (N, size) ``columns``, their median
        and half the width of the middle 95 % (of all, if that is 0)."""
        if self.kind == "discrete":
            return np.full(self.n, 0.5), np.full(self.n, 0.5)
        seen = columns.astype(np.float64)
        offset = np.median(seen, axis=0)
        low, high = np.quantile(seen, [0.025, 0.975], axis=0)
        scale = np.where(high > low, high - low, np.ptp(seen, axis=0)) / 2
        bounded = self.bounded
        low, high = self.low[bounded], self.high[bounded]
        offset[bounded], scale[bounded] = (low + high) / 2, (high - low) / 2
        return offset, np.where(scale > 1e-9, scale, 1.0)

    def to_document(self) -> dict[str, Any]:
        """Plain values for a file; bounds, which may be infinite, as strings."""
        bounds = {name: [repr(float(x)) for x in getattr(self, name)] for name in ("low", "high")}
        return vars(self) | bounds | {"shape": list(self.shape), "dtype": self.dtype.name}

    @staticmethod
    def from_document(document: dict[str, Any]) -> Space:
        """The space that :meth:`to_document` described; ValueError if there is no such space."""
        kind, n, start = document["kind"], int(document["n"]), int(document["start"])
        shape = tuple(int(x) for x in document["shape"])
        low, high = (np.array([float(x) for x in document[name]]) for name in ("low", "high"))
        space = Space(kind, shape, _DTYPES[document["dtype"]], low, high, n, start)
        size = 0 if kind == "discrete" else int(np.prod(shape, dtype=np.int64))
        valid = (
            kind in ("box", "discrete")
            and len(low) == len(high) == size
            and bool((low <= high).all())
            and (n > 0) == (kind == "discrete")
            and 0 < space.size <= 2**24
            and n <= _MOST_VALUES
        )
        if not valid:
            raise ValueError(f"no such space: {str(document)[:200]}")
        return space


def read_space(space: Any, what: str, *, discrete: bool) -> Space:
    """Describe a Gymnasium space; ``discrete`` says whether it may be a Discrete one."""
    if isinstance(space, Space):
        return space
    n: Any = getattr(space, "n", None)
    start = getattr(space, "start", 0)
    whole = isinstance(n, int | np.integer) and isinstance(start, int | np.integer)
    if discrete and whole and getattr(space, "shape", ()) == ():
        if n > _MOST_VALUES:
            raise SpaceMismatchError(
                f"{what}: expected at most {_MOST_VALUES} values, found {space!r}"
            )
        none, dtype = np.zeros(0), getattr(space, "dtype", None)
        dtype = np.dtype(dtype if dtype in list(map(np.dtype, "bhilqBHILQ")) else np.int64)
        return Space("discrete", (), dtype, none, none, int(n), int(start))
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if discrete and hasattr(space, "nvec"):  # MultiDiscrete: a Box of whole numbers
        low = np.broadcast_to(start, np.shape(space.nvec))
        high = low + space.nvec - 1
    elif discrete and n is not None and hasattr(space, "shape"):  # MultiBinary
        low, high = np.zeros(space.shape), np.ones(space.shape)
    if low is not None and high is not None:
        low, high = (np.asarray(x, dtype=np.float64) for x in (low, high))
        dtype = np.dtype(space.dtype)
        if dtype.name in _DTYPES and low.size > 0:
            return Space("box", low.shape, dtype, low.ravel(), high.ravel())
    wanted = "a Box, Discrete, MultiDiscrete or MultiBinary space" if discrete else "a Box space"
    raise SpaceMismatchError(f"{what}: expected {wanted} of numbers, found {space!r}")


def check_array(name: str, array: Array, dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has this dtype and shape and its numbers are not too large
    (nor NaN)."""
    if array.shape != shape or array.dtype != dtype:
        found = f"{array.dtype} {array.shape}"
        raise ValueError(f"{name}: expected {np.dtype(dtype)} {shape}, found {found}")
    if not (np.abs(array) < LARGE).all():
        raise ValueError(f"{name}: expected numbers below {LARGE:g}")


class FeatureSpace(NamedTuple):
    """An observation space and an action space; a feature holds the numbers of both in a row."""

    observation: Space
    action: Space

    @staticmethod
    def read(observation_space: Any, action_space: Any) -> FeatureSpace:
        """From a Box of observations and a Box or (multi-)discrete space of actions."""
        return FeatureSpace(
            read_space(observation_space, "observation space", discrete=False),
            read_space(action_space, "action space", discrete=True),
        )

    @staticmethod
    def from_document(document: dict[str, Any]) -> FeatureSpace:
        """From a document with what :meth:`to_document` returns."""
        names = ("observation_space", "action_space")
        return FeatureSpace(*(Space.from_document(document[name]) for name in names))

    def to_document(self) -> dict[str, Any]:
        """Both spaces as plain values for a file."""
        return {f"{name}_space": space.to_document() for name, space in self._asdict().items()}

    @property
    def size(self) -> int:
        return self.observation.size + self.action.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest float that holds values of both spaces unchanged."""
        boxes = [space.dtype for space in self if space.kind == "box"]
        return np.result_type(np.float32, *boxes)

    def features(self, obs: Any, actions: Any, batch: bool = False) -> Floats:
        """(size,) feature of one observation and action, or (N, size) of a ``batch``; checked."""
        observed = self.observation.check(obs, "observation", batch)
        proposed = self.action.check(actions, "action", batch)
        if batch and len(observed) != len(proposed):
            counts = f"{len(proposed)} and {len(observed)}"
            raise ValueError(f"expected as many actions as observations, found {counts}")
        features = np.concatenate(
            [self.observation.flat(observed), self.action.flat(proposed)], axis=-1, dtype=np.float64
        )
        if not np.maximum.reduce(np.abs(features), axis=None) < LARGE:  # nor is NaN
            first = np.argwhere(~(np.abs(features) < LARGE))[0]
            what = "action" if first[-1] >= self.observation.size else "observation"
            bad = features[tuple(first)]
            finite = f"numbers below {LARGE:g}" if np.isfinite(bad) else "finite numbers"
            raise ValueError(f"{what}: expected {finite}, found {bad:g}")
        return features

    def check_same(self, other: FeatureSpace) -> None:
        """Raise :class:`SpaceMismatchError` unless ``other`` has the same kinds and bounds."""
        for what, ours, theirs in zip(self._fields, self, other, strict=True):
            if not ours.matches(theirs):
                raise SpaceMismatchError(
                    f"{what} space: the shield was made for {ours}, found {theirs}"
                )

    def scaling(self, features: Array) -> tuple[Floats, Floats]:
        """(size,) offset and (size,) scale of (N, size) features, see :meth:`Space.scaling`."""
        columns = np.split(features, [self.observation.size], axis=1)
        parts = [space.scaling(x) for space, x in zip(self, columns, strict=True)]
        return np.concatenate([x[0] for x in parts]), np.concatenate([x[1] for x in parts])


def feature_space(observation_space: Any, features: Callable[[Any], Array]) -> Any:
    """An unbounded Box of what ``features`` returns for a sample observation."""
    from gymnasium.spaces import Box

    space = copy.deepcopy(observation_space)  # leaves the generator of the user's space unchanged
    space.seed(0)
    sample = np.asarray(features(space.sample()))
    if sample.dtype.kind not in "fiu" or sample.size == 0:
        raise SpaceMismatchError(
            f"features: expected it to return an array of numbers, found {sample!r}"
        )
    return Box(-np.inf, np.inf, sample.shape, np.result_type(sample.dtype, np.float32).type)


def flattener(observation_space: Any) -> Callable[[Any], Array] | None:
    """Gymnasium's ``flatten`` for observations that are no Box of numbers; None for the others,
    and where there is no such thing (making a shield then says what is wrong)."""
    if hasattr(observation_space, "low"):
        return None
    try:
        from gymnasium.spaces.utils import flatdim, flatten

        flatdim(observation_space)
    except (ImportError, NotImplementedError, ValueError):
        return None
    found: Any = partial(flatten, observation_space)
    return found


def check_size(space: Space, per_dimension: int, budget: int, hidden: int) -> None:
    """Raise SettingError if candidates would take more memory than a shield may: some 100 MB."""
    count, size = space.n, 1
    if space.kind == "box":
        size, count = space.size, budget
        if _is_grid(size, per_dimension, budget):
            count = per_dimension**size
    if count * size > _MOST_NUMBERS or count * hidden > _MOST_HIDDEN:
        raise SettingError(
            f"candidate_budget: {count} candidates of {size} numbers with a hidden layer of "
            f"{hidden} are too many; give fewer"
        )


def _is_grid(size: int, per_dimension: int, budget: int) -> bool:
    """True if a grid in ``size`` dimensions is within the budget."""
    return size <= budget.bit_length() and per_dimension**size <= budget


class Candidates:
    """The alternatives of one action space.

    ``fixed`` never changes, so the encoder's share for it is computed once. Where the grid would
    exceed the budget, half of the budget is spent on each proposal (:meth:`near`), and the rest on
    the middle, the ends of each dimension, corners and an even sample, a third each.
    """

    def __init__(
        self, space: Space, low: Floats, high: Floats, per_dimension: int, budget: int
    ) -> None:
        self.space, self._low, self._high, self._middle = space, low, high, (low + high) / 2
        size, half = len(low), budget // 2
        self.offsets = np.zeros((0, size))  # added to each of the points made from a proposal
        if space.kind == "discrete":
            self.fixed: Array = np.arange(space.start, space.start + space.n, dtype=space.dtype)
        elif space.dtype.kind in "iu" and np.prod(high - low + 1) <= budget:
            axes = [np.arange(a, b + 1) for a, b in zip(low, high, strict=True)]
            self.fixed = self._as_actions(np.array(list(itertools.product(*axes))))
        elif _is_grid(size, per_dimension, budget):
            axes = [np.linspace(a, b, per_dimension) for a, b in zip(low, high, strict=True)]
            self.fixed = self._as_actions(np.array(list(itertools.product(*axes))))
        else:
            offsets, self._factors = _around(half, size)
            self.offsets = offsets * (high - low)
            spread = spread_out(budget - half, size)
            self.fixed = self._as_actions(self._middle + spread * (high - low) / 2)

    def near(self, proposal: Array) -> Array:
        """Alternatives made from the proposal (flat numbers), within the bounds; often none."""
        if not len(self.offsets):
            return self.fixed[:0]
        made = self._middle + self._factors * (proposal - self._middle) + self.offsets
        return self._as_actions(np.clip(made, self._low, self._high))

    def _as_actions(self, numbers: Floats) -> Array:
        if self.space.dtype.kind in "iu":
            numbers = np.unique(np.rint(numbers), axis=0)
        return numbers.astype(self.space.dtype).reshape(-1, *self.space.shape)


def checked_ratings(ratings: Any, count: int) -> Floats:
    """A critic's ratings of ``count`` actions, or a ValueError if there are others or NaN."""
    checked = np.asarray(ratings, dtype=np.float64)
    if checked.shape != (count,) or np.isnan(checked).any():
        found = f"shape {checked.shape} with {np.isnan(checked).sum()} NaN"
        raise ValueError(f"rate_actions: expected {count} values, one per action, found {found}")
    return checked


def _around(count: int, size: int) -> tuple[Floats, Floats]:
    """(count, size) offsets, as shares of the range, and (count, 1) factors of a proposal: first
    each of FACTORS without an offset, then offsets with each of RADII in turn."""
    offsets, factors = np.zeros((count, size)), np.ones((count, 1))
    scaled = min(len(FACTORS), count // 2)
    factors[:scaled, 0] = FACTORS[:scaled]
    radius = np.resize(RADII, count - scaled)[:, None]
    offsets[scaled:] = (2 * low_discrepancy(count - scaled, size) - 1) * radius
    return offsets, factors


def spread_out(count: int, size: int) -> Floats:
    """``count`` points of [-1, 1]^size: the middle, up to a third of ends of single dimensions, up
    to a third of corners, and a low-discrepancy sample for the rest."""
    third = (count - 1) // 3
    parts = [np.zeros((1, size))]
    if 2 * size <= third:
        parts += [np.eye(size), -np.eye(size)]
    if _is_grid(size, 2, third):
        parts.append(np.array(list(itertools.product((-1.0, 1.0), repeat=size))))
    else:  # each of them with its opposite
        half = np.where(low_discrepancy(third // 2, size) < 0.5, -1.0, 1.0)
        parts += [half, -half]
    rest = count - sum(map(len, parts))
    return np.concatenate([*parts, 2 * low_discrepancy(rest, size) - 1])


def low_discrepancy(count: int, dimensions: int) -> Floats:
    """``count`` points that fill [0, 1)^dimensions evenly: the additive recurrence
    x_i = (1/2 + i (1/g, 1/g^2, ...)) mod 1 with g the positive root of g^(d+1) = g + 1."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
