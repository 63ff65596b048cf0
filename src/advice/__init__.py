"""ADVICE: a shield that learns from recorded violations and then guards its actions.

Importing this package registers the tasks with Gymnasium (where it is installed) and nothing
heavier: MuJoCo, JAX and SciPy are loaded when they are first needed.
"""

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from advice.config import PRESETS, ShieldConfig
from advice.envs import register_tasks
from advice.types import Outcome, Verdict

if TYPE_CHECKING:
    from advice.envs.make import make
    from advice.integrations.wrapper import ShieldedEnv
    from advice.shields.shield import Shield

__version__ = "0.1.0"
__all__ = ["PRESETS", "Outcome", "Shield", "ShieldConfig", "ShieldedEnv", "Verdict", "make"]

_LAZY = {
    "Shield": "advice.shields.shield",
    "ShieldedEnv": "advice.integrations.wrapper",
    "make": "advice.envs.make",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'advice' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


with suppress(ImportError):  # a saved shield guards without Gymnasium
    register_tasks()
