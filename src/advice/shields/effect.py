"""Does a shield help? Violations per step without it beside those with it."""

from __future__ import annotations

from typing import Any

from scipy.special import bdtrc

FIRST_LOOK = 10
"""Violations with the shield after which it is judged first; later looks at twice as many each."""
CHANCE = 0.02
"""A look finds harm where chance alone would give as many violations with this probability."""


class Effect:
    """Violations and steps of the unarmed episodes and of those since the shield was armed."""

    def __init__(self) -> None:
        self.unarmed, self.armed = (0, 0), (0, 0)
        self.next_look, self.disarmed = FIRST_LOOK, 0
        self._seen = (0, 0)

    def count(self, armed: bool, violations: int, steps: int) -> bool:
        """Note an episode that ended, by all violations and steps so far; True if the shield harms.

        If steps with and without the shield violate equally often, the violations are split by
        chance in proportion to the steps, so the ones with the shield are binomial.
        """
        of_episode = violations - self._seen[0], steps - self._seen[1]
        self._seen = violations, steps
        if not armed:
            self.unarmed = self.unarmed[0] + of_episode[0], self.unarmed[1] + of_episode[1]
            return False
        self.armed = self.armed[0] + of_episode[0], self.armed[1] + of_episode[1]
        (before, steps_before), (after, steps_after) = self.unarmed, self.armed
        if after < self.next_look or before < FIRST_LOOK:
            return False
        self.next_look = 2 * after
        share = steps_after / (steps_before + steps_after)
        return bool(bdtrc(after - 1, before + after, share) < CHANCE)

    def disarm(self) -> None:
        """Begin again to count what happens with a shield."""
        self.armed, self.next_look = (0, 0), FIRST_LOOK
        self.disarmed += 1

    def to_list(self) -> list[Any]:
        """Plain values for a file."""
        return [*self.unarmed, *self.armed, *self._seen, self.next_look, self.disarmed]

    @staticmethod
    def from_list(values: list[Any]) -> Effect:
        """The counts that :meth:`to_list` described; ValueError if they are none."""
        numbers = [int(x) for x in values]
        if len(numbers) != 8 or min(numbers) < 0:
            raise ValueError("effect: expected eight counts")
        effect = Effect()
        effect.unarmed, effect.armed = (numbers[0], numbers[1]), (numbers[2], numbers[3])
        effect._seen, (effect.next_look, effect.disarmed) = (numbers[4], numbers[5]), numbers[6:]
        return effect
