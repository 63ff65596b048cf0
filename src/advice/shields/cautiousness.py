"""How cautious to be: K follows recent violations (the paper's double sliding window)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from advice.config import KRule, ShieldConfig


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
