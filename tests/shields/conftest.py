"""A small fitted shield that tests share: never change it, copy it through its snapshot."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from made_shields import LOOK_AHEAD, SMALL, fitted_on

from advice import Shield


@pytest.fixture(scope="session")
def fitted() -> Shield:
    return fitted_on(150, SMALL)


@pytest.fixture(scope="session")
def looking_ahead() -> Shield:
    """Fitted by hindsight and look-ahead."""
    return fitted_on(150, LOOK_AHEAD)


@pytest.fixture(scope="session")
def fitted_discrete() -> Shield:
    return fitted_on(150, SMALL, Discrete(3))


@pytest.fixture(scope="session")
def queries() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    obs = rng.uniform(-1, 1, (300, 4)).astype(np.float32)
    return obs, rng.uniform(-1, 1, (300, 2)).astype(np.float32)
