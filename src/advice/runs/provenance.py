"""Where a run comes from: versions, commit, machine and command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

TRAINING_VERSION = 2
"""Raised with every change that alters what a training gives; tests/test_golden_runs.py checks it.
Runs of different commits with the same number may be compared."""


def provenance() -> dict[str, Any]:
    """Versions, commit, machine and command: what one needs to repeat a run."""
    packages = ("advice-rl", "numpy", "scipy", "jax", "jaxlib", "optax", "mujoco", "gymnasium")
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in packages},
        "training": TRAINING_VERSION,
        "commit": _commit(),
        "platform": platform.platform(),
        "cores": affinity,
        "threads": {
            name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "XLA_FLAGS", "NPROC")
        },
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
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + (
            "+" if git("status", "--porcelain", "--", str(here)) else ""
        )
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
