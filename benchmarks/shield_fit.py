"""What a fit costs and how well it separates, on one core.

    python benchmarks/shield_fit.py [--quick]

2,000 features of 34 numbers are fitted with the defaults and with the preset paper. The latter is
compared with a run that enumerates every pair of the training features once (the paper's list,
balanced by weighting none: shuffled and cut into the same batches). Then 100,000 features are
fitted with both, for time and memory. The features look like those
of the navigation tasks: two 16-bin lidars and two wheels; unsafe means driving at what is close.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from advice import PRESETS, Outcome, Shield
from advice.shields import autoencoder
from advice.shields.audit import audit
from advice.shields.encoder import Encoder
from advice.shields.model import Points
from advice.threads import restart_with_one_thread

OBSERVATIONS, ACTIONS = Box(0, 1, (32,), np.float32), Box(-1, 1, (2,), np.float32)


def made_features(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations, actions and whether they were safe, half of each."""
    rng = np.random.default_rng(seed)
    bins = np.arange(16)
    goal = np.maximum(0, 1 - np.abs((bins - rng.integers(16, size=(count, 1)) + 8) % 16 - 8) / 2)
    goal *= rng.uniform(0.2, 1, (count, 1))
    near = np.zeros((count, 16))
    for _ in range(6):
        at = rng.integers(16, size=(count, 1))
        shape = np.maximum(0, 1 - np.abs((bins - at + 8) % 16 - 8) / 2)
        near = np.maximum(near, shape * rng.uniform(0.1, 0.8, (count, 1)))
    actions = rng.uniform(-1, 1, (count, 2))
    safe = np.arange(count) % 2 == 0
    # An unsafe step drives, forwards or backwards, at something within reach.
    forwards = actions.sum(1) > 0
    ahead = np.where(forwards, 12, 4)[:, None] + rng.integers(-1, 2, (count, 1))
    close = np.maximum(0, 1 - np.abs((bins - ahead + 8) % 16 - 8) / 2) * rng.uniform(
        0.87, 0.93, (count, 1)
    )
    near[~safe] = np.maximum(near, close)[~safe]
    return np.hstack([goal, near]).astype(np.float32), actions.astype(np.float32), safe


def watched(count: int, seed: int = 0, preset: str = "default") -> Shield:
    """A shield that has seen ``count`` features, two an episode."""
    config = dataclasses.replace(PRESETS[preset], capacity_per_class=count)
    shield = Shield(OBSERVATIONS, ACTIONS, config, seed=seed)
    for i, (obs, action, safe) in enumerate(zip(*made_features(count, seed), strict=True)):
        shield.record(obs, action, Outcome.SAFE if safe else Outcome.UNSAFE)
        if i % 2:
            shield.end_episode(not safe)
    return shield


def enumerate_all_pairs(shield: Shield) -> tuple[float, float, int]:
    """Train on every unordered pair of the training features once; accuracy, seconds, steps.

    The same network, split, optimiser and plateau schedule (an epoch being as many batches as in
    the sampled run); the best validation loss decides, as there.
    """
    import jax
    import jax.numpy as jnp

    features, config = shield._memory.all().features, shield.config
    model = shield._model
    assert model is not None
    weights = model.encoder.weights
    _, safe, held, episodes = model.points
    rows = jnp.asarray(((features - weights.offset) / weights.scale).astype(np.float32))
    rng = np.random.default_rng(1)
    train = np.flatnonzero(~held)
    first, second = (train[x] for x in np.triu_indices(len(train), 1))
    order = rng.permutation(len(first))
    first, second = first[order], second[order]
    similar = (safe[first] == safe[second]).astype(np.float32)
    classes = np.flatnonzero(held & safe), np.flatnonzero(held & ~safe)
    validation = autoencoder.sample_pairs(rng, *classes, 1024)
    steps, batch = autoencoder._plan(len(train), config)[0], config.fit_batch_size
    state = autoencoder._start(jax.random.key(1), rows.shape[1], config)
    start, rate, best, best_state, stale = (
        time.perf_counter(),
        config.learning_rate,
        np.inf,
        state,
        0,
    )
    epochs = len(first) // (steps * batch)
    for epoch in range(epochs):
        part = slice(epoch * steps * batch, (epoch + 1) * steps * batch)
        pairs = autoencoder.Pairs(
            *(
                x[part].reshape(steps, batch)
                for x in (first.astype(np.int32), second.astype(np.int32), similar)
            )
        )
        shape = (steps, 2, 2 * batch, config.hidden_size)
        noise = np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape)
        state, _ = autoencoder._descend(state, rows, pairs._replace(noise=noise), rate, config)
        loss = float(autoencoder._validation_loss(state, rows, validation, config))
        stale += 1
        if loss < best - 1e-4:
            best, best_state, stale = loss, state, 0
        elif stale % config.plateau_patience == 0:
            rate = max(rate * config.plateau_factor, config.min_learning_rate)
    folded = Encoder(
        autoencoder._fold(best_state, weights.offset, weights.scale), model.encoder.split
    )
    latent = folded.encode(features.astype(np.float64))
    found = audit(Points(latent, safe, held, episodes), 4, 5)
    return found.at_k[3].balanced_accuracy, time.perf_counter() - start, epochs * steps


def _measure_fits(
    preset: str, repeats: int, quick: bool, say: Callable[[str, str, float], None]
) -> None:
    seconds, cpu, accuracies, steps, enumerated = [], [], [], [], []
    for seed in range(repeats):
        shield = watched(2000, seed, preset)
        start, cpu_start = time.perf_counter(), time.process_time()
        steps.append(shield.fit().steps)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
        accuracies.append(shield.audit().at_k[3].balanced_accuracy)
        if preset == "paper" and not quick:
            enumerated.append(enumerate_all_pairs(shield))
    prefix = "" if preset == "default" else f"{preset}_"
    name = f"{prefix}fit_2000"
    say(f"{name}_seconds", f"{preset}: 2,000 features fitted (s, median)", _median(seconds))
    say(f"{name}_first_seconds", "  the first, compiling included (s)", seconds[0])
    say(f"{name}_cpu_seconds", "  of processor time (s, median)", _median(cpu))
    unit = "epochs" if preset == "paper" else "gradient steps of each network"
    say(f"{name}_steps", f"  {unit} (median)", _median(steps))
    accuracy = float(np.mean(accuracies))
    say(f"{prefix}balanced_accuracy", "  held-out balanced accuracy at K=4 (mean)", accuracy)
    if enumerated:
        theirs, spent, count = (np.array(x) for x in zip(*enumerated, strict=True))
        mean, error = float(theirs.mean()), np.std(accuracies - theirs, ddof=1)
        say("all_pairs_balanced_accuracy", "every pair enumerated once: the same", mean)
        say("difference", "  sampled minus enumerated, same splits", accuracy - mean)
        error = float(error / np.sqrt(len(theirs)))
        say("difference_error", "  standard error of that difference", error)
        say("all_pairs_seconds", "  seconds (median)", _median(spent))
        say("all_pairs_steps", "  gradient steps", float(count[0]))


def _measure_large_fit(preset: str, say: Callable[[str, str, float], None]) -> None:
    large = watched(100_000, preset=preset)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    large.fit()
    spent = time.perf_counter() - start
    prefix = "" if preset == "default" else f"{preset}_"
    say(f"{prefix}fit_100000_seconds", f"{preset}: 100,000 features fitted (s)", spent)
    accuracy = large.audit().at_k[3].balanced_accuracy
    name = f"{prefix}balanced_accuracy_100000"
    say(name, "  held-out balanced accuracy at K=4", accuracy)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    text = f"  peak memory of the process (MB; {before:.0f} before)"
    say(f"{prefix}peak_mb", text, peak)


def _median(values: Any) -> float:
    return float(np.median(values))


def main(quick: bool) -> None:
    figures: dict[str, float] = {}

    def say(name: str, text: str, value: float) -> None:
        figures[name] = round(value, 4)
        print(f"{text:<62} {value:12.3f}", flush=True)

    for preset in ("default", "paper"):
        _measure_fits(preset, 1 if quick else 5, quick, say)
    if not quick:
        for preset in ("default", "paper"):
            _measure_large_fit(preset, say)
    print(json.dumps(figures))


if __name__ == "__main__":
    restart_with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fit of 2,000 features only")
    main(parser.parse_args().quick)
