"""Gymnasium spaces as a shield uses them: to check, scale and rebuild values.

Spaces are read by their attributes, so a saved shield guards where Gymnasium is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.types import Array, SpaceMismatchError

_DTYPES = {np.dtype(code).name: np.dtype(code) for code in "efdbhilqBHILQ"}
_MOST_VALUES = 4096  # of a Discrete space, all of which are candidates
LARGE = 1e12
"""Numbers of this size or more are refused: no encoder could scale them."""
_WIDE = 1e6  # a Box bound beyond this does not tell the scale of the values


@dataclass(frozen=True, eq=False)
class Space:
    """A Box of any shape, or a Discrete space of ``n`` values from ``start``."""

    kind: Literal["box", "discrete"]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: NDArray[np.float64]
    """Lower bounds, flattened; empty for a Discrete space."""
    high: NDArray[np.float64]
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
        low, high = _brief(self.low), _brief(self.high)
        return f"Box(low {low}, high {high}, shape {self.shape}, {self.dtype})"

    def matches(self, other: Space) -> bool:
        """Same kind, shape and bounds (to float32 precision; the dtype is free)."""
        return (
            (self.kind, self.shape, self.n, self.start)
            == (other.kind, other.shape, other.n, other.start)
        ) and all(
            np.array_equal(a.astype(np.float32), b.astype(np.float32))
            for a, b in ((self.low, other.low), (self.high, other.high))
        )

    def check(self, values: Any, what: str, batch: bool = False) -> Array:
        """``values`` as an array of this space's shape and a real dtype, or a ValueError.

        A ``batch`` is a stack of at least one value. Whether the numbers are finite is checked
        later, once, on the whole feature.
        """
        array = np.asarray(values)
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

    def to_document(self) -> dict[str, Any]:
        """Plain values for a file; infinite bounds become strings."""
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "low": [repr(float(x)) for x in self.low],
            "high": [repr(float(x)) for x in self.high],
            "n": self.n,
            "start": self.start,
        }

    @staticmethod
    def from_document(document: dict[str, Any]) -> Space:
        """The space that :meth:`to_document` described; ValueError if there is no such space."""
        space = Space(
            kind=document["kind"],
            shape=tuple(int(x) for x in document["shape"]),
            dtype=_DTYPES[document["dtype"]],
            low=np.array([float(x) for x in document["low"]]),
            high=np.array([float(x) for x in document["high"]]),
            n=int(document["n"]),
            start=int(document["start"]),
        )
        size = 0 if space.kind == "discrete" else int(np.prod(space.shape, dtype=np.int64))
        valid = (
            space.kind in ("box", "discrete")
            and len(space.low) == len(space.high) == size
            and bool((space.low <= space.high).all())
            and (space.n > 0) == (space.kind == "discrete")
            and 0 < space.size <= 2**24
            and space.n <= _MOST_VALUES
        )
        if not valid:
            raise ValueError(f"no such space: {str(document)[:200]}")
        return space


def read_space(space: Any, what: str, *, discrete: bool) -> Space:
    """Describe a Gymnasium space; ``discrete`` says whether it may be a Discrete one."""
    if isinstance(space, Space):
        return space
    if (
        discrete
        and isinstance(getattr(space, "n", None), int | np.integer)
        and isinstance(getattr(space, "start", 0), int | np.integer)
        and getattr(space, "shape", ()) == ()
    ):
        if space.n > _MOST_VALUES:
            raise SpaceMismatchError(
                f"{what}: expected at most {_MOST_VALUES} values, found {space!r}"
            )
        none, start = np.zeros(0), int(getattr(space, "start", 0))
        return Space("discrete", (), np.dtype(np.int64), none, none, int(space.n), start)
    if hasattr(space, "low") and hasattr(space, "high"):
        low = np.asarray(space.low, dtype=np.float64)
        high = np.asarray(space.high, dtype=np.float64)
        dtype = np.dtype(space.dtype)
        if dtype.name in _DTYPES and low.size > 0:
            return Space("box", low.shape, dtype, low.ravel(), high.ravel())
    wanted = "a Box or Discrete space" if discrete else "a Box space"
    raise SpaceMismatchError(f"{what}: expected {wanted} of numbers, found {space!r}")


def _brief(bounds: NDArray[np.float64]) -> str:
    values = np.unique(bounds)
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g}..{values[-1]:g}"


class FeatureSpace(NamedTuple):
    """An observation space and an action space; a feature holds the numbers of both in a row."""

    observation: Space
    action: Space

    @staticmethod
    def read(observation_space: Any, action_space: Any) -> FeatureSpace:
        """From a Box of observations and a Box or Discrete space of actions."""
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
        kinds = [self.observation.dtype] + (
            [self.action.dtype] if self.action.kind == "box" else []
        )
        return np.result_type(np.float32, *kinds)

    def features(self, obs: Any, actions: Any, batch: bool = False) -> NDArray[np.float64]:
        """(size,) feature of one observation and action, or (N, size) of a ``batch``; checked."""
        observed = self.observation.check(obs, "observation", batch)
        proposed = self.action.check(actions, "action", batch)
        if batch and len(observed) != len(proposed):
            raise ValueError(
                "expected as many actions as observations, "
                f"found {len(proposed)} and {len(observed)}"
            )
        features = np.concatenate(
            [self.observation.flat(observed), self.action.flat(proposed)], axis=-1, dtype=np.float64
        )
        if not (np.abs(features) < LARGE).all():  # nor is NaN
            parts = np.split(features, [self.observation.size], axis=-1)
            for what, part in zip(("observation", "action"), parts, strict=True):
                bad = part[~(np.abs(part) < LARGE)]
                if len(bad):
                    finite = f"numbers below {LARGE:g}" if np.isfinite(bad[0]) else "finite numbers"
                    raise ValueError(f"{what}: expected {finite}, found {bad[0]:g}")
        return features

    def check_same(self, other: FeatureSpace) -> None:
        """Raise :class:`SpaceMismatchError` unless ``other`` has the same kinds and bounds."""
        for what, ours, theirs in zip(self._fields, self, other, strict=True):
            if not ours.matches(theirs):
                raise SpaceMismatchError(
                    f"{what} space: the shield was made for {ours}, found {theirs}"
                )

    def scaling(self, features: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(size,) offset and (size,) scale of (N, size) features, see :func:`scaling`."""
        parts = np.split(features, [self.observation.size], axis=1)
        offsets, scales = zip(*map(scaling, self, parts), strict=True)
        return np.concatenate(offsets), np.concatenate(scales)


def scaling(space: Space, columns: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Offset and scale per number of a space, so that ``(x - offset) / scale`` is about -1..1.

    From the bounds where they are narrow enough; otherwise from the (N, size) ``columns``: their
    median, and half the width of the middle 95 % (of all, if that is 0).
    """
    if space.kind == "discrete":
        return np.full(space.n, 0.5), np.full(space.n, 0.5)
    seen = columns.astype(np.float64)
    offset = np.median(seen, axis=0)
    low, high = np.quantile(seen, [0.025, 0.975], axis=0)
    scale = np.where(high > low, high - low, np.ptp(seen, axis=0)) / 2
    bounded = space.bounded
    low, high = space.low[bounded], space.high[bounded]
    offset[bounded], scale[bounded] = (low + high) / 2, (high - low) / 2
    return offset, np.where(scale > 1e-9, scale, 1.0)
