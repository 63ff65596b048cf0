"""What a fit costs and how well it separates, on one core.

    python benchmarks/shield_fit.py [--quick]

2,000 features of 34 numbers are fitted with the defaults and compared with a run that enumerates
every pair of the training features once (the paper's list, balanced by weighting none: shuffled and
cut into the same batches); then 100,000 features, for time and memory. The features look like those
of the navigation tasks: two 16-bin lidars and two wheels; unsafe means driving at what is close.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
from gymnasium.spaces import Box

from advice import Outcome, Shield, ShieldConfig
from advice.shields import autoencoder
from advice.shields.audit import audit
from advice.shields.encoder import Encoder
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


def watched(count: int, seed: int = 0) -> Shield:
    """A shield that has seen ``count`` features, two an episode."""
    shield = Shield(OBSERVATIONS, ACTIONS, ShieldConfig(capacity_per_class=count), seed=seed)
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

    features, safe, serials, episodes = shield._store.all()
    model, config = shield._model, shield.config
    assert model is not None
    weights = model.encoder.weights
    held = np.isin(serials, shield._held_out)
    rows = jnp.asarray(((features - weights.offset) / weights.scale).astype(np.float32))
    rng = np.random.default_rng(1)
    train = np.flatnonzero(~held)
    first, second = (train[x] for x in np.triu_indices(len(train), 1))
    order = rng.permutation(len(first))
    first, second = first[order], second[order]
    similar = (safe[first] == safe[second]).astype(np.float32)
    validation = autoencoder.sample_pairs(rng, *autoencoder._classes(safe, held), 1024)
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
        state, _ = autoencoder._descend(state, rows, autoencoder.Batch(pairs, noise), rate, config)
        loss = float(autoencoder._validation_loss(state, rows, validation, config))
        stale += 1
        if loss < best - 1e-4:
            best, best_state, stale = loss, state, 0
        elif stale % config.plateau_patience == 0:
            rate = max(rate * config.plateau_factor, config.min_learning_rate)
    folded = Encoder(autoencoder._fold(best_state, weights.offset, weights.scale))
    found = audit(folded.encode(features.astype(np.float64)), safe, episodes, held, 4, 5)
    return found.at_k[3].balanced_accuracy, time.perf_counter() - start, epochs * steps


def main(quick: bool) -> None:
    figures: dict[str, float] = {}

    def say(name: str, text: str, value: float) -> None:
        figures[name] = round(value, 4)
        print(f"{text:<62} {value:12.3f}", flush=True)

    seconds, cpu, accuracies, epochs, enumerated = [], [], [], [], []
    for seed in range(1 if quick else 5):
        shield = watched(2000, seed)
        start, cpu_start = time.perf_counter(), time.process_time()
        epochs.append(shield.fit().epochs)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
        accuracies.append(shield.audit().at_k[3].balanced_accuracy)
        if not quick:
            enumerated.append(enumerate_all_pairs(shield))
    say("fit_2000_seconds", "2,000 features fitted (s, median)", float(np.median(seconds)))
    say("fit_2000_first_seconds", "  the first, compiling included (s)", seconds[0])
    say("fit_2000_cpu_seconds", "  of processor time (s, median)", float(np.median(cpu)))
    say("fit_2000_epochs", "  epochs (median)", float(np.median(epochs)))
    accuracy = float(np.mean(accuracies))
    say("balanced_accuracy", "  held-out balanced accuracy at K=4 (mean)", accuracy)
    if not quick:
        theirs, spent, steps = (np.array(x) for x in zip(*enumerated, strict=True))
        error = float(np.std(accuracies - theirs, ddof=1) / np.sqrt(len(theirs)))
        say(
            "all_pairs_balanced_accuracy",
            "every pair enumerated once: the same",
            float(theirs.mean()),
        )
        say(
            "difference", "  sampled minus enumerated, same splits", accuracy - float(theirs.mean())
        )
        say("difference_error", "  standard error of that difference", error)
        say("all_pairs_seconds", "  seconds (median)", float(np.median(spent)))
        say("all_pairs_steps", "  gradient steps", float(steps[0]))
        large = watched(100_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = time.perf_counter()
        large.fit()
        say("fit_100000_seconds", "100,000 features fitted (s)", time.perf_counter() - start)
        say(
            "balanced_accuracy_100000",
            "  held-out balanced accuracy at K=4",
            large.audit().at_k[3].balanced_accuracy,
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say("peak_mb", f"  peak memory of the process (MB; {before:.0f} before)", peak)
    print(json.dumps(figures))


if __name__ == "__main__":
    restart_with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fit of 2,000 features only")
    main(parser.parse_args().quick)
