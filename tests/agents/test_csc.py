"""The conservative safety critic: its targets, its loss, and the shield that uses it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from practice import SMALL

from advice.agents.agent import as_batch
from advice.agents.csc import (
    CSC,
    conservative_loss,
    failure_probability,
    failure_target,
    sample_policy_actions,
)
from advice.agents.networks import Layer, Learner
from advice.config import AgentConfig, CSCConfig
from advice.shields.safety_critic import SafetyCriticShield
from advice.types import Array, SpaceMismatchError, Transition, Verdict

OBS, ACT = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)
STATE = np.zeros(2, np.float32)


def make(seed: int = 0, **settings: Any) -> CSC:
    config = AgentConfig(warmup_steps=0, hidden_size=8, batch_size=4, csc=CSCConfig(**settings))
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
    batch = as_batch(np.zeros((1, 8), np.float32), 2)._replace(action=np.array([[0.0]]))
    policy_actions = jnp.log(jnp.array([[[3.0], [1.0]]]))  # Q_C of 3/4 and 1/2
    loss = conservative_loss(network, batch, jnp.array([0.1]), policy_actions, 0.5)
    # ½ (½ - 0.1)² + 0.5 (½ - 5/8)
    assert float(loss) == pytest.approx(0.08 - 0.0625, abs=1e-5)


@pytest.mark.slow
def test_conservative_term_raises_danger_on_policy_actions_and_lowers_it_on_data() -> None:
    """With the Bellman term at its minimum, one step down the loss moves Q_C the right way."""
    agent = make()
    network = agent.state.safety_critic.network
    rng = np.random.default_rng(0)
    rows = np.zeros((64, 8), np.float32)
    rows[:, 2] = rng.uniform(-1.0, -0.5, 64)  # the data lie to the left
    batch = as_batch(rows, 2)
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


def practised(steps: list[tuple[float, float]], updates: int) -> CSC:
    """After updates on final steps in one state, each an action and its cost.

    It has the settings and sizes of test_learning.py, so that its update is compiled once for both.
    """
    agent = CSC(ACT, ACT, SMALL, 0)
    for _ in range(SMALL.batch_size):
        for action, cost in steps:
            state = np.zeros(1, np.float32)
            agent.observe(Transition(state, np.array([action]), 0.0, cost, state, True))
    for _ in range(updates):
        agent.learn()
    return agent


@pytest.mark.slow
def test_updates_raise_the_danger_of_the_policys_actions() -> None:
    """All data are at -1 and never fail: only the conservative term raises Q_C at 0."""
    agent = practised([(-1.0, 0.0)], 400)
    danger = agent.failure_probabilities(np.zeros(1), np.array([[-1.0], [0.0]]))
    assert danger[0] < 0.2 < 0.5 < danger[1]


@pytest.mark.slow
def test_failures_are_learnt_as_probability_one() -> None:
    agent = practised([(0.8, 0.2), (-0.8, 0.0)], 400)
    danger = agent.failure_probabilities(np.zeros(1), np.array([[0.8], [-0.8]]))
    np.testing.assert_allclose(danger, [1, 0], atol=0.15)


def test_numpy_danger_is_the_same_function() -> None:
    agent = make()
    actions = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    expected = failure_probability(
        agent.state.safety_critic.network, jnp.zeros((5, 2)), jnp.asarray(actions)
    )
    np.testing.assert_allclose(agent.failure_probabilities(STATE, actions), expected, rtol=1e-5)


def step(agent: CSC, explore: bool = True) -> tuple[Array, Verdict]:
    """The agent's proposal in STATE and the verdict on it."""
    proposed = agent.act(STATE, explore)
    return proposed, SafetyCriticShield(agent).guard(STATE, proposed)


@pytest.fixture
def rated(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """The sets of actions whose danger was asked for."""
    seen: list[Array] = []
    original = CSC.failure_probabilities

    def remember(self: CSC, obs: Array, actions: Array) -> Array:
        seen.append(actions)
        return original(self, obs, actions)

    monkeypatch.setattr(CSC, "failure_probabilities", remember)
    return seen


def test_an_allowed_proposal_is_executed(rated: list[Array]) -> None:
    proposed, verdict = step(with_danger(make(), 0.0, -3.0))  # Q_C = 0.047 everywhere
    assert [len(actions) for actions in rated] == [1]
    assert verdict == Verdict(proposed, False, 0, False)


def test_the_first_allowed_draw_is_executed(rated: list[Array]) -> None:
    agent = with_danger(make(draw_noise=0.5), 20.0, -np.log(4.0))  # Q_C ≤ 0.2 exactly for a ≤ 0
    interventions = 0
    for _ in range(20):
        proposed, verdict = step(agent)
        assert verdict.action[0] <= 0
        np.testing.assert_allclose(verdict.action, rated[-1][rated[-1][:, 0] <= 0][0], rtol=1e-6)
        assert verdict.intervened == (proposed[0] > 0) == (len(rated[-1]) == 100)
        assert not verdict.no_safe_action
        interventions += verdict.intervened
    assert 0 < interventions < 20


def test_with_nothing_allowed_the_least_dangerous_draw_is_executed(rated: list[Array]) -> None:
    _, verdict = step(with_danger(make(), 1.0, 5.0))  # Q_C > 0.98, rising with the action
    assert len(rated[-1]) == 100
    assert verdict.action[0] == pytest.approx(rated[-1].min(), rel=1e-6)
    assert verdict.no_safe_action


def test_with_nothing_else_to_draw_the_proposal_is_executed() -> None:
    proposed, verdict = step(with_danger(make(draws=1), 1.0, 5.0))
    assert verdict == Verdict(proposed, False, 0, True)


def test_the_noise_advances_once_a_step_however_many_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for offset, intervened in ((-9.0, False), (9.0, True)):
        agent = with_danger(make(), 0.0, offset)
        taken: list[int] = []
        monkeypatch.setattr(agent.noise, "step", lambda rng, t=taken: t.append(1) or np.zeros(1))
        draws_examined = [step(agent)[1].candidates > 0 for _ in range(7)]
        assert len(taken) == 7
        assert draws_examined == [intervened] * 7


def test_evaluation_tries_the_policys_own_action_first() -> None:
    agent = with_danger(make(), 0.0, -3.0)
    np.testing.assert_array_equal(step(agent, explore=False)[1].action, agent.greedy(STATE))
    refused = with_danger(make(), 20.0, 20.0)  # only well below zero is harmless
    before = refused.rng.bit_generator.state
    _, verdict = step(refused, explore=False)
    assert verdict.intervened
    assert verdict.action[0] < refused.greedy(STATE)[0]
    np.testing.assert_array_equal(step(refused, explore=False)[1].action, verdict.action)
    assert refused.rng.bit_generator.state == before  # evaluation leaves the agent unchanged


def test_the_multiplier_counts_failed_episodes() -> None:
    agent = make()
    assert agent.multiplier == 1.0
    agent.end_episode(0.2)
    agent.end_episode(50.0)
    agent.end_episode(0.0)
    assert agent.multiplier == pytest.approx(1.08)


def test_a_safety_critic_moves_to_another_run() -> None:
    source, other = make(seed=1), make(seed=2)
    actions = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    before = other.greedy(STATE)
    SafetyCriticShield(other).restore(*SafetyCriticShield(source).snapshot())
    np.testing.assert_array_equal(
        other.failure_probabilities(STATE, actions), source.failure_probabilities(STATE, actions)
    )
    np.testing.assert_array_equal(other.greedy(STATE), before)


def test_what_is_no_safety_critic_is_refused() -> None:
    agent = make()
    before = agent.snapshot()[0]
    SafetyCriticShield(agent).restore({}, {})  # from a checkpoint of an earlier version
    with pytest.raises(KeyError, match="safety_critic"):
        SafetyCriticShield(agent).restore({"pairs": np.zeros((0, 3))}, {})
    wider = CSC(OBS, ACT, AgentConfig(warmup_steps=0, hidden_size=16), 0)
    with pytest.raises(SpaceMismatchError, match="expected shape"):
        SafetyCriticShield(agent).restore(*SafetyCriticShield(wider).snapshot())
    for name, array in agent.snapshot()[0].items():
        np.testing.assert_array_equal(array, before[name])


def test_the_adaptive_threshold_by_hand() -> None:
    agent = make(threshold_rule="adaptive", failure_limit=0.6, gamma=0.9)
    assert agent.threshold == pytest.approx(0.1 * 0.6)
    for cost in (0.2, 0.0, 0.0, 0.0):
        agent.end_episode(cost)
    assert agent.threshold == pytest.approx(0.1 * (0.6 - 0.25))
    copy = make(threshold_rule="adaptive", failure_limit=0.6, gamma=0.9)
    copy.restore(*agent.snapshot())
    assert copy.threshold == agent.threshold
    for _ in range(10):
        agent.end_episode(0.2)
    assert agent.threshold == 0.0  # 11 of 14 failed, more than the limit
    assert make().threshold == 0.2  # fixed


def test_the_conservative_term_can_do_without_uniform_actions() -> None:
    csc = CSCConfig(conservative_actions=3, draw_noise=0.01)
    actor, key = make().state.actor.network, jax.random.key(0)
    mixed = sample_policy_actions(key, actor, jnp.zeros((5, 2)), 1, csc)
    near = sample_policy_actions(
        key, actor, jnp.zeros((5, 2)), 1, dataclasses.replace(csc, uniform_actions=False)
    )
    assert mixed.shape == (5, 6, 1)
    np.testing.assert_array_equal(near, mixed[:, :3])
    assert abs(near).max() < 0.1 < abs(mixed[:, 3:]).max()
