"""Which settings make two runs comparable, and which difference is a study of its own.

Everything here looks at settings alone, flat and by their dotted names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from advice.config import PRESETS, TUNED, ShieldConfig, TrainConfig, flat

Settings = dict[str, Any]

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


def settings_of(config: TrainConfig) -> Settings:
    """All settings that shape this method's result, flat, without seed, task and method."""
    settings = flat(config)
    for name in _LABELS:
        del settings[name]
    settings["shield_from"] = bool(config.shield_from)
    return {name: value for name, value in settings.items() if uses(config.method, name)}


def uses(method: str, name: str) -> bool:
    """Does this setting matter to this method? An agent's own and a shield's only if it has it."""
    agent, shield = method.split("+")[0], method.split("+")[-1]
    if name.startswith("shield."):
        return shield == "advice" or (shield == "tabular" and name in _TABULAR)
    owner = _owner(name)
    return owner is None or agent == owner


def reference_of(configs: Sequence[TrainConfig]) -> Settings:
    """The settings of the comparison: the defaults, unless far more runs have others.

    Where some runs have the suites' values (:data:`TUNED`), those go before the defaults.
    """
    default = flat(TrainConfig()) | {"shield_from": False}
    shared = {
        name
        for name in default
        if not name.startswith("shield.") and not _owner(name) and name not in _LABELS
    }
    everywhere = _usual([_part(config, shared) for config in configs], _only(default, shared))
    agreeing = [config for config in configs if _part(config, shared) == everywhere]
    groups = {agent: {name for name in default if _owner(name) == agent} for agent in _OWN.values()}
    groups["advice"] = {name for name in default if name.startswith("shield.")}
    reference = dict(everywhere)
    for owner, names in groups.items():
        users = [config for config in agreeing if owner in config.method.split("+")] or agreeing
        found = [_only(flat(config), names) for config in users]
        usual = _only(default, names)
        tuned = usual | TUNED.get(owner, {})
        reference |= _usual(found, tuned if tuned in found else usual)
    return reference


def _part(config: TrainConfig, names: set[str]) -> Settings:
    settings = settings_of(config)
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


def study_of(changed: set[str]) -> Study | None:
    if changed == {"episodes"}:
        return None
    return next((study for study in STUDIES if changed <= study.fields), None)
