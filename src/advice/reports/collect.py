"""Find runs, check them, and sort them: what belongs together, what is a study, what is left out.

Nothing is mixed silently. Runs are compared only if their code and all settings agree (but for
seed and method); a run that differs in the settings of one known study goes there; any other run
is left out, and the report says which and why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.config import TrainConfig
from advice.reports.statistics import Floats
from advice.reports.studies import reference_of, settings_of, study_of, uses
from advice.reports.style import METHOD_LOOKS, method_label, method_order
from advice.runs.records import COLUMNS, RunFolder, file_name
from advice.types import AdviceError, BrokenFileError


class Run(NamedTuple):
    """One run that can be read."""

    folder: RunFolder
    config: TrainConfig
    provenance: dict[str, Any]
    table: Floats
    """(episodes, columns of episodes.csv)"""

    def column(self, name: str) -> Floats:
        """One column of episodes.csv."""
        return np.asarray(self.table[:, COLUMNS.index(name)])

    @property
    def finished(self) -> bool:
        budget = self.config.stop_after_violations
        spent = budget is not None and self.column("violation").sum() >= budget
        return bool(spent) or len(self.table) >= self.config.episodes

    @property
    def code(self) -> str:
        """The version of this package that made the run, with its commit where known.

        Several, if another one went on with it.
        """
        made = (self.provenance, *self.provenance.get("resumed", ()))
        return ", then ".join(dict.fromkeys(map(_version, made)))


def _version(made: dict[str, Any]) -> str:
    version, commit = made.get("versions", {}).get("advice-rl"), made.get("commit")
    return f"{version or 'unknown'}{f' at {commit[:10]}{commit[40:]}' if commit else ''}"


class LeftOut(NamedTuple):
    """A run that is not in the report."""

    path: Path
    why: str


class Variant(NamedTuple):
    """Runs of one method under one study's changed settings."""

    label: str
    method: str
    runs: list[Run]


class TaskRuns(NamedTuple):
    """Everything about one task that may be compared."""

    task: str
    methods: dict[str, list[Run]]
    """The comparison: method -> runs with the same settings, by seed."""
    studies: dict[str, list[Variant]]
    missing: list[str]
    activation: int
    """Episodes before the shield is armed (E)."""

    @property
    def slug(self) -> str:
        """The task's name as a part of file names, as clean as a run's folder."""
        return file_name(self.task)


class Collection(NamedTuple):
    """What a report is made of."""

    tasks: list[TaskRuns]
    left_out: list[LeftOut]
    notes: list[str]
    code: str


def collect(paths: Iterable[Path | str], any_version: bool = False) -> Collection:
    """Read all runs below ``paths``; AdviceError if there is not a single usable one."""
    roots = [Path(path) for path in paths]
    runs, left_out = _read_all(roots)
    runs, notes, code = _one_code(runs, left_out, any_version)
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(run.config.task, []).append(run)
    tasks = [_sort(task, by_task[task], left_out) for task in sorted(by_task)]
    if not tasks:
        reasons = "".join(f"\n  {item.path}: {item.why}" for item in left_out)
        where = ", ".join(map(str, roots)) or "no folder at all"
        raise AdviceError(f"expected runs below {where}, found none that can be used{reasons}")
    return Collection(tasks, left_out, notes + _package_notes(runs), code)


# ---- reading


def _read_all(roots: Sequence[Path]) -> tuple[list[Run], list[LeftOut]]:
    runs: list[Run] = []
    left_out: list[LeftOut] = []
    found: dict[Path, Path] = {}
    for root in roots:
        if not root.is_dir():
            left_out.append(LeftOut(root, "there is no such folder"))
            continue
        for name in ("config.json", "episodes.csv"):
            for file in sorted(root.rglob(name)):
                found.setdefault(file.parent.resolve(), file.parent)
    for path in sorted(found.values()):
        try:
            runs.append(read_run(RunFolder(path)))
        except (AdviceError, OSError, ValueError) as error:
            left_out.append(LeftOut(path, str(error).replace(f"{path}/", "")))
    return runs, left_out


def read_run(folder: RunFolder) -> Run:
    """One run, or an error that says what is wrong with it."""
    if not folder.config_file.exists():
        raise BrokenFileError("config.json is missing")
    config = folder.read_config()
    if not folder.episodes_file.exists():
        raise BrokenFileError("no episodes yet: episodes.csv is missing")
    records = folder.read_episodes()
    if not records:
        raise BrokenFileError("no episodes yet: episodes.csv has only its header")
    table = np.array(records, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise BrokenFileError(
            f"{folder.episodes_file}: line {bad[0] + 2} has a number that is not finite"
        )
    return Run(folder, config, folder.read_document()["provenance"], table)


# ---- sorting


def _one_code(
    runs: list[Run], left_out: list[LeftOut], any_version: bool
) -> tuple[list[Run], list[str], str]:
    """Keep the runs of one code version: the one that made most (on a tie the last by name)."""
    counts = Counter(run.code for run in runs)
    if len(counts) <= 1 or any_version:
        listed = ", ".join(f"{code} ({count} runs)" for code, count in sorted(counts.items()))
        notes = [f"Runs of several code versions are mixed, as asked: {listed}."]
        return runs, notes if len(counts) > 1 else [], " and ".join(sorted(counts))
    usual = max(counts, key=lambda code: (counts[code], code))
    for run in runs:
        if run.code != usual:
            why = f"made by another code version: {run.code}, the report's is {usual}"
            left_out.append(LeftOut(run.folder.path, why))
    return [run for run in runs if run.code == usual], [], usual


def _package_notes(runs: list[Run]) -> list[str]:
    """Other packages in several versions: worth knowing, no reason to leave a run out."""
    found_several = []
    versions = [run.provenance.get("versions", {}) for run in runs]
    for package in sorted({name for found in versions for name in found} - {"advice-rl"}):
        counts = Counter(str(found.get(package)) for found in versions)
        if len(counts) > 1:
            listed = ", ".join(f"{v} ({n} runs)" for v, n in sorted(counts.items()))
            found_several.append(f"{package} {listed}")
    if not found_several:
        return []
    return [f"Runs were made with several versions of other packages: {'; '.join(found_several)}."]


def _sort(task: str, runs: list[Run], left_out: list[LeftOut]) -> TaskRuns:
    """Divide one task's runs into the comparison, the studies and what must stay out."""
    reference = reference_of([run.config for run in runs])
    methods: dict[str, list[Run]] = {}
    variants: dict[tuple[str, str, str], list[Run]] = {}
    seen: dict[tuple[Any, ...], Path] = {}
    for run in sorted(runs, key=lambda run: -len(run.table)):  # of twins the longer one counts
        settings = settings_of(run.config)
        path, method = run.folder.path, run.config.method
        twin = (method, run.config.seed, json.dumps(settings, sort_keys=True))
        names = {name for name in settings | reference if uses(method, name)}
        changed = {name for name in names if settings.get(name) != reference.get(name)}
        study = study_of(changed)
        if twin in seen:
            left_out.append(LeftOut(path, f"the same run as {seen[twin]} (same seed and settings)"))
        elif not changed:
            methods.setdefault(method, []).append(run)
        elif study:
            variants.setdefault((study.name, study.label(run.config), method), []).append(run)
        else:
            listed = "; ".join(
                f"{name} is {settings.get(name)!r}, elsewhere {reference.get(name)!r}"
                for name in sorted(changed)
            )
            left_out.append(LeftOut(path, f"other settings than the rest of {task}: {listed}"))
        seen.setdefault(twin, path)
    for group in (*methods.values(), *variants.values()):
        group.sort(key=lambda run: run.config.seed)
    studies: dict[str, list[Variant]] = {}
    for (name, label, method), group in sorted(variants.items()):
        studies.setdefault(name, []).append(Variant(label, method, group))
    ordered = {method: methods[method] for method in method_order(methods)}
    activation = int(reference["shield.construction_episodes"])
    return TaskRuns(task, ordered, studies, _missing(ordered, studies), activation)


def _missing(methods: dict[str, list[Run]], studies: dict[str, list[Variant]]) -> list[str]:
    """What an impatient reader should know: absent methods, absent seeds, unfinished runs."""
    lines = []
    absent = [method_label(name) for name in METHOD_LOOKS if name not in methods]
    if absent:
        lines.append(f"no runs of {', '.join(absent)}")
    seeds = {run.config.seed for runs in methods.values() for run in runs}
    for method, runs in methods.items():
        gone = sorted(seeds - {run.config.seed for run in runs})
        if gone:
            lines.append(f"{method_label(method)}: no seed {', '.join(map(str, gone))}")
        lines += _unfinished(method_label(method), runs)
    for variants in studies.values():
        for variant in variants:
            lines += _unfinished(f"{method_label(variant.method)}, {variant.label}", variant.runs)
    return lines


def _unfinished(name: str, runs: list[Run]) -> list[str]:
    return [
        f"{name}: seed {run.config.seed} is unfinished "
        f"({len(run.table)} of {run.config.episodes} episodes)"
        for run in runs
        if not run.finished
    ]


def usable(runs: Sequence[Run]) -> list[Run]:
    """The runs that enter means: the finished ones, or all of them while none is finished."""
    return [run for run in runs if run.finished] or list(runs)


def complete(runs: Sequence[Run]) -> list[Run]:
    """The runs whose totals may be compared: the usable ones, if each has all its episodes.

    If some were ended by their budget of violations there are none: the others are the lucky ones.
    """
    found = usable(runs)
    return found if all(len(run.table) >= run.config.episodes for run in found) else []
