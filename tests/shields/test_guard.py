from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made_shields import ACTIONS, OBSERVATIONS, SMALL, copy, is_safe, record_random

from advice import Outcome, Shield, ShieldConfig
from advice.shields.base import NoShield, PostShield
from advice.shields.encoder import Encoder, EncoderWeights
from advice.shields.model import FittedModel, Points
from advice.types import NotFittedError, OneClassError, SpaceMismatchError

OBS = np.array([0.5, 0, 0, 0], np.float32)
ACTION = np.array([0.5, 0.0], np.float32)
finite = st.floats(-1e6, 1e6, width=32)


def same(one, two) -> bool:
    return (
        np.asarray(one.action).tobytes() == np.asarray(two.action).tobytes()
        and one[1:5] == two[1:5]
    )


def assert_same_arrays(found, expected) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_it_tells_safe_from_unsafe_and_replaces_by_something_safe(fitted, queries):
    right = changed = before = after = 0
    for obs, action in zip(*queries, strict=True):
        verdict = fitted.guard(obs, action)
        truth = is_safe(obs, action[0])
        right += truth == (verdict.safe_neighbours >= fitted.k)
        if verdict.intervened:
            changed += 1
            before += truth
            after += is_safe(obs, verdict.action[0])
            assert verdict.candidates == 121
            assert verdict.action.dtype == np.float32
            assert ACTIONS.contains(verdict.action)
            again = fitted.guard(obs, verdict.action)
            assert again.safe_neighbours >= fitted.k
    assert right / 300 > 0.85
    assert changed > 50
    assert before / changed < 0.3
    assert after / changed > 0.65


def test_discrete_actions(fitted_discrete):
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(100):
        obs = rng.uniform(-1, 1, 4).astype(np.float32)
        verdict = fitted_discrete.guard(obs, 0)
        if verdict.intervened:
            seen.append(is_safe(obs, float(verdict.action) - 1.0))
            assert isinstance(verdict.action, np.int64)
            assert verdict.candidates == 3
        else:
            assert verdict.action == 0
    assert len(seen) > 20
    assert np.mean(seen) > 0.75


def test_endorsed_actions_come_back_themselves(fitted):
    obs = np.array([1, 0, 0, 0], np.float32)
    action = np.array([1.0, -0.0], np.float32)
    verdict = fitted.guard(obs, action)
    assert verdict[:8] == (action, False, 5, False, 0, False, None, None)
    assert verdict.action is action
    as_list = [1.0, 0.0]
    assert fitted.guard(obs.tolist(), as_list).action is as_list


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, 4, elements=finite), hnp.arrays(np.float32, 2, elements=finite))
def test_a_verdict_always_makes_sense(fitted, obs, action):
    verdict = fitted.guard(obs, action, details=True)
    endorsed = verdict.safe_neighbours >= fitted.k
    assert verdict.neighbours.shape == verdict.distances.shape == (5,)
    assert (np.diff(verdict.distances) >= 0).all()
    assert not (endorsed and (verdict.intervened or verdict.no_safe_action))
    if not endorsed:
        assert verdict.intervened != verdict.no_safe_action
    if not verdict.intervened:
        assert verdict.action is action
    assert same(verdict, fitted.guard(obs, action))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_a_batch_equals_the_loop(fitted, rows, seed, rated):
    rng = np.random.default_rng(seed)
    obs = (rng.normal(size=(rows, 4)) * 10 ** rng.uniform(-1, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
    rate = (lambda o, a: a[:, 1] * o[0]) if rated else None
    batch = fitted.guard_batch(obs, actions, rate, details=True)
    for o, a, verdict in zip(obs, actions, batch, strict=True):
        single = fitted.guard(o, a, rate, details=True)
        assert same(single, verdict)
        np.testing.assert_array_equal(single.neighbours, verdict.neighbours)
        np.testing.assert_array_equal(single.distances, verdict.distances)


def test_a_batch_of_discrete_actions(fitted_discrete):
    rng = np.random.default_rng(0)
    obs, actions = rng.uniform(-1, 1, (50, 4)), rng.integers(0, 3, 50)
    batch = fitted_discrete.guard_batch(obs, actions)
    assert all(
        same(fitted_discrete.guard(o, a), v) for o, a, v in zip(obs, actions, batch, strict=True)
    )


def refused(fitted, queries) -> tuple[np.ndarray, np.ndarray]:
    """A situation in which the shield intervenes."""
    return next((o, a) for o, a in zip(*queries, strict=True) if fitted.guard(o, a).intervened)


def test_the_agent_chooses_among_the_safe_ones_only(fitted, queries):
    obs, action = refused(fitted, queries)
    asked = []

    def rate(given_obs, actions):
        asked.append((given_obs, actions))
        return actions[:, 1] - actions[:, 0]

    verdict = fitted.guard(obs, action, rate)
    ((given_obs, offered),) = asked
    assert given_obs is obs
    assert len(offered) < 121
    assert all(fitted.guard(obs, a).safe_neighbours >= fitted.k for a in offered)
    best = offered[np.argmax(offered[:, 1] - offered[:, 0])]
    np.testing.assert_array_equal(verdict.action, best)
    nearest = offered[np.argmin(np.square(offered.astype(float) - action).sum(1))]
    np.testing.assert_array_equal(fitted.guard(obs, action).action, nearest)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (lambda o, a: np.full(len(a), np.nan), "found .* NaN"),
        (lambda o, a: np.zeros((len(a), 1)), "expected .* values, one per action, found shape"),
        (lambda o, a: 0.0, "found shape"),
    ],
)
def test_an_invalid_rating_raises(fitted, queries, rate, message):
    obs, action = refused(fitted, queries)
    with pytest.raises(ValueError, match=message):
        fitted.guard(obs, action, rate)


def test_fallbacks_when_nothing_is_safe(fitted):
    """Far on the unsafe side no push helps."""
    obs = np.array([-8, 0, 0, 0], np.float32)
    verdict = fitted.guard(obs, ACTION)
    assert verdict[:8] == (ACTION, False, verdict.safe_neighbours, True, 121, False, None, None)
    assert verdict.fallback
    assert verdict.action is ACTION
    cautious = copy(fitted, dataclasses.replace(SMALL, fallback="least-risk"))
    verdict = cautious.guard(obs, ACTION)
    assert verdict.intervened
    assert verdict.no_safe_action
    model = cautious._model
    considered = model.consider(cautious.space.features(obs, ACTION))
    most = considered.safe_neighbours.max()
    clearance = [
        min(d for d, i in zip(row_d, row_i, strict=True) if not model.safe[i])
        for row_i, row_d in zip(*model.neighbours.query(considered.latents), strict=True)
    ]
    best = max(
        (c, -i)
        for i, (c, v) in enumerate(zip(clearance, considered.safe_neighbours, strict=True))
        if v == most
    )
    np.testing.assert_array_equal(verdict.action, considered.actions[-best[1]])
    again = cautious.guard(obs, verdict.action)  # nothing is less risky than that: it may pass
    np.testing.assert_array_equal(again.action, verdict.action)
    assert not again.intervened
    assert again.no_safe_action


def test_few_features_vote_by_share():
    shield = Shield(OBSERVATIONS, ACTIONS, SMALL)
    shield.record(np.full(4, 0.9), np.ones(2), Outcome.SAFE)
    shield.record(np.full(4, -0.9), -np.ones(2), Outcome.UNSAFE)
    shield.fit()
    assert shield.guard(np.full(4, 0.9), np.ones(2)).safe_neighbours == 1
    assert shield.required_votes == 2  # ceil(4 * 2 / 5)
    assert "nothing could be held out" in str(shield.audit())
    assert "balanced accuracy unknown" in shield.audit().line


BAD = [
    (np.full(4, np.nan), ACTION, "observation: expected finite numbers, found nan"),
    (np.array([np.inf, 0, 0, 0]), ACTION, "observation: expected finite numbers, found inf"),
    (OBS, np.array([0, -np.inf]), "action: expected finite numbers, found -inf"),
    (np.zeros(5), ACTION, r"observation: expected shape \(4,\), found \(5,\)"),
    (np.zeros((1, 4)), ACTION, r"observation: expected shape \(4,\), found \(1, 4\)"),
    (OBS, np.zeros(3), r"action: expected shape \(2,\), found \(3,\)"),
    (OBS, 0.5, r"action: expected shape \(2,\), found \(\)"),
    (OBS.astype(complex), ACTION, "observation: expected numbers .*found dtype complex"),
    (np.array(["a"] * 4), ACTION, "observation: expected numbers .*found dtype <U1"),
    (OBS, [None, None], "action: expected numbers .*found dtype object"),
    (OBS > 0, ACTION, "observation: expected numbers .*found dtype bool"),
]


@pytest.mark.parametrize(("obs", "action", "message"), BAD)
def test_invalid_input_raises_and_leaves_the_shield_unchanged(fitted, obs, action, message):
    shield = copy(fitted)
    before = shield.snapshot()
    for call in (
        lambda: shield.guard(obs, action),
        lambda: shield.explain(obs, action),
        lambda: shield.guard_batch(np.stack([OBS, OBS]) if obs is OBS else [obs], [action]),
    ):
        with pytest.raises(ValueError, match=r"expected"):
            call()
    with pytest.raises(ValueError, match=message):
        shield.guard(obs, action)
    after = shield.snapshot()
    assert after[1] == before[1]
    assert_same_arrays(after[0], before[0])


@pytest.mark.parametrize(("obs", "action", "message"), BAD)
def test_an_invalid_step_is_not_recorded(looking_ahead, obs, action, message):
    shield = copy(looking_ahead)
    before = shield.snapshot()
    with pytest.raises(ValueError, match=message):
        shield.record(obs, action, Outcome.INCONCLUSIVE)
    assert shield.snapshot()[1] == before[1]
    assert_same_arrays(shield.snapshot()[0], before[0])


@pytest.mark.parametrize("violated", [True, False, np.True_])
def test_a_truth_value_is_no_outcome(looking_ahead, violated):
    """True would be SAFE, and who gives one means the opposite."""
    with pytest.raises(TypeError, match="found the truth value"):
        looking_ahead.record(OBS, ACTION, violated)


@pytest.mark.parametrize(
    ("action", "message"),
    [(3, "found 3"), (-1, "found -1"), (1.0, "found 1.0"), ([1], "found"), (True, "found True")],
)
def test_bad_discrete_actions(fitted_discrete, action, message):
    with pytest.raises(ValueError, match=message):
        fitted_discrete.guard(OBS, action)


def test_bad_batches(fitted):
    for obs, actions, message in (
        (np.zeros((0, 4)), np.zeros((0, 2)), "batch of at least one"),
        (np.zeros((3, 4)), np.zeros((2, 2)), "found 2 and 3"),
        (np.zeros((3, 5)), np.zeros((3, 2)), r"expected shape \(3, 4\), found \(3, 5\)"),
        (np.zeros((3, 4)), np.full((3, 2), np.nan), "action: expected finite"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.guard_batch(obs, actions)


def test_guard_before_fit_and_fit_with_one_class():
    shield = Shield(OBSERVATIONS, ACTIONS, SMALL)
    with pytest.raises(NotFittedError, match="fit first"):
        shield.guard(OBS, ACTION)
    for _ in range(3):
        shield.record(OBS, ACTION, Outcome.SAFE)
    with pytest.raises(OneClassError, match="found 3 safe and 0 unsafe"):
        shield.fit()
    assert not shield.armed
    assert shield.guard_batch.__self__ is shield
    with pytest.raises(ValueError, match="7 is not a valid Outcome"):
        shield.record(OBS, ACTION, 7)


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (Dict({}), ACTIONS),
        (Discrete(3), ACTIONS),
        (OBSERVATIONS, Tuple((Discrete(2), Discrete(2)))),
        (MultiBinary(3), ACTIONS),
        (OBSERVATIONS, None),
    ],
)
def test_unsupported_spaces(observation, action):
    with pytest.raises(SpaceMismatchError, match="expected a Box"):
        Shield(observation, action)


def test_unbounded_and_shaped_spaces_are_scaled_from_the_data():
    space = Box(-np.inf, np.inf, (2, 2), np.float64)
    shield = Shield(space, Box(-np.inf, np.inf, (1,), np.float64), SMALL, seed=1)
    rng = np.random.default_rng(0)
    for _ in range(300):  # as many features as in test_autoencoder.py: compiled once
        obs = rng.normal(size=(2, 2)) * [[1000, 1], [1, 1e-3]] + 50
        shield.record(obs, rng.normal(size=1), Outcome(int(obs[0, 0] > 50)))
        shield.end_episode(False)
    shield.fit()
    weights = shield._model.encoder.weights
    np.testing.assert_allclose(weights.scale[:4], [2000, 2, 2, 2e-3], rtol=0.3)
    verdict = shield.guard(np.full((2, 2), 50.0) - [[2000, 0], [0, 0]], np.zeros(1))
    assert verdict.safe_neighbours < 3
    assert np.isfinite(shield._model.candidates.fixed).all()


def test_wants_fit_after_the_construction_episodes_until_fitted():
    # in the end as many features as ``fitted`` has: compiled once
    shield = Shield(OBSERVATIONS, ACTIONS, dataclasses.replace(SMALL, construction_episodes=150))
    record_random(shield, 149)
    assert not shield.wants_fit
    record_random(shield, 1)
    assert shield.wants_fit
    summary = shield.fit()
    assert shield.armed
    assert not shield.wants_fit
    assert summary.features == 300
    assert summary.held_out == pytest.approx(60, abs=4)


def test_k_follows_violations_once_armed(fitted):
    shield = copy(fitted)
    assert shield.k == 4
    shield.end_episode(True)
    assert shield.k == 5
    fixed = copy(fitted, dataclasses.replace(SMALL, k_rule="fixed"))
    fixed.end_episode(True)
    assert fixed.k == 4


def test_nothing_is_kept_once_armed_with_the_papers_labels(fitted, queries):
    shield = copy(fitted)
    before = shield.snapshot()[0]
    shield.record(queries[0][0], queries[1][0], Outcome.UNSAFE)
    assert_same_arrays(shield.snapshot()[0], before)


def test_a_fit_that_is_broken_off_leaves_the_shield_as_it_was():
    shield = Shield(OBSERVATIONS, ACTIONS, SMALL)
    record_random(shield, 150)  # as many as ``fitted`` has: compiled once
    before = shield.snapshot()[1]

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shield.fit(stop)
    assert shield.snapshot()[1] == before


def test_no_shield_endorses_everything():
    def use(shield: PostShield) -> None:
        assert not shield.armed
        assert not shield.wants_fit
        shield.record(OBS, ACTION, Outcome.UNSAFE)
        shield.fit()
        assert shield.guard(OBS, ACTION).action is ACTION
        shield.end_episode(True)
        shield.restore(*shield.snapshot())

    use(NoShield())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 6}, "k: expected 1 to 5, found 6"),
        ({"k_rule": "sometimes"}, "expected one of inclusive-down"),
        ({"hidden_size": 0}, "hidden_size: expected 1 to inf, found 0"),
        ({"dropout": 1.0}, "dropout: expected 0 to 0.99"),
        ({"margin": "wide"}, "margin: expected float, found 'wide'"),
        ({"hold": -1}, "hold: expected 0 to inf, found -1"),
        ({"hold": 1.5}, "hold: expected int, found 1.5"),
        ({"labels": "guessed"}, "labels: expected one of hindsight, paper"),
        ({"refit_episodes": True}, "refit_episodes: expected int, found True"),
        ({"l2": float("nan")}, "l2: expected 0"),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        ShieldConfig(**settings)


def test_a_replacement_is_calm_or_the_least_risky_safe_candidate():
    """Latent = (action, 0), risk = the action: below 0.5 all points are safe."""
    weights = EncoderWeights(
        np.zeros(2),
        np.ones(2),
        np.array([[0.0, 0.0], [1.0, -1.0]]),
        np.zeros(2),
        np.eye(2),
        np.zeros(2),
    )
    shield = Shield(Box(-1, 1, (1,), np.float32), Box(-1, 1, (1,), np.float32))
    encoder = Encoder(weights, 1)
    actions = np.linspace(-1, 1, 201)
    latent = encoder.encode(np.column_stack([np.zeros(201), actions]))
    safe = actions < 0.5
    points = Points(latent, safe, np.zeros(201, bool), np.arange(201))
    risk = np.array([1.0, -1.0])
    model = FittedModel(encoder, points, shield.action_space, shield.config, risk)
    shield._model = model
    # the safe actions are spread evenly from -1 to 0.49: 80 % of them are below 0.192
    assert (actions[safe] <= 0.192).mean() == pytest.approx(0.8, abs=0.01)

    def best(obs, candidates):  # the critic wants the largest
        return candidates[:, 0]

    verdict = shield.guard(np.zeros(1), np.ones(1), best)
    assert verdict.intervened
    assert verdict.action[0] == pytest.approx(0.0, abs=1e-6)  # of -1, -0.8, ..., 0.2, 0.4
    # a held action goes on while it is calm
    assert shield.guard(np.zeros(1), np.ones(1), best, held=np.array([0.1])).held
    assert not shield.guard(np.zeros(1), np.ones(1), best, held=np.array([0.3])).held
    # none is calm: the least risky of the safe ones
    model.calm = -9.0
    assert shield.guard(np.zeros(1), np.ones(1), best).action[0] == -1


def test_a_replaced_discrete_action_is_of_its_space() -> None:
    space = Discrete(3)
    space.dtype = np.dtype(np.int32)  # an argument of newer versions of Gymnasium
    shield = Shield(OBSERVATIONS, space, ShieldConfig(hidden_size=8, fit_steps=30), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(60):
        obs, action = rng.uniform(-1, 1, 4).astype(np.float32), np.int32(rng.integers(3))
        shield.record(obs, action, Outcome.UNSAFE if action == 1 else Outcome.SAFE)
        shield.end_episode(violated=False)
    shield.fit()
    assert any("INCONCLUSIVE" in warning for warning in shield.audit().warnings)
    verdict = shield.guard(rng.uniform(-1, 1, 4).astype(np.float32), np.int32(1))
    assert verdict.intervened
    assert space.contains(verdict.action)
    assert verdict.action.dtype == np.int32
