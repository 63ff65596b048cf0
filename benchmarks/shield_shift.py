"""A trained agent and its shield in a changed world: violations, and whether the alarm is given.

    python benchmarks/shield_shift.py --out docs/images/shift.png

`advice bench --suite shift` goes on training in the changed world; this is its short form. The
agent of a finished run drives on greedily in the world it knows, which gives the certified rate,
and in each change of the suite ``shift``: without a shield, with its shield as it is, and with
refits. All start alike. The last line is a JSON object with every figure.
"""

from __future__ import annotations

from advice.threads import restart_with_one_thread

restart_with_one_thread()

import argparse
import dataclasses
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import advice
from advice.runs.evaluate import FRESH, load_trained
from advice.runs.methods import episode_seed
from advice.runs.records import RunFolder
from advice.runs.studies import SHIFTS
from advice.shields.base import NoShield
from advice.shields.bounds import clopper_pearson, running_bounds

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "results" / "early" / "randomised-goal" / "advice" / "seed-0"
KINDS = {"no shield": "#7a7f87", "frozen": "#2b7bba", "refits": "#c8452d"}


class Met(NamedTuple):
    """What came of some episodes in one world."""

    violations: int
    successes: int
    episodes: int
    fits: int
    alarm: float  # the episode of the alarm, infinite without one


def meet(
    run: Path,
    kind: str,
    episodes: int,
    first: int,
    certified: float | None = None,
    **options: float,
) -> Met:
    """Episodes from number ``first`` on with the run's agent in a changed world."""
    folder = RunFolder(run)
    trained, seed = load_trained(folder), folder.read_config().seed
    shield, agent = trained.shield, trained.agent
    assert isinstance(shield, advice.Shield)
    refits = shield.config.refit_episodes if kind == "refits" else 0
    shield.config = dataclasses.replace(shield.config, refit_episodes=refits)
    env = advice.ShieldedEnv(
        advice.make("randomised-goal", **options),
        shield=NoShield() if kind == "no shield" else shield,
        rate_actions=agent.rate_actions,
        certified=certified,
    )
    alarm, fits, successes, before = np.inf, 0, 0, shield.summary
    for episode in range(1, episodes + 1):
        obs, _ = env.reset(seed=episode_seed(seed, first + episode))
        ended = False
        while not ended:
            obs, _, terminated, truncated, info = env.step(agent.act(obs, explore=False))
            ended = terminated or truncated
        successes += bool(info["success"])
        if shield.summary is not before:
            before, fits = shield.summary, fits + 1
        if np.isinf(alarm) and env.session.alarm is not None and env.session.alarm.alarmed:
            alarm = float(episode)
    return Met(env.violations, successes, episodes, fits, alarm)


def draw(found: dict[str, dict[str, Met]], certified: float, out: Path) -> None:
    """Violation rates with their confidence sequences, one row for each change."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for row, by_kind in enumerate(found.values()):
        for shift, (kind, met) in zip((-0.2, 0.0, 0.2), by_kind.items(), strict=True):
            ends = running_bounds(met.violations, met.episodes)
            style = {"color": KINDS[kind], "label": None if row else kind}
            axes.plot(ends, [row + shift] * 2, color=KINDS[kind], linewidth=2)
            axes.plot([met.violations / met.episodes], [row + shift], "o", **style)
            if np.isfinite(met.alarm):
                text = f"alarm after {met.alarm:.0f}"
                axes.annotate(
                    text, (ends[1], row + shift), (4, -3), textcoords="offset points", fontsize=8
                )
    axes.axvline(certified, color="black", linestyle=":", label="certified")
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("episodes with a violation (share, 95 % confidence sequence)")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(out, dpi=120)


def main(run: Path, episodes: int, out: Path | None) -> None:
    known = meet(run, "frozen", episodes, FRESH)
    certified = clopper_pearson(known.violations, episodes)
    print(
        f"{known.violations} violations in {episodes} episodes certify {certified:.1%}", flush=True
    )
    found: dict[str, dict[str, Met]] = {}
    for name, options in SHIFTS.items():
        for kind in KINDS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the alarm
                met = meet(run, kind, episodes, FRESH + episodes, certified, **options)
            found.setdefault(name, {})[kind] = met
            told = "no alarm" if np.isinf(met.alarm) else f"alarm after {met.alarm:.0f} episodes"
            print(
                f"{name:<15} {kind:<10} violations {met.violations / episodes:6.1%}   successes "
                f"{met.successes / episodes:6.1%}   {met.fits} fits   {told}",
                flush=True,
            )
    if out is not None:
        draw(found, certified, out)
    print(json.dumps({"certified": certified, "found": found}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, default=RUN, help="folder of a finished run")
    parser.add_argument("--episodes", type=int, default=300, help="of each world and kind")
    parser.add_argument("--out", type=Path, default=None, help="a figure")
    options = parser.parse_args()
    main(options.run, options.episodes, options.out)
