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
from made_shields import ACTIONS, OBSERVATIONS, SMALL, copy, record_random

from advice import Outcome, Shield
from advice.files import read_arrays, write_arrays
from advice.types import BrokenFileError, SpaceMismatchError


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "shield.safetensors")
    return tmp_path / "shield.safetensors"


def equal(one: Shield, two: Shield) -> bool:
    (arrays, document), (others, other_document) = one.snapshot(), two.snapshot()
    return (
        document == other_document
        and arrays.keys() == others.keys()
        and all(np.array_equal(x, others[name]) for name, x in arrays.items())
    )


def test_a_loaded_shield_is_the_same_shield(fitted, path, queries):
    loaded = Shield.load(path, OBSERVATIONS, ACTIONS)
    assert equal(loaded, fitted)
    assert loaded.config == fitted.config
    assert loaded.summary == fitted.summary
    for obs, action in zip(*queries, strict=True):
        one, two = fitted.guard(obs, action), loaded.guard(obs, action)
        assert one[1:5] == two[1:5]
        np.testing.assert_array_equal(one.action, two.action)
    assert str(loaded.audit()) == str(fitted.audit())


def test_an_unfitted_shield_can_be_saved_too(tmp_path):
    shield = Shield(OBSERVATIONS, Discrete(3), SMALL, seed=5)
    record_random(shield, 10)
    shield.save(tmp_path / "shield")
    loaded = Shield.load(tmp_path / "shield")
    assert equal(shield, loaded)
    for each in (shield, loaded):
        record_random(each, 5, seed=2)
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
def test_going_on_from_a_snapshot_is_going_on(fitted, cut, seed):
    """Record, guard and end episodes, with an interruption anywhere: bit-identical."""
    config = dataclasses.replace(SMALL, keep_learning=True, capacity_per_class=160)
    whole, part = copy(fitted, config), copy(fitted, config)
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
    """A file with honest digest and dishonest contents."""
    arrays, document = read_arrays(path, "shield", 1)
    change(arrays, document)
    write_arrays(path, arrays, document, "shield", 1)


FORGERIES = {
    "no encoder": lambda a, d: a.pop("encoder.w1"),
    "encoder of another size": lambda a, d: a.update({"encoder.w1": np.zeros((3, 32))}),
    "weights that are not numbers": lambda a, d: a["encoder.w2"].fill(np.nan),
    "weights beyond measure": lambda a, d: a["encoder.w1"].fill(1e300),
    "memory without labels": lambda a, d: a.update({"memory.safe": np.zeros(3, bool)}),
    "memory that is not numbers": lambda a, d: a["memory.latent"].fill(np.nan),
    "no memory": lambda a, d: a.update({"memory.latent": np.zeros((0, 2))}),
    "a scalar for a memory": lambda a, d: a.update({"memory.latent": np.zeros(())}),
    "features of another size": lambda a, d: a.update({"store.safe.features": np.zeros((2, 2))}),
    "held-out names of another kind": lambda a, d: a.update({"held_out": np.zeros((2, 2))}),
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
    "a tree larger than the memory": lambda a, d: d.update(in_tree=10**9),
    "no store": lambda a, d: d.pop("store"),
    "a summary of nothing": lambda a, d: d.update(summary=[1]),
    "episodes that are no list": lambda a, d: d.update(violations=3),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_forged_contents_are_refused(path, what):
    forge(path, FORGERIES[what])
    with pytest.raises(BrokenFileError, match=r"shield\.safetensors"):
        Shield.load(path)


def test_mutated_files_neither_load_nor_crash(path):
    """A thousand of the 20,000 that the soak benchmark tries."""
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


def with_power(power: int) -> Shield:
    """A fitted shield over observations of which all but the third are bounded by 0."""
    low = np.array([0, 0, -1, 0], np.float32)
    config = dataclasses.replace(SMALL, observation_power=power)
    shield = Shield(Box(low, np.ones(4, np.float32)), ACTIONS, config, seed=5)
    record_random(shield, 10)
    shield.fit()
    return shield


def test_the_observation_power_is_saved_with_the_shield(tmp_path):
    shield = with_power(8)
    assert shield._model.encoder.power.tolist() == [8, 8, 1, 8, 1, 1]
    shield.save(tmp_path / "shield")
    loaded = Shield.load(tmp_path / "shield")
    assert equal(shield, loaded)
    other_shield = Shield(shield.observation_space, ACTIONS, SMALL)
    other_shield.restore(*shield.snapshot())
    features = np.random.default_rng(0).uniform(-1, 1, (50, 6))
    for other in (loaded, other_shield):
        assert other.config.observation_power == 8
        latents = shield._model.encoder.encode(features)
        np.testing.assert_array_equal(other._model.encoder.encode(features), latents)


def test_a_restore_that_raises_leaves_the_shield_unchanged():
    arrays, document = with_power(8).snapshot()
    low = np.array([0, 0, -1, 0], np.float32)
    other_shield = Shield(Box(low, np.ones(4, np.float32)), ACTIONS, SMALL)
    with pytest.raises(ValueError, match="held_out"):
        other_shield.restore(arrays | {"held_out": np.zeros(3)}, document)
    assert other_shield.config == SMALL
    assert not other_shield.armed


def test_a_power_without_effect_warns():
    config = dataclasses.replace(SMALL, observation_power=8)
    with pytest.warns(UserWarning, match="observation_power 8 has no effect here"):
        Shield(Box(-np.inf, np.inf, (4,), np.float32), ACTIONS, config)
