"""Settings as plain values and back, those of earlier versions included."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, get_type_hints

from advice.types import SettingError

Config = TypeVar("Config")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON-ready values."""
    return dataclasses.asdict(config)


def flat(config: Any) -> dict[str, Any]:
    """Every setting of a config by its dotted name."""

    def walk(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in values.items():
            inner = isinstance(value, dict)
            found |= walk(f"{prefix}{name}.", value) if inner else {prefix + name: value}
        return found

    return walk("", to_dict(config))


RETIRED_SETTINGS = {
    "AgentConfig": frozenset({"noise_shared"}),
    "ShieldConfig": frozenset({"observation_power", "keep_learning"}),
}
"""Settings of earlier versions, by class name. Saved settings may have them; they are ignored."""
EARLIER_SETTINGS: dict[str, dict[str, Any]] = {
    "AgentConfig": {"warmup_steps": 0},
    "ShieldConfig": {
        "arm": "fixed",
        "labels": "paper",
        "refit_episodes": 0,
        "hold": 0,
        "learn_from": "executed",
    },
}
"""What settings that saved files of earlier versions lack were in those versions."""


def from_dict(kind: type[Config], values: dict[str, Any]) -> Config:
    """The config that :func:`to_dict` described. Ignores retired settings.

    Raises SettingError for any other unknown key.
    """
    hints = get_type_hints(kind)
    retired = RETIRED_SETTINGS.get(kind.__name__, frozenset())
    kept = {name: value for name, value in values.items() if name not in retired}
    parts = EARLIER_SETTINGS.get(kind.__name__, {}) | kept
    if unknown := sorted(set(parts) - set(hints)):
        raise SettingError(f"{kind.__name__} has no setting {', '.join(map(repr, unknown))}")
    for name, value in parts.items():
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, dict):
                raise SettingError(f"{kind.__name__}.{name}: expected settings, found {value!r}")
            parts[name] = from_dict(hints[name], value)
    return kind(**parts)
