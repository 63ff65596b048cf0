"""Rules that people give at run time: near here this is forbidden, near there that is allowed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from advice.shields.spaces import FeatureSpace
from advice.types import SettingError

RADIUS = 0.25
MOST_RULES = 1000  # so that they cost little


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
        action, obs = (
            None
            if x is None
            else np.array2string(np.array(x), precision=3, threshold=8, edgeitems=2)
            for x in (self.action, self.obs)
        )
        what = f"actions near {action}" if action else "every action"
        where = f"states near {obs}" if obs else "every state"
        return f"rule {self.number}: {self.kind} {what} in {where}, radius {self.radius:g}"


class Rules(list[Rule]):
    """The rules of one shield, oldest first. Where several apply the newest decides."""

    def __init__(self, space: FeatureSpace) -> None:
        self._space, self._given = space, 0

    def add(self, kind: Literal["forbid", "allow"], obs: Any, action: Any, radius: float) -> Rule:
        """A new rule; raises ValueError for values that do not fit the spaces."""
        spaces = self._space
        if obs is not None:
            obs = spaces.observation.flat(spaces.observation.check(obs, "observation"))
        if action is not None:
            action = spaces.action.flat(spaces.action.check(action, "action"))
        return self._keep(Rule(self._given + 1, kind, obs, action, radius))

    def _keep(self, rule: Rule) -> Rule:
        """Append a rule; ValueError if it does not fit."""
        number, kind, obs, action, radius = rule
        if obs is None and action is None:
            raise ValueError(f"{kind}: expected an observation, an action or both, found neither")
        if not 0.0 <= radius < np.inf:
            raise ValueError(f"radius: expected a number of at least 0, found {radius!r}")
        if len(self) >= MOST_RULES:
            raise SettingError(f"expected at most {MOST_RULES} rules; undo some first")
        parts = [None if x is None else tuple(map(float, x)) for x in (obs, action)]
        for name, space, part in zip(self._space._fields, self._space, parts, strict=True):
            if part and not np.isfinite(part).all():
                raise ValueError(f"{name}: expected finite numbers, found {part}")
            if part is not None and len(part) != space.size:
                raise ValueError(f"{name}: expected {space.size} numbers, found {part}")
        self.append(Rule(int(number), kind, parts[0], parts[1], float(radius)))
        self._given = max(self._given, self[-1].number)
        return self[-1]

    def undo(self, number: int | None = None) -> Rule:
        """Take back a rule, the newest if none is named."""
        for row, rule in reversed(list(enumerate(self))):
            if number is None or rule.number == number:
                return self.pop(row)
        known = ", ".join(str(rule.number) for rule in self) or "none"
        raise ValueError(f"undo: expected the number of a rule ({known}), found {number!r}")

    def to_document(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {"given": self._given, "rules": [list(rule) for rule in self]}

    @staticmethod
    def from_document(document: dict[str, Any], space: FeatureSpace) -> Rules:
        """The rules that :meth:`to_document` described; ValueError if they do not fit."""
        rules = Rules(space)
        for values in document["rules"]:
            rule = rules._keep(Rule(*values))
            if rule.kind not in ("forbid", "allow") or not 1 <= rule.number <= document["given"]:
                raise ValueError(f"expected a rule for the shield's spaces, found {rule}")
        rules._given = int(document["given"])
        return rules
