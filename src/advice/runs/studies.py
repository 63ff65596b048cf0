"""The studies: which runs a suite makes, and how a report shows them. One table for both.

A run belongs to the study that its settings name. Runs without a name belong to the study whose
folder they lie in: ROOT/<study>/<task>/<method>/seed-<n>.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from advice.config import PRESETS, ShieldConfig, TrainConfig, flat, from_dict, to_dict
from advice.runs.grid import Cell
from advice.runs.records import RunFolder
from advice.types import AdviceError, suggest

FOUR_TASKS = ("semi-random-goal", "randomised-goal", "randomised-button", "randomised-circle")
PAPER_TASKS = (*FOUR_TASKS, "constrained-randomised-goal")
SIX_METHODS = ("ddpg", "ddpg-lag", "rcpo", "tabular", "csc", "advice")
WITH_SHIELD = ("advice", "tabular", "csc")
FOREIGN_TASKS = ("LunarLanderContinuous-v3", "BipedalWalker-v3", "Walker2d-v5", "Ant-v5")
"""Environments of Gymnasium (extra ``foreign``). highway-env's racetrack is left out: on a
shared core it takes 20 steps a second."""

METHOD_SETTINGS: dict[str, dict[str, Any]] = {
    "advice": {"shield.arm": "fixed"},
    "csc": {"agent.csc.conservative_weight": 0.005},
    "ddpg-lag": {"agent.lagrangian.learning_rate": 0.03},
    "rcpo": {"agent.rcpo.learning_rate": 0.03, "agent.rcpo.maximum": 100.0},
}
"""What the studies set for an agent or shield, by its name; chosen by ``benchmarks/tune.py`` on
seeds that are not reported (docs, How the settings were found). ADVICE is armed after 1,000
episodes, as in the paper."""

TASK_SETTINGS = {"randomised-circle": {"agent.gamma": 0.98, "env.max_episode_steps": 250}}
"""What runs of a task set for every method alike, unless another value is given: with the circle's
own numbers plain DDPG does not learn to stay on it (docs, How the settings were found)."""
TASK_OPTIONS = {"randomised-circle": {"motor_gain": 0.02, "inward_reward": 1.0}}
"""Numbers of the task's row that they change, likewise."""


class Study(NamedTuple):
    """Every task with every method and seed, under the same settings."""

    name: str  # the folder of its runs, below the grid's
    section: str = ""
    """Key of :data:`SECTIONS`; empty for a comparison of methods, which is its task's main part."""
    label: str = ""  # name of the variant within its section
    settings: Mapping[str, Any] = {}  # those that differ from the defaults, by dotted name
    tasks: tuple[str, ...] = ("randomised-goal",)
    methods: tuple[str, ...] = ("advice",)
    method_settings: Mapping[str, Mapping[str, Any]] = METHOD_SETTINGS  # ``settings`` override them
    shields_from: tuple[str, str] | None = None
    """(study, task) whose fitted shields the runs of methods with a shield start with."""

    def settings_of(self, method: str) -> dict[str, Any]:
        """What this study sets for a method."""
        settings: dict[str, Any] = {}
        for part in method.split("+"):
            settings |= self.method_settings.get(part, {})
        return settings | dict(self.settings)


class StudySection(NamedTuple):
    """A part of a task's report: variants beside the comparison's runs."""

    title: str
    reference: str = ""  # label of the comparison's runs; empty if methods are compared
    rates: bool = False  # show rates, not totals: the variants differ in length
    from_start: bool = False  # count every episode, not only those after arming


SECTIONS = {
    "preset": StudySection("The shield's settings", "default"),
    "early": StudySection("Arming early, counted from the first episode", from_start=True),
    "own": StudySection("The agents' own settings", "tuned"),
    "fixed-k": StudySection("Fixed K", "adaptive K"),
    "activation": StudySection("When the shield is armed", "E = 1000", rates=True),
    "windows": StudySection("Windows of the adaptive K", "h_r = 3, h_d = 25"),
    "steps": StudySection("Longer episodes"),
    "transfer": StudySection("Starting with a shield of another task"),
    "shift": StudySection("A shield in a changed world", "trained here"),
}
SHIFTS: dict[str, dict[str, float]] = {
    "no shift": {},
    "heavier car": {"car_mass": 2.0},
    "weaker motors": {"motor_force": 0.5},
    "slippery floor": {"friction": 0.2},
    "more cubes": {"cubes": 10},
    "noisy lidar": {"lidar_noise": 0.05},
}
"""Changes of randomised-goal, by what the suite ``shift`` calls them: options of the task."""

_LENT = ("core", "randomised-goal")
_K_SWEEP = tuple(
    Study(f"fixed-k-{k}", "fixed-k", f"K = {k}", {"shield.k": k, "shield.k_rule": "fixed"})
    for k in (3, 4, 5)
)
_ACTIVATION = tuple(
    Study(
        *(f"activation-{e}", "activation", f"E = {e}"),
        {"shield.construction_episodes": e, "episodes": e + 1000},
    )
    for e in (250, 500, 750)
)
_PATIENT = {"shield.plateau_patience": 100, "shield.stop_patience": 200}
_WINDOWS = tuple(
    Study(
        *(f"windows-{recent}-{distant}", "windows", f"h_r = {recent}, h_d = {distant}"),
        {"shield.recent_window": recent, "shield.distant_window": distant},
    )
    for recent, distant in ((2, 10), (2, 25), (4, 10), (4, 25), (3, 10))
)
_SHIFT = tuple(
    Study(
        *(f"shift-{name.replace(' ', '-')}-{kind}", "shift", f"{name}, {kind}"),
        {"episodes": 500, "env.options": options, "shield.refit_episodes": refits},
        shields_from=_LENT,
    )
    for name, options in SHIFTS.items()
    for kind, refits in (("frozen", 0), ("refits", ShieldConfig().refit_episodes))
)
_DEFAULT, _PRESET = flat(ShieldConfig()), flat(PRESETS["paper"])
_PAPER = {f"shield.{n}": value for n, value in _PRESET.items() if value != _DEFAULT[n]}
_FOREIGN = {
    # one agent for all, a small SAC with the usual step sizes and discount, in short episodes
    **{"episodes": 200, "env.max_episode_steps": 400},
    **{"agent.gamma": 0.99, "agent.batch_size": 64, "agent.hidden_size": 128},
    **dict.fromkeys(("agent.actor_learning_rate", "agent.critic_learning_rate"), 3e-4),
    "agent.sac.temperature_learning_rate": 3e-4,
}
_SMOKE = {
    **{"episodes": 6, "env.max_episode_steps": 30},
    **{"shield.construction_episodes": 3, "shield.fit_steps": 50},
}
_OF_THE_PAPER = (
    Study("core", tasks=FOUR_TASKS, methods=SIX_METHODS),
    Study("constrained", tasks=("constrained-randomised-goal",), methods=SIX_METHODS),
    Study(
        *("transfer", "transfer", "pre-trained", {"episodes": 1000}),
        tasks=("semi-random-goal",),
        methods=SIX_METHODS,
        shields_from=_LENT,
    ),
    Study(
        "long-episodes", "steps", "T = 2000", {"env.max_episode_steps": 2000}, methods=SIX_METHODS
    ),
    *(*_K_SWEEP, *_ACTIVATION, *_WINDOWS),
    Study("paper-settings", "preset", "preset paper", _PAPER, method_settings={}),
    Study("early", "early", "armed early", tasks=FOUR_TASKS, method_settings={}),
)
_ROWS = (
    *(*_OF_THE_PAPER, *_SHIFT),
    Study(
        "patience", "activation", "E = 250, patience 200", {**_ACTIVATION[0].settings, **_PATIENT}
    ),
    Study(
        "foreign",
        settings=_FOREIGN,
        tasks=FOREIGN_TASKS,
        methods=("sac", "sac+advice"),
        method_settings={},
    ),
    Study("defaults", "own", "defaults", methods=("ddpg-lag",), method_settings={}),
    Study("smoke", methods=("ddpg", "advice"), settings=_SMOKE),
)
STUDIES = {row.name: row for row in _ROWS}
_ALONE = ("smoke", "core", "constrained", "long-episodes", "early")
_FALLS_AT_ONCE = STUDIES["foreign"]._replace(
    # 200 episodes of five steps each would be over before the agent begins to learn
    tasks=("InvertedDoublePendulum-v5",),
    settings={**_FOREIGN, "episodes": 1000},
)
_ADVICE = Study("core")
SUITES: dict[str, tuple[Study, ...]] = {
    **{name: (STUDIES[name],) for name in _ALONE},
    "foreign": (STUDIES["foreign"], _FALLS_AT_ONCE),
    "paper-settings": (STUDIES["paper-settings"], _ADVICE),
    "transfer": (Study("core", methods=WITH_SHIELD), STUDIES["transfer"]),
    "k-sweep": (*_K_SWEEP, _ADVICE),
    "activation-sweep": (*_ACTIVATION, _ADVICE),
    "windows": (*_WINDOWS, _ADVICE),
    "shift": (_ADVICE, *_SHIFT),
    "paper": _OF_THE_PAPER,
}
"""What `advice bench --suite` runs, in this order; some add the runs of ``core`` that they are
compared with."""


def find_suite(
    name: str, config: TrainConfig, tasks: Sequence[str] = (), methods: Sequence[str] = ()
) -> tuple[Study, ...]:
    """The part of a suite with these tasks and methods; none named means all.

    Raises AdviceError for an unknown name, and if ``config`` changes what the suite sets.
    """
    if name not in SUITES:
        hint = suggest(name, SUITES) or f"; suites: {', '.join(SUITES)}"
        raise AdviceError(f"unknown suite {name!r}{hint}")
    for asked, field in ((tasks, "tasks"), (methods, "methods")):
        offered = dict.fromkeys(one for study in SUITES[name] for one in getattr(study, field))
        if unknown := ", ".join(one for one in asked if one not in offered):
            known = ", ".join(offered)
            raise AdviceError(f"the suite has no {field} {unknown}: expected some of {known}")
    parts = (
        study._replace(
            tasks=tuple(task for task in study.tasks if task in (tasks or study.tasks)),
            methods=tuple(name for name in study.methods if name in (methods or study.methods)),
        )
        for study in SUITES[name]
    )
    found = tuple(study for study in parts if study.tasks and study.methods)
    default, settings = flat(TrainConfig()), flat(config)
    given = [f"{one}." for one, value in settings.items() if value != default.get(one)]
    sets = {one for study in found for method in study.methods for one in study.settings_of(method)}
    if clashes := [x for x in sorted(sets) if any(one.startswith(f"{x}.") for one in given)]:
        raise AdviceError(
            f"the suite {name} sets {', '.join(clashes)}; for other values "
            "use --tasks and --methods without a suite"
        )
    return found


def cells_of(
    studies: Iterable[Study], seeds: Sequence[int], out: Path, base: TrainConfig
) -> list[Cell]:
    """All runs of the studies, each once; a run comes after the one whose shield it needs."""
    cells: dict[Path, Cell] = {}
    for study in studies:
        for task, seed, method in itertools.product(study.tasks, seeds, study.methods):
            name = study.name or base.study
            config = dataclasses.replace(base, task=task, method=method, seed=seed, study=name)
            config = for_task(config)
            config = with_settings(config, study.settings_of(method))
            after = None
            if study.shields_from and method in WITH_SHIELD:
                name, other_task = study.shields_from
                after = RunFolder.of(out / name, dataclasses.replace(config, task=other_task)).path
                config = dataclasses.replace(config, shield_from=str(after))
            folder = RunFolder.of(out / study.name, config)
            cells.setdefault(folder.path, Cell(config, folder, after))
    return list(cells.values())


def for_task(config: TrainConfig) -> TrainConfig:
    """``config`` with its task's settings in place of the defaults."""
    default, given = flat(TrainConfig()), flat(config)
    settings = TASK_SETTINGS.get(config.task, {}).items()
    changed = {name: value for name, value in settings if given[name] == default[name]}
    return with_task_options(with_settings(config, changed))


def with_task_options(config: TrainConfig) -> TrainConfig:
    """``config`` with its task's options beside those that are given."""
    options = {**TASK_OPTIONS.get(config.task, {}), **config.env.options}
    return with_settings(config, {"env.options": options})


def with_settings(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """``config`` with some settings changed by their dotted names."""
    values = to_dict(config)
    for dotted, value in settings.items():
        *path, last = dotted.split(".")
        inner = values
        for name in path:
            inner = inner[name]
        inner[last] = value
    return from_dict(TrainConfig, values)


def section(key: str) -> StudySection:
    """The section of this key; one of its own for a study that the table does not have."""
    return SECTIONS.get(key) or StudySection(key, "comparison")


def study_name(config: TrainConfig, folder: Path) -> str:
    """The study of a run: as its settings say, or a study's folder in which it lies, or empty."""
    above = folder.resolve().parents
    named = above[2].name if len(above) > 2 else ""
    return config.study or (named if named in STUDIES else "")
