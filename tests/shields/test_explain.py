from __future__ import annotations

from dataclasses import replace

import numpy as np
from made_shields import copy


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
    assert "no candidate is safe, executed anyway" in str(hopeless)
    assert "0 of 121 candidates are safe" in str(hopeless)


def test_an_explanation_names_the_least_risky_action(fitted):
    cautious = copy(fitted, replace(fitted.config, fallback="least-risk"))
    explained = cautious.explain(np.array([-8.0, 0, 0, 0]), np.ones(2))
    assert explained.verdict.no_safe_action
    if explained.verdict.intervened:
        assert explained.decision.endswith("replaced by the least risky")
    else:
        np.testing.assert_array_equal(explained.verdict.action, np.ones(2))
