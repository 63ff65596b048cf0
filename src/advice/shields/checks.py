"""What overrules the neighbours' votes: rules, a proposal far from all data, a limit of the risk.

A shield without any of them has no :class:`Checks`, and pays nothing.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from advice.config import Far
from advice.shields.bounds import conformal_threshold
from advice.shields.memory import Steps
from advice.shields.model import FittedModel
from advice.shields.spaces import Bools, FeatureSpace, Floats, Ints, check_array
from advice.types import Array, SettingError

RADIUS = 0.25
MOST_RULES = 1000  # so that they cost little
NEVER, ALWAYS = -1, 1 << 30  # votes that stand for a decision which is made already
PROTOTYPES = 256  # features that stand for all data, whatever the size of the memory
FAR_EPISODES = 0.05  # share of episodes like the recorded ones that may have a far step
_MOST_ROWS, _MOST_EPISODES = 8000, 500
_MOST_SQUARE, _DOUBT = 1e4, 1e-6  # of a scaled feature; what rounding may amount to


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
        """Append a rule of flat numbers; ValueError if it does not fit."""
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


class Zones:
    """Where each of N rules applies: at a root mean square distance, scaled, of at most its radius;
    everywhere, if its centre is None."""

    def __init__(
        self, rules: Rules, centres: list[Any], offset: Floats, scale: Floats, most: float = np.inf
    ) -> None:
        numbers = np.array([offset if x is None else x for x in centres]).reshape(-1, len(offset))
        self._centres, self._offset, self._scale = (numbers - offset) / scale, offset, scale
        squares = np.square([rule.radius for rule in rules]) * len(offset) + 1e-9  # for rounding
        everywhere = [x is None for x in centres]
        self._squares = np.where(everywhere, np.inf, np.minimum(squares, most))

    def form(self, columns: slice, size: int, others: Zones) -> Floats:
        """(N, 2 size + 1) rows a with a . (z, z^2, 1) = squared distance to the rule's centre minus
        its squared radius, where z are scaled numbers and ``columns`` of them these. Rules that
        hold everywhere are taken from the ``others``, which are the rest of the numbers."""
        form = np.zeros((len(self._squares), 2 * size + 1))
        everywhere = np.isinf(self._squares)
        rest = np.delete(np.arange(size), columns)
        for zones, own, rows in (
            (self, np.arange(size)[columns], ~everywhere),
            (others, rest, everywhere),
        ):
            centres = zones._centres[rows]
            form[np.ix_(rows, own)], form[np.ix_(rows, size + own)] = -2 * centres, 1.0
            form[rows, -1] = np.square(centres).sum(axis=1) - zones._squares[rows]
        return form

    def hold_one(self, row: Floats) -> Bools:
        """(N,) which rules apply to one row of numbers, without the cost of a batch."""
        apart = self._centres - (row - self._offset) / self._scale
        return np.einsum("ij,ij->i", apart, apart) <= self._squares

    def hold(self, rows: Floats) -> Bools:
        """(M, N) which rules apply to each of (M, d) rows of numbers."""
        apart = cdist((rows - self._offset) / self._scale, self._centres, "sqeuclidean")
        return apart <= self._squares


class FarData(NamedTuple):
    """Stands for all recorded features: how far from all of them is another one?"""

    offset: Floats
    scale: Floats
    prototypes: Floats  # (P, d) scaled features, spread over all of them
    threshold: Floats  # (1,) farther is far; infinite with too few held-out episodes
    episodes: Ints  # (1,) held-out episodes that gave the threshold

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
        check_array("far.offset", data.offset, np.float64, (size,))
        check_array("far.scale", data.scale, np.float64, (size,))
        check_array("far.prototypes", data.prototypes, np.float64, (count, size))
        check_array("far.episodes", data.episodes, np.int64, (1,))
        if not (
            0 < count <= PROTOTYPES
            and (data.scale > 0).all()
            and data.threshold.shape == (1,)
            and data.threshold[0] >= 0
        ):
            raise ValueError("the data of the far check do not fit the spaces")
        return data

    def distances(self, features: Array) -> Floats:
        """(N,) to the nearest prototype, of (N, d) features."""
        scaled = (features.astype(np.float64) - self.offset) / self.scale
        return cdist(scaled, self.prototypes).min(axis=1)

    def are_far(self, state: Floats, actions: Floats) -> Bools:
        """(C,) which of (C, ...) flat actions are far from all data in one state."""
        p, offset, scale = len(state), self.offset, self.scale
        states = ((state - offset[:p]) / scale[:p])[None]
        squares = cdist(states, self.prototypes[:, :p], "sqeuclidean") + cdist(
            (actions - offset[p:]) / scale[p:], self.prototypes[:, p:], "sqeuclidean"
        )
        return np.sqrt(squares.min(axis=1)) > self.threshold


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
        self._rules, self._far, self._on_far = list(rules), far, on_far
        self._risk = None if risk_limit is None else model.risk
        self._risk_limit = np.inf if risk_limit is None else risk_limit
        offset, scale = self._offset, self._scale = model.encoder.weights[:2]
        self._states = Zones(rules, [x.obs for x in rules], offset[:split], scale[:split])
        one_hot = model.candidates.space.kind == "discrete"  # two of them are a square of 8 apart
        actions, most = [x.action for x in rules], 4.0 if one_hot else np.inf
        self._actions = Zones(rules, actions, offset[split:], scale[split:], most)
        forms = [self._states.form(slice(0, split), len(offset), self._actions)]
        if far is not None and far.threshold[0] < np.inf:
            ratio, shift = scale / far.scale, (offset - far.offset) / far.scale - far.prototypes
            squares = np.broadcast_to(ratio**2, shift.shape)
            constant = np.square(shift).sum(axis=1) - far.threshold**2
            forms.append(np.column_stack([2 * ratio * shift, squares, constant]))
        self._forms = np.concatenate(forms)
        sizes = np.abs(self._forms)
        largest = sizes[:, :-1].max(initial=0.0) * _MOST_SQUARE + sizes[:, -1].max(initial=0.0)
        self._exact = bool(np.finfo(float).eps * self._forms.shape[1] * largest < _DOUBT)

    def _none_applies(self, feature: Floats) -> bool:
        """True if one product shows that no rule applies to a feature and that it is not far.

        A row of the product is the squared distance to a rule's centre or to a prototype, less the
        square of its radius or of the threshold, so rounding may not decide.
        """
        if not self._exact:
            return False
        d, count = len(feature), len(self._rules)
        numbers = np.ones(2 * d + 1)
        numbers[:d] = scaled = (feature - self._offset) / self._scale
        numbers[d:-1] = scaled * scaled
        if not np.dot(scaled, scaled) < _MOST_SQUARE:
            return False
        excess = self._forms @ numbers
        if count and not np.minimum.reduce(excess[:count]) > _DOUBT:
            return False
        return len(excess) == count or bool(np.minimum.reduce(excess[count:]) < -_DOUBT)

    def _ruling(self, state: Floats, actions: Floats) -> Ints:
        """(C,) the newest rule that applies to each of (C, ...) actions in a state; -1: none."""
        none = np.full(len(actions), -1)
        if not self._rules or not len(near := np.flatnonzero(self._states.hold_one(state))):
            return none
        applies = self._actions.hold(actions)[:, near]
        newest = near[len(near) - 1 - applies[:, ::-1].argmax(axis=1)]
        return np.where(applies.any(axis=1), newest, none)

    def rule_for(self, feature: Floats) -> Rule | None:
        """The newest rule that applies to one feature."""
        state = feature[: self._split]
        if not self._rules or not self._states.hold_one(state).any():
            return None
        (rule,) = self._ruling(state, feature[None, self._split :])
        return self._rules[rule] if rule >= 0 else None

    def judge(self, feature: Floats, latent: Floats, votes: int) -> tuple[int, str]:
        """The votes that count for one proposal, and why they are not its neighbours'."""
        if not self._none_applies(feature):
            if (rule := self.rule_for(feature)) is not None:
                return (NEVER, "forbidden") if rule.kind == "forbid" else (ALWAYS, "allowed")
            state, action = feature[: self._split], feature[None, self._split :]
            if self._far is not None and self._far.are_far(state, action)[0]:
                return ALWAYS if self._on_far == "endorse" else NEVER, "far"
        if self._risk is not None and latent @ self._risk > self._risk_limit:
            return NEVER, "risk"
        return votes, ""

    def judge_candidates(
        self, feature: Floats, actions: Floats, latents: Floats, votes: Array
    ) -> tuple[Ints, Bools]:
        """The same for (C, ...) flat actions in the state of ``feature``, and which of them a rule
        forbids."""
        votes, state = votes.copy(), feature[: self._split]
        if self._risk is not None:
            votes[latents @ self._risk > self._risk_limit] = NEVER
        if self._far is not None and self._on_far != "endorse":
            votes[self._far.are_far(state, actions)] = NEVER
        ruling = self._ruling(state, actions)
        forbids = np.array([rule.kind == "forbid" for rule in self._rules] + [False])
        forbidden, ruled = forbids[ruling], ruling >= 0
        votes[ruled] = np.where(forbidden, NEVER, ALWAYS)[ruled]
        return votes, forbidden
