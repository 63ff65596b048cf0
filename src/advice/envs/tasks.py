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
    description: str
    target: Literal["goal", "button", "circle"]  # what the reward is for
    max_episode_steps: int = 1000  # time limit in steps (one step is ten physics steps of 4 ms)
    arena: float = 1.5  # objects are placed in the square from -arena to +arena
    cubes: int = 0  # touching one ends the episode as a violation
    cube_half_edge: float = 0.1
    cube_columns: float = 0.0  # if above 0, the first six cubes are at this x and its opposite
    cube_rows: float = 0.0  # distance between the rows of those six cubes
    cube_band: float = 0.0  # if above 0, width of the ring around the circle in which cubes are
    goal_radius: float = 0.3  # the goal is reached when the car's centre is this near
    circle_radius: float = 1.5  # radius of the circle to drive along
    inward_reward: float = 0.0  # if above 0, what a m/s towards the circle earns far outside it
    buttons: int = 0  # one of them is the right one; touching a wrong one is a violation
    button_radius: float = 0.1
    pillars: int = 0  # touching one ends the episode as a violation
    pillar_radius: float = 0.2
    hazards: int = 0  # discs on the floor; each step inside has a cost
    hazard_radius: float = 0.2  # the car is inside when its centre is this near
    cost: float = 0.2  # of a violation, and of each step inside a hazard
    success_reward: float = 1.0  # for reaching the goal or pressing the right button
    violation_reward: float = -1.0  # for a violation
    car_keepout: float = 0.4  # placement keeps discs of these radii apart and inside the arena
    goal_keepout: float = 0.305
    cube_keepout: float = 0.2
    button_keepout: float = 0.2
    pillar_keepout: float = 0.3
    hazard_keepout: float = 0.2
    lidar_bins: int = 16  # directions of each lidar
    lidar_range: float = 3.0  # distance at which a lidar reads 0
    lidar_noise: float = 0.0  # standard deviation of the noise of each reading
    car_mass: float = 1.0  # the car's mass, times the usual one
    motor_force: float = 1.0  # the motors' largest force, times the usual one
    motor_gain: float = 1.0  # force per action, times the usual one: 0.02 uses the whole range
    friction: float = 1.0  # sliding friction between all things, times the usual one

    @property
    def id(self) -> str:
        """The id in Gymnasium's registry."""
        return f"advice/{self.name.title().replace('-', '')}-v0"

    def count(self, kind: str) -> int:
        """How many objects of a kind there are; "target" is whatever the task's target is."""
        if kind in ("target", "goal", "circle"):
            return int(kind in ("target", self.target))
        return int(getattr(self, kind))

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


_ROWS = (
    TaskSpec(
        "semi-random-goal",
        "reach the goal; six cubes are always in the same two columns",
        target="goal",
        cubes=6,
        cube_columns=0.4,
        cube_rows=0.75,
    ),
    TaskSpec(
        "randomised-goal",
        "reach the goal between six cubes placed at random",
        target="goal",
        cubes=6,
    ),
    TaskSpec(
        "randomised-button",
        "press the right one of four buttons; touch no other, no cube, no pillar",
        target="button",
        buttons=4,
        cubes=4,
        pillars=2,
    ),
    TaskSpec(
        "randomised-circle",
        "drive fast along a circle with three cubes on the way",
        target="circle",
        cubes=3,
        cube_band=0.1,
        max_episode_steps=500,
    ),
    TaskSpec(
        "constrained-randomised-goal",
        "reach the goal; each step inside one of six hazards costs, none ends the episode",
        target="goal",
        hazards=6,
    ),
)
TASKS = {row.name: row for row in _ROWS}
_WHOLE = {"max_episode_steps": (1, 10**9), "lidar_bins": (3, 1000)}
_ABOVE_ZERO = {
    *("arena", "lidar_range", "cube_half_edge"),
    *("car_mass", "motor_force", "motor_gain", "friction"),
    *(f"{kind}_radius" for kind in ("goal", "circle", "button", "pillar", "hazard")),
}


def resolve(task: str, options: Mapping[str, Any] | None = None) -> TaskSpec:
    """The row named by a short name or an id, with some of its numbers changed."""
    by_any_name = {**TASKS, **{row.id: row for row in _ROWS}}
    if task not in by_any_name:
        hint = suggest(task, by_any_name) or f"; tasks: {', '.join(TASKS)}"
        raise SettingError(f"unknown task {task!r}{hint}")
    row = by_any_name[task]
    changes: Any = {name: _checked(name, value, row) for name, value in (options or {}).items()}
    return dataclasses.replace(row, **changes)


def short_name(name: str) -> str:
    """The short name of a built-in task given by its id; any other name unchanged."""
    return next((row.name for row in _ROWS if row.id == name), name)


def _checked(name: str, value: Any, row: TaskSpec) -> float:
    """``value`` in the type of the row's number, or a SettingError."""
    if name not in row.options:
        hint = suggest(name, row.options) or f"; options: {', '.join(row.options)}"
        raise SettingError(f"{row.name} has no option {name!r}{hint}")
    whole = isinstance(row.options[name], int)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    wanted, right = "a finite number", math.isfinite(number)
    if whole:
        least, most = _WHOLE.get(name, (0, 1000))
        wanted = f"a whole number from {least} to {most}"
        right = least <= number <= most and number.is_integer()
    elif name in _ABOVE_ZERO:
        wanted, right = f"{wanted} above 0", right and number > 0
    elif not name.endswith("_reward"):
        wanted, right = f"{wanted} of at least 0", right and number >= 0
    if not right:
        raise SettingError(f"{name}: expected {wanted}, found {value!r}")
    return int(number) if whole else number
