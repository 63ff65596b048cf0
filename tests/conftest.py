"""Settings for all tests: one thread per library, a cache of compiled code, tests/ importable."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from advice.threads import ONE_THREAD

for name, value in ONE_THREAD.items():
    os.environ.setdefault(name, value)
# Workers and the programs that tests start share what JAX compiles; most of a run is compiling.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("default", deadline=None)
settings.load_profile("default")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without pictures, for tests of its words and tables: drawing takes seconds."""
    from markupsafe import Markup

    monkeypatch.setattr("advice.reports.plots.save", lambda drawing, folder: Markup())
