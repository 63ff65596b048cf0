"""Violations with and without a shield, and a shield that is disarmed because it harms."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import advice
from advice.shields.cautiousness import FIRST_LOOK, REACHES, Effect
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession
from advice.types import OneClassError, Outcome, Verdict

QUICK = advice.ShieldConfig(
    hidden_size=16, fit_steps=30, refit_episodes=0, construction_episodes=30
)


def tail(least: int, trials: int, share: float) -> float:
    """P(X >= least) for a binomial X."""
    return sum(
        math.comb(trials, x) * share**x * (1 - share) ** (trials - x)
        for x in range(least, trials + 1)
    )


class Life:
    """Tells an effect of episodes by how many violations and steps they have."""

    def __init__(self, *reaches: int, probe_violations: int = 0) -> None:
        self.effect, self.total = Effect(reaches or REACHES, probe_violations), (0, 0)
        self.effect.judged = True

    def __call__(self, armed: bool, violations: int, steps: int) -> str:
        """An episode without a violation, and as many with one, of one step each."""
        found = ""
        for violated, length in [(0, steps - violations), *[(1, 1)] * violations]:
            self.total = self.total[0] + violated, self.total[1] + length
            found = self.effect.count(armed, *self.total) or found
        return found

    def probe(self, violations: int, steps: int) -> str:
        """One unguarded episode while armed."""
        self.total = self.total[0] + violations, self.total[1] + steps
        return self.effect.count(True, *self.total, guarded=False)


def test_a_shield_that_helps_is_left_alone() -> None:
    told = Life()
    assert told(False, 50, 1000) == ""
    assert told(True, 12, 400) == ""  # 0.03 a step, 0.6 times as many as without
    assert (told.effect.reach, told.effect.next_look) == (1, 24)
    assert told(True, 11, 1) == "", "too few to look again"


def test_too_few_violations_say_nothing() -> None:
    assert Life()(True, 11, 50) == ""
    told = Life()
    assert told(False, 11, 1000) == ""
    assert told(True, 12, 50) == "", "too few before to compare with"


def test_a_shield_that_hardly_helps_looks_farther_ahead_and_the_best_reach_stays() -> None:
    told = Life(1, 2, 4)
    told(False, 50, 1000)
    assert told(True, 12, 240) == "fit anew"
    assert (told.effect.reach, told.effect.ratio) == (2, 0.0)
    assert told(True, 12, 300) == "fit anew"
    assert told.effect.reach == 4
    assert told.effect.tried == pytest.approx({1: 1.0, 2: 0.8})
    assert told(True, 12, 200) == "fit anew"
    assert told.effect.reach == 2, "with it violations were least frequent"
    assert told(True, 12, 240) == "", "a second round looks at twice as many violations"
    assert told(True, 12, 240) == "fit anew"
    assert (told.effect.reach, told.effect.next_look) == (1, 24)
    assert told(True, 24, 4800) == "", "it helps by now"
    assert told.effect.reach == 1


def test_harm_is_found_where_chance_hardly_gives_as_many_violations() -> None:
    # 20 in 1,000 steps before; of 32 violations a share of 2/9 or 1/5 of the steps has 12 or more
    for steps, found in ((270, ""), (230, "disarm")):
        told = Life(1)
        told(False, 20, 1000)
        assert told(True, 12, steps) == found
        assert (tail(12, 32, steps / (1000 + steps)) < 0.02) == bool(found)


def test_a_shield_that_harms_at_every_reach_is_disarmed() -> None:
    told = Life()
    told(False, 20, 1000)
    found = [told(True, 12, 100) for _ in REACHES]
    assert found == [*["fit anew"] * (len(REACHES) - 1), "disarm"]


def test_a_probe_is_due_after_some_violations() -> None:
    told = Life(probe_violations=8)
    told(False, 20, 1000)
    told(True, 7, 500)
    assert not told.effect.probe_due
    told(True, 1, 500)
    assert told.effect.probe_due
    assert told.probe(1, 20) == ""
    assert not told.effect.probe_due
    assert told.effect.probes[0] == (8, 1000, 1, 20)
    assert (told.effect.unarmed, told.effect.armed) == ((21, 1020), (8, 1000))
    never = Life()
    never(True, 100, 1000)
    assert not never.effect.probe_due


def test_a_shield_with_which_probes_show_harm_is_disarmed() -> None:
    # before arming 0.1 violations a step, with it 0.04, by now without it 2 in 300 steps
    told = Life(probe_violations=8)
    told(False, 100, 1000)
    found = []
    for violations in (1, 0, 1):
        told(True, 8, 200)
        found.append(told.probe(violations, 100))
    assert found == ["", "", "disarm"], "three probes are the least"
    assert tail(24, 26, 600 / 900) < 0.02
    assert told.effect.unarmed == (2, 300)
    told.effect.disarm()
    assert (told.effect.disarmed, len(told.effect.probes)) == (1, 0)
    # more often with it, but not more than chance may give: enough for one disarmed before
    found = []
    for _ in range(3):
        told(True, 8, 200)
        found.append(told.probe(1, 60))
    assert found == ["", "", "disarm"]
    assert 0.02 < tail(24, 27, 600 / 780) < 0.5


def test_a_look_compares_with_the_latest_episodes_without_the_shield() -> None:
    # all along 50 in 1,000 steps, but of late none in 20 episodes of 20 steps
    told = Life(probe_violations=8)
    told(False, 50, 1000)
    for _ in range(20):
        told(False, 0, 20)
    assert told(True, 12, 300) == "disarm"
    assert told.effect.unarmed == (0, 400)
    assert tail(12, 12, 300 / 700) < 0.02


def test_a_first_shield_has_twelve_probes_to_show_some_help() -> None:
    told = Life(1, probe_violations=8)
    told(False, 100, 1000)
    found = []
    for _ in range(12):
        told(True, 8, 200)
        found.append(told.probe(1, 30))
    assert found == [*[""] * 11, "disarm"]


def test_probes_without_a_violation_do_not_show_that_a_shield_is_useless() -> None:
    # three short probes after 8 violations in 1,000 steps each: none is what one would expect
    told = Life(1, probe_violations=8)
    told(False, 100, 1000)
    told.effect.disarmed = 1
    for _ in range(3):
        told(True, 8, 1000)
        assert told.probe(0, 20) == ""
    assert tail(24, 24, 3000 / 3060) > 0.5


def test_another_reach_is_judged_by_its_own_probes() -> None:
    told = Life(1, 2, probe_violations=8)
    told(False, 50, 1000)
    told(True, 8, 100)
    assert told.probe(0, 10) == ""
    assert told(True, 4, 50) == "fit anew"
    assert (told.effect.reach, len(told.effect.probes), told.effect._since_probe) == (2, 0, (0, 0))


def test_what_was_saved_without_probes_goes_on() -> None:
    saved = [20, 900, 8, 100, 28, 1000, 12, 0, 0, 1, 1, []]
    told = Life(1, probe_violations=8)
    told.effect, told.total = Effect.from_list(saved, (1,), 8), (28, 1000)
    assert told(True, 4, 10) == "disarm", "nothing to compare with but what was before arming"
    for damaged in ([*saved, [], []], [*saved, [[1]], []], [*saved, [[0, 0]], [[1]]], saved[:5]):
        with pytest.raises((ValueError, TypeError)):
            Effect.from_list(damaged)


def test_a_shield_that_helps_stays_whatever_the_probes() -> None:
    told = Life(probe_violations=8)
    told(False, 100, 1000)
    for _ in range(40):
        told(True, 8, 200)
        assert told.probe(1, 20) == ""
    assert len(told.effect.probes) == 12


def test_counts_survive_a_file() -> None:
    told = Life()
    told(False, 30, 1000)
    told(True, 12, 200)
    told.probe(1, 10)
    again = Effect.from_list(told.effect.to_list())
    assert again.to_list() == told.effect.to_list()
    assert again.tried == told.effect.tried != {}
    for senseless in (
        [1, 2, -3, 4, 5, 6, 7, 8, 9, 1, 0, []],
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 1000, 0, []],
        [1, 2, 3, 4, 5, 6, 7, 8, 10**9, 1, 0, []],
        [10**400, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, []],
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, [], [[1, 2], [3, 4, 5, -6]], []],
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, [], [[1, 2]], [[3, -4]]],
    ):
        with pytest.raises(ValueError, match="eleven numbers"):
            Effect.from_list(senseless)


def live(session: ShieldSession, episodes: int, fatal: float, seed: int) -> None:
    """Episodes of ten steps; a share ends with a violation."""
    rng = np.random.default_rng(seed)
    for _ in range(episodes):
        fails = rng.random() < fatal
        for step in range(10):
            session.guard(rng.normal(size=2).astype(np.float32), np.float32([0.1]))
            info: dict[str, Any] = {"violation": fails and step == 9}
            session.record(rng.normal(size=2), 0.0, info["violation"], step == 9, info)
        session.end_episode(fit=False)


def armed_session(config: advice.ShieldConfig) -> tuple[ShieldSession, list[str]]:
    """A session whose shield is fitted after 60 episodes, a third of them violated."""
    said: list[str] = []
    spaces = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Box(-1, 1, (1,))
    shield = advice.Shield(*spaces, config)
    options = SessionOptions(shield=shield)
    session = ShieldSession(*spaces, options, say=said.append)
    live(session, 60, 0.33, seed=1)
    assert shield.fit_if_good()
    return session, said


def test_a_shield_that_harms_is_disarmed_and_says_so() -> None:
    session, said = armed_session(QUICK)
    shield: Any = session.shield
    before = shield._memory.violations
    live(session, 20, 1.0, seed=2)
    assert not shield.armed
    assert any("disarmed" in message for message in said)
    assert not shield.wants_fit, "a trial comes after twice as many violations, not at once"
    probes = 1  # after eight violations
    assert shield._next_trial == 2 * (before + FIRST_LOOK + probes)
    arrays, document = shield.snapshot()
    copy = advice.Shield(*shield.space, QUICK)
    copy.restore(arrays, document)
    assert (copy.armed, copy.effect.to_list()) == (False, shield.effect.to_list())


def test_a_probe_is_not_guarded_and_leaves_k_alone() -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, probe_violations=1))
    shield: Any = session.shield
    shield.guard = lambda *_, **__: pytest.fail("a probe is not guarded")
    shield.effect._since_probe = (1, 10)
    k = list(shield._cautiousness.violations)
    live(session, 1, 1.0, seed=2)
    assert shield.armed
    assert len(shield.effect.probes) == 1
    assert list(shield._cautiousness.violations) == k


def test_of_several_environments_one_probes() -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, probe_violations=1))
    session.shield.effect._since_probe = (1, 10)  # type: ignore[attr-defined]
    several = ShieldSession(*session.shield.space, SessionOptions(shield=session.shield), 3)  # type: ignore[attr-defined]
    verdicts = several.guard_batch(np.zeros((3, 2), np.float32), np.zeros((3, 1), np.float32))
    assert [episode.guarded for episode in several._episodes] == [False, True, True]
    assert verdicts[0]._replace(action=None) == Verdict(None, reason="probe")
    said = several.describe(verdicts[0], verdicts[0].action)
    assert (said["armed"], said["reason"]) == (False, "probe")


def test_a_rule_given_during_a_probe_holds_at_once() -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, probe_violations=1))
    shield: Any = session.shield
    shield.effect._since_probe = (1, 10)
    obs, action = np.zeros(2, np.float32), np.float32([0.1])
    assert session.guard(obs, action).reason == "probe"
    session.record(obs, 0.0, False, False, {})
    shield.forbid(obs, action, radius=0.1)
    verdict = session.guard(obs, action)
    assert (verdict.reason, verdict.intervened) == ("forbidden", True)


def test_a_shield_that_someone_relies_on_is_not_probed(tmp_path: Any) -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, probe_violations=1))
    shield: Any = session.shield
    shield.effect._since_probe = (1, 10)
    assert shield.probe_due
    assert not shield.compact().probe_due
    shield.save(tmp_path / "shield.safetensors")
    loaded = advice.Shield.load(tmp_path / "shield.safetensors")
    loaded.effect._since_probe = (1, 10)
    loaded._refit_now = True
    assert loaded.fit_if_good()
    assert not loaded.probe_due, "a refit does not change that"
    shield.certify(0, 300)
    assert not shield.probe_due
    shield.fit()
    assert not shield.probe_due, "one that the user fitted is not judged"


def test_a_shield_armed_after_fixed_episodes_stays_armed() -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, arm="fixed"))
    live(session, 60, 1.0, seed=2)
    assert session.shield.armed


def test_a_loaded_shield_is_not_judged_by_what_was_before(tmp_path: Any) -> None:
    session, _ = armed_session(QUICK)
    session.shield.save(tmp_path / "shield.safetensors")  # type: ignore[attr-defined]
    loaded = advice.Shield.load(tmp_path / "shield.safetensors")
    assert (loaded.effect.unarmed, loaded.effect.armed) == ((0, 0), (0, 0))
    live(ShieldSession(*loaded.space, SessionOptions(shield=loaded)), 60, 1.0, seed=2)
    assert loaded.armed


def test_a_shield_fitted_by_the_user_is_not_judged() -> None:
    session, _ = armed_session(QUICK)
    session.shield.fit()
    live(session, 60, 1.0, seed=2)
    assert session.shield.armed


def test_rules_keep_a_shield_armed() -> None:
    session, _ = armed_session(QUICK)
    session.shield.forbid(np.zeros(2, np.float32))  # type: ignore[attr-defined]
    live(session, 60, 1.0, seed=2)
    assert session.shield.armed


def test_several_violations_of_an_episode_count_once() -> None:
    effect = Effect()
    assert effect.count(False, 9, 100) == ""
    assert effect.unarmed == (1, 100)


def test_a_reach_that_cannot_be_fitted_is_passed_over() -> None:
    session, _ = armed_session(dataclasses.replace(QUICK, refit_episodes=50))
    shield: Any = session.shield
    live(session, 14, 1.0, seed=2)
    assert (shield.effect.reach, shield.wants_fit) == (2, True)
    model = shield._model

    def impossible(progress: Any) -> Any:
        raise OneClassError("no safe step")

    shield._fit = impossible
    assert not shield.fit_if_good()
    assert (shield._model, shield.effect.reach, shield.wants_fit) == (model, 4, True)
    assert shield.effect.tried[2] > 1e6
    json.dumps(shield.snapshot()[1], allow_nan=False)


def test_outcomes_given_by_hand_count_too() -> None:
    spaces = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Box(-1, 1, (1,))
    shield = advice.Shield(*spaces, QUICK)
    shield.record(np.zeros(2, np.float32), np.zeros(1, np.float32), Outcome.UNSAFE)
    shield.end_episode(True)
    assert shield.effect.unarmed == (1, 1)
