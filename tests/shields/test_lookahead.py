"""Look-ahead targets by hand, small worlds to learn in, and when the shield is fitted."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from made_shields import ACTIONS, LOOK_AHEAD, OBSERVATIONS, copy, is_safe

from advice import Outcome, Shield
from advice.shields import shield as shields
from advice.shields.fit import Evidence, FitSummary
from advice.shields.lookahead import (
    FAR,
    fit_danger,
    fit_unavoidable,
    horizons,
    is_foreseen,
    steps_until_violation,
    targets,
)
from advice.shields.memory import Steps
from advice.types import OneClassError

OUTCOMES = {".": Outcome.INCONCLUSIVE, "U": Outcome.UNSAFE, "S": Outcome.SAFE}


def made(*episodes: str) -> Steps:
    """Episodes of inconclusive (.), unsafe (U) and safe (S) steps; | is a gap in what is stored."""
    pieces = [(n, piece) for n, episode in enumerate(episodes) for piece in episode.split("|")]
    outcomes = [OUTCOMES[x] for _, piece in pieces for x in piece]
    continues = [i + 1 < len(piece) for _, piece in pieces for i in range(len(piece))]
    numbers = [n for n, piece in pieces for _ in piece]
    return Steps(
        np.zeros((len(outcomes), 1)),
        np.array(outcomes, np.int64),
        np.array(continues),
        np.array(numbers, np.int64),
        len(outcomes),
    )


@pytest.mark.parametrize(
    ("episode", "until", "known"),
    [
        ("..U", [3, 2, 1], [FAR] * 3),
        ("...", [FAR] * 3, [2, 1, 0]),  # cut by the time limit
        ("..S", [FAR] * 3, [FAR] * 3),
        ("US..U.", [1, 4, 3, 2, 1, FAR], [5, 4, 3, 2, 1, 0]),
        ("..|.U", [FAR, FAR, 2, 1], [1, 0, FAR, FAR]),  # a piece between was dropped
    ],
)
def test_steps_until_the_next_violation(episode, until, known):
    found = steps_until_violation(made(episode))
    assert [x.tolist() for x in found] == [until, known]
    # another episode before or after it makes no difference
    found = steps_until_violation(made("..U", episode, ".U"))
    assert [x.tolist()[3:-2] for x in found] == [until, known]


@pytest.mark.parametrize(
    ("episode", "danger", "value", "known", "leads_in"),
    [
        # a violation: 1 within three steps of it, else the largest of the next three dangers
        (
            "....U",
            [0.1, 0.2, 0.3, 0.6, 0.9],
            [0.6, 0.9, 1, 1, 1],
            [1, 1, 1, 1, 1],
            [0, 0, 0, 1, 1],
        ),
        # cut by the time limit: the last three steps are unknown
        (
            ".....",
            [0.9, 0.1, 0.2, 0.3, 0.4],
            [0.3, 0.4, 0.4, 0.4, 0.0],
            [1, 1, 0, 0, 0],
            [0, 0, 0, 0, 0],
        ),
        # a success: all is known, and the last step is safe whatever its danger
        ("...S", [0.5, 0.4, 0.3, 0.2], [0.4, 0.3, 0.2, 0], [1, 1, 1, 1], [0, 0, 0, 0]),
        # two violations, the step that leads out of the first is safe
        (
            "..US.U.",
            [0.1, 0.2, 0.3, 0.8, 0.7, 0.6, 0.5],
            [1, 1, 1, 0, 1, 1, 0],
            [1, 1, 1, 1, 1, 1, 0],
            [0, 1, 1, 0, 1, 1, 0],
        ),
    ],
)
def test_targets_by_hand(episode, danger, value, known, leads_in):
    found = targets(made(episode), np.array(danger), near=2, ahead=3)
    assert found.value.tolist() == pytest.approx(value)
    assert found.known.tolist() == [bool(x) for x in known]
    assert found.leads_in.tolist() == [bool(x) for x in leads_in]


def test_targets_do_not_cross_episodes_or_gaps():
    steps = made("..", "..", "..|..")
    danger = np.array([0.1, 0.2, 0.9, 0.3, 0.1, 0.2, 0.9, 0.4])
    found = targets(steps, danger, 2, 3).value.tolist()
    assert found == pytest.approx([0.2, 0, 0.3, 0, 0.2, 0, 0.4, 0])


@pytest.mark.parametrize(
    ("seen", "violations", "expected"),
    [
        (24, 6, (2, 2)),  # four steps per violation
        (90, 10, (3, 2)),
        (100, 4, (5, 4)),
        (10_000, 1, (5, 8)),
        (6, 6, (2, 2)),
        (25, 0, (5, 4)),
    ],
)
def test_horizons_follow_the_steps_per_violation(seen, violations, expected):
    steps = made("U" * violations) if violations else made("..")
    assert horizons(steps._replace(seen=seen)) == expected


def test_what_a_better_action_avoids_is_not_unavoidable():
    """Three steps from the edge of a line; actions go left (-1) or right (1), both ends violate.

    At the left edge half of the actions lead away. At the right one the floor is slippery and every
    action leads over the edge, from two steps before it on.
    """
    rng = np.random.default_rng(0)
    states, taken, outcomes, continues = [], [], [], []
    for _ in range(150):
        place, length = int(rng.integers(-2, 3)), 0
        while abs(place) < 4 and length < 20:
            action = rng.choice([-1.0, 1.0])
            states.append(place)
            taken.append(action)
            place += 1 if place >= 2 else int(action)
            length += 1
            outcomes.append(Outcome.UNSAFE if abs(place) == 4 else Outcome.INCONCLUSIVE)
            continues.append(abs(place) < 4 and length < 20)
    count = len(states)
    steps = Steps(
        np.zeros((count, 1)),
        np.array(outcomes, np.int64),
        np.array(continues),
        np.zeros(count, np.int64),
        count,
    )
    where, actions = np.float32(states)[:, None] / 2, np.float32([[-1], [1]])
    everything = np.ones(count, bool)
    danger = fit_unavoidable(
        where, np.float32(taken)[:, None], actions, steps, everything, 1500, rng
    )
    at = {place: danger[np.array(states) == place].mean() for place in range(-3, 4)}
    assert at[2] > 0.9
    assert at[3] > 0.9
    assert max(at[place] for place in (-3, -2, -1, 0)) < 0.4


def test_danger_without_quiet_steps_is_one_everywhere():
    steps, inputs = made(".U", "U"), np.zeros((3, 1), np.float32)
    found = fit_danger(inputs, steps, np.ones(3, bool), 2, 5, np.random.default_rng(0))
    assert found.tolist() == [1, 1, 1]


def test_whether_danger_is_foreseen():
    """Of the 2 x 3 pairs of near and other states, 4 (0.67) or 3.5 (0.58) are in order."""
    until, everything = np.array([1, 2, 9, 9, FAR]), np.ones(5, bool)
    assert is_foreseen(np.array([0.9, 0.2, 0.1, 0.3, 0.4]), until, 2, everything)
    assert not is_foreseen(np.array([0.9, 0.2, 0.2, 0.3, 0.4]), until, 2, everything)
    some = np.array([True, False, True, True, False])
    assert is_foreseen(np.array([0.9, 0, 0.2, 0.3, 1]), until, 2, some)
    assert is_foreseen(np.array([0.9, 0.2, 0.1, 0.3, 0.4]), until, 2, ~everything)  # all of them
    assert not is_foreseen(np.ones(5), until, 2, everything)
    assert not is_foreseen(np.ones(5), np.ones(5), 2, everything)  # nothing to compare with


# -- worlds to learn in --------------------------------------------------------------------------

CONFIG = dataclasses.replace(LOOK_AHEAD, fit_steps=500)
NOISE, PUSH = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)


def test_only_the_action_tells_safe_from_unsafe():
    """Observations are noise, and a push above 0.5 is a violation."""
    rng = np.random.default_rng(0)
    shield = Shield(NOISE, PUSH, CONFIG, seed=1)
    for _ in range(400):
        violated = False
        for _ in range(30):
            obs, push = rng.uniform(-1, 1, 2), rng.uniform(-1, 1, 1)
            violated = bool(push[0] > 0.5)
            shield.record(obs, push, Outcome.UNSAFE if violated else Outcome.INCONCLUSIVE)
            if violated:
                break
        shield.end_episode(violated)
    assert shield.fit().evidence.tells_actions_apart

    def refused(push: float) -> float:
        return float(np.mean([shield.guard(x, np.array([push])).intervened for x in states]))

    states = rng.uniform(-1, 1, (100, 2))
    assert refused(0.9) > 0.8
    assert refused(-0.3) < 0.1
    replaced = [shield.guard(x, np.array([0.9])) for x in states]
    assert np.mean([v.action[0] < 0.5 for v in replaced if v.intervened]) > 0.75


class Wall:
    """Distances to a wall: a *low* reading is danger. The bounds say nothing: data within +-1."""

    observations = Box(-1000, 1000, (2,), np.float32)

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def episode(self, shield: Shield, guarded: bool) -> bool:
        distance = self.rng.uniform(0.4, 0.8)
        for _ in range(40):
            obs = np.array([distance, self.rng.uniform(-1, 1)], np.float32)
            push = self.rng.uniform(-1, 1, 1).astype(np.float32)
            if guarded:
                push = shield.guard(obs, push).action
            distance = min(1.0, distance + 0.15 * float(push[0]))
            violated = distance <= 0
            shield.record(obs, push, Outcome.UNSAFE if violated else Outcome.INCONCLUSIVE)
            if violated:
                break
        shield.end_episode(violated)
        return violated


def test_a_low_reading_is_danger_and_wide_bounds_do_not_hide_it():
    world, shield = Wall(0), Shield(Wall.observations, PUSH, CONFIG, seed=1)
    before = sum(world.episode(shield, False) for _ in range(120))
    summary = shield.fit()
    assert summary.evidence.caught > 0.7
    assert summary.evidence.action_matters > 0.2
    towards, away = np.array([-1.0], np.float32), np.array([1.0], np.float32)

    def refused(distance: float, push: np.ndarray) -> float:
        states = [np.array([distance, x], np.float32) for x in np.linspace(-1, 1, 50)]
        return float(np.mean([shield.guard(x, push).intervened for x in states]))

    assert refused(0.1, towards) > 0.9
    assert refused(0.1, away) < 0.2
    assert refused(0.9, towards) < 0.5
    assert refused(0.9, away) < 0.1
    assert shield.guard(np.array([0.1, 0], np.float32), towards).action[0] > 0
    after = sum(world.episode(shield, True) for _ in range(60)) / 60
    assert after < before / 120 / 3


def test_what_the_caller_labels_is_taken_as_it_is(looking_ahead, queries):
    """The labelled rule needs observation and action."""
    right = [
        is_safe(obs, action[0]) == (not looking_ahead.guard(obs, action).intervened)
        for obs, action in zip(*queries, strict=True)
    ]
    assert np.mean(right) > 0.8


# -- when to fit ---------------------------------------------------------------------------------

GOOD, POOR = Evidence(0.9, 0.5, 0.4, 0.1), Evidence(0.9, 0.5, 0.1, 0.5)
LAST_ALONE = Evidence(0.4, 0.9, 0.4, 0.0, last_caught=0.7)  # nothing decides before the last step


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (GOOD, True),
        (POOR, False),  # the verdict hardly depends on the action
        (GOOD._replace(action_matters=0.05), True),  # most states are far enough from danger
        (GOOD._replace(action_matters=0.0, no_safe_action=0.0), False),  # nothing is refused
        (GOOD._replace(caught=0.59), False),
        (GOOD._replace(passed=0.19), False),
        (LAST_ALONE, True),
        (LAST_ALONE._replace(last_caught=0.59), False),
        (LAST_ALONE._replace(passed=0.79), False),
        (LAST_ALONE._replace(action_matters=0.0, no_safe_action=0.3), False),
        (Evidence(), False),  # nothing was held out
    ],
)
def test_evidence_that_is_good_enough(evidence, expected):
    assert evidence.tells_actions_apart is expected


@pytest.fixture
def evidence(monkeypatch):
    """Replaces the fit: every one has the evidence in this list."""
    given = [GOOD]

    def fit(steps: Steps, *rest: Any) -> Any:
        return object(), FitSummary(1, 0.0, len(steps.outcomes), 0, given[0], 3, 5)

    monkeypatch.setattr(shields, "fit_model", fit)
    return given


def record_violations(shield: Shield, episodes: int, steps: int = 2) -> None:
    for _ in range(episodes):
        for _ in range(steps - 1):
            shield.record(np.zeros(4), np.zeros(2), Outcome.INCONCLUSIVE)
        shield.record(np.zeros(4), np.zeros(2), Outcome.UNSAFE)
        shield.end_episode(True)


LAST = 2 * shields.FIRST_TRIAL  # construction episodes


def early(**settings: Any) -> Shield:
    config = dataclasses.replace(LOOK_AHEAD, arm="early", construction_episodes=LAST, **settings)
    return Shield(OBSERVATIONS, ACTIONS, config)


def test_a_good_trial_arms_early(evidence):
    shield = early()
    record_violations(shield, shields.FIRST_TRIAL - 1)
    assert not shield.wants_fit
    record_violations(shield, 1)
    assert shield.wants_fit
    assert shield.fit_if_good()
    assert shield.armed
    assert not shield.wants_fit
    assert shield.hold == 5


def test_a_poor_trial_leaves_the_shield_unarmed_until_the_construction_episodes(evidence):
    evidence[0] = POOR
    shield, first = early(), shields.FIRST_TRIAL
    record_violations(shield, first)
    assert not shield.fit_if_good()
    assert not shield.armed
    assert shield.summary is None
    record_violations(shield, first // 4 - 1)
    assert not shield.wants_fit  # the next trial comes after a quarter more violations
    record_violations(shield, 1)
    assert shield.wants_fit
    assert not copy(shield).fit_if_good()  # also after a resume
    assert not shield.fit_if_good()
    assert not shield.wants_fit
    while shield._memory.episode < LAST:
        record_violations(shield, 1)
    assert shield.wants_fit
    assert shield.fit_if_good()  # the last construction episode: armed as it is
    assert shield.armed


def test_arm_fixed_waits_for_the_construction_episodes(evidence):
    shield = Shield(OBSERVATIONS, ACTIONS, dataclasses.replace(LOOK_AHEAD, arm="fixed"))
    record_violations(shield, 99)
    assert not shield.wants_fit
    record_violations(shield, 1)
    assert shield.wants_fit


def test_a_refit_needs_enough_episodes_and_enough_more_steps(evidence, monkeypatch):
    monkeypatch.setattr(shields, "REFIT_GROWTH", 1.1)
    shield = early(refit_episodes=4)
    record_violations(shield, 50, steps=2)
    shield.fit()
    record_violations(shield, 4, steps=2)
    assert not shield.wants_fit  # 108 steps are less than 110
    record_violations(shield, 1, steps=4)
    assert shield.wants_fit
    shield.fit_if_good()
    assert not shield.wants_fit
    record_violations(shield, 3, steps=50)
    assert not shield.wants_fit  # one episode is missing
    record_violations(shield, 1)
    assert shield.wants_fit
    evidence[0] = GOOD._replace(passed=0.1)
    assert shield.fit_if_good()  # a refit is no trial


def test_a_refit_whose_verdicts_do_not_depend_on_the_action_is_dropped(evidence):
    shield = early(refit_episodes=4)
    record_violations(shield, 50, steps=2)
    assert shield.fit_if_good()
    model = shield._fitted()
    record_violations(shield, 4, steps=50)
    evidence[0] = POOR
    assert not shield.fit_if_good()
    assert shield._fitted() is model
    assert not shield.wants_fit  # it is tried again after as many steps more


def test_no_refits_if_none_are_wanted(evidence):
    shield = early(refit_episodes=0)
    record_violations(shield, 50)
    shield.fit()
    record_violations(shield, 200)
    assert not shield.wants_fit


def test_a_shield_that_cannot_tell_actions_apart_stays_unarmed():
    """Violations fall from the sky, whatever the state and the action."""
    rng, shield = np.random.default_rng(0), early(fit_steps=60)
    shield = copy(shield, dataclasses.replace(shield.config, construction_episodes=1000))
    while not shield.wants_fit:
        violated = False
        while not violated:
            violated = rng.random() < 0.1
            step = rng.uniform(-1, 1, 4), rng.uniform(-1, 1, 2)
            shield.record(*step, Outcome.UNSAFE if violated else Outcome.INCONCLUSIVE)
        shield.end_episode(True)
    assert not shield.fit_if_good()
    assert not shield.armed


@pytest.mark.parametrize("outcome", [Outcome.UNSAFE, Outcome.INCONCLUSIVE])
def test_one_class_raises_and_leaves_the_shield_unarmed(outcome):
    shield = Shield(OBSERVATIONS, ACTIONS, LOOK_AHEAD)
    for _ in range(5):
        shield.record(np.zeros(4), np.zeros(2), outcome)
        shield.end_episode(False)
    with pytest.raises(OneClassError, match=r"needs safe and unsafe steps.*after 5 episodes"):
        shield.fit()
    assert not shield.armed


def test_the_same_seed_gives_the_same_fit(looking_ahead):
    """A refit of two copies; another seed of the shield gives another one."""
    one, two = (copy(looking_ahead) for _ in range(2))
    other = copy(looking_ahead)
    other._rng = np.random.default_rng(99)
    for shield in (one, two, other):
        shield.fit()
    arrays, others = one.snapshot()[0], other.snapshot()[0]
    for name, array in two.snapshot()[0].items():
        np.testing.assert_array_equal(array, arrays[name], err_msg=name)
    assert (arrays["encoder.w1"].shape != others["encoder.w1"].shape) or (
        arrays["encoder.w1"] != others["encoder.w1"]
    ).any()


@pytest.mark.parametrize(("change", "hold"), [(1.0, 1), (0.3, 5), (0.001, 15)])
def test_the_slower_observations_change_the_longer_replacements_are_held(change, hold):
    from advice.shields.fit import _hold

    steps = made("." * 1000)
    rng = np.random.default_rng(0)
    x = np.zeros((1000, 1))
    for i in range(1, 1000):  # its changes have about ``change`` times its spread
        x[i] = (1 - change**2 / 2) * x[i - 1] + rng.normal() * change
    found = _hold(steps, x)
    assert abs(found - hold) <= 1
    assert _hold(steps, np.zeros((1000, 1))) == 1
