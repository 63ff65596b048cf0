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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.config import TrainConfig
from advice.reports.statistics import Floats
from advice.reports.style import METHOD_LOOKS, method_label, method_order
from advice.runs.episodes import COLUMNS, is_finished
from advice.runs.records import RunFolder, file_name
from advice.runs.studies import PAPER_TASKS, SECTIONS, STUDIES, WITH_SHIELD, study_name
from advice.settings import flat
from advice.types import AdviceError, BrokenFileError


class Run(NamedTuple):
    """One run that can be read."""

    folder: RunFolder
    config: TrainConfig
    provenance: dict[str, Any]
    table: Floats
    """(episodes, columns of episodes.csv)"""
    study: str = ""

    def column(self, name: str) -> Floats:
        """One column of episodes.csv."""
        return np.asarray(self.table[:, COLUMNS.index(name)])

    @property
    def armed_after(self) -> int:
        """Episodes before the first with an armed shield; all if there was none."""
        armed = self.column("k") > 0
        return int(np.argmax(armed)) if armed.any() else len(armed)

    @property
    def finished(self) -> bool:
        return is_finished(self.config, len(self.table), int(self.column("violation").sum()))

    @property
    def code(self) -> str:
        """What made the run; several if it was resumed.

        The number of its training, the same for all commits between which the golden runs are
        equal; with the commit if the tree had changes. Older runs: version and commit.
        """
        made = (self.provenance, *self.provenance.get("resumed", ()))
        return ", then ".join(dict.fromkeys(map(_version, made)))


def _version(made: dict[str, Any]) -> str:
    version, commit = made.get("versions", {}).get("advice-rl"), made.get("commit")
    if made.get("training") is not None:
        changed = f" at {commit[:10]}{commit[40:]}" if commit and commit[40:] else ""
        return f"training {made['training']}{changed}"
    return f"{version or 'unknown'}{f' at {commit[:10]}{commit[40:]}' if commit else ''}"


class LeftOut(NamedTuple):
    """A run that is not in the report."""

    path: Path
    why: str


class Variant(NamedTuple):
    """Runs of one method in one study."""

    label: str
    method: str
    runs: list[Run]


class TaskRuns(NamedTuple):
    """All runs of one task that are in the report."""

    task: str
    methods: dict[str, list[Run]]
    """The comparison: method -> runs with the same settings, by seed."""
    variants: dict[str, list[Variant]]
    """The other studies, by section."""
    reference: str
    """The comparison's own label where it belongs to a section; else empty."""
    missing: list[str]

    @property
    def compared(self) -> list[Variant]:
        """The comparison's runs as variants without a label."""
        return [Variant("", method, runs) for method, runs in self.methods.items()]

    @property
    def all_variants(self) -> list[Variant]:
        return [variant for found in self.variants.values() for variant in found]

    @property
    def slug(self) -> str:
        """The task's name as a part of file names."""
        return file_name(self.task)

    @property
    def activation(self) -> int:
        """Episodes before the shields of the comparison guard: E, or with early arming the last."""
        runs = [run for group in self.compared for run in group.runs]
        shielded = [run for run in runs if "advice" in run.config.method.split("+")]
        due = (shielded or runs)[0].config.shield.construction_episodes
        early = [run.armed_after for run in shielded if run.config.shield.arm == "early"]
        return min(due, max(early)) if early else due


class Collection(NamedTuple):
    """The runs of a report."""

    tasks: list[TaskRuns]
    left_out: list[LeftOut]
    notes: list[str]
    code: str


def load(
    paths: Iterable[Path | str], any_version: bool = False, trust_task: bool = False
) -> Collection:
    """Read all runs below ``paths``; raises AdviceError if none of them can be used."""
    roots = [Path(path) for path in paths]
    runs, left_out = _read_all(roots, trust_task)
    runs = _without_copies(runs, left_out)
    runs, notes, code = _one_code(runs, left_out, any_version)
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(run.config.task, []).append(run)
    tasks = [_arrange(task, by_task[task], left_out) for task in sorted(by_task, key=_in_order)]
    if not tasks:
        reasons = "".join(f"\n  {item.path}: {item.why}" for item in left_out)
        where = ", ".join(map(str, roots)) or "no folder at all"
        raise AdviceError(f"expected runs below {where}, found none that can be used{reasons}")
    return Collection(tasks, left_out, notes + _package_notes(runs), code)


def _in_order(task: str) -> tuple[int, str]:
    """The paper's tasks in its order, then the others by name."""
    return PAPER_TASKS.index(task) if task in PAPER_TASKS else len(PAPER_TASKS), task


# ---- reading


def _read_all(roots: Sequence[Path], trust_task: bool) -> tuple[list[Run], list[LeftOut]]:
    runs: list[Run] = []
    left_out = [LeftOut(root, "there is no such folder") for root in roots if not root.is_dir()]
    found: dict[Path, Path] = {}
    for root in roots:
        for name in ("config.json", "episodes.csv"):
            for file in sorted(root.rglob(name)):
                found.setdefault(file.parent.resolve(), file.parent)
    for path in sorted(found.values()):
        try:
            runs.append(read_run(RunFolder(path, trust_task)))
        except AdviceError as error:
            left_out.append(LeftOut(path, str(error).replace(f"{path}/", "")))
        except Exception as error:  # one odd file must not end the report
            left_out.append(LeftOut(path, f"cannot be read: {type(error).__name__}: {error}"))
    return runs, left_out


def read_run(folder: RunFolder) -> Run:
    """One run; raises BrokenFileError if its files cannot be used."""
    if not folder.config_file.exists():
        raise BrokenFileError("config.json is missing")
    config = folder.read_config()
    if not folder.episodes_file.exists():
        raise BrokenFileError("no episodes yet: episodes.csv is missing")
    records = folder.read_checked_episodes()
    if not records:
        raise BrokenFileError("no episodes yet: episodes.csv has only its header")
    table = np.array(records, dtype=np.float64)
    provenance = folder.read_document()["provenance"]
    return Run(folder, config, provenance, table, study_name(config, folder.path))


def _without_copies(runs: list[Run], left_out: list[LeftOut]) -> list[Run]:
    """Of runs that have the same episodes under several seeds, keep those of the first seed."""
    first: dict[tuple[str, bytes], Run] = {}
    kept = []
    for run in sorted(runs, key=lambda run: run.config.seed):
        episodes = run.table[:, : COLUMNS.index("seconds")]
        one = first.setdefault((run.config.task, episodes.tobytes()), run)
        if one.config.seed == run.config.seed:
            kept.append(run)
        else:
            why = f"its episodes are those of {one.folder.path}, which has another seed: a copy"
            left_out.append(LeftOut(run.folder.path, why))
    return kept


def _one_code(
    runs: list[Run], left_out: list[LeftOut], any_version: bool
) -> tuple[list[Run], list[str], str]:
    """Keep the runs of the code version that made most of them (on a tie the last by name)."""
    counts = Counter(run.code for run in runs)
    if len(counts) <= 1 or any_version:
        notes = [f"Runs of several code versions are mixed, as asked: {_listed(counts)}."]
        code = f"of {len(counts)} versions" if len(counts) > 1 else "".join(counts)
        return runs, notes if len(counts) > 1 else [], code
    usual = max(counts, key=lambda code: (counts[code], code))
    for run in runs:
        if run.code != usual:
            why = f"made by another code version: {run.code}, the report's is {usual}"
            left_out.append(LeftOut(run.folder.path, why))
    return [run for run in runs if run.code == usual], [], usual


def _package_notes(runs: list[Run]) -> list[str]:
    """A note if other packages differ in their versions; no reason to leave a run out."""
    versions = [run.provenance.get("versions", {}) for run in runs]
    packages = sorted({name for found in versions for name in found} - {"advice-rl"})
    counts = {name: Counter(str(found.get(name)) for found in versions) for name in packages}
    several = [f"{name} {_listed(found)}" for name, found in counts.items() if len(found) > 1]
    if not several:
        return []
    return [f"Runs were made with several versions of other packages: {'; '.join(several)}."]


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count} runs)" for name, count in sorted(counts.items()))


# ---- arranging

_SEED = re.compile(r"seed-\d+")
_OWNERS = {
    "agent.lagrangian.": "ddpg-lag",
    "agent.rcpo.": "rcpo",
    "agent.csc.": "csc",
    "agent.td3.": "td3",
    "agent.sac.": "sac",
}
"""The agent to which alone settings belong, by the beginning of their names."""
_TABULAR = ("candidates_per_dimension", "candidate_budget", "unsafe_per_episode")
"""Settings of the ADVICE shield that the tabular shield uses too."""


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """The settings that have an effect on this method, by dotted name, without the labels."""
    settings = flat(config) | {"shield_from": _lender(config)}
    options = {name: settings.pop(name) for name in [*settings] if name.startswith("env.options.")}
    for name in ("task", "method", "seed", "study"):
        del settings[name]
    used = {name: value for name, value in settings.items() if _uses(config.method, name)}
    return used | {"env.options": options}


def _lender(config: TrainConfig) -> str:
    """Whose shield a run starts with, without the seed and the method that both runs share."""
    parts = Path(config.shield_from or "").parts
    named = [x for x in parts if x != file_name(config.method) and not _SEED.fullmatch(x)]
    return "/".join(named[-2:])


def _uses(method: str, name: str) -> bool:
    """True if a setting has an effect on a method: an agent's own settings only on that agent."""
    agent, shield = method.split("+")[0], method.split("+")[-1]
    if name == "shield_from":
        return shield in WITH_SHIELD
    if name.startswith("shield."):
        return shield == "advice" or (
            shield == "tabular" and name.removeprefix("shield.") in _TABULAR
        )
    return all(agent == owner or not name.startswith(part) for part, owner in _OWNERS.items())


def _place(study: str) -> tuple[str, str]:
    """Section and label of a study that is not the comparison."""
    row, name = STUDIES.get(study), (study or "other runs").replace(" ", "-")
    return (row.section, row.label) if row and row.section else (file_name(name), name)


def _rank(study: str) -> tuple[int, int, str]:
    """The comparison is the first of: the table's comparisons, other studies, its variants."""
    row = STUDIES.get(study)
    if row is None:
        return 1, 0, study
    return 2 if row.section else 0, [*STUDIES].index(study), study


def _arrange(task: str, runs: list[Run], left_out: list[LeftOut]) -> TaskRuns:
    """Divide one task's runs into the comparison, the variants and what is left out."""
    comparison, *_ = order = sorted({run.study for run in runs}, key=_rank)
    groups: dict[tuple[str, str], list[Run]] = {}
    references: dict[str, dict[str, Any]] = {study: {} for study in order}
    unique = _without_twins(sorted(runs, key=lambda run: order.index(run.study)), left_out)
    for run in sorted(unique, key=lambda run: (run.config.seed, run.folder.path)):
        settings, reference = settings_of(run.config), references[run.study]
        other = sorted(n for n, value in settings.items() if reference.get(n, value) != value)
        if other:
            listed = "; ".join(f"{n} is {settings[n]!r}, elsewhere {reference[n]!r}" for n in other)
            why = f"other settings than the first run of the study {run.study or '(no name)'}"
            left_out.append(LeftOut(run.folder.path, f"{why}: {listed}"))
            continue
        references[run.study] = settings | reference
        groups.setdefault((run.study, run.config.method), []).append(run)
    variants: dict[str, list[Variant]] = {}
    for (study, method), group in groups.items():
        if study != comparison:
            key, label = _place(study)
            row = STUDIES.get(study)
            if row and row.shields_from and not group[0].config.shield_from:
                label = "plain"  # a method without a shield to start with
            variants.setdefault(key, []).append(Variant(label, method, group))
    known = [key for key in SECTIONS if key in variants]
    variants = {
        key: sorted(variants[key], key=lambda variant: (variant.label, variant.method))
        for key in dict.fromkeys((*known, *sorted(variants)))
    }
    methods = method_order(method for study, method in groups if study == comparison)
    compared = {method: groups[comparison, method] for method in methods}
    row = STUDIES.get(comparison)
    missing = _missing(compared, variants)
    return TaskRuns(task, compared, variants, row.label if row else "", missing)


def _without_twins(runs: list[Run], left_out: list[LeftOut]) -> list[Run]:
    """Of runs with the same method, seed and settings keep the longest, then the first."""
    seen: dict[tuple[Any, ...], Run] = {}
    for run in sorted(runs, key=lambda run: -len(run.table)):
        settings = json.dumps(settings_of(run.config), sort_keys=True)
        first = seen.setdefault((run.config.method, run.config.seed, settings), run)
        if first is not run:
            why = f"the same run as {first.folder.path} (same seed and settings)"
            left_out.append(LeftOut(run.folder.path, why))
    return list(seen.values())


def _missing(methods: dict[str, list[Run]], variants: dict[str, list[Variant]]) -> list[str]:
    """Methods and seeds that the comparison lacks, and unfinished runs."""
    absent = [method_label(name) for name in METHOD_LOOKS if name not in methods]
    lines = [f"no runs of {', '.join(absent)}"] if absent else []
    seeds = {run.config.seed for runs in methods.values() for run in runs}
    for method, runs in methods.items():
        gone = sorted(seeds - {run.config.seed for run in runs})
        if gone:
            lines.append(f"{method_label(method)}: no seed {', '.join(map(str, gone))}")
        lines += _unfinished(method_label(method), runs)
    for label, method, runs in (variant for found in variants.values() for variant in found):
        lines += _unfinished(f"{method_label(method)}, {label}", runs)
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

    Empty if a violation budget ended some of them: the others alone would look too good.
    """
    found = usable(runs)
    return found if all(len(run.table) >= run.config.episodes for run in found) else []
