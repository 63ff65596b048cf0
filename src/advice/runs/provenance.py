"""Where a run comes from: versions, commit, machine and command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

TRAINING_VERSIONS = {
    "loop": 2,  # with the tasks and DDPG, which nearly all methods use
    **{"ddpg-lag": 0, "rcpo": 0, "csc": 0, "td3": 0, "sac": 0},
    **{"tabular": 0, "advice": 1},
}
"""A part's number is raised with every change of it that alters what a training gives, which
tests/test_golden_runs.py checks. Runs of different commits may be compared if the sums of the
numbers of the parts they use are the present ones."""
_PACKAGES = ("advice-rl", "numpy", "scipy", "jax", "jaxlib", "optax", "mujoco", "gymnasium")


def training_version(method: str) -> int:
    """The number of the training of a method: the sum of its parts', so each change raises it."""
    return sum(TRAINING_VERSIONS.get(part, 0) for part in ("loop", *method.split("+")))


def provenance(method: str) -> dict[str, Any]:
    """Versions, commit, machine and command: what one needs to repeat a run."""
    threads = ("OMP_NUM_THREADS", "XLA_FLAGS", "NPROC")
    return {
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
        "training": training_version(method),
        "commit": _commit(),
        "platform": platform.platform(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "threads": {name: os.environ.get(name) for name in threads},
        "command": sys.argv[1:],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this source tree, with a + if it was changed since; None if installed.

    An installed package may lie below another repository, which does not track this file.
    """
    here = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = "+" if git("status", "--porcelain", "--", str(here)) else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return None


def is_provenance(made: Any) -> bool:
    """True if readers find what they look for: versions by name, a commit, how it was resumed."""
    if not isinstance(made, dict) or not isinstance(made.get("versions", {}), dict):
        return False
    words = [made.get("commit"), *made.get("versions", {}).values()]
    resumed = made.get("resumed", [])
    return (
        all(x is None or (isinstance(x, str) and len(x) <= 200) for x in words)
        and isinstance(resumed, list)
        and all(isinstance(x, dict) and "resumed" not in x and is_provenance(x) for x in resumed)
    )
