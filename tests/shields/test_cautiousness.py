from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.config import ShieldConfig
from advice.shields.cautiousness import Cautiousness, update_k

RULES = ("inclusive-down", "printed", "released", "fixed")


@pytest.mark.parametrize(
    ("rule", "violations", "expected"),
    [
        # h_r = 2, h_d = 4. One crash just now: mu_r 1/2, mu_d 1/4, sigma 0.433: 0.5 < 0.683.
        ("inclusive-down", [0, 0, 0, 1], 4),
        # Two in a row: mu_r 1, mu_d 1/2, sigma 1/2: 1 = upper.
        ("inclusive-down", [0, 0, 1, 1], 4),
        ("printed", [0, 0, 1, 1], 4),
        ("released", [0, 0, 1, 1], 5),
        # Two crashes that have left the recent window: mu_r 0 = mu_d - sigma_d.
        ("inclusive-down", [1, 1, 0, 0], 3),
        ("printed", [1, 1, 0, 0], 4),
        ("released", [1, 1, 0, 0], 3),
        # Three of four, none lately but one: mu_r 1/2, mu_d 3/4, sigma 0.433: 0.5 > 0.317.
        ("inclusive-down", [1, 1, 0, 1], 4),
        # No crashes at all: everything is 0.
        ("inclusive-down", [0, 0, 0, 0], 3),
        ("printed", [0, 0, 0, 0], 4),
        ("released", [0, 0, 0, 0], 5),
        ("fixed", [0, 0, 1, 1], 4),
    ],
)
def test_one_update_by_hand(rule, violations, expected):
    assert update_k(4, 5, violations, 2, 4, rule) == expected


def test_a_trace_by_hand():
    """h_r = 2, h_d = 10 as in the paper's worked example, from a clean past and K = 3.

    A crash: mu_r = 0.5 > 0.1 + 0.3, up. Next: the same, up. Then mu_r = 0: 0.1 - 0.3 < 0, so K
    stays until the crash leaves the distant window; then mu_r = 0 = mu_d - sigma_d, down.
    """
    cautiousness = Cautiousness(ShieldConfig(k=3, recent_window=2, distant_window=10))
    trace = []
    for violated in [0] * 10 + [1] + [0] * 12:
        cautiousness.end_episode(bool(violated), armed=True)
        trace.append(cautiousness.k)
    assert trace == [3] * 10 + [4, 5] + [5] * 8 + [4, 3, 3]


def test_missing_episodes_count_as_clean():
    """First episode crashes: mu_r = 1/3 > 1/25 + 0.196."""
    assert update_k(4, 5, [True], 3, 25, "inclusive-down") == 5


def test_going_down_never_raises_k():
    assert update_k(4, 9, [False] * 30, 3, 25, "inclusive-down") == 4
    assert update_k(6, 9, [False] * 30, 3, 25, "inclusive-down") == 5


@pytest.mark.parametrize("rule", RULES)
def test_k_does_not_fall_while_every_recent_episode_has_a_violation(rule):
    """mu_d = 1 and sigma_d = 0: mu_r equals the lower threshold, and yet K must not fall."""
    assert update_k(4, 5, [True] * 40, 3, 25, rule) >= 4
    cautiousness = Cautiousness(ShieldConfig(k_rule=rule))
    for _ in range(40):
        before = cautiousness.k
        cautiousness.end_episode(True, armed=True)
        assert cautiousness.k >= before
    # one quiet episode is enough for the rule to count again: 2/3 < 24/25 - 0.196
    assert update_k(4, 5, [True] * 24 + [False], 3, 25, "inclusive-down") == 3


def test_watching_fills_the_windows_but_leaves_k():
    cautiousness = Cautiousness(ShieldConfig(recent_window=2, distant_window=10))
    for _ in range(9):
        cautiousness.end_episode(False, armed=False)
    cautiousness.end_episode(True, armed=False)
    assert cautiousness.k == 4
    cautiousness.end_episode(False, armed=True)
    assert cautiousness.k == 5


def changes(rule: str, windows: tuple[int, int], rate: float, runs: int) -> float:
    rng = np.random.default_rng(0)
    config = ShieldConfig(recent_window=windows[0], distant_window=windows[1], k_rule=rule)
    total = 0
    for _ in range(runs):
        cautiousness = Cautiousness(config)
        for z in rng.random(windows[1]) < rate:
            cautiousness.end_episode(bool(z), armed=False)
        before = cautiousness.k
        for z in rng.random(1000) < rate:
            cautiousness.end_episode(bool(z), armed=True)
            total += cautiousness.k != before
            before = cautiousness.k
    return total / runs


def test_changes_per_thousand_episodes_agree_with_the_papers_table():
    """At a 5.3 % crash rate and (2, 10) the paper counts 116.33 +- 9.87 changes over its runs.

    Long simulation gives 120.0 with a spread of 11.7 between runs.
    """
    found = changes("inclusive-down", (2, 10), 0.053, 100)
    assert found == pytest.approx(120.0, abs=4.0)
    assert found == pytest.approx(116.33, abs=9.87)


def test_the_printed_rule_climbs_and_never_falls():
    assert changes("printed", (2, 10), 0.05, 10) == pytest.approx(1.0)


def test_the_released_rule_flips_without_any_crash():
    assert changes("released", (2, 10), 0.0, 1) >= 999


@given(
    st.lists(st.booleans(), max_size=60),
    st.sampled_from(RULES),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(5, 30),
)
def test_k_stays_in_its_range(violations, rule, k_max, recent, distant):
    lowest = -(-k_max // 2)
    k = k_max
    for end in range(len(violations)):
        after = update_k(k, k_max, violations[: end + 1], recent, distant, rule)
        assert abs(after - k) <= 1
        assert lowest <= after <= k_max
        k = after
