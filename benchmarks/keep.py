"""Copy the finished runs of a grid into a folder of records, such as results/.

    python benchmarks/keep.py runs/paper results

Of every run its settings and episodes; of seed 0 of the comparisons of methods and of early arming
also the trained agent, its shield and every action, so that eval, inspect and replay work on it.
Paths of this machine are left out. A run that is there already is replaced as a whole.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from advice.files import write_json
from advice.runs.actions import pack_actions
from advice.runs.records import RunFolder
from advice.runs.studies import STUDIES, study_name

WHOLE = ("", "early")
"""Sections of studies of which seed 0 is kept whole."""


def keep(run: RunFolder, to: RunFolder, grid: Path, whole: bool) -> None:
    """Copy one run of a grid, ``whole`` with what it learnt and did."""
    if to.path.resolve() == run.path.resolve():
        raise SystemExit(f"{run.path}: expected another folder to keep it in")
    if whole and run.actions_file.exists():
        run.refuse_changed(run.actions_file)
    document = run.read_document()
    made = document["provenance"]
    words = made.get("command", [])
    made["command"] = [
        "DIR" if word == "--out" else "--out=DIR" if said.startswith("--out=") else said
        for word, said in zip(["", *words], words, strict=False)
    ]
    if source := document["config"].get("shield_from"):
        document["config"]["shield_from"] = str(Path(source).resolve().relative_to(grid.resolve()))
    to.path.mkdir(parents=True, exist_ok=True)
    to.clear()  # nothing of an earlier run stays
    write_json(to.config_file, document)
    parts = [run.episodes_file, run.done_file]
    if whole:
        learnt = [run.agent_file, run.shield_file, run.card_file, run.table_file]
        parts += learnt
        parts.append(run.packed_file)
        if run.actions_file.exists():
            pack_actions(run, to)
    for part in parts:
        if part.exists():
            shutil.copy(part, to.path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", type=Path)
    parser.add_argument("results", type=Path)
    asked = parser.parse_args()
    for done in sorted(asked.grid.rglob("done")):
        run = RunFolder(done.parent)
        run.check_done()
        config = run.read_config()
        study = STUDIES.get(study_name(config, run.path))
        whole = config.seed == 0 and (study is None or study.section in WHOLE)
        to = RunFolder(asked.results / done.parent.relative_to(asked.grid))
        keep(run, to, asked.grid, whole)
        print(done.parent.relative_to(asked.grid))


if __name__ == "__main__":
    main()
