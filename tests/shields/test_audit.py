from __future__ import annotations

import json
import math

import numpy as np
import pytest

from advice.shields.audit import (
    audit,
    binned_entropy,
    continuous_entropy,
    pooled_spread,
    wilson,
)


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
    found = audit(latent, safe, np.arange(11), held, k=2, k_max=3)
    at = found.at_k[1]
    assert (at.k, at.safe_judged_safe, at.safe_judged_unsafe) == (2, 2, 1)
    assert (at.unsafe_judged_safe, at.unsafe_judged_unsafe) == (1, 1)
    assert at.balanced_accuracy == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert [c.safe.total for c in found.calibration] == [2, 0, 0, 3]
    assert found.calibration[3].safe.rate == pytest.approx(2 / 3)
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
    found = audit(latent, np.arange(6000) < 3000, np.arange(6000), held, 4, 5)
    assert found.margins[0].gamma == pytest.approx(0.01)


def test_far_queries_are_counted():
    rng = np.random.default_rng(0)
    latent = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(20, 2)), [[50.0, 50.0]]])
    safe = np.arange(221) % 2 == 0
    found = audit(latent, safe, np.arange(221), np.arange(221) >= 200, 4, 5)
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


def test_an_explanation_says_what_guard_does(fitted, queries, tmp_path):
    obs, action = next(
        (o, a) for o, a in zip(*queries, strict=True) if fitted.guard(o, a).intervened
    )
    explained = fitted.explain(obs, action, lambda o, a: a[:, 1])
    verdict = fitted.guard(obs, action, lambda o, a: a[:, 1], details=True)
    np.testing.assert_array_equal(explained.verdict.action, verdict.action)
    np.testing.assert_array_equal(explained.verdict.neighbours, verdict.neighbours)
    assert explained.neighbour_safe.sum() == verdict.safe_neighbours
    assert len(explained.candidates) == len(explained.candidate_ratings) == 121
    table = str(explained).splitlines()
    assert table[0].endswith("replaced")
    good = int((explained.candidate_safe_neighbours >= fitted.k).sum())
    assert f"{good} of 121 candidates are safe" in str(explained)
    best = next(line for line in table if line.startswith("*"))
    assert np.array2string(verdict.action, precision=3, separator=", ") in best
    figure = explained.plot(tmp_path / "why.png")
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    assert [axes.get_title() for axes in figure.axes[:2]] == ["Candidate actions", "Latent space"]


def test_explanations_of_discrete_and_hopeless_situations(fitted, fitted_discrete, tmp_path):
    fitted_discrete.explain(np.zeros(4), 1).plot(tmp_path / "discrete.png")
    hopeless = fitted.explain(np.array([-8.0, 0, 0, 0]), np.zeros(2))
    assert "no candidate is safe, executed after all" in str(hopeless)
    assert "0 of 121 candidates are safe" in str(hopeless)
