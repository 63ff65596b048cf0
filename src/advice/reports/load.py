"""Read runs and arrange them by study: what is compared, what is a variant, what is left out.

A run belongs to a study by its settings or its folder (:func:`advice.runs.studies.study_name`).
Within a study all settings must agree but for seed and method. A run that has other settings than
the study's first one, was made by other code, has records that no run can have or the same episodes
as a run with another seed is left out, and the report says so.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.config import TrainConfig, flat
from advice.reports.statistics import Floats
from advice.reports.style import METHOD_LOOKS, method_label, method_order
from advice.runs.records import (
    COLUMNS,
    RunFolder,
    file_name,
    has_effect,
    is_finished,
    training_version,
)
from advice.runs.studies import PAPER_TASKS, SECTIONS, STUDIES, study_name
from advice.types import AdviceError, BrokenFileError

_COMPUTING = ("jax", "numpy", "mujoco")  # packages whose versions may change what a training gives


class Run(NamedTuple):
    """One run that can be read."""

    folder: RunFolder
    config: TrainConfig
    provenance: dict[str, Any]
    table: Floats  # (episodes, columns of episodes.csv)
    study: str = ""

    def column(self, name: str) -> Floats:
        """One column of episodes.csv, or "timeout": neither a violation nor a success."""
        if name == "timeout":
            return 1.0 - np.maximum(self.column("violation"), self.column("success"))
        return np.asarray(self.table[:, COLUMNS.index(name)])

    def total(self, column: str, skip: int = 0) -> float:
        """Sum of one column after the first ``skip`` episodes."""
        return float(self.column(column)[skip:].sum())

    @property
    def name(self) -> str:
        return f"{method_label(self.config.method)}, seed {self.config.seed}"

    @property
    def armed_after(self) -> int:
        """Episodes before the first with an armed shield; all if there was none."""
        armed = self.column("k") > 0
        return int(np.argmax(armed)) if armed.any() else len(armed)

    @property
    def activation(self) -> int:
        """Episodes before its shield was due; 0 if it started armed or never got there."""
        due = 0 if self.config.shield_from else self.config.shield.construction_episodes
        if self.config.shield.arm == "early":
            due = min(due, self.armed_after)
        return due if due < len(self.table) else 0

    @property
    def minutes(self) -> float:
        """Time of its episodes, and of the shield's fits if that was noted."""
        return (self.total("seconds") + self.provenance.get("fit_seconds", 0.0)) / 60

    @property
    def finished(self) -> bool:
        return is_finished(self.config, len(self.table), int(self.total("violation")))

    @property
    def code(self) -> str:
        """What made the run; several if it was resumed."""
        present = training_version(self.config.method, self.config.shield)
        return ", then ".join(dict.fromkeys(_version(one, present) for one in self._makers))

    @property
    def packages(self) -> str:
        """Versions of what computes a training; several if it was resumed."""
        made = (one.get("versions", {}) for one in self._makers)
        sets = (
            ", ".join(f"{name} {found.get(name) or 'unknown'}" for name in _COMPUTING)
            for found in made
        )
        return ", then ".join(dict.fromkeys(sets))

    @property
    def _makers(self) -> tuple[dict[str, Any], ...]:
        return self.provenance, *self.provenance.get("resumed", ())


def _version(made: dict[str, Any], present: int) -> str:
    """The training's number, with the commit if the tree had changes; else version and commit."""
    commit = made.get("commit") or ""
    where = f" at {commit[:10]}{commit[40:]}" if commit else ""
    if made.get("training") is not None:
        now = made["training"] == present
        number = "the present training" if now else f"training {made['training']}"
        return f"{number}{where if commit[40:] else ''}"
    return f"{made.get('versions', {}).get('advice-rl') or 'unknown'}{where}"


def usable(runs: Sequence[Run]) -> list[Run]:
    """The runs that enter means: the finished ones, or all of them while none is finished."""
    return [run for run in runs if run.finished] or list(runs)


def complete(runs: Sequence[Run]) -> list[Run]:
    """The runs whose totals may be compared: the usable ones, if each has all its episodes.

    Empty if a violation budget ended some of them: the others alone would look too good.
    """
    found = usable(runs)
    return found if all(len(run.table) >= run.config.episodes for run in found) else []


def totals(runs: Sequence[Run], column: str, skip: int | None) -> dict[int, float]:
    """Seed -> total of complete runs after ``skip`` episodes, or after each run's activation."""
    return {
        run.config.seed: run.total(column, run.activation if skip is None else skip)
        for run in complete(runs)
    }


class Variant(NamedTuple):
    """Runs of one method in one study."""

    label: str
    method: str
    runs: list[Run]

    @property
    def name(self) -> str:
        return method_label(self.method) + (f", {self.label}" if self.label else "")


class TaskRuns(NamedTuple):
    """All runs of one task that are in the report."""

    task: str
    methods: dict[str, list[Run]]  # the comparison: method -> runs with equal settings, by seed
    variants: dict[str, list[Variant]]  # the other studies, by section
    reference: str  # the comparison's own label where it belongs to a section; else empty

    @property
    def compared(self) -> list[Variant]:
        """The comparison's runs as variants without a label."""
        return [Variant("", method, runs) for method, runs in self.methods.items()]

    @property
    def pictured(self) -> list[Variant]:
        """The comparison's runs, and if there are none of ADVICE those armed early."""
        early = None if "advice" in self.methods else self.early
        return [*self.compared, *([early] if early else [])]

    @property
    def early(self) -> Variant | None:
        """ADVICE armed early, if its episodes and environment are the comparison's."""
        for found in (v for v in self.variants.get("early", []) if v.method == "advice"):
            groups = [*self.compared, found]
            alike = {(r.config.episodes, str(r.config.env)) for g in groups for r in g.runs}
            if len(alike) == 1:
                return found
        return None

    @property
    def groups(self) -> list[Variant]:
        """The comparison's runs, then all variants."""
        return [*self.compared, *(variant for found in self.variants.values() for variant in found)]

    @property
    def activation(self) -> int:
        """Episodes before all shields of the comparison guard; 0 if no run got that far."""
        return _all_armed(self.compared)

    @property
    def pictured_activation(self) -> int:
        """The same for the pictured runs, also those armed early."""
        return _all_armed(self.pictured)

    @property
    def counted_from(self) -> int:
        """Episodes that the pictured runs are counted after: all count where one is armed early."""
        return self.activation if len(self.pictured) == len(self.methods) else 0

    @property
    def missing(self) -> list[str]:
        """Methods and seeds that the comparison lacks, and unfinished runs."""
        shown = {group.method for group in self.pictured}
        expected = METHOD_LOOKS if self.task in PAPER_TASKS else ()
        absent = [method_label(name) for name in expected if name not in shown]
        lines = [f"no runs of {', '.join(absent)}"] if absent else []
        seeds = {run.config.seed for runs in self.methods.values() for run in runs}
        for group in self.groups:
            gone = sorted(seeds - {run.config.seed for run in group.runs})
            if gone and group in self.pictured:
                lines.append(f"{group.name}: no seed {', '.join(map(str, gone))}")
            lines += [
                f"{group.name}: seed {run.config.seed} is unfinished "
                f"({len(run.table)} of {run.config.episodes} episodes)"
                for run in group.runs
                if not run.finished
            ]
        return lines


def _all_armed(groups: Sequence[Variant]) -> int:
    runs = [run for group in groups for run in usable(group.runs)]
    shielded = [run for run in runs if "advice" in run.config.method.split("+")]
    return max((run.activation for run in shielded or runs), default=0)


class Collection(NamedTuple):
    """The runs of a report."""

    tasks: list[TaskRuns]
    left_out: dict[Path, str]  # folder -> why its run is not in the report
    code: str

    @property
    def packages(self) -> dict[str, int]:
        """Versions of the packages that compute a training -> runs."""
        return Counter(run.packages for run in self._runs)

    @property
    def commits(self) -> dict[str, int]:
        """The commits that made the runs -> runs."""
        found = (run.provenance.get("commit") or "unknown" for run in self._runs)
        return Counter(commit[:7] + commit[40:] for commit in found)

    @property
    def _runs(self) -> list[Run]:
        return [run for task in self.tasks for group in task.groups for run in group.runs]


def load(
    paths: Iterable[Path | str], any_version: bool = False, trust_task: bool = False
) -> Collection:
    """Read all runs below ``paths``; raises AdviceError if none of them can be used."""
    roots = [Path(path) for path in paths]
    left_out = {
        root: "is a file, expected a folder" if root.exists() else "no such folder"
        for root in roots
        if not root.is_dir()
    }
    if roots and len(left_out) == len(set(roots)):
        raise AdviceError("\n".join(f"{path}: {why}" for path, why in left_out.items()))
    runs = list(_without_copies(_read_all(roots, trust_task, left_out), left_out))
    versions = Counter(run.code for run in runs)
    code = max(versions, key=lambda code: (versions[code], code), default="")  # the commonest
    if any_version and len(versions) > 1:
        listed = ", ".join(f"{name} ({count} runs)" for name, count in sorted(versions.items()))
        code = f"of several versions, mixed as asked: {listed}"
    by_task: dict[str, list[Run]] = {task: [] for task in PAPER_TASKS}
    for run in sorted(runs, key=lambda run: run.config.task):
        if any_version or run.code == code:
            by_task.setdefault(run.config.task, []).append(run)
        else:
            why = f"made by another code version: {run.code}, the report's is {code}"
            left_out[run.folder.path] = why
    tasks = [_arrange(task, found, left_out) for task, found in by_task.items() if found]
    if not tasks:
        reasons = "".join(f"\n  {path}: {why}" for path, why in left_out.items())
        where = ", ".join(map(str, roots)) or "no folder at all"
        wanted = "expected runs (folders with config.json and episodes.csv)"
        raise AdviceError(f"{wanted} below {where}, found none that can be used{reasons}")
    return Collection(tasks, left_out, code)


def _read_all(roots: list[Path], trust_task: bool, left_out: dict[Path, str]) -> Iterator[Run]:
    names = ("config.json", "episodes.csv")
    files = [file for root in roots for name in names for file in root.rglob(name)]
    folders = {file.parent.resolve(): file.parent for file in sorted(files, reverse=True)}
    for path in sorted(folders.values()):
        try:
            yield read_run(RunFolder(path, trust_task))
        except AdviceError as error:
            left_out[path] = str(error).replace(f"{path}/", "")
        except Exception as error:  # one odd file must not end the report
            left_out[path] = f"cannot be read: {type(error).__name__}: {error}"


def read_run(folder: RunFolder) -> Run:
    """One run; raises BrokenFileError if its files cannot be used."""
    if not folder.config_file.exists():
        raise BrokenFileError("config.json is missing")
    config = folder.read_config()
    records = folder.read_checked_episodes() if folder.episodes_file.exists() else []
    if not records:
        raise BrokenFileError("no episodes yet: episodes.csv is missing or has only its header")
    table = np.array(records, dtype=np.float64)
    provenance = folder.read_document()["provenance"]
    return Run(folder, config, provenance, table, study_name(config, folder.path))


def _without_copies(runs: Iterable[Run], left_out: dict[Path, str]) -> Iterator[Run]:
    """Of runs that have the same episodes under several seeds, those of the first seed."""
    seen: dict[tuple[str, bytes], Run] = {}
    for run in sorted(runs, key=lambda run: run.config.seed):
        episodes = run.table[:, : COLUMNS.index("seconds")]
        first = seen.setdefault((run.config.task, episodes.tobytes()), run)
        if first.config.seed == run.config.seed:
            yield run
        else:
            why = f"its episodes are those of {first.folder.path}, which has another seed: a copy"
            left_out[run.folder.path] = why


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """The settings that have an effect on this method, by dotted name, without the labels."""
    # whose shield a run starts with, without the seed and the method that both runs share
    own = re.compile(rf"seed-\d+|{re.escape(file_name(config.method))}")
    lender = [part for part in Path(config.shield_from or "").parts if not own.fullmatch(part)]
    settings = flat(config) | {"shield_from": "/".join(lender[-2:])}
    options = {name: settings.pop(name) for name in [*settings] if name.startswith("env.options.")}
    for name in ("task", "method", "seed", "study"):
        del settings[name]
    used = {name: value for name, value in settings.items() if has_effect(config.method, name)}
    return used | {"env.options": options}


def _rank(study: str) -> tuple[int, int, str]:
    """The comparison is the first of: the table's comparisons, other studies, its variants."""
    if study not in STUDIES:
        return 1, 0, study
    return 2 if STUDIES[study].section else 0, [*STUDIES].index(study), study


def _comparable(runs: list[Run], left_out: dict[Path, str]) -> dict[tuple[str, str], list[Run]]:
    """(study, method) -> runs, by seed.

    Of runs with the same method, seed and settings the longest is kept, and of a study those that
    agree with its first run: the one with the lowest seed, then the longest.
    """
    twins: dict[tuple[Any, ...], Run] = {}
    references: dict[str, dict[str, Any]] = {}  # study -> settings
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.config.seed, -len(run.table))):
        settings, reference = settings_of(run.config), references.setdefault(run.study, {})
        key = (run.config.method, run.config.seed, json.dumps(settings, sort_keys=True))
        first = twins.setdefault(key, run)
        other = sorted(n for n, value in settings.items() if reference.get(n, value) != value)
        if first is not run:
            why = f"the same run as {first.folder.path} (same seed and settings)"
            left_out[run.folder.path] = why
        elif other:
            listed = "; ".join(f"{n} is {settings[n]!r}, elsewhere {reference[n]!r}" for n in other)
            why = f"other settings than the first run of the study {run.study or '(no name)'}"
            left_out[run.folder.path] = f"{why}: {listed}"
        else:
            references[run.study] = settings | reference
            groups.setdefault((run.study, run.config.method), []).append(run)
    return groups


def _arrange(task: str, runs: list[Run], left_out: dict[Path, str]) -> TaskRuns:
    """Divide one task's runs into the comparison, the variants and what is left out."""
    runs.sort(key=lambda run: (_rank(run.study), run.folder.path))
    comparison = runs[0].study
    groups = _comparable(runs, left_out)
    order = method_order(method for _, method in groups)
    compared = {m: groups[comparison, m] for m in order if (comparison, m) in groups}
    variants: dict[str, list[Variant]] = {key: [] for key in SECTIONS}
    for (study, method), group in groups.items():
        row, label = STUDIES.get(study), (study or "other runs").replace(" ", "-")
        key = file_name(label)
        if row and row.section:
            key, label = row.section, row.label
        if row and row.shields_from and not group[0].config.shield_from:
            label = "plain"  # a method without a shield to start with
        if study != comparison:
            variants.setdefault(key, []).append(Variant(label, method, group))
    for found in variants.values():
        found.sort(key=lambda variant: (order.index(variant.method), variant.label))
    reference = STUDIES[comparison].label if comparison in STUDIES else ""
    variants = {key: found for key, found in variants.items() if found}
    return TaskRuns(task, compared, variants, reference)
