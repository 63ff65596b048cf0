"""The card, the calibrated shield, the certificate and the compact shield."""

from __future__ import annotations

import numpy as np
import pytest
from made_shields import (
    ACTIONS,
    LOOK_AHEAD,
    OBSERVATIONS,
    copy,
    fitted_on,
    record_random,
    with_far_check,
)

from advice import Shield
from advice.shields.calibration import dangerous
from advice.shields.compact import condense, expand, shrink
from advice.shields.memory import Steps
from advice.shields.neighbours import Neighbours
from advice.types import AdviceError


@pytest.fixture(scope="module")
def large() -> Shield:
    """Enough held-out episodes to calibrate."""
    return fitted_on(500, LOOK_AHEAD, seed=2)


def test_a_card_lies_beside_every_saved_shield(fitted, tmp_path):
    shield = copy(fitted)
    shield.task = "my-task"
    shield.certify(3, 300)
    shield.save(tmp_path / "shield.safetensors")
    text = (tmp_path / "card.md").read_text()
    assert text == f"<!-- card of shield.safetensors -->\n{shield.card()}"
    audit = shield.audit()
    for part in (
        "# Shield card: my-task",
        "| episodes | 150 |",
        "| steps | 300 |",
        f"| episodes held out | {audit.held_out_episodes} |",
        f"| balanced accuracy | {audit.balanced_accuracy:.1%} |",
        str(audit.at_k[shield.k - 1].false_safe),
        "at most 2.6% with 95 % confidence (Clopper-Pearson; 3 of 300 episodes",
        "| far from all data | not checked |",
        "Vetoed actions are never executed",
    ):
        assert part in text
    # the card of another shield is not overwritten
    shield.save(tmp_path / "other.safetensors")
    assert (tmp_path / "card.md").read_text() == text
    assert (tmp_path / "other.card.md").exists()
    loaded = Shield.load(tmp_path / "shield.safetensors")
    assert str(loaded.card()) == str(shield.card())
    assert loaded.certificate == (3, 300)


def test_an_unfitted_shield_has_a_card_too(tmp_path):
    shield = Shield(OBSERVATIONS, ACTIONS)
    shield.save(tmp_path / "shield.safetensors")
    text = (tmp_path / "card.md").read_text()
    assert "| state | not fitted |" in text
    assert "Bounds" not in text


def test_impossible_certificates_are_refused_and_a_fit_ends_one(large):
    shield = copy(large)
    with pytest.raises(ValueError, match="found 4 of 3"):
        shield.certify(4, 3)
    assert shield.certificate is None
    shield.certify(0, 300)
    shield._arm(shield._fitted(), shield.summary)  # as a fit does
    assert shield.certificate is None


# -- calibration -------------------------------------------------------------------------------


def test_dangerous_are_the_last_steps_before_a_violation():
    outcomes = np.array([2, 2, 2, 0, 2, 2, 1, 2, 0, 0])
    continues = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 0], bool)
    steps = Steps(np.zeros((10, 1)), outcomes, continues, np.zeros(10, int), 10)
    assert np.flatnonzero(dangerous(steps, 3)).tolist() == [1, 2, 3, 7, 8, 9]
    assert np.flatnonzero(dangerous(steps, 1)).tolist() == [3, 8, 9]


def test_calibration_keeps_its_promise_on_held_out_episodes(large, tmp_path):
    shield = copy(large)
    found = shield.calibrate(false_safe=0.2, confidence=0.9)
    assert found.episodes >= 40
    assert found.passed <= 0.2
    assert shield.k == found.k
    # fresh steps that violate
    fresh = Shield(OBSERVATIONS, ACTIONS, LOOK_AHEAD)
    record_random(fresh, 1500, seed=9)
    steps = fresh._memory.all()
    unsafe = steps.features[steps.outcomes == 0]
    verdicts = shield.guard_batch(unsafe[:, :4], unsafe[:, 4:])
    passed = np.mean([not (v.intervened or v.no_safe_action) for v in verdicts])
    assert passed <= 0.2
    # the votes that were tested are the votes that decide, also when loaded; the audit stays
    assert len(shield._fitted().neighbours) < len(large._fitted().neighbours)
    shield.save(tmp_path / "shield.safetensors")
    loaded = Shield.load(tmp_path / "shield.safetensors")
    assert loaded.calibrated == found
    for one, two in zip(
        verdicts[:50], loaded.guard_batch(unsafe[:50, :4], unsafe[:50, 4:]), strict=True
    ):
        np.testing.assert_array_equal(one.action, two.action)
        assert one[1:4] == two[1:4]
    assert str(loaded.audit()) == str(shield.audit())
    assert "at most 20% of the dangerous actions pass" in str(loaded.card())
    for _ in range(60):  # K may rise, and never falls below what was tested
        loaded.end_episode(False)
    assert loaded.k >= found.k


def test_a_strict_wish_limits_the_risk(large):
    loose, strict = copy(large), copy(large)
    loose.calibrate(false_safe=0.3)
    found = strict.calibrate(false_safe=0.05)
    assert found.risk_limit is not None or found.k == strict.config.k_max
    assert found.refused >= loose.calibrated.refused
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (200, 4)).astype(np.float32)
    actions = rng.uniform(-1, 1, (200, 2)).astype(np.float32)
    if found.risk_limit is not None:
        reasons = [verdict.reason for verdict in strict.guard_batch(obs, actions)]
        assert "risk" in reasons


def test_too_few_episodes_say_how_many_are_needed(fitted, large):
    shield = copy(fitted)
    before = shield.snapshot()[1]
    with pytest.raises(AdviceError, match=r"\d+ episodes with a violation were held out, 230 are"):
        shield.calibrate(false_safe=0.01)
    assert shield.snapshot()[1] == before
    with pytest.raises(ValueError, match="limit: expected a number between 0 and 1"):
        shield.calibrate(false_safe=5)


# -- small machines ----------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_compact_shield_guards_alike_from_a_small_file(large, weights, tmp_path, queries):
    large.save(tmp_path / "shield.safetensors")
    small = large.compact(weights)
    small.save(tmp_path / "small.safetensors")
    sizes = [(tmp_path / f"{x}.safetensors").stat().st_size for x in ("shield", "small")]
    assert sizes[1] < sizes[0] / 2
    loaded = Shield.load(tmp_path / "small.safetensors")
    assert len(loaded._fitted().neighbours) < len(large._fitted().neighbours)
    pairs = list(zip(*queries, strict=True))
    alike = 0
    for pair in pairs:
        one, two, again = (x.guard(*pair) for x in (large, small, loaded))
        np.testing.assert_array_equal(two.action, again.action)  # saving changes nothing
        alike += one.intervened == two.intervened
    assert alike >= 0.97 * len(pairs)
    assert f"{weights} weights" in str(loaded.card())
    assert "| balanced accuracy |" in str(loaded.card())


def test_float32_decides_the_same_on_the_recorded_steps(large):
    small, steps = large.compact(), large._memory.all()
    obs, actions = steps.features[:, :4], steps.features[:, 4:]
    for one, two in zip(
        large.guard_batch(obs, actions), small.guard_batch(obs, actions), strict=True
    ):
        assert one.intervened == two.intervened


def test_what_a_compact_shield_cannot_do_is_said(large):
    small = large.compact()
    assert not small.wants_fit
    small.record(np.zeros(4, np.float32), np.zeros(2, np.float32), 1)
    assert small._memory.seen == 0
    for call in (small.fit, small.audit, small.compact):
        with pytest.raises(AdviceError, match="compact"):
            call()
    with pytest.raises(ValueError, match="expected float32 or int8, found 'int4'"):
        large.compact("int4")


def test_rules_and_far_check_stay_in_a_compact_shield(looking_ahead):
    shield = with_far_check(looking_ahead, "endorse")
    obs, action = np.full(4, 0.8, np.float32), np.zeros(2, np.float32)
    shield.forbid(obs, action)
    small = shield.compact("int8")
    assert small.guard(obs, action).reason == "forbidden"
    assert small.guard(50 * obs, action).reason == "far"


def test_condensed_points_decide_alike():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1500, 2))
    safe = points[:, 0] + 0.1 * rng.normal(size=1500) > 0
    queries = rng.normal(size=(3000, 2))
    kept = condense(points, safe, queries, k_max=5)
    assert len(kept) < 1000
    votes = [
        np.count_nonzero(safe[rows][Neighbours(points[rows], 5).sets(queries)], axis=1)
        for rows in (np.arange(1500), kept)
    ]
    for k in (3, 4, 5):
        np.testing.assert_array_equal(votes[0] >= k, votes[1] >= k)


def test_small_weights_are_stored_once_and_for_all(large):
    arrays = {x: y for x, y in large.snapshot()[0].items() if not x.startswith("steps.")}
    for weights in ("float32", "int8"):
        once = expand(shrink(arrays, weights))
        twice = expand(shrink(once, weights))
        for name, values in once.items():
            np.testing.assert_array_equal(values, twice[name])
        error = np.abs(once["encoder.w1"] - arrays["encoder.w1"]).max()
        assert error <= np.abs(arrays["encoder.w1"]).max() / (254 if weights == "int8" else 1e6)
