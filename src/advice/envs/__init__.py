"""Navigation tasks on MuJoCo, registered with Gymnasium."""

from advice.envs import sensors
from advice.envs.tasks import TASKS

__all__ = ["TASKS", "register_tasks", "sensors"]


def register_tasks() -> None:
    """Register the task ids, without wrappers: the tasks have their own checks and limits."""
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
