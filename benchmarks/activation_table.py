"""The table of the activation study in `results-earlier`: before, after, and DDPG meanwhile.

python benchmarks/activation_table.py [RESULTS]
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean, stdev

from advice.runs.records import RunFolder
from advice.types import EpisodeRecord

STUDIES = {250: "activation-250", 500: "activation-500", 750: "activation-750", 1000: "core"}
SEEDS = range(3)
AFTER, HORIZON = 1000, 1250


def read(root: Path, study: str, method: str) -> list[list[EpisodeRecord]]:
    folder = root / study / "randomised-goal" / method
    return [RunFolder(folder / f"seed-{seed}").read_episodes() for seed in SEEDS]


def total(runs: list[list[EpisodeRecord]], what: str, begin: int, end: int) -> list[int]:
    return [sum(getattr(record, what) for record in run[begin:end]) for run in runs]


def shown(values: list[int]) -> str:
    return f"{mean(values):6.1f} +- {stdev(values) / len(values) ** 0.5:4.1f} {values}"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "results-earlier")
    ddpg = read(root, "core", "ddpg")
    for episodes, study in STUDIES.items():
        runs, end = read(root, study, "advice"), episodes + AFTER
        refused = zip(
            total(runs, "no_safe_action", episodes, end),
            total(runs, "interventions", episodes, end),
            strict=True,
        )
        print(f"E = {episodes}")
        for name, values in {
            "violations before": total(runs, "violation", 0, episodes),
            "violations after": total(runs, "violation", episodes, end),
            "successes after": total(runs, "success", episodes, end),
            "DDPG's violations then": total(ddpg, "violation", episodes, end),
            "DDPG's successes then": total(ddpg, "success", episodes, end),
            f"violations in the first {HORIZON}": total(runs, "violation", 0, HORIZON),
            "% of interventions without a safe candidate": [round(100 * a / b) for a, b in refused],
        }.items():
            print(f"  {name:<44} {shown(values)}")
    print(f"DDPG, violations in the first {HORIZON}: {shown(total(ddpg, 'violation', 0, HORIZON))}")


if __name__ == "__main__":
    main()
