"""Settings as plain values and back, those of earlier versions included."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict as to_dict
from typing import Any, TypeVar, get_type_hints

from advice.types import SettingError

__all__ = ["flat", "from_dict", "to_dict"]

Config = TypeVar("Config")

RETIRED_SETTINGS = {
    "AgentConfig": {"noise_shared"},
    "ShieldConfig": {"observation_power", "keep_learning"},
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


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a config by its dotted name."""
    found: dict[str, Any] = {}
    for name, value in (config if isinstance(config, dict) else to_dict(config)).items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.") if inner else {prefix + name: value}
    return found


def from_dict(kind: type[Config], values: dict[str, Any]) -> Config:
    """The config that ``to_dict`` described. Ignores retired settings.

    Raises SettingError for any other unknown key.
    """
    hints = get_type_hints(kind)
    retired = RETIRED_SETTINGS.get(kind.__name__, ())
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
