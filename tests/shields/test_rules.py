"""Rules at run time, proposals far from all data, a fallback of one's own."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from made_shields import copy, with_far_check

from advice import PRESETS, Outcome, Shield, ShieldConfig
from advice.files import read_arrays, write_arrays
from advice.shields.checks import Checks, FarData
from advice.shields.memory import Steps
from advice.types import BrokenFileError

NOWHERE = np.full(4, 0.9, np.float32)
STILL = np.zeros(2, np.float32)


@pytest.fixture
def shield(fitted) -> Shield:
    return copy(fitted)


@pytest.fixture(scope="module")
def with_far(fitted) -> Shield:
    """Fitted with a far check; copy it to use it."""
    return with_far_check(fitted, "refuse")


def same(one, two) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))


def endorsed(shield, queries):
    """The first query that is endorsed."""
    for obs, action in zip(*queries, strict=True):
        if not (v := shield.guard(obs, action)).intervened and not v.no_safe_action:
            return obs, action
    raise AssertionError("everything is refused")


def refused(shield, queries):
    for obs, action in zip(*queries, strict=True):
        if shield.guard(obs, action).intervened:
            return obs, action
    raise AssertionError("everything is endorsed")


def test_a_forbidden_action_is_replaced_at_once_until_it_is_undone(shield, queries):
    obs, action = endorsed(shield, queries)
    before = shield.guard(obs, action)
    number = shield.forbid(obs, action, radius=0.1)
    verdict = shield.guard(obs, action)
    assert verdict.intervened
    assert verdict.reason == "forbidden"
    # its replacement lies outside the radius, and other states are as before
    assert np.sqrt(np.mean(np.square(verdict.action - action))) > 0.1
    elsewhere = -obs
    plain = copy(shield)
    plain.undo()
    assert same(shield.guard(elsewhere, action), plain.guard(elsewhere, action))
    undone = shield.undo(number)
    assert undone.kind == "forbid"
    assert same(shield.guard(obs, action), before)
    assert shield._checks is None  # and nothing is paid any more
    assert len(shield.rules) == 0


def test_an_allowed_action_is_endorsed_whatever_its_neighbours(shield, queries):
    obs, action = refused(shield, queries)
    shield.allow(obs, action, radius=0.05)
    verdict = shield.guard(obs, action)
    assert (verdict.intervened, verdict.reason) == (False, "allowed")
    np.testing.assert_array_equal(verdict.action, action)
    shield.forbid(obs, action, radius=0.05)  # the newest rule decides
    assert shield.guard(obs, action).reason == "forbidden"
    assert shield.used["allowed"] == 1
    assert shield.used["forbidden"] == 1


def test_a_rule_may_hold_for_every_action_or_every_state(shield, queries):
    obs, action = endorsed(shield, queries)
    shield.forbid(obs)
    verdict = shield.guard(obs, action)
    assert verdict.no_safe_action
    shield.undo()
    shield.forbid(None, action, radius=0.2)
    for other in queries[0][:20]:
        assert shield.guard(other, action).reason == "forbidden"


def test_the_least_risky_action_is_not_a_forbidden_one(looking_ahead):
    shield = copy(looking_ahead)
    obs = np.array([-0.9, 0, 0, 0], np.float32)
    shield._cautiousness.k = shield.config.k_max
    shield.forbid(obs)  # nothing is safe here
    everything = shield.guard(obs, STILL)
    assert everything.fallback
    shield.undo()
    for action in shield._fitted().candidates.fixed[1:]:  # all but one candidate
        shield.forbid(obs, action, radius=0.01)
    shield.forbid(obs, STILL, radius=0.01)
    verdict = shield.guard(obs, STILL)
    first = shield._fitted().candidates.fixed[0]
    np.testing.assert_array_equal(verdict.action, first)


def test_rules_survive_saving_and_are_explained(shield, queries, tmp_path):
    obs, action = endorsed(shield, queries)
    shield.forbid(obs, action, radius=0.3)
    shield.allow(None, -action, radius=0.1)
    shield.undo(2)
    shield.save(tmp_path / "shield.safetensors")
    loaded = Shield.load(tmp_path / "shield.safetensors")
    assert list(loaded.rules) == list(shield.rules)
    for pair in zip(*queries, strict=True):
        assert same(shield.guard(*pair), loaded.guard(*pair))
    text = str(loaded.explain(obs, action))
    assert "replaced because a rule forbids it" in text
    assert "rule 1: forbid actions near" in text
    assert loaded.allow(obs) == 3  # a number is never used twice
    assert "rule 1: forbid" in (tmp_path / "card.md").read_text()
    with pytest.raises(BrokenFileError, match="expected version 2 of the format, found 3"):
        read_arrays(tmp_path / "shield.safetensors", "shield", 2)  # rules must not be ignored


def test_explaining_counts_no_use(shield, queries):
    obs, action = endorsed(shield, queries)
    shield.forbid(obs, action)
    shield.explain(obs, action)
    assert shield.used["forbidden"] == 0


def test_held_actions_obey_the_rules(shield, queries):
    obs, action = endorsed(shield, queries)
    assert shield.guard(obs, STILL, held=action).held
    shield.forbid(obs, action, radius=0.05)
    assert not shield.guard(obs, STILL, held=action).held


def test_wrong_rules_are_refused(shield):
    with pytest.raises(ValueError, match="expected an observation, an action or both"):
        shield.forbid(None)
    with pytest.raises(ValueError, match="radius: expected a number of at least 0, found -1"):
        shield.forbid(NOWHERE, radius=-1)
    with pytest.raises(ValueError, match=r"observation: expected shape \(4,\), found \(3,\)"):
        shield.forbid(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="expected finite numbers"):
        shield.forbid(np.full(4, np.nan, np.float32))
    with pytest.raises(ValueError, match=r"undo: expected the number of a rule \(none\), found 7"):
        shield.undo(7)
    assert len(shield.rules) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"rules": {"given": 1, "rules": [[1, "forbid", [0.0] * 3, None, 0.1]]}},
        {"rules": {"given": 1, "rules": [[1, "maybe", [0.0] * 4, None, 0.1]]}},
        {"rules": {"given": 1, "rules": [[1, "forbid", None, None, 0.1]]}},
        {"rules": {"given": 1, "rules": [[1, "forbid", [0.0] * 4, None, -0.1]]}},
        {"rules": {"given": 0, "rules": [[1, "forbid", [0.0] * 4, None, 0.1]]}},
        {"certificate": [5, 3]},
        {"calibrated": [9, None, 0.05, 0.9, 60, 0.0, 0.1, 3]},
        {"compacted": {"weights": "int8", "card": 3}},
        {"used": {"far": "often"}},
    ],
)
def test_a_file_with_impossible_contents_is_refused(shield, tmp_path, change):
    path = tmp_path / "shield.safetensors"
    shield.save(path)
    arrays, document = read_arrays(path, "shield", 2)
    write_arrays(path, arrays, document | change, "shield", 3)
    with pytest.raises(BrokenFileError, match="the contents are not valid"):
        Shield.load(path)


def test_files_of_version_2_are_read(shield, tmp_path, queries):
    path = tmp_path / "shield.safetensors"
    arrays, document = shield.snapshot()
    shield.save(path)  # what an older reader can read is still written for it
    assert "far" not in read_arrays(path, "shield", 2)[1]["config"]
    for name in ("task", "rules", "used", "calibrated", "compacted"):
        del document[name]
    del document["config"]["far"]
    write_arrays(path, arrays, document, "shield", 2)
    loaded = Shield.load(path)
    for pair in zip(*queries, strict=True):
        assert same(shield.guard(*pair), loaded.guard(*pair))
    write_arrays(path, arrays, document, "shield", 4)
    with pytest.raises(BrokenFileError, match="expected version 2 or 3 of the format, found 4"):
        Shield.load(path)


# -- far from all data -------------------------------------------------------------------------


def on_far(shield: Shield, far: str | None) -> Shield:
    twin = copy(shield)
    twin.config = dataclasses.replace(shield.config, far=far)
    twin._prepare()
    return twin


def test_far_proposals_are_treated_as_asked(with_far, queries):
    far_away = np.array([3.0, -40.0, 40.0, 40.0], np.float32)
    verdict = on_far(with_far, "endorse").guard(far_away, STILL)
    assert (verdict.intervened, verdict.no_safe_action, verdict.reason) == (False, False, "far")
    refuses = copy(with_far)
    verdict = refuses.guard(far_away, STILL)
    assert verdict.no_safe_action  # every candidate is far there
    assert verdict.reason == "far"
    left = on_far(with_far, "fallback")
    left.fallback = lambda obs, proposed: np.ones(2, np.float32)
    verdict = left.guard(far_away, STILL)
    np.testing.assert_array_equal(verdict.action, np.ones(2))
    assert verdict.fallback
    assert left.used["fallback"] == 1
    near = [refuses.guard(*pair).reason for pair in zip(*queries, strict=True)]
    assert near.count("far") < 30  # of 300 that are like the recorded ones
    assert refuses.used["guarded"] == 301
    assert refuses.used["far"] == near.count("far") + 1
    assert "refuse; distance above" in str(refuses.card())


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e-6, 1e9])
def test_far_is_what_lies_beyond_the_threshold(with_far, queries, scale):
    """Also exactly at it, and where numbers are so large that rounding matters."""
    shield, (states, actions) = copy(with_far), queries
    states = states + scale * np.linspace(0, 3, len(states))[:, None]
    features = np.hstack([states, actions]).astype(np.float64)
    distances = shield._far.distances(features)
    for threshold in (shield._far.threshold[0], np.median(distances), distances[7]):
        shield._far = shield._far._replace(threshold=np.array([threshold]))
        shield._prepare()
        found = [shield._checks.judge(row, np.zeros(2), 5)[1] == "far" for row in features]
        clear = np.abs(distances - threshold) > 1e-9 * (1 + threshold)
        np.testing.assert_array_equal(np.array(found)[clear], (distances > threshold)[clear])
        assert clear.sum() > 0


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e9])
def test_one_product_overlooks_no_rule(with_far, queries, scale):
    """Rules for a state, an action and both, of radii at which some features are on the edge."""
    shield, (states, actions) = copy(with_far), queries
    states = states + scale * np.linspace(0, 3, len(states))[:, None]
    features = np.hstack([states, actions]).astype(np.float64)
    for row, radius in ((3, 0.0), (50, 0.3), (100, 1.0)):
        shield.forbid(states[row], radius=radius)
        shield.allow(None, actions[row], radius=radius / 4)
        shield.forbid(states[row + 7], actions[row + 7], radius=radius)
    checks = shield._checks
    rules = [checks.rule_for(row) for row in features]
    reasons = [checks.judge(row, np.zeros(2), 5)[1] for row in features]
    expected = [
        "" if rule is None else {"forbid": "forbidden", "allow": "allowed"}[rule.kind]
        for rule in rules
    ]
    assert [reason if reason != "far" else "" for reason in reasons] == expected
    assert len({*expected}) == 3


def test_far_where_the_data_fill_little_of_the_bounds():
    """The encoder's offset is 4e8 standard deviations from the data: no product is exact there."""
    rng = np.random.default_rng(0)
    space = Box(-5e5, 5e5, (4,), np.float64), Box(-1, 1, (2,), np.float32)
    quick = dataclasses.replace(PRESETS["paper"], far="refuse", hidden_size=32, max_epochs=2)
    shield = Shield(*space, quick)
    for episode in range(150):
        for step in range(10):
            outcome = Outcome.UNSAFE if step == 9 and episode % 2 else Outcome.SAFE
            state, action = 4e5 + 1e-3 * rng.normal(size=4), space[1].sample()
            shield.record(state, action, outcome)
        shield.end_episode(False)
    shield.fit()
    states = 4e5 + 1e-3 * rng.normal(size=(300, 4)) * rng.choice([1, 5], (300, 1))
    features = np.hstack([states, rng.uniform(-1, 1, (300, 2))])
    far = shield._far.distances(features) > shield._far.threshold
    reasons = [shield._checks.judge(row, np.zeros(2), 5)[1] for row in features]
    assert [reason == "far" for reason in reasons] == far.tolist()
    assert 0 < far.sum() < 300


@pytest.mark.slow
def test_a_rule_for_one_of_many_discrete_actions_is_for_it_alone():
    rng = np.random.default_rng(0)
    config = ShieldConfig(hidden_size=16, fit_steps=20)
    shield = Shield(Box(-1, 1, (2,), np.float32), Discrete(200), config)
    for step in range(200):
        outcome = Outcome.UNSAFE if step % 4 == 0 else Outcome.SAFE
        shield.record(rng.uniform(-1, 1, 2), int(rng.integers(200)), outcome)
    shield.fit()
    shield.forbid(None, 7)
    obs = np.zeros(2, np.float32)
    reasons = [shield.guard(obs, action).reason for action in range(200)]
    assert [i for i, reason in enumerate(reasons) if reason] == [7]


def test_a_forbidden_action_is_not_executed_for_want_of_a_safe_one(fitted):
    """Also where the proposal is what the fallback takes."""
    shield = copy(fitted)
    assert shield.config.fallback == "proposed"
    shield._cautiousness.k = 10**6  # nothing has enough votes
    assert not shield.guard(NOWHERE, STILL).intervened
    shield.forbid(None, STILL, radius=0.3)
    verdict = shield.guard(NOWHERE, STILL)
    assert verdict.no_safe_action
    assert np.sqrt(np.mean(np.square(verdict.action))) > 0.3


def test_what_a_rule_allows_comes_before_a_held_replacement(shield, queries):
    obs, action = refused(shield, queries)
    held = shield.guard(obs, action).action
    assert shield.guard(obs, action, held=held).held
    shield.allow(obs, action)
    verdict = shield.guard(obs, action, held=held)
    assert (verdict.held, verdict.intervened, verdict.reason) == (False, False, "allowed")


def test_checks_are_never_missing_while_a_rule_is_added(shield, monkeypatch):
    """Another thread may be guarding: the old checks stay until the new ones are ready."""
    shield.forbid(NOWHERE)
    before = shield._checks

    def looked_at(self, rules, *rest):
        assert shield._checks is before
        return kept(self, rules, *rest)

    kept = Checks.__init__
    monkeypatch.setattr(Checks, "__init__", looked_at)
    shield.forbid(-NOWHERE)
    assert shield._checks is not before


def test_a_certificate_ends_when_the_rules_change(shield):
    shield.certify(0, 300)
    number = shield.forbid(NOWHERE)
    assert shield.certificate is None
    shield.certify(0, 300)
    shield.undo(number)
    assert shield.certificate is None


def test_far_survives_saving_and_a_batch_is_the_same(with_far, queries, tmp_path):
    shield = copy(with_far)
    shield.forbid(queries[0][0], radius=0.5)
    obs = queries[0] * np.linspace(0.5, 4, len(queries[0]), dtype=np.float32)[:, None]
    shield.save(tmp_path / "shield.safetensors")
    loaded = Shield.load(tmp_path / "shield.safetensors")
    alone = [shield.guard(*pair) for pair in zip(obs, queries[1], strict=True)]
    assert {verdict.reason for verdict in alone} >= {"", "far", "forbidden"}
    for one, two in zip(alone, loaded.guard_batch(obs, queries[1]), strict=True):
        assert same(one, two)


def test_few_episodes_beyond_the_threshold():
    """Conformal: of fresh episodes like the recorded ones about 5 % have a far step."""
    rng = np.random.default_rng(0)

    def steps(episodes: int) -> Steps:
        features = rng.normal(size=(episodes * 10, 6)).astype(np.float32)
        numbers = np.repeat(np.arange(episodes), 10)
        zeros = np.zeros(len(numbers), np.int64)
        return Steps(features, zeros, zeros > 0, numbers, len(numbers))

    data = FarData.calibrated(steps(1000), 0.2, seed=0)
    assert data.episodes[0] == 200
    fresh = steps(2000)
    far = data.distances(fresh.features.astype(np.float64)) > data.threshold[0]
    share = far.reshape(2000, 10).any(1).mean()
    assert 0.01 < share < 0.09
    assert len(data.prototypes) == 256
    # one feature at a time and many at once say the same
    rows = fresh.features[:50].astype(np.float64)
    rows[::2] *= 2
    many = data.distances(rows) > data.threshold
    assert 0 < many.sum() < 50
    assert [bool(data.are_far(row[:4], row[None, 4:])[0]) for row in rows] == many.tolist()
    # too few episodes: nothing is far
    assert FarData.calibrated(steps(50), 0.2, seed=0).threshold[0] == math.inf


def test_far_data_that_do_not_fit_are_refused(with_far, tmp_path):
    path = tmp_path / "shield.safetensors"
    with_far.save(path)
    arrays, document = read_arrays(path, "shield", 3)
    for change in (
        {"far.scale": np.zeros(6)},
        {"far.prototypes": np.zeros((3, 5))},
        {"far.threshold": np.full(1, -1.0)},
    ):
        write_arrays(path, arrays | change, document, "shield", 3)
        with pytest.raises(BrokenFileError, match="far"):
            Shield.load(path)
    without = {name: x for name, x in arrays.items() if not name.startswith("far.")}
    write_arrays(path, without, document, "shield", 3)
    with pytest.raises(BrokenFileError, match="expected the data of the far check"):
        Shield.load(path)


# -- a fallback of one's own -------------------------------------------------------------------


def hopeless(shield: Shield) -> Shield:
    twin = copy(shield)
    twin.forbid(NOWHERE, radius=0.1)
    return twin


def test_the_own_fallback_decides_where_nothing_is_safe(fitted):
    asked = []

    def brake(obs, proposed):
        asked.append((obs.copy(), proposed.copy()))
        return -0.5 * proposed

    shield = hopeless(fitted)
    shield.fallback = brake
    push = np.array([0.5, -1.0], np.float32)
    verdict = shield.guard(NOWHERE, push)
    np.testing.assert_array_equal(verdict.action, [-0.25, 0.5])
    assert verdict.action.dtype == np.float32
    assert verdict.intervened
    assert verdict.fallback
    assert verdict.no_safe_action
    np.testing.assert_array_equal(asked[0][0], NOWHERE)
    np.testing.assert_array_equal(asked[0][1], push)
    (batched,) = shield.guard_batch(NOWHERE[None], push[None])
    np.testing.assert_array_equal(batched.action, verdict.action)
    assert shield.used["fallback"] == 2
    shield.fallback = lambda obs, proposed: proposed
    assert not shield.guard(NOWHERE, push).intervened  # it left the proposal as it is


def test_a_fallback_may_work_in_place(fitted):
    def brake(obs, proposed):
        proposed[:] = 0
        return proposed

    shield = copy(fitted)
    shield.fallback = brake
    shield._cautiousness.k = 10**6
    proposed = np.array([0.5, -0.5], np.float32)
    verdict = shield.guard(NOWHERE, proposed)
    np.testing.assert_array_equal(verdict.action, np.zeros(2))
    np.testing.assert_array_equal(proposed, [0.5, -0.5])
    assert verdict.intervened
    shield.fallback = lambda obs, proposed: proposed
    assert not shield.guard(NOWHERE, np.array([0.1, 0.2])).intervened  # float64 is no other action
    shield._cautiousness.k = 4
    assert shield.compact().fallback is shield.fallback


def test_a_wrong_fallback_is_named(fitted):
    shield = hopeless(fitted)
    for answer, message in (
        (np.zeros(3), r"fallback: expected shape \(2,\), found \(3,\)"),
        (np.array([np.nan, 0.0]), "fallback: expected finite numbers"),
        (None, "fallback: expected numbers"),
    ):
        shield.fallback = lambda obs, proposed, answer=answer: answer
        with pytest.raises(ValueError, match=message):
            shield.guard(NOWHERE, STILL)
