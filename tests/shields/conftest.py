"""A small fitted shield that tests share: never change it, copy it through its snapshot."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from made_shields import ACTIONS, LOOK_AHEAD, OBSERVATIONS, SMALL, record_random

from advice import Shield


@pytest.fixture(scope="session")
def fitted() -> Shield:
    shield = Shield(OBSERVATIONS, ACTIONS, SMALL, seed=1)
    record_random(shield, 150)
    shield.fit()
    return shield


@pytest.fixture(scope="session")
def looking_ahead() -> Shield:
    """Fitted by hindsight and look-ahead."""
    shield = Shield(OBSERVATIONS, ACTIONS, LOOK_AHEAD, seed=1)
    record_random(shield, 150)
    shield.fit()
    return shield


@pytest.fixture(scope="session")
def fitted_discrete() -> Shield:
    shield = Shield(OBSERVATIONS, Discrete(3), SMALL, seed=1)
    record_random(shield, 150)
    shield.fit()
    return shield


@pytest.fixture(scope="session")
def queries() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    obs = rng.uniform(-1, 1, (300, 4)).astype(np.float32)
    return obs, rng.uniform(-1, 1, (300, 2)).astype(np.float32)
