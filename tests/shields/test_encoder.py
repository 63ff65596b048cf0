from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advice.shields.encoder import REACH, SLOPE, UNIT, Encoder, EncoderWeights, scaled


def weights(seed: int, d: int = 7, hidden: int = 40, latent: int = 3) -> EncoderWeights:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-3, 3)
    return EncoderWeights(
        rng.normal(size=d),
        rng.uniform(0.1, 3, d),
        scale * rng.normal(size=(d, hidden)),
        rng.normal(size=hidden),
        rng.normal(size=(hidden, latent)),
        rng.normal(size=latent),
    )


def plain(w: EncoderWeights, features: np.ndarray) -> np.ndarray:
    hidden = np.clip((features - w.offset) / w.scale, -REACH, REACH) @ w.w1 + w.b1
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
    assert Encoder(w).encode(np.array([3.0]))[0] == pytest.approx(-1.0, abs=1e-3)


def test_the_power_by_hand():
    """Bounds 0 and 4: 3 lies at 3/4, whose cube 27/64 is -5/32 on the scale from -1 to 1."""
    offset, scale, power = np.full(4, 2.0), np.full(4, 2.0), np.array([3, 1, 3, 3])
    values = scaled(np.array([3.0, 3.0, -1.0, 99.0]), offset, scale, power)
    assert values.tolist() == [-5 / 32, 0.5, -1.0, REACH]


@given(st.floats(0, 1), st.integers(1, 64))
def test_the_power_is_of_the_position_between_the_bounds(place, exponent):
    half = np.array([0.5])
    value = scaled(np.array([place]), half, half, np.array([exponent]))
    assert value[0] == pytest.approx(2 * place**exponent - 1, abs=1e-13)


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
    assert (abs(Encoder(w).encode(features) - plain(w, features)) <= most).all()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 6), st.sampled_from([1, 8]))
def test_every_way_to_add_up_gives_the_same_bits(seed, rows, split, power):
    encoder = Encoder(weights(seed), np.array([power] * 4 + [1] * 3))
    features = np.random.default_rng(seed).normal(size=(rows, 7)) * 100
    together = encoder.encode(features)
    np.testing.assert_array_equal(together, np.stack([encoder.encode(f) for f in features]))
    shares = encoder.share(features[:, :split]) + encoder.share(features[:, split:], split)
    np.testing.assert_array_equal(together, encoder.finish(shares + encoder.b1))
    shuffled = np.random.default_rng(seed).permutation(7)
    moved = Encoder(
        encoder.weights._replace(
            offset=encoder.weights.offset[shuffled],
            scale=encoder.weights.scale[shuffled],
            w1=encoder.weights.w1[shuffled],
        ),
        encoder.power[shuffled],
    )
    np.testing.assert_array_equal(together, moved.encode(features[:, shuffled]))


def test_far_inputs_count_as_the_edge():
    w = weights(0)
    edge = w.offset + REACH * w.scale
    far = w.offset + 1e30 * w.scale
    np.testing.assert_array_equal(Encoder(w).encode(edge), Encoder(w).encode(far))


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
def test_senseless_weights_are_refused(name, value):
    with pytest.raises(ValueError, match="expected"):
        Encoder(weights(0)._replace(**{name: value}))
