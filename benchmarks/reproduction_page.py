"""Write the claims of docs/reproduction.md from the records.

python benchmarks/reproduction_page.py [RESULTS] [--report DIR]    DIR: a report, to copy figures of
"""

from __future__ import annotations

import argparse
import shutil
from collections import defaultdict
from pathlib import Path

from advice.reports.claims import MISSING, paper_table
from advice.reports.load import load

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
BEGIN = "<!-- claims: written by benchmarks/reproduction_page.py -->\n"
END = "<!-- end of claims -->\n"


def claims(results: Path) -> str:
    """The table of what was measured and a list of what was not, in Markdown."""
    table = paper_table(load([results], any_version=True).tasks, missing=True)
    assert table is not None
    lines = ["| claim | task | here | seeds | |", "| --- | --- | --- | --- | --- |"]
    missing: dict[str, list[str]] = defaultdict(list)
    for claim, task, here, seeds, verdict, _ in table.text[1:]:
        if verdict == MISSING:
            missing[claim].append(task)
        else:
            lines.append(f"| {claim} | {task} | {here} | {seeds} | **{verdict}** |")
    lines += ["", "Not measured yet:", ""]
    lines += [f"- {claim}: {', '.join(tasks)}" for claim, tasks in missing.items()]
    return "\n".join(lines) + "\n"


def with_claims(page: str, results: Path) -> str:
    """The page with its claims replaced by those of the records."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + claims(results) + "\n" + END + rest.split(END)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=PAGE.parents[1] / "results")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    PAGE.write_text(with_claims(PAGE.read_text(), asked.results))
    for image in sorted((PAGE.parent / "images").glob("*.png")) if asked.report else ():
        if (found := asked.report / "figures" / image.name).exists():
            shutil.copy(found, image)


if __name__ == "__main__":
    main()
