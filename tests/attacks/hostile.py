"""Corridors that end, stop or break the program that steps them."""

from __future__ import annotations

import os
import sys
import time
from abc import abstractmethod
from typing import Any

from tiny import Corridor

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Hostile(Corridor):
    """Strikes at its 130th step; an episode has 60 at most."""

    def __init__(self) -> None:
        self._total = 0

    def step(self, action: Any) -> Step:
        self._total += 1
        if self._total == 130:
            self.strike()
        return super().step(action)

    @abstractmethod
    def strike(self) -> None:
        """What it does then."""


class Exits(Hostile):
    def strike(self) -> None:
        sys.exit(0)


class Vanishes(Hostile):
    def strike(self) -> None:
        os._exit(0)


class Hangs(Hostile):
    def strike(self) -> None:
        time.sleep(3600)


class BreaksOnce(Hostile):
    struck = False

    def strike(self) -> None:
        if not BreaksOnce.struck:
            BreaksOnce.struck = True
            raise ZeroDivisionError("a lost simulator")
