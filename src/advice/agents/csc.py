"""CSC (Bharadhwaj et al., 2021): DDPG-Lag with a critic that overestimates failure.

Its shield is in shields/safety_critic.py. Differences from the paper: see docs/methods/csc.md.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents import ddpg
from advice.agents import networks as nn
from advice.agents.agent import Batch
from advice.config import AgentConfig, CSCConfig
from advice.types import Array

RECENT = 100
"""Episodes whose failures the adaptive threshold counts."""


class CSCState(NamedTuple):
    """Networks with their optimisers and targets, and the clock that random keys come from."""

    actor: nn.Learner
    critic: nn.Learner
    safety_critic: nn.Learner
    clock: Any


def failure_probability(safety_critic: nn.Network, obs: Any, action: Any) -> Any:
    """Q_C(s, a) in [0, 1]: the discounted probability of failing, shape (n,)."""
    return jax.nn.sigmoid(nn.critic_value(safety_critic, obs, action))


def failure_target(failed: Any, next_probability: Any, terminated: Any, gamma: float) -> Any:
    """y = c + (1 - c) γ (1 - done) Q_C'(s', π'(s')) with c in {0, 1}: at most 1, shapes (n,)."""
    return failed + (1 - failed) * gamma * (1 - terminated) * next_probability


def conservative_loss(
    safety_critic: nn.Network, batch: Batch, target: Any, policy_actions: Any, weight: float
) -> Any:
    """mean ½(Q_C - y)² + α (mean Q_C(s, a_data) - mean Q_C(s, a_policy)).

    Minimising it raises Q_C on ``policy_actions`` (k, m, action size) of the batch's first k ≤ n
    states: an action without data counts as dangerous.
    """
    on_data = failure_probability(safety_critic, batch.obs, batch.action)
    on_policy = jax.nn.sigmoid(
        nn.critic_values(safety_critic, batch.obs[: len(policy_actions)], policy_actions)
    )
    bellman = 0.5 * jnp.mean((on_data - target) ** 2)
    return bellman + weight * (jnp.mean(on_data) - jnp.mean(on_policy))


def sample_policy_actions(key: Any, actor: nn.Network, obs: Any, size: int, csc: CSCConfig) -> Any:
    """Per state, m of the policy with noise and, if wished, m uniform ones, (n, ..., ``size``)."""
    noise_key, uniform_key = jax.random.split(key)
    shape = (len(obs), csc.conservative_actions, size)
    noise = csc.draw_noise * jax.random.normal(noise_key, shape)
    near = jnp.clip(nn.actor_action(actor, obs)[:, None] + noise, -1, 1)
    if not csc.uniform_actions:
        return near
    return jnp.concatenate([near, jax.random.uniform(uniform_key, shape, minval=-1)], axis=1)


def init_csc(key: Any, obs_size: int, action_size: int, config: AgentConfig) -> CSCState:
    """DDPG's networks, a safety critic and a clock."""
    key, safety_key, clock_key = jax.random.split(key, 3)
    safety_critic = nn.init_critic(safety_key, obs_size, action_size, config.hidden_size)
    pair = ddpg.init_ddpg(key, obs_size, action_size, config)
    return CSCState(*pair, nn.init_learner(safety_critic), nn.init_clock(clock_key))


def update_csc(state: CSCState, batch: Batch, config: AgentConfig, multiplier: Any) -> CSCState:
    """One gradient step of both critics, then one of the actor."""
    csc = config.csc
    key, clock = nn.next_key(state.clock)

    # critic of the reward: as in DDPG
    critic = ddpg.update_critic(state.critic, state.actor, batch, batch.reward, config)

    # safety critic: towards failures now and later, and up on actions without data
    next_action = nn.actor_action(state.actor.target, batch.next_obs)
    next_probability = failure_probability(state.safety_critic.target, batch.next_obs, next_action)
    failed = (batch.cost > 0).astype(jnp.float32)
    target = failure_target(failed, next_probability, batch.terminated, csc.gamma)
    states = batch.obs[: csc.conservative_states]
    size = batch.action.shape[1]
    policy_actions = sample_policy_actions(key, state.actor.network, states, size, csc)

    def safety_loss(network: nn.Network) -> Any:
        return conservative_loss(network, batch, target, policy_actions, csc.conservative_weight)

    safety_critic = nn.descend(state.safety_critic, safety_loss, csc.learning_rate)
    safety_critic = nn.update_target(safety_critic, csc.tau)

    # actor: towards more value and less danger, weighed by λ
    def loss(action: Any) -> Any:
        value = nn.critic_value(critic.network, batch.obs, action)
        danger = failure_probability(safety_critic.network, batch.obs, action)
        return ddpg.lagrangian_loss(value, danger, multiplier)

    actor = ddpg.update_actor(state.actor, batch, loss, config)
    return CSCState(actor, critic, safety_critic, clock)


class CSC(ddpg.DDPGLagrangian):
    """DDPG-Lag with a conservative safety critic in place of the cost critic."""

    init_state = staticmethod(init_csc)
    update_state = staticmethod(update_csc)
    multiplier_config = property(attrgetter("config.csc.multiplier"))
    _exploring = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.failures: deque[float] = deque(maxlen=RECENT)

    @property
    def threshold(self) -> float:
        """The failure probability up to which an action may be executed (ε)."""
        csc = self.config.csc
        if csc.threshold_rule == "fixed":
            return csc.threshold
        rate = float(np.mean(self.failures)) if self.failures else 0.0
        return max(0.0, (1 - csc.gamma) * (csc.failure_limit - rate))

    def act(self, obs: Array, explore: bool = True) -> Array:
        self._exploring = explore  # draw_actions adds noise accordingly
        return super().act(obs, explore)

    def explore(self, obs: Array) -> Array:
        """One draw of :meth:`draw_actions`."""
        self.noise.step(self.rng)  # once per step, not once per draw
        return self.draw_actions(obs, 1)[0]

    def draw_actions(self, obs: Array, count: int) -> Array:
        """clip(π(s) + OU + N(0, σ²)), shape (count, action size).

        If the last :meth:`act` did not explore, there is no OU noise and the draws repeat
        themselves: only exploring advances the agent's generator.
        """
        rng = self.rng if self._exploring else np.random.default_rng(0)
        mean = self.greedy(obs)
        if self._exploring:
            mean = mean + self.noise.value
        spread = self.config.csc.draw_noise * rng.standard_normal((count, self.action_size))
        return np.clip(mean + spread, -1, 1)

    def failure_probabilities(self, obs: Array, actions: Array) -> Array:
        """Q_C(s, a) of one state and many actions in [-1, 1], shape (n,)."""
        obs = np.asarray(obs, np.float32).ravel()
        logits = nn.rate_numpy(self.weights("safety_critic"), obs, actions.astype(np.float32))
        return (1 + np.tanh(logits / 2)) / 2  # the sigmoid, without overflow

    def end_episode(self, cost: float) -> None:
        """J_C is 1 for an episode that failed, 0 for one that did not."""
        self.failures.append(float(cost > 0))
        super().end_episode(float(cost > 0))

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, document = super().snapshot()
        return arrays, {"failures": list(self.failures), **document}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        super().restore(arrays, document)
        self.failures = deque(document.get("failures", ()), maxlen=RECENT)
