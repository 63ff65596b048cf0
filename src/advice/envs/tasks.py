"""The table of tasks: one row each, every number of a row an option of ``advice.make``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from advice.types import SettingError, suggest

KINDS = ("target", "buttons", "cubes", "pillars", "hazards")
"""Kinds of objects in the order of their lidars in the observation."""


@dataclass(frozen=True)
class TaskSpec:
    """One task, lengths in metres; ``advice.make(task, name=...)`` changes a number."""

    name: str
    id: str
    description: str
    target: Literal["goal", "button", "circle"]
    """What the reward is for: reaching a goal disc or the right button, or circling the origin."""
    max_episode_steps: int = 1000
    """Time limit in steps (one step is ten physics steps of 4 ms)."""
    arena: float = 1.5
    """Objects are placed in the square from -arena to +arena."""
    cubes: int = 0
    """Cubes; touching one ends the episode as a violation."""
    cube_half_edge: float = 0.1
    """Half the edge of a cube."""
    cube_columns: float = 0.0
    """If above 0, the first six cubes are in columns at x = -cube_columns and +cube_columns."""
    cube_rows: float = 0.0
    """Distance between the rows of those columns."""
    cube_band: float = 0.0
    """If above 0, random cubes are on the circle's circumference, give or take half of this."""
    goal_radius: float = 0.3
    """The goal is reached when the car's centre is this near."""
    circle_radius: float = 1.5
    """Radius of the circle to drive along."""
    buttons: int = 0
    """Buttons, one of them the right one; touching a wrong one is a violation."""
    button_radius: float = 0.1
    """Radius of a button's sphere."""
    pillars: int = 0
    """Pillars; touching one ends the episode as a violation."""
    pillar_radius: float = 0.2
    """Radius of a pillar."""
    hazards: int = 0
    """Hazards: discs on the floor; each step inside has a cost."""
    hazard_radius: float = 0.2
    """The car is inside when its centre is this near."""
    cost: float = 0.2
    """Cost of a violation, and of each step inside a hazard."""
    success_reward: float = 1.0
    """Added to the reward when the goal is reached or the right button pressed."""
    violation_reward: float = -1.0
    """Added to the reward at a violation."""
    car_keepout: float = 0.4
    """Placement keeps discs of these radii apart and inside the arena."""
    goal_keepout: float = 0.305
    cube_keepout: float = 0.2
    button_keepout: float = 0.2
    pillar_keepout: float = 0.3
    hazard_keepout: float = 0.2
    lidar_bins: int = 16
    """Directions of each lidar."""
    lidar_range: float = 3.0
    """Distance at which a lidar reads 0."""
    lidar_noise: float = 0.0
    """Standard deviation of the noise of each reading, which stays within 0 to 1."""
    car_mass: float = 1.0
    """The car's mass, times the usual one."""
    motor_force: float = 1.0
    """The motors' largest force, times the usual one."""
    friction: float = 1.0
    """Sliding friction between all things, times the usual one."""

    def count(self, kind: str) -> int:
        """How many objects of one of :data:`KINDS` there are."""
        return 1 if kind == "target" else int(getattr(self, kind))

    @property
    def observed(self) -> tuple[str, ...]:
        """Kinds with a lidar: those of the table's row, even if an option removes the objects."""
        row = TASKS[self.name]
        return tuple(kind for kind in KINDS if self.count(kind) or row.count(kind))

    @property
    def options(self) -> dict[str, float]:
        """The numbers of the row, by the names that ``advice.make`` takes."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if not isinstance(value, str)}


def _row(
    name: str, description: str, target: Literal["goal", "button", "circle"], **numbers: Any
) -> TaskSpec:
    title = "".join(word.capitalize() for word in name.split("-"))
    return TaskSpec(name, f"advice/{title}-v0", description, target, **numbers)


TASKS: dict[str, TaskSpec] = {
    row.name: row
    for row in (
        _row(
            "semi-random-goal",
            "reach the goal; six cubes are always in the same two columns",
            "goal",
            cubes=6,
            cube_columns=0.4,
            cube_rows=0.75,
        ),
        _row(
            "randomised-goal", "reach the goal between six cubes placed at random", "goal", cubes=6
        ),
        _row(
            "randomised-button",
            "press the right one of four buttons; touch no other, no cube, no pillar",
            "button",
            buttons=4,
            cubes=4,
            pillars=2,
        ),
        _row(
            "randomised-circle",
            "drive fast along a circle with three cubes on the way",
            "circle",
            cubes=3,
            cube_band=0.1,
            max_episode_steps=500,
        ),
        _row(
            "constrained-randomised-goal",
            "reach the goal; each step inside one of six hazards costs, none ends the episode",
            "goal",
            hazards=6,
        ),
    )
}


def resolve(task: str, options: Mapping[str, Any] | None = None) -> TaskSpec:
    """The row named by a short name or an id, with some of its numbers changed."""
    by_any_name = {**TASKS, **{row.id: row for row in TASKS.values()}}
    if task not in by_any_name:
        raise SettingError(
            f"unknown task {task!r}{suggest(task, by_any_name)}; tasks: {', '.join(TASKS)}"
        )
    row = by_any_name[task]
    changes: dict[str, Any] = {
        name: _checked(name, value, row) for name, value in (options or {}).items()
    }
    return dataclasses.replace(row, **changes)


def short_name(name: str) -> str:
    """The short name of a built-in task given by its id; any other name unchanged."""
    return next((row.name for row in TASKS.values() if row.id == name), name)


def _checked(name: str, value: Any, row: TaskSpec) -> float:
    """``value`` in the type of the row's number, or a SettingError."""
    if name not in row.options:
        hint = suggest(name, row.options) or f"; options: {', '.join(row.options)}"
        raise SettingError(f"{row.name} has no option {name!r}{hint}")
    whole = isinstance(row.options[name], int)
    wanted = "a whole number" if whole else "a finite number"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SettingError(f"{name}: expected {wanted}, found {value!r}") from None
    if not math.isfinite(number) or (whole and number != int(number)):
        raise SettingError(f"{name}: expected {wanted}, found {value!r}")
    least = _LEAST.get(name, -math.inf if name.endswith("_reward") else 0)
    if number < least or (name in _ABOVE_ZERO and number == 0):
        bound = "above 0" if name in _ABOVE_ZERO else f"of at least {least}"
        raise SettingError(f"{name}: expected a number {bound}, found {value!r}")
    if whole and name != "max_episode_steps" and number > MOST_OBJECTS:
        raise SettingError(f"{name}: expected at most {MOST_OBJECTS}, found {value!r}")
    return int(number) if whole else number


MOST_OBJECTS = 1000
_LEAST = {"max_episode_steps": 1, "lidar_bins": 3}
_ABOVE_ZERO = {"arena", "lidar_range", "cube_half_edge", "car_mass", "motor_force", "friction"} | {
    f"{kind}_radius" for kind in ("goal", "circle", "button", "pillar", "hazard")
}
