"""Gymnasium spaces as a shield uses them: to check, scale and rebuild values.

Spaces are read by their attributes, so a saved shield guards where Gymnasium is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.types import Array, SpaceMismatchError

Floats = NDArray[np.float64]
_DTYPES = {np.dtype(code).name: np.dtype(code) for code in "efdbhilqBHILQ"}
_MOST_VALUES = 4096  # of a Discrete space, all of which are candidates
LARGE = 1e12  # numbers of this size or more are refused: no encoder could scale them
_WIDE = 1e6  # a Box bound beyond this does not tell the scale of the values


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
    def bounded(self) -> NDArray[np.bool_]:
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
        none = np.zeros(0)
        return Space("discrete", (), np.dtype(np.int64), none, none, int(n), int(start))
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
        if not (np.abs(features) < LARGE).all():  # nor is NaN
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
