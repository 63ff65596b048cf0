"""Rules that people give at run time: near here this is forbidden, near there that is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advice.shields.encoder import Floats
from advice.shields.spaces import FeatureSpace, Space
from advice.types import AdviceError

RADIUS = 0.25
MOST_RULES = 1000
"""At most this many rules, so that they cost little."""


class Rule(NamedTuple):
    """One rule; numbers of a value are flat, a Discrete action one-hot."""

    number: int
    """Its name for ``undo``."""
    kind: Literal["forbid", "allow"]
    obs: tuple[float, ...] | None
    """None: in every state."""
    action: tuple[float, ...] | None
    """None: every action."""
    radius: float

    def __str__(self) -> str:
        what = "every action" if self.action is None else f"actions near {_brief(self.action)}"
        where = "in every state" if self.obs is None else f"in states near {_brief(self.obs)}"
        return f"rule {self.number}: {self.kind} {what} {where}, radius {self.radius:g}"


def _brief(numbers: tuple[float, ...]) -> str:
    return np.array2string(np.array(numbers), precision=3, threshold=8, edgeitems=2)


class Rules:
    """The rules of one shield, oldest first. Where several apply the newest decides."""

    def __init__(self, space: FeatureSpace) -> None:
        self._space = space
        self._rules: list[Rule] = []
        self._given = 0

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def add(self, kind: Literal["forbid", "allow"], obs: Any, action: Any, radius: float) -> Rule:
        """A new rule; raises ValueError for values that do not fit the spaces."""
        if obs is None and action is None:
            raise ValueError(f"{kind}: expected an observation, an action or both, found neither")
        if not 0.0 <= radius < np.inf:
            raise ValueError(f"radius: expected a number of at least 0, found {radius!r}")
        if len(self) >= MOST_RULES:
            raise AdviceError(f"expected at most {MOST_RULES} rules; undo some first")
        where = None if obs is None else _numbers(self._space.observation, obs, "observation")
        what = None if action is None else _numbers(self._space.action, action, "action")
        rule = Rule(self._given + 1, kind, where, what, float(radius))
        self._given += 1
        self._rules.append(rule)
        return rule

    def undo(self, number: int | None = None) -> Rule:
        """Take back a rule, the newest if none is named."""
        for rule in reversed(self._rules):
            if number is None or rule.number == number:
                self._rules.remove(rule)
                return rule
        known = ", ".join(str(rule.number) for rule in self._rules) or "none"
        raise ValueError(f"undo: expected the number of a rule ({known}), found {number!r}")

    def to_document(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {"given": self._given, "rules": [list(rule) for rule in self._rules]}

    @staticmethod
    def from_document(document: dict[str, Any], space: FeatureSpace) -> Rules:
        """The rules that :meth:`to_document` described; ValueError if they do not fit."""
        rules = Rules(space)
        rules._given = int(document["given"])
        for number, kind, obs, action, radius in document["rules"]:
            parts = [None if x is None else tuple(float(y) for y in x) for x in (obs, action)]
            rule = Rule(int(number), kind, parts[0], parts[1], float(radius))
            sizes = zip(parts, space, strict=True)
            valid = (
                kind in ("forbid", "allow")
                and parts != [None, None]
                and all(x is None or len(x) == part.size for x, part in sizes)
                and all(np.isfinite(x).all() for x in parts if x is not None)
                and 0.0 <= rule.radius < np.inf
                and 1 <= rule.number <= rules._given
            )
            if not valid:
                raise ValueError(f"expected a rule for the shield's spaces, found {rule}")
            rules._rules.append(rule)
        if len(rules) > MOST_RULES:
            raise ValueError(f"expected at most {MOST_RULES} rules, found {len(rules)}")
        return rules


def _numbers(space: Space, value: Any, what: str) -> tuple[float, ...]:
    numbers = space.flat(space.check(value, what)).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what}: expected finite numbers, found {value!r}")
    return tuple(numbers.tolist())


class Matcher:
    """Rules made ready for fast questions, in the scaled numbers of a fitted shield.

    A rule applies where the root mean square distance of the scaled observations is at most its
    radius, and that of the actions too.
    """

    def __init__(self, rules: Rules, offset: Floats, scale: Floats, split: int) -> None:
        self.rules = list(rules)
        self._offset, self._scale, self._split = offset, scale, split
        size = len(offset)
        self._centres = np.zeros((len(self.rules), size))
        self._free = np.zeros((len(self.rules), 2), bool)  # any state, any action
        for row, rule in enumerate(self.rules):
            for part, (numbers, where) in enumerate(
                ((rule.obs, slice(0, split)), (rule.action, slice(split, size)))
            ):
                if numbers is None:
                    self._free[row, part] = True
                else:
                    self._centres[row, where] = (numbers - offset[where]) / scale[where]
        squares = np.square([rule.radius for rule in self.rules])[:, None]
        self._limits = squares * (split, size - split) * (1 + 1e-9) + 1e-12
        # |x - c|^2 = x.x - 2 c.x + c.c, written for observations that are not scaled
        centres, origin = self._centres[:, :split], offset[:split]
        norms = np.square(centres).sum(1)
        self._pull = -2.0 * centres / scale[:split]
        self._push = norms - self._pull @ origin - self._limits[:, 0] - 1e-9 * (1 + norms)
        self._push[self._free[:, 0]] = -np.inf
        self._origin, self._weights = origin, scale[:split] ** -2.0
        self.forbids = np.array([rule.kind == "forbid" for rule in self.rules])

    def of(self, feature: Floats) -> int:
        """The row of the newest rule that applies to one feature, or -1."""
        near = self.of_state(feature)
        return int(self.of_actions(feature[None, self._split :], near)[0]) if near.any() else -1

    def of_state(self, feature: Floats) -> NDArray[np.bool_]:
        """(R,) which rules apply to the state of a feature."""
        state = feature[: self._split]
        beyond = self._pull @ state
        beyond += self._push
        own = state - self._origin
        own *= own
        near: NDArray[np.bool_] = beyond <= -(own @ self._weights)
        return near

    def of_actions(self, actions: Floats, near: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(C,) rows of the newest rules that apply to (C, ...) flat actions, or -1; ``near`` says
        which apply to the state."""
        found = np.full(len(actions), -1)
        split = self._split
        scaled = (actions - self._offset[split:]) / self._scale[split:]
        for row in np.flatnonzero(near).tolist():
            apart = np.square(scaled - self._centres[row, split:]).sum(1)
            found[(apart <= self._limits[row, 1]) | self._free[row, 1]] = row
        return found
