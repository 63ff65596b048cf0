"""What a decision costs, on one core: endorsing, intervening, growing memories, far-away queries,
rules, far check and fallback.

    python benchmarks/guard_latency.py

Beside it, the same shield built the usual way: a jitted JAX encoder call and scikit-learn's
NearestNeighbors for each action. The last line is a JSON object with every figure.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from advice import PRESETS, Shield, ShieldConfig
from advice.shields.checks import FarData
from advice.shields.encoder import SLOPE, Encoder, EncoderWeights
from advice.shields.memory import Steps
from advice.shields.model import FittedModel, Points
from advice.shields.warp import CELLS, Warp, no_warp
from advice.threads import restart_with_one_thread

OBSERVATION, ACTION = 32, 2
PAPER = vars(PRESETS["paper"])
rng = np.random.default_rng(0)


def made_shield(
    features: int, action: int = ACTION, curves: bool = False, **settings: Any
) -> Shield:
    """A shield over ``features`` points whose latent space splits in two halves.

    ``curves``: with a learned curve for every observation dimension and a direction of risk, as a
    fit with hindsight labels has them.
    """
    shield = Shield(
        Box(-np.inf, np.inf, (OBSERVATION,), np.float32),
        Box(-1, 1, (action,), np.float32),
        ShieldConfig(**settings),
    )
    size, hidden, latent = OBSERVATION + action, shield.config.hidden_size, 2
    warp, risk = no_warp(), None
    if curves:
        columns, low = np.arange(OBSERVATION), np.full(OBSERVATION, -3.0)
        table = np.cumsum(rng.normal(size=(OBSERVATION, CELLS + 1)), axis=1) / 8
        warp, risk = Warp(columns, low, -2 * low / CELLS, table), np.array([-1.0, 0.0])
    inputs = size + len(warp.columns)
    weights = EncoderWeights(
        np.zeros(size),
        np.ones(size),
        rng.normal(size=(inputs, hidden)) / np.sqrt(inputs),
        rng.normal(size=hidden),
        rng.normal(size=(hidden, latent)) / np.sqrt(hidden),
        np.zeros(latent),
    )
    encoder = Encoder(weights, OBSERVATION, warp)
    blocks = [len(x) for x in np.array_split(np.empty(features), -(-features // 10_000))]
    latents = np.concatenate(
        [
            encoder.encode(np.concatenate(situations(count, action), axis=1, dtype=np.float64))
            for count in blocks
        ]
    )
    safe = latents[:, 0] > np.median(latents[:, 0])
    points = Points(latents, safe, np.zeros(features, bool), np.arange(features))
    shield._model = FittedModel(encoder, points, shield.action_space, shield.config, risk)
    return shield


def with_checks(shield: Shield, rules: int = 10) -> Shield:
    """The same shield with forbid rules, a far check and a fallback of its own."""
    obs, actions = situations(2000)
    features = np.concatenate([obs, actions], axis=1)
    zeros = np.zeros(len(features), np.int64)
    steps = Steps(features, zeros, zeros > 0, np.arange(len(features)) // 10, len(features))
    shield.config = dataclasses.replace(shield.config, far="refuse")
    shield._far = FarData.calibrated(steps, 0.2, seed=0)
    shield.fallback = lambda obs, proposed: np.zeros_like(proposed)
    for row in range(rules):
        shield.forbid(obs[row], actions[row] if row % 2 else None)
    return shield


def situations(count: int, action: int = ACTION) -> tuple[np.ndarray, np.ndarray]:
    """Observations and proposals like those in memory."""
    obs = rng.normal(size=(count, OBSERVATION)).astype(np.float32)
    return obs, rng.uniform(-1, 1, (count, action)).astype(np.float32)


def cost(
    call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], repeats: int = 5
) -> tuple[float, float]:
    """Median and 99th percentile of one call in microseconds, the best of some repeats.

    Other programs on the machine only ever add time, so the quietest repeat says most.
    """
    best = (np.inf, np.inf)
    for _ in range(repeats):
        spent = []
        for each in arguments:
            start = time.perf_counter_ns()
            call(*each)
            spent.append((time.perf_counter_ns() - start) / 1000)
        best = min(best, (float(np.median(spent)), float(np.quantile(spent, 0.99))))
    return best


def sort_out(shield: Shield, count: int) -> tuple[list[Any], list[Any]]:
    """Situations that the shield endorses, and such in which it intervenes."""
    endorsed: list[Any] = []
    refused: list[Any] = []
    while min(len(endorsed), len(refused)) < count:
        for obs, action in zip(*situations(1000, shield.action_space.size), strict=True):
            verdict = shield.guard(obs, action)
            if verdict.intervened:
                refused.append((obs, action))
            elif not verdict.no_safe_action:
                endorsed.append((obs, action))
    return endorsed[:count], refused[:count]


def critic(action: int = ACTION) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A 256-256 critic in NumPy, float32."""
    sizes = (OBSERVATION + action, 256, 256, 1)
    layers = [
        (
            rng.normal(size=(a, b)).astype(np.float32) / np.sqrt(a, dtype=np.float32),
            np.zeros(b, np.float32),
        )
        for a, b in itertools.pairwise(sizes)
    ]

    def rate(obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        x = np.concatenate([np.broadcast_to(obs, (len(actions), len(obs))), actions], axis=1)
        for i, (w, b) in enumerate(layers):
            x = x @ w + b
            if i < 2:
                np.maximum(x, 0, out=x)
        return x[:, 0]

    return rate


def the_usual_way(shield: Shield) -> Callable[[np.ndarray, np.ndarray], int]:
    """Votes by a jitted JAX encoder and scikit-learn, one action at a time."""
    import jax
    import jax.numpy as jnp
    from sklearn.neighbors import NearestNeighbors

    model = shield._model
    assert model is not None
    w = model.encoder.weights
    w1, b1, w2, b2 = (jnp.asarray(x, jnp.float32) for x in w[2:])
    encode = jax.jit(lambda f: jax.nn.leaky_relu(f @ w1 + b1, SLOPE) @ w2 + b2)
    tree = NearestNeighbors(n_neighbors=5).fit(model.neighbours.points)

    def votes(obs: np.ndarray, action: np.ndarray) -> int:
        latent = np.asarray(encode(np.concatenate([obs, action])[None]))
        return int(model.safe[tree.kneighbors(latent, return_distance=False)[0]].sum())

    return votes


def main() -> None:
    figures: dict[str, float] = {}

    def say(name: str, text: str, value: float, p99: float | None = None) -> None:
        figures[name] = round(value, 3)
        if p99 is not None:
            figures[f"{name}_p99"] = round(p99, 3)
        tail = "" if p99 is None else f"   p99 {p99:10.1f}"
        print(f"{text:<58} {value:10.2f}{tail}", flush=True)

    by_name = {
        "": made_shield(2000, **PAPER),
        "default_": made_shield(6000, curves=True),
    }
    for name, shield in by_name.items():
        of = "default, 6,000 points" if name else "paper, 2,000 points"
        endorsed, refused = sort_out(shield, 500)
        say(f"{name}endorse_us", f"endorse, {of} (us)", *cost(shield.guard, endorsed))
        say(f"{name}intervene_us", f"intervene, {of} (us)", *cost(shield.guard, refused))
        rated = [(*situation, critic()) for situation in refused]
        text = "  with a 256-256 critic in NumPy (us)"
        say(f"{name}intervene_critic_us", text, *cost(shield.guard, rated))
    say(
        "default_ratio",
        "  default over paper, endorsing",
        figures["default_endorse_us"] / figures["endorse_us"],
    )
    checked = with_checks(by_name["default_"])
    endorsed, refused = sort_out(checked, 500)
    text = "endorse, default, 10 forbid rules, far check, own fallback (us)"
    say("checked_endorse_us", text, *cost(checked.guard, endorsed))
    say("checked_intervene_us", "  intervene (us)", *cost(checked.guard, refused))
    for action in (3, 6, 17):
        many = made_shield(6000, action, curves=True)
        refused = sort_out(many, 300)[1]
        name, text = f"intervene_{action}d_us", f"intervene, default, {action} dimensions (us)"
        say(name, text, *cost(many.guard, refused))
        rated = [(*situation, critic(action)) for situation in refused]
        say(f"intervene_critic_{action}d_us", "  with that critic (us)", *cost(many.guard, rated))
        ratio = figures[name] / figures["default_intervene_us"]
        say(f"intervene_{action}d_ratio", "  over two dimensions", ratio)

    shield = by_name[""]
    endorsed, refused = sort_out(shield, 500)
    single = cost(shield.guard, endorsed)
    batch = tuple(np.stack(x) for x in zip(*(endorsed * 3)[:1024], strict=True))
    per_decision = cost(shield.guard_batch, [batch] * 10)[0] / 1024
    say("batch_us", "guard_batch of 1,024 endorsed, per decision (us)", per_decision)
    say("batch_speedup", "  times faster than single calls", single[0] / per_decision)
    mixed = (endorsed[:400] + refused[:112]) * 2
    alone = cost(lambda: [shield.guard(o, a) for o, a in mixed], [()] * 3)[0] / 1024
    stacked = tuple(np.stack(x) for x in zip(*mixed, strict=True))
    together = cost(shield.guard_batch, [stacked] * 3)[0] / 1024
    say("batch_mixed_us", "guard_batch of 1,024, 22 % interventions (us)", together)
    say("batch_mixed_speedup", "  times faster than single calls", alone / together)

    usual = the_usual_way(shield)
    usual_us = cost(usual, endorsed, 3)
    say("usual_us", "endorse the usual way (us)", *usual_us)
    say("usual_ratio", "  times slower than ours", usual_us[0] / single[0])
    candidates = shield._model.candidates.fixed  # type: ignore[union-attr]
    usual_intervene = cost(lambda obs, _: [usual(obs, a) for a in candidates], refused[:10], 2)
    say("usual_intervene_us", "intervene the usual way, action by action (us)", usual_intervene[0])
    say(
        "usual_intervene_ratio",
        "  times slower than ours",
        usual_intervene[0] / figures["intervene_us"],
    )

    for features in (1000, 100_000, 1_000_000):
        large = made_shield(features, **PAPER)
        ours = sort_out(large, 300)[0]
        say(
            f"endorse_{features}_us",
            f"endorse, {features:,} features (us)",
            *cost(large.guard, ours),
        )
        far = [(o * np.float32(s), a) for s in (10, 100, 1e4, 1e8) for o, a in ours[:75]]
        median, p99 = cost(large.guard, far)
        say(
            f"far_{features}_us",
            f"any verdict, 10 to 1e8 sigma away, {features:,} (us)",
            median,
            p99,
        )
        worst = max(cost(large.guard, [each] * 3, 3)[0] for each in far)
        say(f"far_worst_{features}_us", "  the worst of 300 such, median of repeats (us)", worst)
    say(
        "growth",
        "growth of endorsing from 1e3 to 1e6 features",
        figures["endorse_1000000_us"] / figures["endorse_1000_us"],
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    restart_with_one_thread()
    main()
