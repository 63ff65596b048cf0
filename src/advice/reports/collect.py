"""Find runs, check them, and sort them: what belongs together, what is a study, what is left out.

Nothing is mixed silently. Runs are compared only if their code and all settings agree (but for
seed and method); a run that differs in the settings of one known study goes there; any other run
is left out, and the report says which and why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.config import PRESETS, TUNED, ShieldConfig, TrainConfig, flat, from_dict
from advice.reports.statistics import Floats
from advice.reports.style import METHOD_COLOURS, method_label, method_order
from advice.runs.records import COLUMNS, RunFolder, read_episodes
from advice.types import AdviceError, BrokenFileError

Settings = dict[str, Any]


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
        """The version of this package that made the run, with its commit where known."""
        version = self.provenance.get("versions", {}).get("advice-rl")
        commit = self.provenance.get("commit")
        return f"{version or 'unknown'}{f' at {commit[:10]}{commit[40:]}' if commit else ''}"


class LeftOut(NamedTuple):
    """A run that is not in the report."""

    path: Path
    why: str


_LABELS = ("task", "method", "seed")
_OWN = {
    "agent.lagrangian.": "ddpg-lag",
    "agent.rcpo.": "rcpo",
    "agent.csc.": "csc",
    "agent.td3.": "td3",
    "agent.sac.": "sac",
}
"""Settings that belong to one agent alone, by the beginning of their names."""
_TABULAR = {
    "shield.candidates_per_dimension",
    "shield.candidate_budget",
    "shield.unsafe_per_episode",
}
_PRESET_FIELDS = tuple(
    field.name
    for field in fields(ShieldConfig)
    if len({getattr(preset, field.name) for preset in PRESETS.values()}) > 1
)


class Study(NamedTuple):
    """A question asked by varying a few settings."""

    name: str
    title: str
    fields: frozenset[str]
    label: Callable[[TrainConfig], str]
    by_method: bool = False
    """True if methods are compared under the changed setting, not variants of one method."""


def _adaptive(config: TrainConfig) -> str:
    rule = config.shield.k_rule
    return "adaptive K" if rule == ShieldConfig.k_rule else f"adaptive K, rule {rule}"


def _preset(config: TrainConfig) -> str:
    shield = {name: getattr(config.shield, name) for name in _PRESET_FIELDS}
    for name, preset in PRESETS.items():
        if all(getattr(preset, field) == value for field, value in shield.items()):
            return f"preset {name}"
    return ", ".join(f"{field} {value}" for field, value in shield.items())


def _own(config: TrainConfig) -> str:
    default, found = flat(TrainConfig()), flat(config)
    changed = {n: value for n, value in found.items() if _owner(n) and value != default[n]}
    named = (f"{name.removeprefix('agent.')} {value}" for name, value in changed.items())
    return ", ".join(named) or "defaults"


def _owner(name: str) -> str | None:
    """The agent to which alone a setting belongs."""
    return next((agent for part, agent in _OWN.items() if name.startswith(part)), None)


STUDIES = (
    Study(
        "preset",
        "The shield's settings",
        frozenset(f"shield.{name}" for name in _PRESET_FIELDS),
        _preset,
    ),
    Study(
        "own",
        "The agents' own settings",
        frozenset(name for name in flat(TrainConfig()) if _owner(name)),
        _own,
    ),
    Study(
        "fixed-k",
        "Fixed K",
        frozenset({"shield.k", "shield.k_rule"}),
        lambda c: f"K = {c.shield.k}" if c.shield.k_rule == "fixed" else _adaptive(c),
    ),
    Study(
        "activation",
        "When the shield is armed",
        frozenset({"shield.construction_episodes", "episodes"}),
        lambda c: f"E = {c.shield.construction_episodes}",
    ),
    Study(
        "windows",
        "Windows of the adaptive K",
        frozenset({"shield.recent_window", "shield.distant_window", "episodes"}),
        lambda c: f"h_r = {c.shield.recent_window}, h_d = {c.shield.distant_window}",
    ),
    Study(
        "steps",
        "Longer episodes",
        frozenset({"env.max_episode_steps"}),
        lambda c: f"T = {c.env.max_episode_steps or 'task'}",
        by_method=True,
    ),
    Study(
        "transfer",
        "Starting with a shield from elsewhere",
        frozenset({"shield_from", "shield.construction_episodes", "episodes"}),
        lambda c: "pre-trained" if c.shield_from else "from scratch",
        by_method=True,
    ),
)


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
    document = folder.read_document()
    try:
        config = from_dict(TrainConfig, document["config"])
    except (TypeError, ValueError, AttributeError) as error:
        raise BrokenFileError(f"config.json: {error}") from None
    if not folder.episodes_file.exists():
        raise BrokenFileError("no episodes yet: episodes.csv is missing")
    table = _read_table(folder.episodes_file)
    if not len(table):
        raise BrokenFileError("no episodes yet: episodes.csv has only its header")
    return Run(folder, config, document["provenance"], table)


def _read_table(path: Path) -> Floats:
    """episodes.csv as numbers: NumPy's fast reader, and the careful one where that fails."""
    text = path.read_text(errors="replace")
    lines = text[: text.rfind("\n") + 1].splitlines()
    if lines[:1] != [",".join(COLUMNS)]:
        raise BrokenFileError(f"{path}: expected the columns {','.join(COLUMNS)}")
    if len(lines) == 1:
        return np.empty((0, len(COLUMNS)))
    try:
        table = np.loadtxt(lines[1:], delimiter=",", comments=None, ndmin=2)
        whole = table.shape == (len(lines) - 1, len(COLUMNS))
    except ValueError:
        whole = False
    if not whole or (table[:, 0] != np.arange(1, len(table) + 1)).any():
        table = np.array(read_episodes(path), dtype=np.float64)  # names the broken line
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise BrokenFileError(f"{path}: line {bad[0] + 2} has a number that is not finite")
    return table


# ---- sorting


def _one_code(
    runs: list[Run], left_out: list[LeftOut], any_version: bool
) -> tuple[list[Run], list[str], str]:
    """Keep the runs of one code version: the one that made most of them (the latest on a tie)."""
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
    reference = _reference(runs)
    methods: dict[str, list[Run]] = {}
    variants: dict[tuple[str, str, str], list[Run]] = {}
    seen: dict[tuple[Any, ...], Path] = {}
    for run in sorted(runs, key=lambda run: -len(run.table)):  # of twins the longer one counts
        settings = _settings(run.config)
        path, method = run.folder.path, run.config.method
        twin = (method, run.config.seed, json.dumps(settings, sort_keys=True))
        names = {name for name in settings | reference if _uses(method, name)}
        changed = {name for name in names if settings.get(name) != reference.get(name)}
        study = _study_of(changed)
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


def _settings(config: TrainConfig) -> Settings:
    """All settings that shape this method's result, flat, without seed, task and method."""
    settings = flat(config)
    for name in _LABELS:
        del settings[name]
    settings["shield_from"] = bool(config.shield_from)
    return {name: value for name, value in settings.items() if _uses(config.method, name)}


def _uses(method: str, name: str) -> bool:
    """Does this setting matter to this method? An agent's own and a shield's only if it has it."""
    agent, shield = method.split("+")[0], method.split("+")[-1]
    if name.startswith("shield."):
        return shield == "advice" or (shield == "tabular" and name in _TABULAR)
    owner = _owner(name)
    return owner is None or agent == owner


def _reference(runs: list[Run]) -> Settings:
    """The settings of the comparison: the defaults, unless far more runs have others.

    Where some runs have the suites' values (:data:`TUNED`), those go before the defaults.
    """
    default = flat(TrainConfig()) | {"shield_from": False}
    shared = {
        name
        for name in default
        if not name.startswith("shield.") and not _owner(name) and name not in _LABELS
    }
    everywhere = _usual([_part(run, shared) for run in runs], _only(default, shared))
    agreeing = [run for run in runs if _part(run, shared) == everywhere]
    groups = {agent: {name for name in default if _owner(name) == agent} for agent in _OWN.values()}
    groups["advice"] = {name for name in default if name.startswith("shield.")}
    reference = dict(everywhere)
    for owner, names in groups.items():
        users = [run for run in agreeing if owner in run.config.method.split("+")] or agreeing
        found = [_only(flat(run.config), names) for run in users]
        usual = _only(default, names)
        tuned = usual | TUNED.get(owner, {})
        reference |= _usual(found, tuned if tuned in found else usual)
    return reference


def _part(run: Run, names: set[str]) -> Settings:
    settings = _settings(run.config)
    options = {name for name in settings if name.startswith("env.options.")}
    return _only(settings, names | options)


def _only(settings: Settings, names: set[str]) -> Settings:
    return {name: value for name, value in settings.items() if name in names}


def _usual(found: list[Settings], default: Settings) -> Settings:
    """The default if at least half as many runs have it as the commonest, else the commonest."""
    counts = Counter(json.dumps(settings, sort_keys=True) for settings in found)
    commonest = max(counts, key=lambda text: (counts[text], text))
    if 2 * counts[json.dumps(default, sort_keys=True)] >= counts[commonest]:
        return default
    return dict(json.loads(commonest))


def _study_of(changed: set[str]) -> Study | None:
    if changed == {"episodes"}:
        return None
    return next((study for study in STUDIES if changed <= study.fields), None)


def _missing(methods: dict[str, list[Run]], studies: dict[str, list[Variant]]) -> list[str]:
    """What an impatient reader should know: absent methods, absent seeds, unfinished runs."""
    lines = []
    absent = [method_label(name) for name in METHOD_COLOURS if name not in methods]
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
