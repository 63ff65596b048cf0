"""A fitted shield for all tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tiny import Corridor

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a shield fitted on the corridor."""
    from walking import QUICK, run

    from advice import ShieldedEnv

    path = tmp_path_factory.mktemp("fitted") / "corridor.safetensors"
    env = ShieldedEnv(Corridor(), config=QUICK)
    run(env, QUICK.construction_episodes)
    env.save(path)
    return str(path)
