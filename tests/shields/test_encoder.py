from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advice.shields.encoder import LIMIT, SLOPE, UNIT, Encoder, EncoderWeights
from advice.shields.warp import CELLS, Warp, no_warp


def weights(
    seed: int, d: int = 7, hidden: int = 40, latent: int = 3, curves: int = 0
) -> EncoderWeights:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-3, 3)
    return EncoderWeights(
        rng.normal(size=d),
        rng.uniform(0.1, 3, d),
        scale * rng.normal(size=(d + curves, hidden)),
        rng.normal(size=hidden),
        rng.normal(size=(hidden, latent)),
        rng.normal(size=latent),
    )


def some_warp(seed: int, split: int, curves: int) -> Warp:
    """Curves of random dimensions among the first ``split``."""
    rng = np.random.default_rng(seed)
    columns = rng.choice(split, curves, replace=False)
    return Warp(
        columns.astype(np.int64),
        rng.normal(size=curves),
        rng.uniform(0.01, 1, curves),
        rng.normal(size=(curves, CELLS + 1)) * 5,
    )


def plain(w: EncoderWeights, features: np.ndarray) -> np.ndarray:
    hidden = np.clip((features - w.offset) / w.scale, -LIMIT, LIMIT) @ w.w1 + w.b1
    return np.where(hidden > 0, hidden, SLOPE * hidden) @ w.w2 + w.b2


def test_by_hand():
    """(3 - 1) / 2 = 1; hidden 1 * 2 + 1 = 3 and 1 * -4 + 1 = -3 -> -0.9; 3 * 1 - 0.9 * 10 + 5."""
    w = EncoderWeights(
        np.array([1.0]),
        np.array([2.0]),
        np.array([[2.0, -4.0]]),
        np.array([1.0, 1.0]),
        np.array([[1.0], [10.0]]),
        np.array([5.0]),
    )
    assert Encoder(w, 1).encode(np.array([3.0]))[0] == pytest.approx(-1.0, abs=1e-3)


def test_a_curve_by_hand():
    """Observation 0.25 lies a quarter into the first cell of (0, 4, ...): the curve is 1 there.

    Scaled feature (0.25, 2), curve 1: 0.25 + 2 + 10 * 1 is the only hidden value.
    """
    table = np.full((1, CELLS + 1), 4.0)
    table[0, 0] = 0.0
    warp = Warp(np.array([0]), np.array([0.0]), np.array([1.0]), table)
    w = EncoderWeights(
        np.zeros(2),
        np.ones(2),
        np.array([[1.0], [1.0], [10.0]]),
        np.zeros(1),
        np.eye(1),
        np.zeros(1),
    )
    assert Encoder(w, 1, warp).encode(np.array([0.25, 2.0]))[0] == pytest.approx(12.25, abs=1e-3)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
@example(3182284)
def test_rounding_is_slight(seed):
    """Inputs and hidden units are off by half a unit at most; twice that leaves room for the rest.

    The activation shrinks differences, so they add up as the absolute weights say.
    """
    w = weights(seed)
    features = w.offset + w.scale * np.random.default_rng(seed).uniform(-1, 1, (50, 7))
    most = (abs(w.w1).sum(0) + 1) @ abs(w.w2) / UNIT
    assert (abs(Encoder(w, 4).encode(features) - plain(w, features)) <= most).all()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 6), st.integers(0, 6))
def test_every_way_to_add_up_gives_the_same_bits(seed, rows, split, curves):
    curves = min(curves, split)
    w, warp = weights(seed, curves=curves), some_warp(seed, split, curves)
    encoder = Encoder(w, split, warp)
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 7)) * 10 ** rng.uniform(-1, 2)
    together = encoder.encode(features)
    np.testing.assert_array_equal(together, np.stack([encoder.encode(f) for f in features]))
    shares = encoder.state_share(features[:, :split]) + encoder.action_share(features[:, split:])
    np.testing.assert_array_equal(together, encoder.finish(shares))
    observed, acted, bent = (
        rng.permutation(split),
        rng.permutation(7 - split),
        rng.permutation(curves),
    )
    moved = np.concatenate([observed, split + acted])
    new_column = np.argsort(observed)
    other_warp = Warp(new_column[warp.columns[bent]], *(x[bent] for x in warp[1:]))
    other = Encoder(
        w._replace(
            offset=w.offset[moved],
            scale=w.scale[moved],
            w1=w.w1[np.concatenate([moved, 7 + bent])],
        ),
        split,
        other_warp,
    )
    np.testing.assert_array_equal(together, other.encode(features[:, moved]))


def test_many_rows_equal_few():
    """More rows than one block has."""
    encoder = Encoder(weights(1, curves=2), 3, some_warp(1, 3, 2))
    features = np.random.default_rng(1).normal(size=(9000, 7))
    parts = [encoder.encode(part) for part in np.array_split(features, 3)]
    np.testing.assert_array_equal(encoder.encode(features), np.concatenate(parts))


def test_far_inputs_count_as_the_edge():
    w = weights(0)
    edge = w.offset + LIMIT * w.scale
    far = w.offset + 1e30 * w.scale
    np.testing.assert_array_equal(Encoder(w, 4).encode(edge), Encoder(w, 4).encode(far))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("w1", np.full((7, 40), np.nan)),
        ("w1", np.full((7, 40), 1e308)),
        ("b1", np.zeros(3)),
        ("scale", np.zeros(7)),
        ("w2", np.zeros((40, 3), np.float32)),
    ],
)
def test_invalid_weights_raise(name, value):
    with pytest.raises(ValueError, match="expected"):
        Encoder(weights(0)._replace(**{name: value}), 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", np.array([0, 4])),  # the fifth column is an action
        ("columns", np.array([0, -1])),
        ("columns", np.array([0.0, 1.0])),
        ("columns", np.array([0])),
        ("width", np.zeros(2)),
        ("low", np.array([0.0, np.nan])),
        ("table", np.zeros((2, CELLS))),
    ],
)
def test_invalid_curves_raise(name, value):
    Encoder(weights(0, curves=2), 4, some_warp(0, 4, 2))
    with pytest.raises(ValueError, match="expected"):
        Encoder(weights(0, curves=2), 4, some_warp(0, 4, 2)._replace(**{name: value}))


def test_no_warp_has_no_curves():
    assert no_warp()(np.zeros((3, 5))).shape == (3, 0)
