"""Time of one DDPG update, compared with its matrix products alone and with Stable-Baselines3.

    python benchmarks/update_speed.py [--flags]

``floor_share`` is the time that NumPy (OpenBLAS) needs for the update's matrix products alone,
divided by the time of the whole update. ``sb3_ratio`` is SB3's time over ours for the same sizes
and batch, where the sb3 extra is installed. One core; rounds alternate; medians.

``--flags`` compares our update with itself instead, in processes of their own, each with a part of
XLA's code generation for CPUs turned off: its time over that without the flag, so above 1 the
defaults are faster.
"""

from __future__ import annotations

import os
import sys

from advice.threads import restart_with_one_thread

restart_with_one_thread()
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise

import jax
import numpy as np
from gymnasium.spaces import Box

from advice.agents.ddpg import DDPG
from advice.config import AgentConfig
from advice.types import Transition

OBS, ACT, HIDDEN, BATCH = 32, 2, 256, 64
OBSERVATIONS, ACTIONS = Box(0, 1, (OBS,), np.float32), Box(-1, 1, (ACT,), np.float32)
ROUNDS, REPEATS = 30, 40
FLAGS = {
    "no_fusion_emitters": "--xla_cpu_use_fusion_emitters=false",
    "no_ynnpack_sums": "--xla_cpu_experimental_ynn_fusion_type=-reduce",
    "no_ynnpack": "--xla_cpu_experimental_ynn_fusion_type=",
}


def our_update() -> Callable[[], None]:
    agent = DDPG(
        OBSERVATIONS,
        ACTIONS,
        AgentConfig(warmup_steps=0, hidden_size=HIDDEN, batch_size=BATCH),
        seed=0,
    )
    rng = np.random.default_rng(0)
    for _ in range(5000):
        obs, action = rng.random(OBS), rng.uniform(-1, 1, ACT)
        agent.observe(Transition(obs, action, rng.normal(), 0.0, rng.random(OBS), False))

    def update() -> None:
        agent.learn()
        jax.block_until_ready(agent.state)

    return update


def bare_products() -> Callable[[], None]:
    """The matrix products of one update, (rows, inner, columns), on arrays of their own."""
    actor, critic = (OBS, HIDDEN, HIDDEN, ACT), (OBS + ACT, HIDDEN, HIDDEN, 1)

    def forward(net: tuple[int, ...]) -> list[tuple[int, int, int]]:
        return [(BATCH, a, b) for a, b in pairwise(net)]

    def weights(net: tuple[int, ...]) -> list[tuple[int, int, int]]:
        return [(a, BATCH, b) for a, b in pairwise(net)]

    def inputs(net: tuple[int, ...], first: bool) -> list[tuple[int, int, int]]:
        return [(BATCH, b, a) for a, b in list(pairwise(net))[0 if first else 1 :]]

    shapes = [
        *forward(actor),  # target actor
        *forward(critic),  # target critic
        *forward(critic),  # critic: forward, backward
        *weights(critic),
        *inputs(critic, first=False),
        *forward(actor),  # actor: through itself and the critic, and back
        *forward(critic),
        *inputs(critic, first=True),
        *weights(actor),
        *inputs(actor, first=False),
    ]
    rng = np.random.default_rng(0)
    triples = [
        (
            rng.random((rows, inner), np.float32),
            rng.random((inner, columns), np.float32),
            np.empty((rows, columns), np.float32),
        )
        for rows, inner, columns in shapes
    ]

    def multiply() -> None:
        for left, right, out in triples:
            np.matmul(left, right, out=out)

    return multiply


def sb3_update() -> Callable[[], None] | None:
    try:
        import torch
        from stable_baselines3 import DDPG as SB3DDPG
    except ImportError:
        return None
    import gymnasium as gym

    class Still(gym.Env):  # type: ignore[type-arg]
        observation_space, action_space = OBSERVATIONS, ACTIONS

        def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
            return np.zeros(OBS, np.float32), {}

        def step(self, action):  # type: ignore[no-untyped-def]
            return np.zeros(OBS, np.float32), 0.0, False, False, {}

    torch.set_num_threads(1)
    model = SB3DDPG(
        "MlpPolicy",
        Still(),
        batch_size=BATCH,
        buffer_size=5000,
        device="cpu",
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]},
    )
    model.learn(0)
    rng = np.random.default_rng(0)
    for _ in range(5000):
        obs, after = rng.random((1, OBS)), rng.random((1, OBS))
        action, reward = rng.uniform(-1, 1, (1, ACT)), rng.normal(size=1)
        model.replay_buffer.add(obs, after, action, reward, np.zeros(1), [{}])
    return lambda: model.train(gradient_steps=1, batch_size=BATCH)


def seconds(part: Callable[[], None]) -> float:
    """Time of a call, by the mean of some."""
    began = time.perf_counter()
    for _ in range(REPEATS):
        part()
    return (time.perf_counter() - began) / REPEATS


def serve() -> None:
    """Time our update once for each line that comes in."""
    update = our_update()
    for _ in range(20):
        update()
    for _ in sys.stdin:
        print(seconds(update), flush=True)


def ask(child: subprocess.Popen[str]) -> float | None:
    """The next time from a process that serves; None if it has ended."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        print(file=child.stdin, flush=True)
        return float(child.stdout.readline())
    except (BrokenPipeError, ValueError):
        return None


def compare_flags() -> None:
    children, times = {}, {}
    for name, flag in {"default": "", **FLAGS}.items():
        child = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flag}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if ask(child) is None:  # XLA ends a process whose flags it does not know
            print(f"{name}: this jaxlib does not take {flag}", file=sys.stderr)
            continue
        children[name], times[name] = child, list[float]()
    for _ in range(ROUNDS):
        for name, child in children.items():
            times[name].append(ask(child) or np.nan)
    for child in children.values():
        child.communicate()  # closes its input, which ends it
    ms = {name: float(np.median(values)) * 1e3 for name, values in times.items()}
    ratios = {
        name: float(np.median(np.divide(values, times["default"])))
        for name, values in times.items()
    }
    for name, ratio in ratios.items():
        print(f"{name:<20} {ms[name]:8.3f} ms {ratio:8.3f}")
    print(json.dumps({name: round(ratio, 4) for name, ratio in ratios.items()}))


def compare() -> None:
    parts = {"update": our_update(), "products": bare_products(), "sb3": sb3_update()}
    present = {name: part for name, part in parts.items() if part is not None}
    times: dict[str, list[float]] = {name: [] for name in present}
    for part in present.values():
        for _ in range(20):
            part()
    for _ in range(ROUNDS):
        for name, part in present.items():
            times[name].append(seconds(part))
    ms = {name: float(np.median(values)) * 1e3 for name, values in times.items()}
    figures = {"update_ms": ms["update"], "floor_ms": ms["products"]}
    figures["floor_share"] = float(np.median(np.divide(times["products"], times["update"])))
    if "sb3" in ms:
        figures["sb3_ms"] = ms["sb3"]
        figures["sb3_ratio"] = float(np.median(np.divide(times["sb3"], times["update"])))
    else:
        print("Stable-Baselines3 is not installed here: no sb3_ratio", file=sys.stderr)
    for name, value in figures.items():
        print(f"{name:<12} {value:8.3f}")
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flags", action="store_true", help="compare flags of XLA")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
    elif arguments.flags:
        compare_flags()
    else:
        compare()


if __name__ == "__main__":
    main()
