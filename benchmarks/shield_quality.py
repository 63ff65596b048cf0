"""How good is the shield itself? The same frozen agent drives behind several shields.

    python benchmarks/shield_quality.py --out quality --seeds 100 101 102 103 104

For each task and seed DDPG is trained without a shield (kept in --out, resumed if it is there).
Every shield is fitted on the steps of that training; then the agent drives with the noise of
training, at most 400 steps an episode, the same starts for all. Rows per 100 episodes, means over
seeds: violations, successes, timeouts; shares of states near danger in which the verdict depends
on the action, and of guarded steps without a safe candidate.

The controls refuse by one score: a state alone (the danger of the state), gradient boosting and a
network on (state, action), fitted on the same look-ahead targets, with the threshold that the last
three steps before violations give. The oracle simulates each candidate five steps ahead.

Finished rows are kept in --out, so a benchmark that was stopped goes on where it was.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import PRESETS, ShieldConfig, TrainConfig
from advice.runs.evaluate import FRESH, Trained, load_trained
from advice.runs.loop import train
from advice.runs.methods import episode_seed
from advice.runs.records import RunFolder
from advice.shields import lookahead
from advice.shields.base import NoShield
from advice.shields.decisions import StepGuard
from advice.shields.fit import fit_model
from advice.shields.memory import Steps
from advice.shields.shield import Shield
from advice.types import Outcome, Verdict

LIMIT = 400
GRID = np.array([(a, b) for a in np.linspace(-1, 1, 11) for b in np.linspace(-1, 1, 11)])
LIDAR = dataclasses.replace(
    PRESETS["paper"],
    margin=5.0,
    dropout=0.0,
    l2=1e-5,
    plateau_patience=30,
    stop_patience=60,
    fallback="least-risk",
)


class Scored:
    """A shield that refuses (state, action) pairs whose score exceeds a threshold."""

    armed, hold = True, 15

    def __init__(self, score: Callable[[Any, Any], Any], threshold: float) -> None:
        self._score, self._threshold = score, threshold

    def guard(self, obs: Any, action: Any, rate_actions: Any, held: Any = None) -> Verdict:
        if held is not None and self._score(obs, held[None])[0] <= self._threshold:
            return Verdict(held, intervened=True, held=True)
        if self._score(obs, action[None])[0] <= self._threshold:
            return Verdict(action)
        scores = self._score(obs, GRID)
        safe = np.flatnonzero(scores <= self._threshold)
        if len(safe) == 0:
            best = GRID[np.argmin(scores)].astype(np.float32)
            return Verdict(best, intervened=True, no_safe_action=True)
        best = GRID[safe[np.argmax(rate_actions(obs, GRID[safe]))]].astype(np.float32)
        return Verdict(best, intervened=True)

    def verdicts(self, obs: Any) -> Any:
        return self._score(obs, GRID) <= self._threshold


class Powered:
    """A shield that sees lidar readings raised to the 8th power."""

    armed, hold = True, 0

    def __init__(self, shield: Shield) -> None:
        self._shield = shield

    def guard(self, obs: Any, action: Any, rate_actions: Any, held: Any = None) -> Verdict:
        return self._shield.guard(obs**8, action, lambda _, actions: rate_actions(obs, actions))

    def verdicts(self, obs: Any) -> Any:
        return verdicts_of(self._shield, obs**8)


def verdicts_of(shield: Shield, obs: Any) -> Any:
    """Which candidates pass."""
    model = shield._fitted()
    feature = shield.space.features(obs, GRID[0].astype(np.float32))
    return model.consider(feature).safe_neighbours >= shield.required_votes


def oracle(env: Any) -> Callable[[Any, Any], Any]:
    """1 for actions that, executed five times from here, crash."""

    def score(obs: Any, actions: Any) -> Any:
        inner, state = env.unwrapped, env.unwrapped.get_state()
        scores = np.zeros(len(actions))
        for row, action in enumerate(np.asarray(actions, np.float32)):
            for _ in range(5):
                _, _, terminated, _, info = inner.step(action)
                if terminated:
                    scores[row] = info["violation"]
                    break
            inner.set_state(state)
        return scores

    return score


def paper_steps(steps: Steps, power: int = 1) -> Steps:
    """Labels of Eq. 2: an episode's first step is safe too."""
    first = np.r_[True, steps.episodes[1:] != steps.episodes[:-1]]
    outcomes = np.where(first & (steps.outcomes == Outcome.INCONCLUSIVE), 1, steps.outcomes)
    features = steps.features.copy()
    features[:, :-2] **= power
    return steps._replace(features=features, outcomes=outcomes)


def fitted(recorded: Shield, steps: Steps, config: ShieldConfig) -> Shield:
    """A shield of these settings, fitted on the steps."""
    shield = Shield(recorded.observation_space, recorded.action_space, config)
    shield._model, shield.summary = fit_model(steps, shield.space, config, shield._rng)
    return shield


def controls(steps: Steps) -> dict[str, Scored]:
    """Shields that score by a state alone, gradient boosting and a network."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.neural_network import MLPRegressor

    near, ahead = lookahead.horizons(steps)
    until, _ = lookahead.steps_until_violation(steps)
    obs = np.float32(steps.features[:, :-2] ** 8)
    rng = np.random.default_rng(0)
    everything = np.ones(len(obs), bool)
    danger = lookahead.fit_danger(obs, steps, everything, near, 3000, rng)
    target = lookahead.targets(steps, danger, near, ahead)
    rows = np.flatnonzero(target.known)
    close = rows[(danger > 0.05)[rows]]
    rows = np.concatenate([rng.choice(rows, 20_000), rng.choice(close, 20_000)])
    led = until <= lookahead.LAST
    pairs = np.concatenate([obs, steps.features[:, -2:]], axis=1)

    def scored(model: Any, inputs: Callable[[Any, Any], Any]) -> Scored:
        threshold = float(np.quantile(model.predict(inputs(None, None)[led]), 0.01))
        return Scored(lambda o, a: model.predict(inputs(o, a)), threshold)

    def states(o: Any, a: Any) -> Any:
        return obs if o is None else np.repeat(np.float32(o**8)[None], len(a), axis=0)

    def both(o: Any, a: Any) -> Any:
        return pairs if o is None else np.concatenate([states(o, a), a], axis=1)

    network = MLPRegressor(
        hidden_layer_sizes=(128, 128), max_iter=30, early_stopping=True, random_state=0
    )
    boosting = HistGradientBoostingRegressor(random_state=0)
    alone = HistGradientBoostingRegressor(random_state=0)
    return {
        "a state alone": scored(alone.fit(obs[rows], target.value[rows]), states),
        "gradient boosting": scored(boosting.fit(pairs[rows], target.value[rows]), both),
        "network": scored(network.fit(pairs[rows], target.value[rows]), both),
    }


ROWS = (
    "no shield",
    "paper",
    "8th power (earlier)",
    "default",
    "default, no hold",
    "a state alone",
    "gradient boosting",
    "network",
    "oracle",
)


def make_shield(name: str, trained: Trained, steps: Steps, scored: dict[str, Scored]) -> Any:
    """The shield of one row; ``scored`` keeps the controls, which are fitted together."""
    recorded: Any = trained.shield
    if name == "no shield":
        return NoShield()
    if name == "paper":
        return fitted(recorded, paper_steps(steps), PRESETS["paper"])
    if name == "8th power (earlier)":
        return Powered(fitted(recorded, paper_steps(steps, 8), LIDAR))
    if name.startswith("default"):
        return fitted(recorded, steps, ShieldConfig(hold=0 if "no hold" in name else None))
    if name == "oracle":
        return Scored(oracle(trained.env), 0.5)
    if not scored:
        scored |= controls(steps)
    return scored[name]


def drive(trained: Trained, shield: Any, seed: int, episodes: int) -> dict[str, float]:
    """Figures per 100 episodes."""
    env, agent = trained.env, trained.agent
    counts: list[tuple[float, ...]] = []
    near: list[tuple[bool, bool]] = []
    for number in range(episodes):
        obs = np.array(env.reset(seed=episode_seed(seed, FRESH + number))[0])
        agent.start_episode()
        guard, steps, interventions, none, ended = StepGuard(), 0, 0, 0, False
        while not ended and steps < LIMIT:
            verdict = guard(shield, obs, agent.act(obs), agent.rate_actions)
            if verdict.intervened and steps % 5 == 0 and not isinstance(shield, NoShield):
                own = isinstance(shield, Shield)
                passed = verdicts_of(shield, obs) if own else shield.verdicts(obs)
                near.append((bool(passed.any() and not passed.all()), not passed.any()))
            obs, _, terminated, truncated, info = env.step(verdict.action)
            obs, ended = np.array(obs), terminated or truncated
            steps, interventions = steps + 1, interventions + verdict.intervened
            none += verdict.no_safe_action
        counts.append((info["violation"], info["success"], steps, interventions, none))
    violations, successes, steps_, interventions_, none_ = np.mean(counts, axis=0)
    return {
        "violations": 100 * violations,
        "successes": 100 * successes,
        "timeouts": 100 * (1 - violations - successes),
        "steps": steps_,
        "interventions": interventions_ / steps_,
        "no_safe_action": none_ / steps_,
        "action_dependent": float(np.mean([x[0] for x in near])) if near else np.nan,
    }


def trained_run(task: str, seed: int, episodes: int, out: Path) -> RunFolder:
    """DDPG without a shield whose steps are recorded: ADVICE that is never armed."""
    shield = ShieldConfig(arm="fixed", construction_episodes=10**9, capacity_per_class=100_000)
    config = TrainConfig(task, "advice", seed, episodes, shield=shield)
    folder = RunFolder.of(out, config)
    if not folder.done_file.exists():
        print(f"training {task}, seed {seed}, {episodes} episodes ...", flush=True)
        train(config, folder)
        if not folder.done_file.exists():
            raise SystemExit("stopped; the same command goes on")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["randomised-goal", "semi-random-goal"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102, 103, 104])
    parser.add_argument("--training", type=int, default=1000, help="episodes of training")
    parser.add_argument("--episodes", type=int, default=100, help="episodes to drive")
    parser.add_argument("--out", type=Path, default=Path("quality"))
    parser.add_argument("--rows", nargs="*", choices=ROWS, help="only these rows")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for task in options.tasks:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in options.seeds:
            trained = load_trained(trained_run(task, seed, options.training, options.out))
            steps = trained.shield._memory.all()  # type: ignore[attr-defined]
            kept = options.out / f"{task}-{seed}-{options.training}-{options.episodes}.json"
            rows = json.loads(kept.read_text()) if kept.exists() else {}
            scored: dict[str, Scored] = {}
            for name in options.rows or ROWS:
                if name not in rows:
                    shield = make_shield(name, trained, steps, scored)
                    rows[name] = drive(trained, shield, seed, options.episodes)
                    kept.write_text(json.dumps(rows))
                found.setdefault(name, []).append(rows[name])
                print(f"{task} {seed} {name:<22} " + _line(rows[name]), flush=True)
            trained.env.close()
        print(f"\n{task}, means over seeds {options.seeds}")
        for name, each in found.items():
            mean = {key: float(np.nanmean([row[key] for row in each])) for key in each[0]}
            print(f"{name:<22} " + _line(mean))
            figures[f"{task}/{name}"] = {key: round(value, 3) for key, value in mean.items()}
    print(json.dumps(figures))


def _line(row: dict[str, float]) -> str:
    return "  ".join(f"{key} {value:.2f}" for key, value in row.items())


if __name__ == "__main__":
    main()
