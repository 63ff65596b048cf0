from __future__ import annotations

import json
import math

import numpy as np
import pytest
from made_shields import ACTIONS, OBSERVATIONS

from advice import ShieldConfig
from advice.shields.audit import (
    Audit,
    audit,
    binned_entropy,
    continuous_entropy,
    pooled_spread,
    why_no_bound,
    wilson,
)
from advice.shields.fit import DangerBin, Evidence, FitSummary, _nearness
from advice.shields.model import Points
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession


def test_wilson_by_hand():
    """1 of 10: centre (0.1 + 0.19207) / 1.38415, half 1.95996 sqrt(0.009 + 0.0096036) / 1.38415."""
    rate = wilson(1, 10)
    assert (rate.rate, rate.low, rate.high) == pytest.approx((0.1, 0.017876, 0.404150), abs=1e-5)
    assert wilson(0, 10).low == 0
    assert wilson(0, 10).high == pytest.approx(0.277533, abs=1e-5)
    assert math.isnan(wilson(0, 0).rate)


def test_spread_by_hand():
    """Deviations +-1 in one class and +-3 in the other: (2 + 18) / 2 degrees of freedom."""
    points = np.array([[0.0], [2.0], [10.0], [16.0]])
    assert pooled_spread(points, np.array([1, 1, 0, 0], bool)) == pytest.approx(math.sqrt(10))


def test_entropies_of_known_distributions():
    points = np.random.default_rng(0).normal(size=(20_000, 2))
    assert continuous_entropy(points) == pytest.approx(math.log(2 * math.pi * math.e), abs=0.03)
    four = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 5, axis=0)
    assert binned_entropy(four) == pytest.approx(math.log(4))


def test_a_small_audit_by_hand():
    """Safe around 0, unsafe around 10; of the held out, one safe and one unsafe are misplaced."""
    train = np.array([[0.0], [0.1], [0.2], [10.0], [10.1], [10.2]])
    test = np.array([[0.05], [0.15], [10.05], [10.15], [0.12]])
    latent = np.concatenate([train, test])
    safe = np.array([1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0], bool)
    held = np.arange(11) >= 6
    found = audit(Points(latent, safe, held, np.arange(11)), k=2, k_max=3)
    at = found.at_k[1]
    assert (at.k, at.false_unsafe.count, at.false_unsafe.total) == (2, 1, 3)
    assert (at.false_safe.count, at.false_safe.total) == (1, 2)
    assert at.balanced_accuracy == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert [row.total for row in found.calibration] == [2, 0, 0, 3]
    assert found.calibration[3].rate == pytest.approx(2 / 3)
    assert found.margins[0].gamma == pytest.approx(0.03)
    sigma = pooled_spread(test, safe[held])
    assert found.margins[0].bound == pytest.approx(math.exp(-(0.03**2) / (2 * sigma**2)))
    assert found.margins[0].gamma_over_sigma == pytest.approx(0.03 / sigma)
    assert found.held_out_episodes == 5
    assert any("only 2 unsafe examples were held out" in w for w in found.warnings)
    assert "WARNING: only 2 unsafe" in str(found)


def test_the_smallest_margin_is_found_among_many():
    rng = np.random.default_rng(0)
    latent = np.concatenate([rng.normal(size=(3000, 2)), rng.normal(size=(3000, 2)) + 20])
    latent[1001], latent[4003] = [10.0, 10.0], [10.0, 10.01]
    held = np.arange(6000) % 1000 > 0
    found = audit(Points(latent, np.arange(6000) < 3000, held, np.arange(6000)), 4, 5)
    assert found.margins[0].gamma == pytest.approx(0.01)


def test_far_queries_are_counted():
    rng = np.random.default_rng(0)
    latent = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(20, 2)), [[50.0, 50.0]]])
    safe = np.arange(221) % 2 == 0
    found = audit(Points(latent, safe, np.arange(221) >= 200, np.arange(221)), 4, 5)
    assert 1 <= found.far.count <= 4
    assert found.far.total == 21


def test_the_audit_of_a_shield_uses_held_out_episodes_only(fitted):
    found = fitted.audit()
    assert found.train_safe + found.train_unsafe + fitted.summary.held_out == 300
    assert found.held_out_safe + found.held_out_unsafe == fitted.summary.held_out
    assert found.at_k[fitted.k - 1].balanced_accuracy > 0.8
    assert [row.k for row in found.at_k] == [1, 2, 3, 4, 5]
    rates = [row.false_safe.rate for row in found.at_k]
    assert rates == sorted(rates, reverse=True)
    text = str(found)
    assert "balanced accuracy" in text
    assert ">4" in text
    json.dumps(found.to_dict())


def gaussian(rng, centre, count=400):
    return rng.normal(size=(count, 2)) + centre


def test_the_bound_needs_separate_classes_with_gaussian_noise():
    rng = np.random.default_rng(0)
    safe, unsafe = gaussian(rng, 0.0), gaussian(rng, 8.0)
    assert why_no_bound(safe, unsafe) == ""
    assert "overlap" in why_no_bound(safe, gaussian(rng, 1.0))
    skewed = rng.exponential(size=(400, 2))
    assert "not Gaussian" in why_no_bound(skewed, skewed[::-1] + 20)
    two_lumps = np.concatenate([gaussian(rng, 0.0), gaussian(rng, 12.0)])
    assert "not Gaussian" in why_no_bound(two_lumps, two_lumps + 60)
    assert "fewer than 30" in why_no_bound(safe[:29], unsafe)
    assert "constant" in why_no_bound(np.ones((40, 2)), np.zeros((40, 2)))


def test_the_bound_is_printed_only_where_its_assumptions_hold():
    rng = np.random.default_rng(1)
    safe = np.arange(800) < 400
    held = np.arange(800) % 2 == 0
    for apart, given in ((8.0, True), (0.5, False)):
        latent = np.concatenate([gaussian(rng, 0.0), gaussian(rng, apart)])
        found = audit(Points(latent, safe, held, np.arange(800)), 4, 5)
        assert (found.no_bound == "") == given
        assert ("bound exp(-gamma^2" in str(found)) == given
        assert ("bound exp(-H" in str(found)) == given
        assert ("bounds are not given: the classes overlap" in str(found)) != given


def made_summary(matters: float, bins: tuple[DangerBin, ...] = ()) -> FitSummary:
    return FitSummary(10, 0.1, 100, 20, Evidence(0.9, 0.8, matters, 0.25, 0.9), 3, 1, bins)


def separated(k: int = 4, **options) -> Audit:
    rng = np.random.default_rng(1)
    latent = np.concatenate([gaussian(rng, 0.0), gaussian(rng, 8.0)])
    held = np.arange(800) % 2 == 0
    return audit(Points(latent, np.arange(800) < 400, held, np.arange(800)), k, 5, **options)


def test_no_warning_without_a_reason():
    assert separated(summary=made_summary(0.2)).warnings == []
    rarely = made_summary(0.05)  # an action is refused in few states, but then another one passes
    rarely = rarely._replace(evidence=rarely.evidence._replace(no_safe_action=0.01))
    assert separated(summary=rarely).warnings == []


def test_the_audit_warns_where_no_action_is_safe():
    late = made_summary(0.35)
    late = late._replace(evidence=late.evidence._replace(no_safe_action=0.64))
    (warning,) = separated(summary=late).warnings
    assert warning.startswith("in 64% of the states near danger no action is safe")


def test_the_audit_warns_of_a_verdict_that_does_not_depend_on_the_action():
    found = separated(summary=made_summary(0.05))
    assert found.balanced_accuracy > 0.99
    assert len(found.warnings) == 1
    assert "depends on the action in 5% of the states only" in found.warnings[0]
    assert found.warnings[0][:-1] in found.line


def test_the_audit_warns_of_the_papers_safe_examples():
    found = separated(summary=made_summary(0.5), labels="paper")
    assert ["first steps and goals only" in x for x in found.warnings] == [True]


def test_the_audit_warns_of_low_accuracy():
    rng = np.random.default_rng(0)
    points, safe = rng.normal(size=(800, 2)), np.arange(800) < 400
    voters = Points(points, safe, np.arange(800) % 2 == 0, np.arange(800))
    found = audit(voters, 3, 5)
    assert found.balanced_accuracy < 0.7
    assert any("balanced accuracy on held-out episodes is 0." in x for x in found.warnings)


def test_refusals_by_nearness_to_danger_are_printed_and_summed_up_near_danger():
    bins = (DangerBin(0.0, 0.05, 1000, 10, 0, 0), DangerBin(0.05, 1.0, 80, 20, 40, 30))
    found = separated(summary=made_summary(0.5, bins))
    assert "25% of the steps that survived there are refused" in found.line
    rows = [line.split() for line in str(found).splitlines() if " to " in line and "%" in line]
    assert ["0%", "to", "5%", "1000", "1%", "0", "-"] in rows
    assert ["5%", "to", "100%", "80", "25%", "40", "75%"] in rows
    assert json.loads(json.dumps(found.to_dict()))["nearness"][1]["survived_refused"] == 20


def test_nearness_counts_held_out_steps_by_hand():
    """Fitted points: safe around 0, unsafe around 10. Of the held-out steps, a survivor lies among
    the unsafe ones and a step that led to a violation among the safe ones."""
    fitted = np.repeat([[0.0, 0.0], [10.0, 0.0]], 6, axis=0) + np.arange(12)[:, None] * 0.01
    tested = np.array([[0.1, 0.0], [9.9, 0.0], [9.8, 0.0], [0.2, 0.0], [0.3, 0.0]])
    latent = np.concatenate([fitted, tested])
    held = np.arange(17) >= 12
    voters = Points(latent, np.append(np.arange(12) < 6, [True] * 5), held, np.arange(17))
    danger = np.append(np.zeros(12), [0.01, 0.5, 1.0, 0.5, 0.9])
    led = np.arange(17) >= 14
    led[16] = False
    survived = ~led
    survived[16] = False  # cut off: unknown
    found = _nearness(voters, latent, held, danger, survived, led, ShieldConfig())
    assert [tuple(x)[2:] for x in found] == [
        (1, 0, 0, 0),
        (0, 0, 0, 0),
        (1, 1, 1, 0),
        (0, 0, 1, 1),
    ]
    assert [x.low for x in found] == [0.0, 0.05, 0.3, 0.7]
    nothing = np.zeros(17, bool)
    assert _nearness(voters, latent, nothing, danger, survived, led, ShieldConfig()) == ()


def test_a_summary_keeps_its_nearness_in_plain_values():
    summary = made_summary(0.5, (DangerBin(0.0, 0.3, 5, 1, 0, 0), DangerBin(0.3, 1.0, 4, 2, 3, 3)))
    stored = json.loads(json.dumps(summary.to_list(), allow_nan=False))
    assert FitSummary.from_list(stored) == summary
    assert FitSummary.from_list(stored[:7]) == summary._replace(nearness=())
    stored[4] = stored[4][:4]  # as earlier versions wrote it
    assert np.isnan(FitSummary.from_list(stored).evidence.last_caught)


class Fitting:
    """A shield that fits whenever it is asked, with a given audit."""

    wants_fit, armed, learn_from = True, False, "executed"

    def __init__(self, found: Audit) -> None:
        self._found = found

    def fit(self, progress=None) -> None:
        self.armed = True

    def audit(self) -> Audit:
        return self._found


@pytest.mark.parametrize(("matters", "level"), [(0.5, "INFO"), (0.05, "WARNING")])
def test_a_session_logs_the_audit_of_each_fit_in_one_line(matters, level, caplog):
    found = separated(summary=made_summary(matters))
    session = ShieldSession(OBSERVATIONS, ACTIONS, SessionOptions(Fitting(found)))
    with caplog.at_level("INFO", "advice"):
        assert session.fit_if_due()
        assert session.fit_if_due()
    assert [x.levelname for x in caplog.records] == [level] * 2
    first, second = caplog.messages
    assert first == f"the shield is fitted and armed: {found.line}"
    verdict = "the audit warns" if level == "WARNING" else "the audit finds nothing against it"
    assert second.startswith(f"the shield is fitted anew: {verdict} (balanced accuracy 100%")
    assert ("WARNING" in first) == (level == "WARNING")
    assert "\n" not in first


def test_a_session_tells_its_caller_instead_of_the_log(caplog):
    said: list[str] = []
    found = separated(summary=made_summary(0.5))
    options = SessionOptions(Fitting(found))
    with caplog.at_level("INFO", "advice"):
        ShieldSession(OBSERVATIONS, ACTIONS, options, say=said.append).fit_if_due()
    assert said == [f"the shield is fitted and armed: {found.line}"]
    assert not caplog.records
