"""Small shield files that ask for much memory are refused before anything is built."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from made_shields import LOOK_AHEAD, OBSERVATIONS, proposals

from advice import Outcome, Shield, ShieldConfig
from advice.files import read_arrays, write_arrays
from advice.shields.encoder import Encoder, EncoderWeights
from advice.shields.fit import Evidence, FitSummary
from advice.shields.model import FittedModel, Points
from advice.types import BrokenFileError, SettingError


def saved(path: Path, actions: object, hidden: int, **settings: int) -> None:
    """A file of a shield with few points and any weights, then with other settings.

    What a fit would find is of no matter here, and its time grows with the number of actions.
    """
    config = ShieldConfig(hidden_size=hidden, arm="fixed", candidate_budget=4)
    shield = Shield(OBSERVATIONS, actions, config)
    rng = np.random.default_rng(0)
    for number in range(40):
        obs, action = rng.uniform(-1, 1, 4), proposals(shield, rng)
        action = np.asarray(action).astype(shield.action_space.dtype)
        shield.record(obs, action, Outcome(number % 2))
        shield.end_episode(False)
    steps, size = shield._memory.all(), shield.space.size
    weights = EncoderWeights(
        np.zeros(size),
        np.ones(size),
        rng.normal(size=(size, hidden)),
        np.zeros(hidden),
        rng.normal(size=(hidden, 2)),
        np.zeros(2),
    )
    encoder = Encoder(weights, shield.observation_space.size)
    latent, safe = encoder.encode(steps.features.astype(np.float64)), steps.outcomes == Outcome.SAFE
    points = Points(latent, safe, steps.episodes % 5 == 0, steps.episodes)
    model = FittedModel(encoder, points, shield.action_space, config, np.ones(2))
    shield._arm(model, FitSummary(2, 0.5, 40, 8, Evidence(0.9, 0.5, 0.4, 0.1), 3, 5))
    shield.save(path)
    arrays, document = read_arrays(path, "shield", 2)
    document["config"] |= settings
    write_arrays(path, arrays, document, "shield", 2)
    assert path.stat().st_size < 2**20


def peak_of_loading(path: Path) -> float:
    """Megabytes that loading takes, whether it succeeds or not."""
    tracemalloc.start()
    try:
        Shield.load(path)
    except BrokenFileError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / 2**20


WIDE = Box(-1, 1, (600,), np.float32)


@pytest.mark.parametrize(
    ("actions", "hidden", "budget", "refused"),
    [
        (WIDE, 4, 2**16, True),
        (WIDE, 4, 2**11, False),
        (Box(-1, 1, (2,), np.float32), 2000, 2**16, True),
        (Box(-1, 1, (8,), np.int64), 16, 2**16, False),
        (Discrete(4000), 8, 2**16, False),
    ],
)
def test_loading_takes_little_memory_or_is_refused(
    actions: object, hidden: int, budget: int, refused: bool, tmp_path: Path
) -> None:
    path = tmp_path / "shield"
    saved(path, actions, hidden, candidate_budget=budget, candidates_per_dimension=200)
    assert peak_of_loading(path) < 200
    if refused:
        with pytest.raises(BrokenFileError, match="candidate_budget"):
            Shield.load(path)
    else:
        assert Shield.load(path).armed


def test_a_shield_that_could_not_be_loaded_is_not_made() -> None:
    with pytest.raises(SettingError, match=r"candidate_budget: .* too many"):
        Shield(OBSERVATIONS, WIDE, ShieldConfig(candidate_budget=2**16))
    Shield(OBSERVATIONS, WIDE, LOOK_AHEAD)
