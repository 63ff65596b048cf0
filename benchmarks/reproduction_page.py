"""Write what the records say into docs/reproduction.md and the README.

    python benchmarks/reproduction_page.py [RESULTS] [--report DIR]

DIR is a report of the same records: its figures of the claims are copied into
docs/images/reproduction.
"""

from __future__ import annotations

import argparse
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advice.reports import statistics as stats
from advice.reports.claims import HOLDS, MISSING, paper_table
from advice.reports.load import TaskRuns, complete, load, totals
from advice.reports.statistics import estimate
from advice.reports.style import method_label
from advice.reports.summaries import GOOD_SEEDS, MIN_SEEDS, best_of, per_goal, summary_table
from advice.reports.tables import shown
from advice.runs.studies import PAPER_TASKS

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "reproduction.md", ROOT / "README.md"
IMAGES = ROOT / "docs" / "images" / "reproduction"
PAPER = {
    "at most half the best other's violations": "about 50 % fewer than the best other method",
    "as many goals as DDPG": "similar numbers of goals",
    "at most 100 timeouts (not in the paper)": "not reported",
    "the tabular shield hardly ever acts": "it never acts",
    "DDPG-Lag has fewer violations than DDPG": "fewer, more than ADVICE",
    "RCPO has somewhat fewer": "a small amount fewer",
    "CSC has somewhat fewer": "a small amount fewer",
    "the lowest cost": "the lowest, or one of the lowest, mean costs per episode",
    "a transferred shield halves the violations": "over 50 % fewer",
    "longer episodes give more goals": "more goals with T = 2000",
    "a larger K gives fewer violations": "fewer with a larger K, for somewhat fewer goals",
    "a later start gives fewer violations after it": "fewer the later it starts",
    "with the paper's settings: half of DDPG's violations": "about 50 % fewer",
    "armed early: fewer than DDPG, every violation counted (not in the paper)": "future work",
}
"""What the paper says to each claim of :mod:`advice.reports.claims`."""
_ALREADY_COSTLY = (
    "a violation ends the episode and takes 1 of the reward, which DDPG avoids as well"
)
ALIKE = 0.9  # times DDPG's violations
WHY = {
    "DDPG-Lag has fewer violations than DDPG": _ALREADY_COSTLY,
    "RCPO has somewhat fewer": _ALREADY_COSTLY,
    "CSC has somewhat fewer": f"{_ALREADY_COSTLY}; its critic soon replaces hardly any action",
}
"""Why a method hardly has fewer violations than DDPG here, as far as it is known."""


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table, its first row the titles."""
    titles, *rest = rows
    lines = [titles, ["---"] * len(titles), *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def claims(tasks: Sequence[TaskRuns]) -> tuple[str, list[str]]:
    """The claims that were measured and those that were not, and the names of their figures."""
    table = paper_table(tasks, missing=True)
    assert table is not None
    titles = ["claim", "the paper", "task", "here", "seeds", "", "why"]
    rows, figures = [titles], dict[str, None]()
    missing: dict[str, list[str]] = defaultdict(list)
    for claim, task, here, seeds, verdict, figure in table.text[1:]:
        if verdict == MISSING:
            missing[claim].append(task)
            continue
        known = verdict != HOLDS and int(seeds.split()[0]) >= MIN_SEEDS
        why = WHY[claim] if known and claim in WHY and float(here.split()[0]) > ALIKE else ""
        row = [claim, PAPER[claim], task, here, seeds, f"**{verdict}**", why]
        rows.append(row)
        figures[figure] = None
    lines = [f"- {claim}: {', '.join(about)}\n" for claim, about in missing.items()]
    return markdown(rows) + "\nNot measured yet:\n\n" * bool(lines) + "".join(lines), [*figures]


def pictures(figures: Sequence[str]) -> str:
    """The figures of the claims, as far as they are there."""
    there = [name for name in figures if (IMAGES / f"{name}.png").exists()]
    titles = (name.replace("-", " ") for name in there)
    return "\n".join(
        f"![{title}](images/reproduction/{name}.png)\n*{title}*\n"
        for name, title in zip(there, titles, strict=True)
    )


def methods(tasks: Sequence[TaskRuns]) -> str:
    """What each method did on each task."""
    columns = ("runs", "seeds", "violations", "successes", "timeouts", "violations per goal")
    columns += ("return", "cost", "interventions", "violations, full training")
    parts = []
    for task in tasks:
        if task.task not in PAPER_TASKS:
            continue
        table = summary_table(task)
        titles, *rows = table.text
        chosen = [titles.index(name) for name in columns]
        lines = [[row[i] for i in chosen] for row in (titles, *rows)]
        parts.append(f"**{task.task}.** {table.caption}\n\n{markdown(lines)}")
    return "\n".join(parts)


def headline(tasks: Sequence[TaskRuns]) -> str:
    """DDPG beside ADVICE armed early, on the same seeds: every violation, then after arming."""
    table = [
        [
            *("2,000 episodes, DDPG → ADVICE", "violations from the first episode on"),
            *("ratio (95 % interval)", "per 1,000 episodes after arming: violations", "goals"),
            *("timeouts", "violations per goal"),
        ]
    ]
    for task in tasks:
        ours, theirs = (
            {run.config.seed: run for run in complete(runs)}
            for runs in (task.early.runs if task.early else [], task.methods.get("ddpg", []))
        )
        seeds = [s for s in ours if s in theirs and ours[s].config.episodes == 2000]
        if task.task not in PAPER_TASKS or len(seeds) < 3:
            continue
        pairs = [(theirs[seed], ours[seed]) for seed in seeds]
        counts = [[run.total("violation") for run in runs] for runs in zip(*pairs, strict=True)]
        ratio = stats.ratio(*([estimate(side)] for side in counts[::-1]))
        after = {
            name: np.array(
                [
                    [1000 * run.column(name)[b.armed_after :].mean() for run in (a, b)]
                    for a, b in pairs
                ]
            ).mean(axis=0)
            for name in ("violation", "success", "timeout")
        }
        before, behind = (shown(float(np.mean(side))) for side in counts)
        few = " (few)" * (len(seeds) < GOOD_SEEDS)
        ddpg, advice = after["violation"] / after["success"]
        table.append(
            [
                f"{task.task}, {len(seeds)} seeds{few}",
                f"{before} → **{behind}**",
                _with_interval(ratio),
                *(f"{a:.0f} → **{b:.0f}**" for a, b in after.values()),
                f"{ddpg:.2f} → **{advice:.2f}**",
            ]
        )
    return markdown(table)


def as_published(tasks: Sequence[TaskRuns]) -> str:
    """ADVICE armed after 1,000 episodes beside the best other method, after that, if it was run."""
    table = [
        [
            *("episodes 1,001 to 2,000", "violations: best other method → ADVICE"),
            *("ratio (95 % interval)", "goals: DDPG → ADVICE", "timeouts: DDPG → ADVICE"),
            "violations per goal: DDPG → ADVICE",
        ]
    ]
    for task in tasks:
        found = {method: complete(runs) for method, runs in task.methods.items()}
        ours, ddpg = found.pop("advice", []), found.get("ddpg", [])
        skip = task.activation
        if task.task not in PAPER_TASKS or min(len(ours), len(ddpg)) < MIN_SEEDS:
            continue
        if skip != 1000 or any(run.config.episodes != 2000 for run in ours):
            continue
        constrained = task.task == PAPER_TASKS[-1]
        column = "cost" if constrained else "violation"
        enough = {method: runs for method, runs in found.items() if len(runs) >= MIN_SEEDS}
        counts = {method: totals(runs, column, skip) for method, runs in enough.items()}
        best = best_of(counts)
        assert best is not None  # DDPG is there
        mine, other = (estimate([*x.values()]) for x in (totals(ours, column, skip), counts[best]))
        ratio = stats.ratio([mine], [other])
        each = [
            [float(np.mean([run.total(name, skip) for run in runs])) for runs in (ddpg, ours)]
            for name in ("success", "timeout")
        ]
        rates = [per_goal(runs, skip).value for runs in (ddpg, ours)]
        few = " (few)" * (min(mine.seeds, other.seeds) < GOOD_SEEDS)
        table.append(
            [
                f"{task.task}{', cost' * constrained}, {mine.seeds} seeds{few}",
                f"{shown(other.value)} ({method_label(best)} of {len(counts)}) → "
                f"**{shown(mine.value)}**",
                _with_interval(ratio),
                *(f"{a:.0f} → **{b:.0f}**" for a, b in each),
                "{:.2f} → **{:.2f}**".format(*rates),
            ]
        )
    said = "Armed after 1,000 episodes, as in the paper, beside the best of the other methods:"
    return f"{said}\n\n{markdown(table)}" if len(table) > 1 else ""


def _with_interval(ratio: stats.Interval) -> str:
    """A ratio with its interval, if it has one."""
    if np.isnan(ratio.low):
        return f"**{ratio.value:.2f}**"
    return "**{:.2f}** ({:.2f} to {:.2f})".format(*ratio)


def filled(page: str, name: str, text: str) -> str:
    """The page with one of its parts replaced."""
    begin, end = (
        f"<!-- {name}: written by benchmarks/reproduction_page.py -->\n",
        f"<!-- end of {name} -->\n",
    )
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def written(page: str, readme: str, results: Path, report: Path | None = None) -> tuple[str, str]:
    """The page and the README with what the records say."""
    tasks = load([results]).tasks
    table, figures = claims(tasks)
    for name in figures if report else ():
        IMAGES.mkdir(parents=True, exist_ok=True)
        if (found := report / "figures" / f"{name}.png").exists():
            shutil.copy(found, IMAGES)
    parts = {"claims": table, "methods": methods(tasks), "figures": pictures(figures)}
    for name, text in parts.items():
        page = filled(page, name, text)
    for name, text in (("headline", headline(tasks)), ("paper's setting", as_published(tasks))):
        readme = filled(readme, name, text)
    return page, readme


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / "results")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    page, readme = written(PAGE.read_text(), README.read_text(), asked.results, asked.report)
    PAGE.write_text(page)
    README.write_text(readme)


if __name__ == "__main__":
    main()
