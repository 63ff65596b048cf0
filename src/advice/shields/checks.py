"""What overrules the neighbours' votes: rules, a proposal far from all data, a limit of the risk.

A shield without any of them has no :class:`Checks`, and pays nothing.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from advice.config import Far
from advice.shields.bounds import conformal_threshold
from advice.shields.encoder import Floats
from advice.shields.memory import Steps
from advice.shields.model import FittedModel
from advice.shields.spaces import FeatureSpace
from advice.types import Array, SettingError

Bools = NDArray[np.bool_]
RADIUS = 0.25
MOST_RULES = 1000  # so that they cost little
NEVER, ALWAYS = -1, 1 << 30  # votes that stand for a decision which is made already
PROTOTYPES = 256  # features that stand for all data, whatever the size of the memory
FAR_EPISODES = 0.05  # share of episodes like the recorded ones that may have a far step
_MOST_ROWS, _MOST_EPISODES = 8000, 500


class Rule(NamedTuple):
    """A rule given at run time; numbers of a value are flat, a Discrete action one-hot."""

    number: int  # its name for undo
    kind: Literal["forbid", "allow"]
    obs: tuple[float, ...] | None  # None: in every state
    action: tuple[float, ...] | None  # None: every action
    radius: float

    def __str__(self) -> str:
        what = "every action" if self.action is None else f"actions near {brief(self.action)}"
        where = "every state" if self.obs is None else f"states near {brief(self.obs)}"
        return f"rule {self.number}: {self.kind} {what} in {where}, radius {self.radius:g}"


def brief(numbers: Any) -> str:
    """A few of the numbers, in a few digits."""
    array = np.asarray(numbers)
    return np.array2string(array, precision=3, threshold=8, edgeitems=2, separator=", ")


class Rules(list[Rule]):
    """The rules of one shield, oldest first. Where several apply the newest decides."""

    def __init__(self, space: FeatureSpace) -> None:
        self._space, self._given = space, 0

    def add(self, kind: Literal["forbid", "allow"], obs: Any, action: Any, radius: float) -> Rule:
        """A new rule; raises ValueError for values that do not fit the spaces."""
        states, actions = self._space
        if obs is not None:
            obs = states.flat(states.check(obs, "observation"))
        if action is not None:
            action = actions.flat(actions.check(action, "action"))
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
            if part is not None and not (len(part) == space.size and np.isfinite(part).all()):
                raise ValueError(f"{name}: expected finite numbers of {space}, found {part}")
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


class Balls:
    """Tells which of N balls around scaled ``centres`` hold a point, given as numbers not scaled.

    By |x - c|^2 = x.x - 2 c.x + c.c; ``limits`` are squared radii.
    """

    def __init__(self, centres: Floats, offset: Floats, scale: Floats, limits: Any) -> None:
        self._offset, self._weights = offset, scale**-2.0
        self._pull = -2.0 * centres / scale
        self._push = np.square(centres).sum(1) - self._pull @ offset - limits

    def __call__(self, point: Floats) -> Bools:
        """(N,) for one point."""
        beyond = self._pull @ point
        beyond += self._push
        own = point - self._offset
        own *= own
        within: Bools = beyond <= -(own @ self._weights)
        return within

    def of_actions(self, state: Floats, actions: Floats) -> Bools:
        """(C, N) for the points of one state, which may be empty, and each of (C, ...) actions."""
        split = len(state)
        beyond = actions @ self._pull[:, split:].T
        beyond += self._push + self._pull[:, :split] @ state
        own = np.square(actions - self._offset[split:]) @ self._weights[split:]
        own += np.square(state - self._offset[:split]) @ self._weights[:split]
        within: Bools = beyond <= -own[:, None]
        return within


class FarData(NamedTuple):
    """Stands for all recorded features: how far from all of them is another one?"""

    offset: Floats
    scale: Floats
    prototypes: Floats  # (P, d) scaled features, spread over all of them
    threshold: Floats  # (1,) farther is far; infinite with too few held-out episodes
    episodes: NDArray[np.int64]  # (1,) held-out episodes that gave the threshold

    @staticmethod
    def calibrated(steps: Steps, share: float, seed: int) -> FarData:
        """Prototypes of most episodes, and a threshold by the others (split conformal).

        The score of an episode is its largest distance to the nearest prototype, so at most
        ``FAR_EPISODES`` of the episodes like these ever have a step that counts as far.
        """
        rng = np.random.default_rng([seed, 3])
        episodes = np.unique(steps.episodes)
        count = min(round(share * len(episodes)), _MOST_EPISODES, len(episodes) - 1)
        held_out = rng.choice(episodes, max(count, 0), replace=False)
        raw = steps.features[~np.isin(steps.episodes, held_out)].astype(np.float64)
        offset, deviation = raw.mean(0), raw.std(0)
        scale = np.where(deviation > 1e-9, deviation, 1.0)
        prototypes = _spread((raw[:: -(-len(raw) // _MOST_ROWS)] - offset) / scale)
        far = FarData(offset, scale, prototypes, np.full(1, np.inf), np.full(1, len(held_out)))
        scores = [far.distances(steps.features[steps.episodes == x]).max() for x in held_out]
        return far._replace(threshold=np.array([conformal_threshold(scores, FAR_EPISODES)]))

    @staticmethod
    def restored(arrays: dict[str, Array], size: int) -> FarData:
        """From the arrays ``far.*`` of a file; ValueError if they do not fit ``size`` numbers."""
        data = FarData(*(arrays[f"far.{name}"] for name in FarData._fields))
        count = len(data.prototypes)
        valid = (
            [x.shape for x in data] == [(size,), (size,), (count, size), (1,), (1,)]
            and [x.dtype for x in data] == [np.float64] * 4 + [np.int64]
            and 0 < count <= PROTOTYPES
            and all(bool(np.isfinite(x).all()) for x in data[:3])
            and bool((data.scale > 0).all() and data.threshold >= 0 and data.episodes >= 0)
        )
        if not valid:
            raise ValueError("the data of the far check do not fit the spaces")
        return data

    def distances(self, features: Array) -> Floats:
        """(N,) to the nearest prototype, of (N, d) features."""
        scaled = (features.astype(np.float64) - self.offset) / self.scale
        found: Floats = cKDTree(self.prototypes).query(scaled)[0]
        return found

    def balls(self) -> Balls:
        """What lies in none of these is far."""
        return Balls(self.prototypes, self.offset, self.scale, self.threshold**2)


def _spread(rows: Floats) -> Floats:
    """Some of the rows: the nearest to the middle, then each the farthest from those before it."""
    chosen = [int(np.argmin(np.square(rows).sum(1)))]
    apart = np.square(rows - rows[chosen[0]]).sum(1)
    while len(chosen) < PROTOTYPES and apart.max() > 0:
        chosen.append(int(np.argmax(apart)))
        np.minimum(apart, np.square(rows - rows[chosen[-1]]).sum(1), out=apart)
    return rows[chosen]


class Checks:
    """The checks of one fitted shield; each may be absent."""

    def __init__(
        self,
        rules: Rules,
        far: FarData | None,
        on_far: Far | None,
        model: FittedModel,
        risk_limit: float | None,
    ) -> None:
        self._split = split = model.encoder.split
        self._rules, self._on_far, self._far = list(rules), on_far, far.balls() if far else None
        self._risk = None if risk_limit is None else model.risk
        self._risk_limit = risk_limit or 0.0
        self._forbids = np.array([rule.kind == "forbid" for rule in rules])
        offset, scale = model.encoder.weights[:2]
        states, actions = [rule.obs for rule in rules], [rule.action for rule in rules]
        self._states = _zones(rules, states, offset[:split], scale[:split])
        self._actions = _zones(rules, actions, offset[split:], scale[split:])

    def rule_for(self, feature: Floats) -> Rule | None:
        """The newest rule that applies to one feature."""
        if not self._rules or not (near := self._states(feature[: self._split])).any():
            return None
        near &= self._actions(feature[self._split :])
        return self._rules[np.flatnonzero(near)[-1]] if near.any() else None

    def judge(self, feature: Floats, latent: Floats, votes: int) -> tuple[int, str]:
        """The votes that count for one proposal, and why they are not its neighbours'."""
        if (rule := self.rule_for(feature)) is not None:
            return (NEVER, "forbidden") if rule.kind == "forbid" else (ALWAYS, "allowed")
        if self._far is not None and not self._far(feature).any():
            return ALWAYS if self._on_far == "endorse" else NEVER, "far"
        if self._risk is not None and latent @ self._risk > self._risk_limit:
            return NEVER, "risk"
        return votes, ""

    def judge_candidates(
        self, feature: Floats, actions: Floats, latents: Floats, votes: Array
    ) -> tuple[NDArray[np.int64], Bools]:
        """The same for (C, ...) flat actions in the state of ``feature``, and which of them a rule
        forbids."""
        votes, state = votes.copy(), feature[: self._split]
        if self._risk is not None:
            votes[latents @ self._risk > self._risk_limit] = NEVER
        if self._far is not None and self._on_far != "endorse":
            votes[~self._far.of_actions(state, actions).any(1)] = NEVER
        forbidden = np.zeros(len(votes), bool)
        if self._rules and (near := self._states(state)).any():
            applies = self._actions.of_actions(state[:0], actions) & near
            newest, ruled = self._forbids[-1 - applies[:, ::-1].argmax(1)], applies.any(1)
            forbidden = ruled & newest
            votes[ruled] = np.where(newest, NEVER, ALWAYS)[ruled]
        return votes, forbidden


def _zones(rules: Rules, centres: list[Any], offset: Floats, scale: Floats) -> Balls:
    """Where the rules apply: at a root mean square distance, scaled, of at most their radius;
    everywhere, if the centre is None."""
    numbers = np.array([offset if x is None else x for x in centres]).reshape(-1, len(offset))
    middles = (numbers - offset) / scale
    limits = np.square([rule.radius for rule in rules]) * len(offset)
    limits += 1e-9 * (1 + np.square(middles).sum(1))  # rounding
    limits[[x is None for x in centres]] = np.inf
    return Balls(middles, offset, scale, limits)
