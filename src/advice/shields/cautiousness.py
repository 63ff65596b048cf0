"""How cautious to be, by the violations so far.

K follows recent violations (the paper's double sliding window), and a shield with which they are
hardly less frequent than without it looks farther ahead or is disarmed. An agent that learns would
have fewer by and by without it, too, so now and then an episode goes unguarded, as a probe.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from scipy.special import bdtrc

from advice.config import KRule, ShieldConfig

FIRST_LOOK = 12
"""Violations with a shield after which it is judged first."""
HELPS = 0.65
"""A shield helps if violations per step are at most this many times as frequent as without it."""
REACHES = (1, 2, 4, 0)
"""How many times as far ahead as at first a shield looks (0: what the step itself does), tried in
this order until it helps."""
MOST_ROUNDS = 40
IMPOSSIBLE = 1e9  # stands for the ratio of a reach that cannot be fitted
CHANCE = 0.02
"""Harm is found where chance alone would give as many violations with less than this
probability..."""
LIKELY = 0.5
"""...and by many probes already below this one."""
LEAST_PROBES, MOST_PROBES = 3, 12
"""Harm is looked for among the latest probes, which are episodes without the shield."""
LATEST = 20
"""Unguarded episodes with which a look compares to find harm."""

Finding = Literal["", "fit anew", "disarm"]


def thresholds(
    violations: Sequence[float], recent_window: int, distant_window: int
) -> tuple[float, float, float]:
    """mu_r, mu_d - sigma_d and mu_d + sigma_d of violations z_1..z_e (newest last).

    mu_r and mu_d are the last h_r and h_d violations summed and divided by h_r and h_d, as
    printed: episodes before the first count as free of violations. sigma_d = sqrt(mu_d (1-mu_d)).
    """
    recent = sum(violations[-recent_window:]) / recent_window
    distant = sum(violations[-distant_window:]) / distant_window
    sigma = math.sqrt(distant * (1.0 - distant))
    return recent, distant - sigma, distant + sigma


def update_k(
    k: int,
    k_max: int,
    violations: Sequence[bool],
    recent_window: int,
    distant_window: int,
    rule: KRule,
) -> int:
    """K for the next episode, within ceil(K_max/2)..K_max, from the :func:`thresholds`.

    ================  =====================  =====================
    rule              up when                down when
    ================  =====================  =====================
    printed           mu_r > mu_d + sigma_d  mu_r < mu_d - sigma_d
    released          mu_r >= mu_d + sigma_d mu_r <= mu_d - sigma_d
    inclusive-down    mu_r > mu_d + sigma_d  mu_r <= mu_d - sigma_d
    fixed             never                  never
    ================  =====================  =====================

    A K that was set below the range stays until it rises. K never falls while every recent
    episode has a violation.
    Where both hold (released, sigma_d = 0), up comes first, and down where K is at K_max already.
    """
    if rule == "fixed":
        return k
    recent, lower, upper = thresholds(violations, recent_window, distant_window)
    # A mean equal to its threshold must compare as equal, whatever the rounding.
    at_upper, at_lower = (math.isclose(recent, x, abs_tol=1e-12) for x in (upper, lower))
    if k < k_max and (recent > upper or at_upper) and (rule == "released" or not at_upper):
        return k + 1
    if recent < 1 and (recent < lower or at_lower) and (rule != "printed" or not at_lower):
        return max(k - 1, min(k, math.ceil(k_max / 2)))
    return k


def required_votes(k: int, k_max: int, points: int) -> int:
    """Safe neighbours needed of min(K_max, points): K, or the same share of fewer points."""
    return math.ceil(k * min(k_max, points) / k_max)


class Cautiousness:
    """K and the recent violations. Every episode enters the windows; K changes once armed."""

    def __init__(self, config: ShieldConfig) -> None:
        self._config, self.k = config, config.k
        window = max(config.recent_window, config.distant_window)
        self.violations: deque[bool] = deque(maxlen=window)

    def end_episode(self, violated: bool, armed: bool) -> None:
        """Note one episode's violation; if ``armed``, adapt K."""
        self.violations.append(bool(violated))
        if armed:
            c = self._config
            windows = c.recent_window, c.distant_window
            self.k = update_k(self.k, c.k_max, tuple(self.violations), *windows, c.k_rule)


def chance(before: int, steps_before: int, after: int, steps_after: int) -> float:
    """The probability of ``after`` or more violations with a shield that changes nothing.

    Chance then splits all violations in proportion to the steps, so these are binomial.
    """
    share = steps_after / max(1, steps_before + steps_after)
    return float(bdtrc(after - 1, before + after, share))


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _total(rows: Iterable[tuple[int, ...]]) -> Any:
    """The sums of the columns of some rows."""
    return tuple(sum(column) for column in zip(*rows, strict=True))


class Round(NamedTuple):
    """Violations and steps of some guarded episodes, and of the unguarded one that ended them."""

    violations: int
    steps: int
    unguarded_violations: int
    unguarded_steps: int


class Effect:
    """Violations and steps without a shield and with it, which may try several ``reaches``.

    After enough violations a shield that hardly helps goes on to the next reach. After the last one
    the best stays, and if it does not help either, all are tried again with twice as many
    violations each: there is more to learn from then. A probe is due after ``probe_violations``
    episodes with a violation, and a shield that does harm beside its probes or the latest unguarded
    episodes is disarmed; with 0 there is neither.
    """

    def __init__(self, reaches: tuple[int, ...] = REACHES, probe_violations: int = 0) -> None:
        self._reaches, self._probe_violations = reaches, probe_violations
        self.unarmed, self.armed = (0, 0), (0, 0)
        self.reach, self.rounds, self.disarmed, self.next_look = 1, 0, 0, FIRST_LOOK
        self.judged = False  # a shield that the user fitted is not judged
        self.tried: dict[int, float] = {}  # violations per step beside those without, by reach
        self._seen = (0, 0)
        self._since_probe = (0, 0)
        self.probes: deque[Round] = deque(maxlen=MOST_PROBES)
        self.latest: deque[tuple[int, int]] = deque(maxlen=LATEST)  # unguarded episodes

    @property
    def probe_due(self) -> bool:
        """True if the next episode is to go unguarded."""
        return self.judged and 0 < self._probe_violations <= self._since_probe[0]

    def count(self, armed: bool, violations: int, steps: int, guarded: bool = True) -> Finding:
        """Note an episode that ended, by all violations and steps so far; what is to be done.

        An episode counts as one violation, however many it has.
        """
        of_episode = min(1, violations - self._seen[0]), steps - self._seen[1]
        self._seen = violations, steps
        if not (armed and guarded):
            self.unarmed = _sum(self.unarmed, of_episode)
            self.latest.append(of_episode)
        if not (armed and self.judged):
            return ""
        if not guarded:
            self.probes.append(Round(*self._since_probe, *of_episode))
            self._since_probe = (0, 0)
            return self._judge_by_probes()
        self._since_probe = _sum(self._since_probe, of_episode)
        self.armed = _sum(self.armed, of_episode)
        if self.armed[0] < self.next_look or self.unarmed[0] < FIRST_LOOK:
            return ""
        self.next_look = 2 * self.armed[0]
        if self._probe_violations and self.latest:
            violations, steps = _total(self.latest)
            if chance(violations, steps, *self.armed) < CHANCE:
                self.unarmed = violations, steps  # what was before these is out of date
                return "disarm"
        return "" if self.ratio <= HELPS else self.go_on(self.ratio)

    def go_on(self, ratio: float) -> Finding:
        """Note the ratio of the present reach and go on to the next one, or back to the best."""
        self.tried[self.reach] = ratio
        left = [reach for reach in self._reaches if reach not in self.tried]
        best = min(self.tried, key=lambda reach: self.tried[reach])
        was, self.reach = self.reach, left[0] if left else best
        found: Finding = "" if self.reach == was else "fit anew"
        if not left:
            several = len(self._reaches) > 1
            by_chance = chance(*self.unarmed, *self.armed)
            if self.tried[best] > 1 and (several or by_chance < CHANCE):
                found = "disarm"
            self.rounds, self.tried = min(self.rounds + 1, MOST_ROUNDS), {}
        if found:
            self._start_count()
        return found

    def _judge_by_probes(self) -> Finding:
        """Disarm if the latest probes show harm, or many of them that harm is likelier than help.

        A shield that was disarmed before must help soon.
        """
        count, many = len(self.probes), LEAST_PROBES if self.disarmed else MOST_PROBES
        after, steps_after, before, steps_before = _total(self.probes)
        by_chance = chance(before, steps_before, after, steps_after)
        if count < LEAST_PROBES or by_chance >= (LIKELY if count >= many else CHANCE):
            return ""
        self.unarmed = before, steps_before
        return "disarm"

    def disarm(self) -> None:
        """Note that the shield was disarmed: the next one is judged by what comes from then on."""
        self.disarmed += 1
        self.tried = {}
        self._start_count()

    def _start_count(self) -> None:
        """Count what comes of another fit from 0."""
        self.armed, self.next_look = (0, 0), FIRST_LOOK << self.rounds
        self._since_probe = (0, 0)
        self.probes.clear()

    def for_another_use(self, violations: int, steps: int) -> Effect:
        """What stays of it where a saved shield is used: not what was before it was armed."""
        effect = Effect(self._reaches, self._probe_violations)
        effect.reach = self.reach if self.reach in self._reaches else self._reaches[0]
        effect.disarmed, effect._seen = self.disarmed, (violations, steps)
        return effect

    @property
    def ratio(self) -> float:
        """Violations per step with the shield beside those without it."""
        (before, steps_before), (after, steps_after) = self.unarmed, self.armed
        return (after / max(1, steps_after)) / (before / max(1, steps_before))

    def to_list(self) -> list[Any]:
        """Plain values for a file."""
        counts = [*self.unarmed, *self.armed, *self._seen]
        state = [self.next_look, self.disarmed, self.rounds, self.reach, int(self.judged)]
        probes = [self._since_probe, *self.probes]
        rows = ([list(x) for x in part] for part in (probes, self.latest))
        return [*counts, *state, list(self.tried.items()), *rows]

    @staticmethod
    def from_list(
        values: list[Any], reaches: tuple[int, ...] = REACHES, probe_violations: int = 0
    ) -> Effect:
        """The counts that :meth:`to_list` described; ValueError if they are none.

        The probes and the latest unguarded episodes may be missing.
        """
        *counts, tried = values[:12]
        numbers = [int(x) for x in counts]
        (since, *probes), latest = values[12:] or ([(0, 0)], [])
        effect = Effect(reaches, probe_violations)
        effect._since_probe, *rest = ((int(x), int(y)) for x, y in (since, *latest))
        effect.probes.extend(Round(*map(int, row)) for row in probes)
        effect.latest.extend(rest)
        effect.tried = {int(reach): float(ratio) for reach, ratio in tried}
        valid = len(numbers) == 11 and 0 <= min(numbers) <= max(numbers) < 2**53
        rows = (effect._since_probe, *effect.probes, *effect.latest)
        valid &= all(x >= 0 for row in rows for x in row)
        if not (valid and {numbers[9], *effect.tried} <= {*REACHES} and numbers[8] <= MOST_ROUNDS):
            raise ValueError("effect: expected eleven numbers, the reaches tried and the probes")
        effect.unarmed, effect.armed = (numbers[0], numbers[1]), (numbers[2], numbers[3])
        effect._seen = numbers[4], numbers[5]
        effect.next_look, effect.disarmed, effect.rounds, effect.reach = numbers[6:10]
        effect.judged = bool(numbers[10])
        return effect
