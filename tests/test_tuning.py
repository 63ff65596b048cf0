"""The tuning benchmark: as many trials for each method, and the rule that chooses."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

from advice.config import TrainConfig, flat
from advice.runs.studies import METHOD_SETTINGS, cells_of

PATH = Path(__file__).parent.parent / "benchmarks" / "tune.py"


@pytest.fixture(scope="module")
def tune():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advice.threads.restart_with_one_thread", lambda: None)
        spec = importlib.util.spec_from_file_location("tune", PATH)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_every_method_has_as_many_trials_of_real_settings(tune, tmp_path):
    assert {len(trials) for trials in tune.TRIALS.values()} == {4}
    for method, trials in tune.TRIALS.items():
        for number, settings in enumerate(trials, start=1):
            study = tune.Trial(method, number, settings).study
            cells = cells_of([study], tune.SEEDS, tmp_path, TrainConfig())
            assert [cell.config.seed for cell in cells] == [100, 101, 102]


def test_the_rule_takes_fewest_violations_among_those_that_succeed_enough(tune):
    counts = {1: tune.Counts(30, 70, 0), 2: tune.Counts(20, 66, 14), 3: tune.Counts(5, 60, 35)}
    assert tune.choose(counts, reference=70) == 1  # 0.95 * 70 = 66.5
    assert tune.choose(counts, reference=69) == 2
    assert tune.choose(counts, reference=90) == 1  # none is enough: most successes


def test_the_studies_use_what_the_rule_chose() -> None:
    """But for DDPG, whose settings all methods share, and ADVICE, which keeps its defaults."""
    with open(PATH.parents[1] / "results-tuning" / "trials" / "trials.csv", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["chosen"]]
    chosen = {row["method"]: dict(x.split("=") for x in row["settings"].split()) for row in rows}
    defaults = flat(TrainConfig())
    for method in ("ddpg-lag", "rcpo", "csc"):
        used = defaults | METHOD_SETTINGS[method]
        assert {name: str(used[name]) for name in chosen[method]} == chosen[method]
        assert set(METHOD_SETTINGS[method]) <= set(chosen[method])
