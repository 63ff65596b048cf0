from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_shields import ACTIONS, LOOK_AHEAD, OBSERVATIONS, SMALL, copy, record_random

from advice import Outcome, Shield
from advice.files import read_arrays, write_arrays
from advice.shields.fit import Evidence, FitSummary
from advice.types import BrokenFileError, SpaceMismatchError
from marks import slow_but


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "shield.safetensors")
    return tmp_path / "shield.safetensors"


@pytest.fixture(params=["fitted", "looking_ahead"])
def each(request):
    """A shield with the paper's labels, and one that looks ahead."""
    return request.getfixturevalue(request.param)


def equal(one: Shield, two: Shield) -> bool:
    """Equal in all but what was before arming, by which a loaded shield is not judged."""
    (arrays, document), (others, other_document) = one.snapshot(), two.snapshot()
    return (
        document | {"effect": None} == other_document | {"effect": None}
        and arrays.keys() == others.keys()
        and all(np.array_equal(x, others[name]) for name, x in arrays.items())
    )


def test_a_loaded_shield_is_the_same_shield(each, tmp_path, queries):
    path = tmp_path / "shield"
    each.save(path)
    loaded = Shield.load(path, OBSERVATIONS, ACTIONS)
    assert equal(loaded, each)
    assert loaded.config == each.config
    assert loaded.hold == each.hold
    assert repr(loaded.summary) == repr(each.summary)  # NaN where nothing was held out
    for obs, action in zip(*queries, strict=True):
        one, two = each.guard(obs, action), loaded.guard(obs, action)
        assert one[1:5] == two[1:5]
        np.testing.assert_array_equal(one.action, two.action)
    assert str(loaded.audit()) == str(each.audit())


def test_a_summary_with_unknown_values_survives():
    summary = FitSummary(7, float("nan"), 30, 6, Evidence(0.1, float("nan"), 1 / 3, 0.0), 2, 15)
    stored = json.loads(json.dumps(summary.to_list(), allow_nan=False))
    assert repr(FitSummary.from_list(stored)) == repr(summary)


@pytest.mark.parametrize(
    "config", slow_but([SMALL], [SMALL, LOOK_AHEAD]), ids=["paper", "look-ahead"]
)
def test_an_unfitted_shield_can_be_saved_too(config, tmp_path):
    shield = Shield(OBSERVATIONS, Discrete(3), config, seed=5)
    record_random(shield, 100)
    shield.save(tmp_path / "shield")
    loaded = Shield.load(tmp_path / "shield")
    assert equal(shield, loaded)
    for each in (shield, loaded):
        record_random(each, 50, seed=2)  # as many as fitted_discrete has: compiled once
        each.fit()
    assert equal(shield, loaded)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (Box(-1, 1, (5,), np.float32), ACTIONS, r"made for Box.*\(4,\).*found Box.*\(5,\)"),
        (Box(-2, 1, (4,), np.float32), ACTIONS, "made for Box.low -1.*found Box.low -2"),
        (OBSERVATIONS, Discrete(3), r"action space: .*Box.*found Discrete\(3"),
    ],
)
def test_other_spaces_are_refused_naming_both(path, observation, action, message):
    with pytest.raises(SpaceMismatchError, match=message):
        Shield.load(path, observation, action)


def test_a_shield_serves_another_task_with_the_same_spaces(path):
    double = Box(-1, 1, (4,), np.float64)
    assert Shield.load(path, double, ACTIONS).guard(np.zeros(4), np.ones(2, "f4")) is not None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_going_on_from_a_snapshot_is_going_on(looking_ahead, cut, seed):
    """Record, guard and end episodes, with an interruption anywhere: bit-identical."""
    config = dataclasses.replace(LOOK_AHEAD, capacity_per_class=160)
    whole, part = copy(looking_ahead, config), copy(looking_ahead, config)
    rng = np.random.default_rng(seed)
    for step in range(40):
        if step == cut:
            part = copy(part)
        obs, action = rng.uniform(-1, 1, 4), rng.uniform(-1, 1, 2).astype(np.float32)
        outcome, ends, violated = (
            Outcome(int(rng.integers(3))),
            rng.random() < 0.2,
            rng.random() < 0.3,
        )
        verdicts = []
        for shield in (whole, part):
            verdict = shield.guard(obs, action)
            shield.record(obs, verdict.action, outcome)
            if ends:
                shield.end_episode(violated)
            verdicts.append((np.asarray(verdict.action).tobytes(), *verdict[1:5]))
        assert verdicts[0] == verdicts[1]
    assert equal(whole, part)


def forge(path, change) -> None:
    """A file whose digest fits and whose contents do not."""
    arrays, document = read_arrays(path, "shield", 2)
    change(arrays, document)
    write_arrays(path, arrays, document, "shield", 2)


FORGERIES = {
    "no encoder": lambda a, d: a.pop("encoder.w1"),
    "encoder of another size": lambda a, d: a.update({"encoder.w1": np.zeros((3, 32))}),
    "weights that are not numbers": lambda a, d: a["encoder.w2"].fill(np.nan),
    "weights beyond measure": lambda a, d: a["encoder.w1"].fill(1e300),
    "no curves": lambda a, d: a.pop("warp.table"),
    "curves of other columns": lambda a, d: a["warp.columns"].fill(99),
    "curves without width": lambda a, d: a["warp.width"].fill(0),
    "curves that are not numbers": lambda a, d: a["warp.table"].fill(np.nan),
    "a risk of another size": lambda a, d: a.update({"risk": np.zeros(3)}),
    "a risk that is not a number": lambda a, d: a["risk"].fill(np.nan),
    "points without labels": lambda a, d: a.update({"points.safe": np.zeros(3, bool)}),
    "points with numbers for labels": lambda a, d: a.update(
        {"points.safe": a["points.safe"].astype(np.int64)}
    ),
    "points that are not numbers": lambda a, d: a["points.latent"].fill(np.nan),
    "no points": lambda a, d: a.update(
        {name: a[name][:0] for name in a if name.startswith("points.")}
    ),
    "a scalar for the points": lambda a, d: a.update({"points.latent": np.zeros(())}),
    "held-out points of another kind": lambda a, d: a.update({"points.held_out": np.zeros((2, 2))}),
    "all points held out": lambda a, d: a["points.held_out"].fill(True),
    "points beyond measure": lambda a, d: a["points.latent"].fill(1e300),
    "steps of another size": lambda a, d: a.update({"steps.features": np.zeros((2, 2))}),
    "steps that are not numbers": lambda a, d: a["steps.features"].fill(np.inf),
    "an outcome that is none": lambda a, d: a["steps.outcomes"].fill(7),
    "pieces longer than the steps": lambda a, d: a["steps.lengths"].fill(10**6),
    "pieces without steps": lambda a, d: a["steps.lengths"].fill(0),
    "fewer keys than pieces": lambda a, d: a.update({"steps.keys": a["steps.keys"][1:]}),
    "fewer steps seen than stored": lambda a, d: d["memory"].update(seen=1),
    "a negative count": lambda a, d: d["memory"].update(violations=-1),
    "no memory": lambda a, d: d.pop("memory"),
    "a memory without a generator": lambda a, d: d["memory"].pop("rng"),
    "a space without end": lambda a, d: d["observation_space"].update(shape=[2**40]),
    "a space of objects": lambda a, d: d["action_space"].update(dtype="object"),
    "a space of code": lambda a, d: d["action_space"].update(dtype="O4,(3)f8"),
    "an unknown setting": lambda a, d: d["config"].update(backdoor=1),
    "a candidate grid without end": lambda a, d: d["config"].update(candidates_per_dimension=10**9),
    "a candidate budget without end": lambda a, d: d["config"].update(
        candidate_budget=10**12, candidates_per_dimension=10**5
    ),
    "K out of range": lambda a, d: d.update(k=-3),
    "K that is no number": lambda a, d: d.update(k="four"),
    "a generator of nothing": lambda a, d: d.update(rng={"bit_generator": "PCG64"}),
    "another generator": lambda a, d: d["rng"].update(bit_generator="os.system"),
    "no last fit": lambda a, d: d.update(fitted_at=[1]),
    "no next trial": lambda a, d: d.pop("next_trial"),
    "a summary of nothing": lambda a, d: d.update(summary=[1]),
    "episodes that are no list": lambda a, d: d.update(violations=3),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_forged_contents_are_refused(looking_ahead, tmp_path, what):
    path = tmp_path / "shield.safetensors"
    looking_ahead.save(path)
    forge(path, FORGERIES[what])
    with pytest.raises(BrokenFileError, match=r"shield\.safetensors"):
        Shield.load(path)


def test_mutated_files_neither_load_nor_crash(path):
    """Some of what benchmarks/attack.py tries."""
    from advice_mutations import mutations

    good = path.read_bytes()
    for mutant in mutations(good, 1000, seed=0):
        path.write_bytes(mutant)
        with pytest.raises(BrokenFileError):
            Shield.load(path)


def test_guarding_from_a_file_needs_neither_jax_nor_gymnasium(path, fitted):
    """In a process where importing them fails; only NumPy and SciPy are there."""
    script = f"""
        import sys
        missing = ["jax", "jaxlib", "optax", "gymnasium", "mujoco", "matplotlib", "tyro"]
        sys.modules.update(dict.fromkeys(missing))
        import json, numpy as np
        from advice import Shield
        shield = Shield.load({str(path)!r})
        verdict = shield.guard(np.full(4, -0.5, np.float32), np.zeros(2, np.float32))
        str(shield.audit()), str(shield.explain(np.zeros(4), np.zeros(2)))
        print(json.dumps([verdict.action.tolist(), *verdict[1:5]]))
        foreign = {{m.partition(".")[0] for m, x in sys.modules.items() if x is not None}}
        assert not foreign & set(missing), foreign & set(missing)
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdict = fitted.guard(np.full(4, -0.5, np.float32), np.zeros(2, np.float32))
    assert json.loads(done.stdout) == [verdict.action.tolist(), *verdict[1:5]]


def test_a_restore_that_raises_leaves_the_shield_unchanged(looking_ahead):
    arrays, document = looking_ahead.snapshot()
    other = Shield(OBSERVATIONS, ACTIONS, LOOK_AHEAD)
    record_random(other, 3, seed=4)
    before = other.snapshot()
    with pytest.raises(ValueError, match="risk: expected"):
        other.restore(arrays | {"risk": np.zeros(3)}, document)
    assert not other.armed
    after = other.snapshot()
    assert after[1] == before[1]
    assert all(np.array_equal(x, before[0][name]) for name, x in after[0].items())


def test_a_file_of_an_earlier_version_is_refused_by_name(path):
    arrays, document = read_arrays(path, "shield", 2)
    write_arrays(path, arrays, document, "shield", 1)
    with pytest.raises(BrokenFileError, match="version"):
        Shield.load(path)
