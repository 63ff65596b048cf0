"""Environments by name: a built-in task, a registered Gymnasium id, or ``module:Class``."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import gymnasium

from advice.envs.tasks import TASKS, resolve, short_name
from advice.types import SettingError, suggest

if TYPE_CHECKING:
    from advice.envs.navigation import NavigationEnv


def make(task: str, **options: Any) -> NavigationEnv:
    """A built-in task by short name or id.

    Options: ``render_mode``, ``camera``, ``render_size``, ``draw_lidar``, ``observe_velocity``, and
    every number of the task's row (see :class:`advice.envs.tasks.TaskSpec`).
    """
    from advice.envs.navigation import NavigationEnv  # MuJoCo is needed here only

    row = resolve(task)
    env = NavigationEnv(row.name, **options)
    env.spec = dataclasses.replace(gymnasium.spec(row.id), kwargs={"task": row.name, **options})
    return env


def make_from_name(name: str, /, **options: Any) -> gymnasium.Env[Any, Any]:
    """The environment called ``name``; ``options`` go to its constructor.

    A ``module:Class`` imports that module, which runs its code; the class must be a
    :class:`gymnasium.Env`. Raises SettingError if there is none or if it cannot be made.
    """
    factory = _find_class(name) if ":" in name else None
    try:
        if short_name(name) in TASKS:
            return make(name, **options)
        if options.get("render_mode") == "rgb_array":
            from advice.envs.rendering import name_gl_library

            name_gl_library()
        if factory is None:
            return gymnasium.make(name, **options)
        limit = options.pop("max_episode_steps", None)
        env = factory(**options)
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)
    except SettingError:
        raise
    except Exception as error:
        missing = isinstance(error, gymnasium.error.DependencyNotInstalled)
        if isinstance(error, gymnasium.error.Error) and not missing:
            hint = suggest(name, {**TASKS, **gymnasium.registry}) or (
                f"; expected a task ({', '.join(TASKS)}), a registered Gymnasium id, "
                "or module:Class"
            )
            raise SettingError(f"no environment {name!r}{hint}") from error
        given = f" with {', '.join(options)}" if options else ""
        raise SettingError(
            f"{name} could not be made{given}: {type(error).__name__}: {error}"
        ) from error


def refuse_foreign_code(name: str) -> None:
    """Raise SettingError if making the environment ``name`` would import a module it names."""
    if ":" in name:
        raise SettingError(
            f"the task {name!r} is named by a file, and making it would run the code of the module "
            f"{name.partition(':')[0]!r}; if you trust that code, say so with --trust-task "
            "(in Python: RunFolder(path, trust_task=True))"
        )


def _find_class(name: str) -> type[gymnasium.Env[Any, Any]] | None:
    """The class of ``module:Class``, its module also from the current folder; None without one."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as ``python -m`` does
    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute, None)
    except ModuleNotFoundError as error:
        if error.name and module_name.split(".")[0] == error.name.split(".")[0]:
            raise SettingError(f"{name}: no module {error.name!r} here or installed") from None
        raise
    if found is None or (isinstance(found, type) and issubclass(found, gymnasium.Env)):
        return found
    raise SettingError(f"{name}: expected a subclass of gymnasium.Env, found {found!r}")
