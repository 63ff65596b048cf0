"""Replay buffer, noise, networks and the DDPG update against numbers worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from practice import updated

from advice.agents.agent import PATIENCE, Agent, OrnsteinUhlenbeck, ReplayBuffer, as_batch
from advice.agents.csc import CSC
from advice.agents.ddpg import DDPG, DDPGLagrangian, td_target
from advice.agents.networks import (
    Layer,
    Learner,
    apply,
    apply_numpy,
    init_learner,
    init_network,
    rate_numpy,
    update_target,
)
from advice.agents.td3_sac import SAC, TD3
from advice.config import AgentConfig, SACConfig
from advice.types import SpaceMismatchError, Transition
from marks import slow_but

OBS, ACT = Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)


def transition(number: float) -> Transition:
    return Transition(
        np.full(3, number),
        np.full(2, number / 10),
        number,
        number / 5,
        np.full(3, number + 1),
        number % 2 == 1,
    )


def test_replay_buffer_returns_the_columns_that_were_added() -> None:
    replay = ReplayBuffer(4, 3, 2)
    for number in range(3):
        replay.add(transition(number))
    batch = as_batch(replay.rows(0, 3), 3)
    np.testing.assert_array_equal(batch.obs, [[0] * 3, [1] * 3, [2] * 3])
    np.testing.assert_allclose(batch.action, [[0, 0], [0.1, 0.1], [0.2, 0.2]], atol=1e-7)
    np.testing.assert_array_equal(batch.reward, [0, 1, 2])
    np.testing.assert_allclose(batch.cost, [0, 0.2, 0.4], atol=1e-7)
    np.testing.assert_array_equal(batch.next_obs[:, 0], [1, 2, 3])
    np.testing.assert_array_equal(batch.terminated, [0, 1, 0])


def test_a_full_replay_buffer_drops_the_oldest_rows_and_samples_the_rest() -> None:
    replay = ReplayBuffer(4, 3, 2)
    for number in range(10):
        replay.add(transition(number))
    assert len(replay) == 4
    np.testing.assert_array_equal(as_batch(replay.rows(6, 10), 3).reward, [6, 7, 8, 9])
    drawn = as_batch(replay.sample(np.random.default_rng(0), 200), 3).reward
    assert set(drawn) == {6, 7, 8, 9}


def test_noise_follows_the_ornstein_uhlenbeck_recursion() -> None:
    noise = OrnsteinUhlenbeck(2, theta=0.15, sigma=0.2, dt=0.01)
    draws = np.random.default_rng(5).standard_normal((2, 2))
    first = 0.02 * draws[0]
    second = first - 0.0015 * first + 0.02 * draws[1]
    rng = np.random.default_rng(5)
    np.testing.assert_allclose(noise.step(rng), first)
    np.testing.assert_allclose(noise.step(rng), second)
    noise.reset()
    assert (noise.value == 0).all()


def test_td_target_by_hand() -> None:
    target = td_target(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([0.0, 1.0]), 0.9)
    np.testing.assert_allclose(target, [2.8, 1.0])


def test_update_target_by_hand() -> None:
    network, target = (jnp.array([10.0, 1.0]),), (jnp.array([0.0, 1.0]),)
    moved = update_target(Learner(network, None, target), 0.005)
    np.testing.assert_allclose(moved.target[0], [0.05, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(moved.network[0], network[0])


def test_numpy_networks_equal_the_jax_ones() -> None:
    network = init_network(jax.random.key(0), (5, 16, 16, 1))
    inputs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    expected = np.asarray(apply(network, inputs))
    copied = jax.tree.map(np.array, network)
    np.testing.assert_allclose(apply_numpy(copied, inputs), expected, rtol=1e-5, atol=1e-6)
    same_state = inputs.copy()
    same_state[:, :3] = inputs[0, :3]
    np.testing.assert_allclose(
        rate_numpy(copied, inputs[0, :3], inputs[:, 3:]),
        np.asarray(apply(network, same_state))[:, 0],
        rtol=1e-5,
        atol=1e-6,
    )


def test_one_update_moves_the_critic_down_its_gradient() -> None:
    """A linear critic q = w·(s, a) on one transition: Adam's first step is lr * sign(gradient)."""
    agent = DDPG(OBS, ACT, AgentConfig(warmup_steps=0, batch_size=1, hidden_size=4), seed=0)
    zero = jnp.zeros
    hidden = (Layer(zero((5, 4)), jnp.ones(4)), Layer(zero((4, 4)), jnp.ones(4)))
    critic = (*hidden, Layer(zero((4, 1)), zero(1)))
    state = agent.state._replace(critic=init_learner(critic, 1e-3))
    agent.observe(Transition(np.zeros(3), np.zeros(2), 1.0, 0.0, np.zeros(3), True))
    after = updated(agent, state)
    # q = 0, y = 1: dL/db = -2, so Adam's first step adds the learning rate to the last bias
    np.testing.assert_allclose(after.critic.network[-1].bias, [1e-3], rtol=1e-4)
    np.testing.assert_allclose(after.critic.target[-1].bias, [1e-3 * 0.005], rtol=1e-4)


KINDS = (DDPG, TD3, SAC, CSC)  # an update of the last two takes 5 s to compile
ENDS = ((False, False), (True, False), (True, True))
# bootstrapping through the end is code that all kinds share, and compiles each of them anew
QUICK = [(*ENDS[0], DDPG), (*ENDS[1], DDPG), (*ENDS[2], DDPG), (*ENDS[0], TD3), (*ENDS[1], TD3)]


@pytest.mark.parametrize(
    ("terminated", "through", "kind"),
    slow_but(QUICK, [(*end, kind) for end in ENDS for kind in KINDS]),
)
def test_terminal_mask(terminated: bool, through: bool, kind: type[Agent]) -> None:
    """Critics that are 1 everywhere and a reward of 0.5: y is 0.5 at a crash and 1.45 elsewhere.

    So the constant goes down where nothing is bootstrapped, and up where something is.
    """
    config = AgentConfig(
        warmup_steps=0,
        hidden_size=4,
        batch_size=1,
        bootstrap_through_terminal=through,
        sac=SACConfig(initial_temperature=1e-6),
    )
    agent = kind(OBS, ACT, config, seed=0)
    name = "critics" if hasattr(agent.state, "critics") else "critic"
    networks = jax.tree.map(jnp.zeros_like, getattr(agent.state, name).network)
    ones = jax.tree.map(
        lambda layer: Layer(layer.weight, jnp.ones(1)) if layer.weight.shape[1] == 1 else layer,
        networks,
        is_leaf=lambda part: isinstance(part, Layer),
    )
    state = agent.state._replace(**{name: init_learner(ones, 1e-3)})
    agent.observe(Transition(np.zeros(3), np.zeros(2), 0.5, 0.0, np.zeros(3), terminated))
    after = getattr(updated(agent, state), name).network
    up = not terminated or through
    for critic in after if name == "critics" else (after,):
        assert float(critic[-1].bias[0]) - 1 == pytest.approx(1e-3 if up else -1e-3, rel=1e-3)


def test_actions_stay_within_the_bounds_of_a_float64_space() -> None:
    space = Box(-0.1, 0.1, (2,), np.float64)
    agent = DDPG(OBS, space, AgentConfig(warmup_steps=0, noise_sigma=50.0), seed=1)
    actions = [agent.act(np.zeros(3, np.float32)) for _ in range(50)]
    assert float(np.float32(0.1)) > 0.1  # why this needs care
    assert all(space.contains(action) for action in actions)
    assert all(action.dtype == np.float64 for action in actions)
    np.testing.assert_allclose(np.max(actions, axis=0), 0.1)


def test_actions_are_within_the_bounds_of_the_space() -> None:
    space = Box(np.array([-3, 0], np.float32), np.array([1, 10], np.float32))
    agent = DDPG(OBS, space, AgentConfig(warmup_steps=0, noise_sigma=50.0), seed=1)
    actions = np.array([agent.act(np.zeros(3, np.float32)) for _ in range(200)])
    assert actions.dtype == np.float32
    assert all(space.contains(action) for action in actions)
    np.testing.assert_array_equal(actions.min(axis=0), space.low)
    np.testing.assert_array_equal(actions.max(axis=0), space.high)
    agent.observe(Transition(np.zeros(3), np.array([1.0, 5.0]), 0.0, 0.0, np.zeros(3), False))
    np.testing.assert_allclose(as_batch(agent.replay.rows(0, 1), 3).action, [[1.0, 0.0]])


def test_a_policy_starts_near_the_middle() -> None:
    agent = DDPG(OBS, ACT, AgentConfig(warmup_steps=0), seed=3)
    assert np.abs(agent.act(np.ones(3, np.float32), explore=False)).max() < 0.05


def test_unsupported_spaces_are_named() -> None:
    with pytest.raises(SpaceMismatchError, match="Discrete"):
        DDPG(OBS, Discrete(3), AgentConfig(), 0)
    with pytest.raises(SpaceMismatchError, match="bounded"):
        DDPG(OBS, Box(-np.inf, np.inf, (2,)), AgentConfig(), 0)
    with pytest.raises(SpaceMismatchError, match="observation"):
        DDPG(Discrete(3), ACT, AgentConfig(), 0)


@pytest.mark.parametrize("kind", slow_but([DDPG, TD3], KINDS))
def test_the_warm_up_is_uniform_held_and_without_updates(kind: type[Agent]) -> None:
    # the sizes of test_terminal_mask, so that the update is compiled once for both
    config = AgentConfig(hidden_size=4, batch_size=1, warmup_steps=400)
    agent, obs = kind(OBS, Box(-2, 2, (2,)), config, 0), np.zeros(3, np.float32)
    weights = agent.snapshot()[0]
    actions = []
    for _ in range(400):
        actions.append(agent.act(obs)[0])
        agent.observe(Transition(obs, np.zeros(2), 0.0, 0.0, obs, False))
        if len(actions) < 400:
            agent.learn()
    held = np.array(actions).reshape(80, 5)
    assert (held == held[:, :1]).all()
    assert len(np.unique(held)) == 80
    # the mean of 80 uniform numbers in [-2, 2] has a deviation of 4 / sqrt(12 * 80) = 0.13
    assert abs(held[:, 0].mean()) < 0.5
    assert np.abs(held).max() > 1.8
    np.testing.assert_equal(agent.snapshot()[0], weights)
    agent.learn()  # the warm-up is over
    with pytest.raises(AssertionError):
        np.testing.assert_equal(agent.snapshot()[0], weights)


def test_a_restored_agent_goes_on_with_its_warm_up() -> None:
    config = AgentConfig(hidden_size=8, warmup_steps=50)
    spaces, obs = (Box(-1, 1, (3,)), Box(-1, 1, (2,))), np.zeros(3, np.float32)
    agent, other = DDPG(*spaces, config, 0), DDPG(*spaces, config, 1)
    for _ in range(7):
        agent.act(obs)
    other.restore(*agent.snapshot())
    for _ in range(50):
        np.testing.assert_array_equal(agent.act(obs), other.act(obs))


def stuck_agent(kind: type[Agent], **settings: int) -> Agent:
    """One whose last layer gives an action beyond ±0.99 in every state, and 600 states to see."""
    config = AgentConfig(hidden_size=8, warmup_steps=10, **settings)
    agent = kind(OBS, ACT, config, 0)
    last = agent.state.actor.network[-1]
    bias = jnp.zeros_like(last.bias).at[:2].set(jnp.array([30.0, -30.0]))
    network = (*agent.state.actor.network[:-1], last._replace(bias=bias))
    agent.state = agent.state._replace(actor=agent.state.actor._replace(network=network))
    rng = np.random.default_rng(0)
    for obs in rng.uniform(-1, 1, (600, 3)).astype(np.float32):
        agent.observe(Transition(obs, np.zeros(2), 0.0, 0.0, obs, False))
    agent.steps = 600
    return agent


@pytest.mark.parametrize("kind", [DDPG, DDPGLagrangian, TD3, SAC, CSC])
def test_a_policy_that_is_stuck_soon_after_its_start_starts_anew(kind: type[Agent]) -> None:
    agent = stuck_agent(kind)
    first = kind(OBS, ACT, agent.config, 0).snapshot()[0]
    assert not agent.restart_if_stuck()
    agent.restore(*agent.snapshot())  # also since when it is stuck
    agent.steps += PATIENCE - 1
    assert not agent.restart_if_stuck()
    agent.steps += 1
    kept = {name: array for name, array in agent.snapshot()[0].items() if "y_critic" in name}
    assert agent.restart_if_stuck()
    assert (agent.restarts, agent.steps) == (1, 0)
    if kind is CSC:
        assert kept
        np.testing.assert_equal({name: agent.snapshot()[0][name] for name in kept}, kept)
    assert np.abs(agent.act(np.ones(3, np.float32), explore=False)).max() < 0.5
    weights = {name: array for name, array in agent.snapshot()[0].items() if "weight" in name}
    assert any((array != first[name]).any() for name, array in weights.items())  # other ones
    again = kind(OBS, ACT, agent.config, 0)
    again.restore(*agent.snapshot())
    assert again.restarts == 1
    agent.steps = 600
    assert not agent.is_stuck()  # its new policy is near the middle


def test_only_a_policy_that_is_stuck_starts_anew() -> None:
    agent = stuck_agent(DDPG)
    agent.steps = 10  # in its warm-up
    assert not agent.is_stuck()
    agent.steps = 50_010  # long after its start it may be as it is for a reason
    assert not agent.is_stuck()
    agent.steps = 600
    assert agent.is_stuck()
    last = agent.state.actor.network[-1]
    for bias in ([30.0, 0.0], [3.0, -3.0]):  # one wheel varies; both may still change
        network = (*agent.state.actor.network[:-1], last._replace(bias=jnp.array(bias)))
        agent.state = agent.state._replace(actor=agent.state.actor._replace(network=network))
        agent._copies = {}
        assert not agent.is_stuck()
    for settings, restarts in (({"most_restarts": 0}, 0), ({"most_restarts": 2}, 1)):
        agent = stuck_agent(DDPG, **settings)
        agent.restart_if_stuck()
        agent.steps += PATIENCE
        agent.restart_if_stuck()
        assert agent.restarts == restarts
