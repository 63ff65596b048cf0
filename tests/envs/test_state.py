"""The same seed gives the same episode; a restored state continues exactly."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest

import advice
from advice.envs import TASKS

EPISODE = """
import hashlib, sys, advice
env = advice.make(sys.argv[1])
env.action_space.seed(1)
digest = hashlib.sha256()
observation, _ = env.reset(seed=7)
for _ in range(60):
    digest.update(observation.tobytes())
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    digest.update(repr((reward, terminated, truncated, info)).encode())
    if terminated or truncated:
        observation, _ = env.reset()
print(digest.hexdigest())
"""


@pytest.mark.parametrize("task", ["randomised-button", "randomised-circle"])
def test_same_seed_same_episode_in_new_processes(task):
    command = [sys.executable, "-c", EPISODE, task]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def follow(env: gymnasium.Env, steps: int) -> list:
    """Everything an episode shows, resets included."""
    rng = np.random.default_rng(5)
    shown = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(rng.uniform(-1, 1, 2))
        shown.append((observation.tobytes(), reward, terminated, truncated, tuple(info.items())))
        if terminated or truncated:
            shown.append(env.reset()[0].tobytes())
    return shown


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_state_continues_exactly_in_another_environment(task):
    env = advice.make(task, max_episode_steps=40)
    env.reset(seed=11)
    follow(env, 25)
    state = env.get_state()
    arrays = {k: v.copy() for k, v in state.items() if isinstance(v, np.ndarray)}
    values = json.loads(json.dumps({k: v for k, v in state.items() if k not in arrays}))
    went_on = follow(env, 80)  # through the time limit and into episodes drawn afterwards

    other = advice.make(task, max_episode_steps=40)
    other.set_state({**arrays, **values})
    assert follow(other, 80) == went_on
    env.set_state(state)
    assert follow(env, 80) == went_on


def test_a_state_of_another_task_is_refused():
    one, other = advice.make("randomised-goal"), advice.make("randomised-circle")
    one.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected randomised-circle.*found randomised-goal"):
        other.set_state(one.get_state())


@pytest.mark.parametrize("task", TASKS)
def test_a_recorded_start_can_be_replayed(task):
    env = advice.make(task)
    first, _ = env.reset(seed=2)
    start = json.loads(json.dumps(env.start))
    pose = env.car_pose
    went = follow(env, 20)
    again, _ = env.reset(seed=99, options={"layout": start})
    np.testing.assert_array_equal(again, first)
    assert env.car_pose == pose
    assert [step[0] for step in follow(env, 20)] == [step[0] for step in went]


def test_seeding_follows_gymnasium():
    env = advice.make("randomised-goal")
    first = env.reset(seed=1)[0]
    second = env.reset()[0]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)


@pytest.mark.parametrize(
    "vector",
    [gymnasium.vector.SyncVectorEnv, partial(gymnasium.vector.AsyncVectorEnv, context="spawn")],
    ids=["sync", "async"],
)
def test_vector_environments(vector):
    makers = [lambda: advice.make("randomised-goal", max_episode_steps=6)] * 2
    many, alone = vector(makers), makers[0]()
    try:
        observations, _ = many.reset(seed=[3, 4])
        np.testing.assert_array_equal(observations[1], alone.reset(seed=4)[0])
        for step in range(1, 7):
            observations, _, _, truncated, infos = many.step(np.full((2, 2), 0.5, np.float32))
            np.testing.assert_array_equal(observations[1], alone.step((0.5, 0.5))[0])
            assert truncated.tolist() == [step == 6] * 2
            assert infos["cost"].shape == (2,)
        many.step(np.zeros((2, 2), np.float32))  # starts the next episodes
    finally:
        many.close()
