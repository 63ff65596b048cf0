from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from advice.config import PRESETS, ShieldConfig
from advice.shields import autoencoder
from advice.shields.autoencoder import contrastive_loss, fit_autoencoder
from advice.shields.encoder import Encoder
from advice.shields.memory import held_out_mask

SMALL = dataclasses.replace(PRESETS["paper"], hidden_size=32, max_epochs=20)


@pytest.mark.parametrize(
    ("form", "distance", "similar", "expected"),
    [
        ("released", 0.5, 1.0, 0.25),
        ("printed", 0.5, 1.0, 0.25),
        ("released", 0.4, 0.0, 0.36),
        ("printed", 0.4, 0.0, 0.84),
        ("released", 1.5, 0.0, 0.0),
        ("printed", 1.5, 0.0, 0.0),
    ],
)
def test_contrastive_loss_by_hand(form, distance, similar, expected):
    assert float(contrastive_loss(distance, similar, 1.0, form)) == pytest.approx(expected)


def test_only_the_released_form_pushes_overlapping_opposites_apart():
    def slope(form: str) -> float:
        return float(jax.grad(lambda d: contrastive_loss(d, 0.0, 1.0, form))(0.0))

    assert slope("released") == pytest.approx(-2.0)
    assert slope("printed") == 0.0


def made_up(count: int) -> tuple[np.ndarray, np.ndarray]:
    features = np.random.default_rng(0).uniform(-1, 1, (count, 5)).astype(np.float32)
    return features, features[:, 0] > 0.2


def test_pairs_are_balanced_and_distinct():
    safe = np.arange(60) % 3 == 0
    rows = np.flatnonzero(safe), np.flatnonzero(~safe)
    pairs = autoencoder.sample_pairs(np.random.default_rng(0), *rows, 4000)
    first, second = safe[pairs.first], safe[pairs.second]
    assert ((pairs.similar == 1) == (first == second)).all()
    assert (first & second).sum() == (~first & ~second).sum() == 1000
    assert (pairs.first != pairs.second).all()
    counts = np.bincount(pairs.first[:1000], minlength=60)[rows[0]]
    assert counts.min() > 25  # each of 20 safe rows is drawn 50 times or so
    assert counts.max() < 80


def test_every_batch_has_its_share_of_each_kind():
    rows = np.arange(10), np.arange(10, 30)
    batch = autoencoder._batches(np.random.default_rng(0), *rows, 7, SMALL)
    assert batch.noise.shape == (7, 2, 64, 32)
    for first, second in zip(batch.first, batch.second, strict=True):
        assert ((first < 10) & (second < 10)).sum() == 8
        assert ((first >= 10) & (second >= 10)).sum() == 8
        assert ((first < 10) & (second >= 10)).sum() == 16


@pytest.mark.parametrize(
    ("features", "hidden", "expected"),
    [(100, 512, (200, 1)), (10_000, 512, (313, 1)), (10**6, 512, (500, 1)), (100, 2**14, (16, 13))],
)
def test_an_epoch_is_about_a_pair_per_feature_within_bounds(features, hidden, expected):
    assert autoencoder._plan(features, ShieldConfig(hidden_size=hidden)) == expected


def run(count: int = 300, seed: int = 0, progress=None, config: ShieldConfig = SMALL):
    features, safe = made_up(count)
    held = np.arange(count) % 5 == 0
    return (
        features,
        safe,
        held,
        fit_autoencoder(features, safe, held, np.zeros(5), np.ones(5), config, seed, progress),
    )


def test_the_fit_separates_the_classes():
    features, safe, held, (weights, epochs, loss) = run()
    latent = Encoder(weights, 4).encode(features.astype(np.float64))
    centres = np.stack([latent[safe & ~held].mean(0), latent[~safe & ~held].mean(0)])
    nearer_safe = np.argmin(((latent[held][:, None] - centres) ** 2).sum(2), axis=1) == 0
    assert (nearer_safe == safe[held]).mean() > 0.9
    assert 0 < epochs <= 20
    assert np.isfinite(loss)


def test_the_same_seed_gives_the_same_weights_and_leaves_jax_as_it_was():
    before = dict(jax.config.values)
    one, two, other = run()[3][0], run()[3][0], run(seed=1)[3][0]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one.w1 != other.w1).any()
    assert dict(jax.config.values) == before


def test_folding_changes_nothing():
    """Encoder in use = dense, LeakyReLU, batch norm by running statistics, dense."""
    features, safe = made_up(300)  # the shapes of the fits above: compiled once
    state = autoencoder._start(jax.random.key(0), 5, SMALL)
    rows = np.flatnonzero(safe), np.flatnonzero(~safe)
    batches = autoencoder._batches(np.random.default_rng(0), *rows, 200, SMALL)
    state, _ = autoencoder._descend(state, autoencoder.padded(features), batches, 0.01, SMALL)
    p = {name: np.asarray(x, np.float64) for name, x in state.params.items()}
    mean, variance = (np.asarray(x, np.float64) for x in state.norms["encoder"])
    hidden = features @ p["w0"] + p["b0"]
    hidden = np.where(hidden > 0, hidden, 0.3 * hidden)
    hidden = (hidden - mean) / np.sqrt(variance + 1e-3) * p["encoder.scale"] + p["encoder.shift"]
    expected = hidden @ p["w1"].T + p["b1"]
    folded = Encoder(autoencoder._fold(state, np.zeros(5), np.ones(5)), 4)
    np.testing.assert_allclose(folded.encode(features.astype(np.float64)), expected, atol=1e-4)


def test_schedule_stops_early_and_lowers_the_rate():
    told = []
    config = dataclasses.replace(
        SMALL, hidden_size=8, max_epochs=200, plateau_patience=2, stop_patience=4, l2=0.0
    )
    _, _, _, (_, epochs, best) = run(40, progress=told.append, config=config)
    assert len(told) == epochs < 200
    losses = [t.validation_loss for t in told]
    assert best == pytest.approx(min(losses), abs=1e-3)
    assert losses.index(min(losses)) >= epochs - 1 - 4 * 3
    rates = [t.learning_rate for t in told]
    assert rates[0] == 0.01
    assert rates[-1] < 0.01
    assert [t.epoch for t in told] == list(range(1, epochs + 1))


def test_split_keeps_episodes_whole_and_classes_on_both_sides():
    rng = np.random.default_rng(0)
    episodes = np.repeat(np.arange(100), 3)
    safe = np.ones(300, bool)
    safe[::12] = False
    held = held_out_mask(safe, episodes, 0.2, rng)
    assert len(np.unique(episodes[held])) == 20
    assert all(len(np.unique(held[episodes == e])) == 1 for e in range(100))
    assert (~safe & held).sum() == 5


@pytest.mark.parametrize(
    ("safe", "episodes", "expected"),
    [
        ([1, 1, 1, 0, 0, 0], [0] * 6, 2),  # one long episode: features are drawn
        ([1, 0], [0, 1], 0),  # nothing to spare
    ],
)
def test_split_of_very_little(safe, episodes, expected):
    held = held_out_mask(np.array(safe, bool), np.array(episodes), 0.2, np.random.default_rng(0))
    assert held.sum() == expected


def test_dropout_keeps_its_share_and_the_mean():
    params = autoencoder._start(jax.random.key(0), 5, SMALL)
    noise = np.frombuffer(np.random.default_rng(0).bytes(400 * 32), np.uint8).reshape(400, 32)
    x = np.random.default_rng(1).normal(size=(400, 5)).astype(np.float32)

    def hidden(dropout: float) -> np.ndarray:
        config = dataclasses.replace(SMALL, dropout=dropout)
        return np.asarray(
            autoencoder._hidden(x, "encoder", 0, params.params, params.norms, noise, config)[0]
        )

    whole, part = hidden(0.0), hidden(0.3)
    assert (part == 0).mean() == pytest.approx(0.3, abs=0.02)
    kept = part != 0
    np.testing.assert_allclose(part[kept], whole[kept] * 256 / 179, rtol=1e-5)
    assert (whole != 0).mean() > 0.99
