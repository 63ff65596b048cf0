"""CSC (Bharadhwaj et al., 2021): a critic that overrates danger, and a veto before every step.

Differences from the paper: see docs/methods/csc.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents.agent import Agent
from advice.agents.ddpg import init_ddpg, learn_values
from advice.agents.ddpg_lagrangian import lagrangian_loss
from advice.agents.networks import (
    Learner,
    Network,
    actor_action,
    critic_value,
    critic_values,
    descend,
    follow,
    init_clock,
    init_critic,
    init_learner,
    rate_numpy,
    tick,
)
from advice.agents.replay import Batch
from advice.config import MultiplierConfig
from advice.types import Array, SpaceMismatchError


class CSCState(NamedTuple):
    """What learns, and the clock its draws come from."""

    actor: Learner
    critic: Learner
    safety_critic: Learner
    clock: Any


def failure_probability(safety_critic: Network, obs: Any, action: Any) -> Any:
    """Q_C(s, a) in [0, 1]: the discounted probability of failing, shape (n,)."""
    return jax.nn.sigmoid(critic_value(safety_critic, obs, action))


def failure_target(failed: Any, next_probability: Any, terminated: Any, gamma: float) -> Any:
    """y = c + (1 - c) γ (1 - done) Q_C'(s', π'(s')) with c in {0, 1}: at most 1, shapes (n,)."""
    return failed + (1 - failed) * gamma * (1 - terminated) * next_probability


def conservative_loss(
    safety_critic: Network, batch: Batch, target: Any, policy_actions: Any, weight: float
) -> Any:
    """mean ½(Q_C - y)² + α (mean Q_C(s, a_data) - mean Q_C(s, a_policy)).

    Going down it raises Q_C on ``policy_actions`` (k, m, action size) of the batch's first k ≤ n
    states: what was not tried is taken for dangerous until the data say otherwise.
    """
    on_data = failure_probability(safety_critic, batch.obs, batch.action)
    on_policy = jax.nn.sigmoid(
        critic_values(safety_critic, batch.obs[: len(policy_actions)], policy_actions)
    )
    bellman = 0.5 * jnp.mean((on_data - target) ** 2)
    return bellman + weight * (jnp.mean(on_data) - jnp.mean(on_policy))


class CSC(Agent):
    """DDPG-Lag with a conservative safety critic, which also vetoes the agent's own draws."""

    @property
    def price(self) -> MultiplierConfig:
        return self.config.csc.multiplier

    def initial_state(self, key: Any) -> CSCState:
        key, safety_key, clock_key = jax.random.split(key, 3)
        safety_critic = init_critic(
            safety_key, self.obs_size, self.action_size, self.config.hidden_size
        )
        return CSCState(
            *init_ddpg(key, self.obs_size, self.action_size, self.config),
            init_learner(safety_critic, self.config.csc.learning_rate),
            init_clock(clock_key),
        )

    def act(self, obs: Array, explore: bool = True) -> Array:
        """The first of up to ``draws`` noisy actions with Q_C ≤ ε, else the one of least Q_C.

        Draws are clip(π(s) + OU + N(0, σ²)); without exploring, the first is π(s) itself and
        the others are the same every time: only exploring touches the agent's own generator.
        """
        csc = self.config.csc
        rng = self.rng if explore else np.random.default_rng(0)
        centre = self.greedy(obs)
        draws = centre[None]
        if explore:
            centre = centre + self.noise.step(rng)  # once a step, not once a draw
            draws = self._draw(centre, 1, rng)
        danger = self.rate_danger(obs, draws)
        if danger[0] > csc.threshold:
            self.vetoes += 1
            draws = np.concatenate([draws, self._draw(centre, csc.draws - 1, rng)])
            danger = self.rate_danger(obs, draws)
        allowed = danger <= csc.threshold
        return self._outside(draws[np.argmax(allowed) if allowed.any() else np.argmin(danger)])

    def _draw(self, centre: Array, count: int, rng: np.random.Generator) -> Array:
        spread = self.config.csc.draw_noise * rng.standard_normal((count, self.action_size))
        return np.clip(centre + spread, -1, 1)

    def rate_danger(self, obs: Array, actions: Array) -> Array:
        """Q_C(s, a) of one state and many actions in [-1, 1], shape (n,)."""
        obs = np.asarray(obs, np.float32).ravel()
        logits = rate_numpy(self.weights("safety_critic"), obs, actions.astype(np.float32))
        return (1 + np.tanh(logits / 2)) / 2  # the sigmoid, without overflow

    def update(self, state: CSCState, rows: Any, multiplier: Any) -> CSCState:
        config, csc = self.config, self.config.csc
        batch = self.batch(rows)
        key, clock = tick(state.clock)

        # the critic of the reward, as in DDPG
        critic = learn_values(state.critic, state.actor, batch, batch.reward, config)

        # the safety critic: what failed, what may fail later, and doubt about the untried
        next_action = actor_action(state.actor.target, batch.next_obs)
        next_probability = failure_probability(
            state.safety_critic.target, batch.next_obs, next_action
        )
        failed = (batch.cost > 0).astype(jnp.float32)
        target = failure_target(failed, next_probability, batch.terminated, csc.gamma)
        doubted = batch.obs[: csc.conservative_states]
        policy_actions = self._policy_actions(key, state.actor.network, doubted)

        def safety_loss(safety_critic: Network) -> Any:
            return conservative_loss(
                safety_critic, batch, target, policy_actions, csc.conservative_weight
            )

        safety_critic = follow(
            descend(state.safety_critic, safety_loss, csc.learning_rate), csc.tau
        )

        # the actor moves to more value and less danger, at the price λ
        def actor_loss(actor: Network) -> Any:
            action = actor_action(actor, batch.obs)
            return lagrangian_loss(
                critic_value(critic.network, batch.obs, action),
                failure_probability(safety_critic.network, batch.obs, action),
                multiplier,
            )

        actor = follow(descend(state.actor, actor_loss, config.actor_learning_rate), config.tau)
        return CSCState(actor, critic, safety_critic, clock)

    def end_episode(self, cost: float) -> None:
        """J_C is 1 for an episode that failed, 0 for one that did not."""
        super().end_episode(float(cost > 0))

    def adopt_safety(self, arrays: dict[str, Array]) -> bool:
        """Take over the safety critic of another run's snapshot."""
        own, own_document = self.snapshot()
        theirs = {name: a for name, a in arrays.items() if name.startswith(".safety_critic")}
        if not theirs:
            return False
        for name, array in theirs.items():
            if name not in own or own[name].shape != array.shape:
                expected = own[name].shape if name in own else "nothing"
                raise SpaceMismatchError(f"{name}: expected {expected}, found {array.shape}")
        self.restore(own | theirs, own_document)
        return True

    def _policy_actions(self, key: Any, actor: Network, obs: Any) -> Any:
        """Per state, half of the policy with noise and half uniform, (n, 2m, action size)."""
        csc = self.config.csc
        noise_key, uniform_key = jax.random.split(key)
        shape = (len(obs), csc.conservative_actions, self.action_size)
        noise = csc.draw_noise * jax.random.normal(noise_key, shape)
        near = jnp.clip(actor_action(actor, obs)[:, None] + noise, -1, 1)
        return jnp.concatenate([near, jax.random.uniform(uniform_key, shape, minval=-1)], axis=1)
