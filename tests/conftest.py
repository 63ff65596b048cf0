"""Settings for all tests: one thread per library, tests/ importable."""

import os
import sys
from pathlib import Path

from hypothesis import settings

from advice.threads import ONE_THREAD

for name, value in ONE_THREAD.items():
    os.environ.setdefault(name, value)
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("default", deadline=None)
settings.load_profile("default")
