"""The conservative safety critic: its targets, the sign of its doubt, and its veto."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

from advice.agents.csc import (
    CSC,
    conservative_loss,
    failure_probability,
    failure_target,
)
from advice.agents.networks import Layer, Learner
from advice.agents.replay import split
from advice.config import AgentConfig, CSCConfig
from advice.types import Array, SpaceMismatchError, Transition

OBS, ACT = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)
STATE = np.zeros(2, np.float32)


def make(seed: int = 0, **settings: Any) -> CSC:
    config = AgentConfig(hidden_size=8, batch_size=4, csc=CSCConfig(**settings))
    return CSC(OBS, ACT, config, seed)


def linear(slope: float, offset: float) -> tuple[Layer, ...]:
    """The logit of Q_C is slope * action + offset; lifted by 32, so that the ReLU passes it."""
    lifted = Layer(jnp.array([[0.0], [0.0], [slope]]), jnp.array([offset + 32.0]))
    return (lifted, Layer(jnp.ones((1, 1)), jnp.array([-32.0])))


def with_danger(agent: CSC, slope: float, offset: float) -> CSC:
    """Give ``agent`` a linear safety critic."""
    network = linear(slope, offset)
    agent.state = agent.state._replace(safety_critic=Learner(network, None, network))
    agent._copies = {}
    return agent


def test_failure_target_by_hand() -> None:
    failed, later = np.array([0.0, 0.0, 1.0, 1.0]), np.full(4, 0.5)
    done = np.array([0.0, 1.0, 1.0, 0.0])
    # bootstraps only where nothing failed and nothing ended; never beyond 1
    np.testing.assert_allclose(failure_target(failed, later, done, 0.9), [0.45, 0, 1, 1])


def test_conservative_loss_by_hand() -> None:
    """A critic whose logit is the action: Q_C = sigmoid(a)."""
    network = linear(1.0, 0.0)
    batch = split(np.zeros((1, 8), np.float32), 2, 1)._replace(action=np.array([[0.0]]))
    policy_actions = jnp.log(jnp.array([[[3.0], [1.0]]]))  # Q_C of 3/4 and 1/2
    loss = conservative_loss(network, batch, jnp.array([0.1]), policy_actions, 0.5)
    # ½ (½ - 0.1)² + 0.5 (½ - 5/8)
    assert float(loss) == pytest.approx(0.08 - 0.0625, abs=1e-5)


def test_doubt_raises_danger_on_policy_actions_and_lowers_it_on_data() -> None:
    """With the Bellman term at its minimum, one step down the loss moves Q_C the right way."""
    agent = make()
    network = agent.state.safety_critic.network
    rng = np.random.default_rng(0)
    rows = np.zeros((64, 8), np.float32)
    rows[:, 2] = rng.uniform(-1.0, -0.5, 64)  # the data lie to the left
    batch = split(rows, 2, 1)
    policy_actions = jnp.asarray(rng.uniform(0.5, 1.0, (64, 3, 1)), jnp.float32)  # to the right
    target = failure_probability(network, batch.obs, batch.action)

    def loss(candidate: tuple[Layer, ...]) -> jax.Array:
        value: jax.Array = conservative_loss(candidate, batch, target, policy_actions, 0.5)
        return value

    moved = jax.tree.map(lambda w, g: w - 0.05 * g, network, jax.jit(jax.grad(loss))(network))

    def gap(candidate: tuple[Layer, ...]) -> float:
        right = failure_probability(candidate, jnp.zeros((64, 2)), policy_actions[:, 0])
        left = failure_probability(candidate, batch.obs, batch.action)
        return float(right.mean() - left.mean())

    assert gap(moved) > gap(network)


def test_updates_raise_the_danger_of_the_policys_actions() -> None:
    """All data sit at -1 and never fail; the policy is at 0: doubt alone must raise it there."""
    agent = make(learning_rate=1e-3)
    for _ in range(8):
        agent.observe(Transition(STATE, np.array([-1.0]), 0.0, 0.0, STATE, True))
    for _ in range(400):
        agent.learn()
    danger = agent.rate_danger(STATE, np.array([[-1.0], [0.0]]))
    assert danger[0] < 0.2 < 0.5 < danger[1]


def test_failures_are_learnt_as_probability_one() -> None:
    agent = make(learning_rate=1e-2, conservative_weight=0.0)
    for _ in range(8):
        agent.observe(Transition(STATE, np.array([0.8]), 0.0, 0.2, STATE, True))
        agent.observe(Transition(STATE, np.array([-0.8]), 0.0, 0.0, STATE, True))
    for _ in range(300):
        agent.learn()
    danger = agent.rate_danger(STATE, np.array([[0.8], [-0.8]]))
    np.testing.assert_allclose(danger, [1, 0], atol=0.15)


def test_numpy_danger_is_the_same_function() -> None:
    agent = make()
    actions = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    expected = failure_probability(
        agent.state.safety_critic.network, jnp.zeros((5, 2)), jnp.asarray(actions)
    )
    np.testing.assert_allclose(agent.rate_danger(STATE, actions), expected, rtol=1e-5)


def draws(agent: CSC, monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """Watch the sets of actions whose danger is asked for."""
    seen: list[Array] = []
    original = CSC.rate_danger

    def watch(self: CSC, obs: Array, actions: Array) -> Array:
        seen.append(actions)
        return original(self, obs, actions)

    monkeypatch.setattr(CSC, "rate_danger", watch)
    return seen


def test_a_harmless_draw_is_executed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = with_danger(make(), 0.0, -3.0)  # Q_C = 0.047 everywhere
    seen = draws(agent, monkeypatch)
    action = agent.act(STATE)
    assert [len(actions) for actions in seen] == [1]
    np.testing.assert_allclose(action, seen[0][0], rtol=1e-6)
    assert agent.vetoes == 0


def test_the_first_allowed_draw_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = with_danger(make(draw_noise=0.5), 20.0, -np.log(4.0))  # Q_C ≤ 0.2 exactly for a ≤ 0
    seen = draws(agent, monkeypatch)
    vetoed = 0
    for _ in range(20):
        action = agent.act(STATE)
        assert action[0] <= 0
        allowed = seen[-1][seen[-1][:, 0] <= 0]
        np.testing.assert_allclose(action, allowed[0], rtol=1e-6)
        vetoed += len(seen[-1]) == 100
    assert agent.vetoes == vetoed
    assert 0 < vetoed < 20
    agent.start_episode()
    assert agent.vetoes == 0


def test_with_nothing_allowed_the_least_dangerous_draw_is_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = with_danger(make(), 1.0, 5.0)  # Q_C > 0.98 everywhere, rising with the action
    seen = draws(agent, monkeypatch)
    action = agent.act(STATE)
    assert len(seen[-1]) == 100
    assert action[0] == pytest.approx(seen[-1].min(), rel=1e-6)


def test_the_noise_advances_once_a_step_however_many_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calm, strict = with_danger(make(), 0.0, -9.0), with_danger(make(), 0.0, 9.0)
    steps = []
    for agent in (calm, strict):
        taken: list[int] = []
        monkeypatch.setattr(agent.noise, "step", lambda rng, t=taken: t.append(1) or np.zeros(1))
        for _ in range(7):
            agent.act(STATE)
        steps.append(len(taken))
    assert steps == [7, 7]
    assert (calm.vetoes, strict.vetoes) == (0, 7)


def test_evaluation_tries_the_policys_own_action_first() -> None:
    agent = with_danger(make(), 0.0, -3.0)
    np.testing.assert_array_equal(agent.act(STATE, explore=False), agent.greedy(STATE))
    refused = with_danger(make(), 20.0, 20.0)  # only well below zero is harmless
    before = refused.rng.bit_generator.state
    action = refused.act(STATE, explore=False)
    assert action[0] < refused.greedy(STATE)[0]
    assert refused.vetoes == 1
    np.testing.assert_array_equal(refused.act(STATE, explore=False), action)
    assert refused.rng.bit_generator.state == before  # evaluating leaves a run as it was


def test_the_multiplier_counts_failed_episodes() -> None:
    agent = make()
    assert agent.multiplier == 1.0
    agent.end_episode(0.2)
    agent.end_episode(50.0)
    agent.end_episode(0.0)
    assert agent.multiplier == pytest.approx(1.08)


def test_a_safety_critic_moves_to_another_run() -> None:
    teacher, pupil = make(seed=1), make(seed=2)
    probe = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    before = pupil.greedy(STATE)
    assert pupil.adopt_safety(teacher.snapshot()[0])
    np.testing.assert_array_equal(
        pupil.rate_danger(STATE, probe), teacher.rate_danger(STATE, probe)
    )
    np.testing.assert_array_equal(pupil.greedy(STATE), before)
    assert not pupil.adopt_safety({})
    wider = CSC(OBS, ACT, AgentConfig(hidden_size=16), 0)
    with pytest.raises(SpaceMismatchError, match="expected"):
        pupil.adopt_safety(wider.snapshot()[0])
