"""Does a shield help? Violations per step without it beside those with it."""

from __future__ import annotations

from typing import Any, Literal

from scipy.special import bdtrc

FIRST_LOOK = 12
"""Violations with a shield after which it is judged first."""
HELPS = 0.65
"""A shield helps if violations per step are at most this many times as frequent as without it."""
REACHES = (1, 2, 4, 0)
"""How many times as far ahead as at first a shield looks (0: what the step itself does), tried in
this order until it helps."""
MOST_ROUNDS, IMPOSSIBLE = 40, 1e9
CHANCE = 0.02
"""A look finds harm where chance alone would give as many violations with this probability."""

Finding = Literal["", "fit anew", "disarm"]


class Effect:
    """Violations and steps without a shield and with it, which may try several ``reaches``.

    After enough violations a shield that hardly helps goes on to the next reach. After the last one
    the best stays, and if it does not help either, all are tried again with twice as many
    violations each: there is more to learn from then.
    """

    def __init__(self, reaches: tuple[int, ...] = REACHES) -> None:
        self._reaches = reaches
        self.unarmed, self.armed = (0, 0), (0, 0)
        self.reach, self.rounds, self.disarmed, self.next_look = 1, 0, 0, FIRST_LOOK
        self.judged = False  # a shield that the user fitted is not judged
        self.tried: dict[int, float] = {}  # violations per step beside those without, by reach
        self._seen = (0, 0)

    def count(self, armed: bool, violations: int, steps: int) -> Finding:
        """Note an episode that ended, by all violations and steps so far; what is to be done.

        An episode counts as one violation, however many it has.
        """
        of_episode = min(1, violations - self._seen[0]), steps - self._seen[1]
        self._seen = violations, steps
        if not armed:
            self.unarmed = self.unarmed[0] + of_episode[0], self.unarmed[1] + of_episode[1]
            return ""
        if not self.judged:
            return ""
        self.armed = self.armed[0] + of_episode[0], self.armed[1] + of_episode[1]
        if self.armed[0] < self.next_look or self.unarmed[0] < FIRST_LOOK:
            return ""
        self.next_look = 2 * self.armed[0]
        return "" if self.ratio <= HELPS else self.go_on(self.ratio)

    def go_on(self, ratio: float) -> Finding:
        """Note the ratio of the present reach and go on to the next one, or back to the best."""
        self.tried[self.reach] = ratio
        left = [reach for reach in self._reaches if reach not in self.tried]
        best = min(self.tried, key=lambda reach: self.tried[reach])
        was, self.reach = self.reach, left[0] if left else best
        found: Finding = "" if self.reach == was else "fit anew"
        if not left:
            if self.tried[best] > 1 and (len(self._reaches) > 1 or self._harms()):
                found = "disarm"
            self.rounds, self.tried = min(self.rounds + 1, MOST_ROUNDS), {}
        if found:
            self.armed, self.next_look = (0, 0), FIRST_LOOK << self.rounds
        return found

    def pass_over(self) -> Finding:
        """Go on from a reach that cannot be fitted."""
        return self.go_on(IMPOSSIBLE)

    def for_another_use(self, violations: int, steps: int) -> Effect:
        """What stays of it where a saved shield is used: not what was before it was armed."""
        effect = Effect(self._reaches)
        effect.reach = self.reach if self.reach in self._reaches else self._reaches[0]
        effect.disarmed, effect._seen = self.disarmed, (violations, steps)
        return effect

    @property
    def ratio(self) -> float:
        """Violations per step with the shield beside those without it."""
        (before, steps_before), (after, steps_after) = self.unarmed, self.armed
        return (after / max(1, steps_after)) / (before / max(1, steps_before))

    def _harms(self) -> bool:
        """Where a shield changes nothing, chance splits the violations in proportion to the steps,
        so the ones with the shield are binomial."""
        (before, steps_before), (after, steps_after) = self.unarmed, self.armed
        share = steps_after / max(1, steps_before + steps_after)
        return bool(bdtrc(after - 1, before + after, share) < CHANCE)

    def to_list(self) -> list[Any]:
        """Plain values for a file."""
        counts = [*self.unarmed, *self.armed, *self._seen]
        state = [self.next_look, self.disarmed, self.rounds, self.reach, int(self.judged)]
        return [*counts, *state, list(self.tried.items())]

    @staticmethod
    def from_list(values: list[Any], reaches: tuple[int, ...] = REACHES) -> Effect:
        """The counts that :meth:`to_list` described; ValueError if they are none."""
        *counts, tried = values
        numbers = [int(x) for x in counts]
        effect = Effect(reaches)
        effect.tried = {int(reach): float(ratio) for reach, ratio in tried}
        valid = len(numbers) == 11 and 0 <= min(numbers) <= max(numbers) < 2**53
        if not (valid and {numbers[9], *effect.tried} <= {*REACHES} and numbers[8] <= MOST_ROUNDS):
            raise ValueError("effect: expected eleven numbers and the reaches tried")
        effect.unarmed, effect.armed = (numbers[0], numbers[1]), (numbers[2], numbers[3])
        effect._seen = numbers[4], numbers[5]
        effect.next_look, effect.disarmed, effect.rounds, effect.reach = numbers[6:10]
        effect.judged = bool(numbers[10])
        return effect
