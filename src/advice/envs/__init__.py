"""What happens? Navigation tasks on MuJoCo, registered with Gymnasium."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from advice.envs import sensors
from advice.envs.tasks import TASKS, resolve

if TYPE_CHECKING:
    from advice.envs.navigation import NavigationEnv

__all__ = ["TASKS", "make", "register_tasks", "sensors"]


def register_tasks() -> None:
    """Register the task ids, without Gymnasium's wrappers: the tasks check and limit themselves."""
    import gymnasium

    for row in TASKS.values():
        if row.id not in gymnasium.registry:
            gymnasium.register(
                id=row.id,
                entry_point="advice.envs.navigation:NavigationEnv",
                kwargs={"task": row.name},
                order_enforce=False,
                disable_env_checker=True,
            )


def make(task: str, **options: Any) -> NavigationEnv:
    """A task by short name or id.

    Options: ``render_mode``, ``camera``, ``render_size``, ``draw_lidar``, ``observe_velocity``, and
    every number of the task's row (see :class:`advice.envs.tasks.TaskSpec`).
    """
    import gymnasium

    from advice.envs.navigation import NavigationEnv

    row = resolve(task)
    env = NavigationEnv(row.name, **options)
    spec = copy.deepcopy(gymnasium.spec(row.id))
    spec.kwargs = {"task": row.name, **options}
    env.spec = spec
    return env
