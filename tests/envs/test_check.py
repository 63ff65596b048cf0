"""check-env on correct environments and on each kind of fault."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from advice.envs import TASKS, check
from advice.envs.check import check_env, conclude
from advice.envs.make import make_from_name


class Corridor(gymnasium.Env):
    """Moves along a line; beyond its end is a violation. ``fault`` adds one fault."""

    def __init__(self, fault: str = "", length: int = 8):
        self.fault, self.length = fault, length
        high = np.full(1, 2.0, np.float32)
        self.observation_space = Box(-high, high)
        self.action_space = Box(-1, 1, (1,), np.float32)
        if fault == "dict":
            self.observation_space = Dict({"x": self.observation_space})
        if fault == "unbounded":
            self.action_space = Box(-np.inf, np.inf, (1,), np.float32)
        if fault == "discrete":
            self.action_space = Discrete(3)

    def _observation(self):
        x = np.array([np.clip(self.x, -2, 2)], np.float32)
        if self.fault == "nan" and self.steps == 3:
            x[:] = np.nan
        if self.fault == "outside" and self.steps == 3:
            x[:] = 5
        return {"x": x} if self.fault == "dict" else x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rng = np.random.default_rng() if self.fault == "unseeded" else self.np_random
        self.x, self.steps = float(rng.uniform(-0.5, 0.5)), 0
        return self._observation(), {}

    def step(self, action):
        if self.fault == "crash" and self.steps == 5:
            raise RuntimeError("sensor failed")
        self.x += 0.5 * float(np.ravel(action)[0])
        self.steps += 1
        unsafe = {"never": False, "always": True}.get(self.fault, abs(self.x) > 1)
        endless = self.fault == "endless"
        fell, late = abs(self.x) > 1 and not endless, self.steps >= self.length and not endless
        cost = 0.2 * unsafe
        if self.fault == "six":
            return self._observation(), 0.0, cost, fell, late, {}
        if self.fault == "four":
            return self._observation(), 0.0, fell or late, {}
        info = {"violation": unsafe} if self.fault == "violation key" else {"cost": cost}
        info = {} if self.fault == "silent" else info
        return self._observation(), 0.0, fell, late, info


def levels(fault: str, length: int = 8, **options) -> dict[str, check.Finding]:
    findings = check_env(lambda: Corridor(fault, length), episodes=10, max_steps=500, **options)
    worst = {"ok": 0, "warning": 1, "error": 2}
    by_name: dict[str, check.Finding] = {}
    for finding in sorted(findings, key=lambda f: worst[f.level]):
        by_name[finding.name] = finding
    return by_name


@pytest.mark.parametrize("fault", ["", "violation key", "discrete"])
def test_a_correct_environment_passes(fault):
    found = levels(fault)
    assert {finding.level for finding in found.values()} == {"ok"}
    names = ["spaces", "API", "violations", "safe steps", "episodes"]
    assert list(found) == [*names, "observations", "speed"]
    source = 'info["violation"]' if fault == "violation key" else 'info["cost"]'
    assert f"read from {source}, in " in found["violations"].found
    assert "0 unexplained" in found["episodes"].found
    assert conclude(list(found.values())).startswith("shielding can work here")
    assert "steps/s" in found["speed"].found


@pytest.mark.parametrize(
    ("fault", "name", "level", "advice"),
    [
        ("silent", "violations", "error", 'terminal="failure"'),
        ("silent", "violations", "error", "outcome=..."),
        ("silent", "episodes", "warning", 'terminal="success"'),
        ("never", "violations", "warning", "check what reports them"),
        ("never", "episodes", "warning", 'info["success"]'),
        ("always", "violations", "error", "sign and the threshold"),
        ("always", "safe steps", "warning", "only first steps"),
        ("endless", "episodes", "error", "TimeLimit"),
        ("nan", "observations", "error", "not a number"),
        ("outside", "observations", "warning", "widen the space"),
        ("unseeded", "API", "error", "Gymnasium's checker"),
        ("six", "API", "warning", "adapt_safety_gymnasium"),
        ("four", "first step", "error", "terminated, truncated"),
        ("dict", "spaces", "warning", "FlattenObservation"),
        ("unbounded", "spaces", "warning", "finite bounds"),
        ("crash", "random actions", "error", "fix this error"),
    ],
)
def test_each_fault_is_found_and_has_advice(fault, name, level, advice):
    finding = levels(fault)[name]
    assert finding.level == level
    assert advice in finding.advice


def test_unusable_actions_are_an_error_whatever_the_observations():
    env = Corridor("dict")
    env.action_space = gymnasium.spaces.Tuple((Discrete(2), Discrete(2)))
    found = check._check_spaces(env)
    assert found.level == "error"
    assert "(multi-)discrete actions" in found.advice


def test_a_six_value_step_is_named_as_the_source_of_cost():
    assert "6-value step" in levels("six")["violations"].found


def test_terminal_explains_the_ends_of_a_silent_environment():
    found = levels("silent", terminal="failure")
    assert found["violations"].level == found["episodes"].level == "ok"
    assert 'read from terminal="failure"' in found["violations"].found
    found = levels("silent", terminal="success")
    assert found["violations"].level == "error"
    assert found["episodes"].level == "ok"


def test_steps_shortly_before_a_violation_are_not_quiet():
    class Doomed(Corridor):
        def step(self, action):
            return super().step(np.ones(1, np.float32))

    findings = check_env(lambda: Doomed(), episodes=5)
    (finding,) = (f for f in findings if f.name == "safe steps")
    assert (finding.level, finding.found[:14]) == ("warning", "0 quiet steps ")


def test_the_conclusion_is_positive_only_if_a_violation_was_seen():
    assert conclude(list(levels("silent").values())).startswith("shielding does not work here yet")
    assert "not known: see violations and episodes" in conclude(list(levels("never").values()))


def test_a_well_known_environment_needs_no_setting():
    findings = {f.name: f for f in check_env(lambda: gymnasium.make("CartPole-v1"), episodes=5)}
    assert findings["violations"].level == "ok"
    assert "termination is a fall" in findings["violations"].found
    never = {f.name: f for f in check_env(lambda: gymnasium.make("Pendulum-v1"), episodes=1)}
    assert never["violations"].level == "error"


def test_an_environment_that_cannot_be_made_is_a_finding():
    def broken():
        raise OSError("no such robot")

    (finding,) = check_env(broken)
    assert finding.level == "error"
    assert "no such robot" in finding.found


def test_a_slow_environment_stops_in_time(monkeypatch):
    monkeypatch.setattr(check, "SECONDS", 0.0)
    found = {f.name: f for f in check_env(lambda: Corridor("endless"), max_steps=10**9)}
    assert found["episodes"].level == "error"


@pytest.mark.parametrize("task", TASKS)
def test_built_in_tasks_pass(task):
    findings = check_env(lambda: make_from_name(task, max_episode_steps=100), episodes=3)
    assert "error" not in {finding.level for finding in findings}


def test_environments_are_made_from_names(tmp_path, monkeypatch):
    assert make_from_name("randomised-goal", cubes=2).task.cubes == 2
    assert (
        make_from_name("advice/RandomisedGoal-v0", max_episode_steps=9).task.max_episode_steps == 9
    )
    assert make_from_name("CartPole-v1").spec.id == "CartPole-v1"
    (tmp_path / "my_corridor.py").write_text(
        "import gymnasium\n"
        "class Mine(gymnasium.Env):\n"
        "    action_space = observation_space = gymnasium.spaces.Box(0, 1)\n"
        "    def __init__(self, size=1): self.size = size\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p])
    assert make_from_name("my_corridor:Mine", size=3).size == 3
    limited = make_from_name("my_corridor:Mine", max_episode_steps=5)
    assert isinstance(limited, gymnasium.wrappers.TimeLimit)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("randomised-gaol", "did you mean 'randomised-goal'"),
        ("NoSuchThing-v0", "expected a task"),
        ("no_such_module:Thing", "no module 'no_such_module'"),
        ("math:Thing", "no environment 'math:Thing'"),
    ],
)
def test_unknown_names_say_what_was_expected(name, said):
    with pytest.raises(ValueError, match=said):
        make_from_name(name)
