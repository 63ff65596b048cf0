"""One thread per process, so that runs repeat exactly and two runs use two cores.

The libraries read these settings when they are loaded, so a command or script that needs them
restarts itself with the environment set. A user who set a variable keeps the value.
"""

import os
import sys
from collections.abc import Mapping

ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def one_thread(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` with every thread setting that is not there yet."""
    return {**ONE_THREAD, **environ}


def restart_with_one_thread() -> None:
    """Restart this command with one thread per library, unless that is set already."""
    wanted = one_thread(os.environ)
    if wanted != dict(os.environ):
        os.execve(sys.executable, sys.orig_argv, wanted)
