"""What the shield costs: steps/s of ddpg and of armed advice.

    python benchmarks/training_speed.py

Both methods train on randomised-goal with the same seed at the same time, one core each, with the
networks of the defaults (``--hidden-size 64``: those of ``advice demo``, whose updates are short).
``shield_overhead`` is the time per step of advice over that of ddpg, both over all steps after the
shield was armed; ``median_overhead`` compares the median episodes, so that other work on the
machine matters less, but so do the episodes in which the shield has most to do. The two are not
armed at the same moment, so a change of the machine's speed shifts both. A second part takes
the trained pair and shows where a step's time goes; ``parts_overhead`` is that whole step over
the step without the guard, measured alternately in one process.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import dataclasses
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from advice.config import AgentConfig, EnvConfig
from advice.demo import demo_cells
from advice.reports.load import read_run
from advice.runs.engines import run_local
from advice.runs.evaluate import load_trained
from advice.runs.grid import Cell
from advice.types import Transition


def seconds_per_step(cell: Cell, armed: int) -> tuple[float, float]:
    """Over all steps after activation, and in the median episode."""
    after = cell.folder.read_episodes()[armed:]
    seconds, steps = (np.array([getattr(r, name) for r in after]) for name in ("seconds", "steps"))
    return float(seconds.sum() / steps.sum()), float(np.median(seconds / steps))


def where_the_time_goes(cell: Cell, steps: int) -> dict[str, float]:
    """Mean microseconds per step and part, over steps of the trained, shielded agent."""
    env, agent, shield, _ = load_trained(cell.folder)
    spent: dict[str, float] = defaultdict(float)

    def timed(part: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        result = call(*arguments)
        spent[part] += time.perf_counter() - began
        return result

    def learn() -> None:
        agent.learn()
        jax.block_until_ready(agent.state)

    obs, _ = env.reset(seed=0)
    interventions = 0
    for step in range(steps + agent.config.batch_size + 50):
        if step == agent.config.batch_size + 50:
            spent.clear()
            interventions = 0
        proposed = timed("agent acts", agent.act, obs)
        verdict = timed("shield guards", shield.guard, obs, proposed, agent.rate_actions)
        interventions += verdict.intervened
        after, reward, ended, truncated, _ = timed("environment steps", env.step, verdict.action)
        row = Transition(obs, verdict.action, float(reward), 0.0, after, ended)
        timed("replay keeps", agent.observe, row)
        timed("agent learns", learn)
        obs = after
        if ended or truncated:
            obs, _ = timed("environment resets", env.reset)
    print(f"{interventions} interventions in {steps} steps")
    return {part: 1e6 * seconds / steps for part, seconds in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=450)
    parser.add_argument("--construction-episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=100)
    default = AgentConfig().hidden_size
    parser.add_argument("--hidden-size", type=int, default=default, help=f"default: {default}")
    options = parser.parse_args()
    agent = AgentConfig(hidden_size=options.hidden_size)
    with tempfile.TemporaryDirectory() as scratch:
        cells = [
            cell._replace(config=dataclasses.replace(cell.config, env=EnvConfig(), agent=agent))
            for cell in demo_cells(
                Path(scratch),
                "randomised-goal",
                options.seed,
                options.episodes,
                options.construction_episodes,
            )
        ]
        outcome = run_local(cells, lambda: None)
        for cell in outcome.failed:
            raise SystemExit(cell.folder.error_file.read_text())
        armed = read_run(cells[1].folder).armed_after
        ddpg, advice = (seconds_per_step(cell, armed) for cell in cells)
        parts = where_the_time_goes(cells[1], steps=2000)
    print(f"{'part':<20} {'us/step':>8}")
    for part, microseconds in sorted(parts.items(), key=lambda item: -item[1]):
        print(f"{part:<20} {microseconds:8.1f}")
    figures = {
        "ddpg_steps_per_s": 1 / ddpg[0],
        "advice_steps_per_s": 1 / advice[0],
        "shield_overhead": advice[0] / ddpg[0],
        "median_overhead": advice[1] / ddpg[1],
        "parts_overhead": sum(parts.values()) / (sum(parts.values()) - parts["shield guards"]),
    }
    for name, value in figures.items():
        print(f"{name:<20} {value:8.3f}")
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
