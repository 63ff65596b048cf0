"""CSC (Bharadhwaj et al., 2021): a critic that overestimates failure and replaces unsafe actions.

The agent learns and proposes; :class:`SafetyCriticShield` checks each proposal. Differences from
the paper: see docs/methods/csc.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advice.agents.ddpg import init_ddpg, update_critic
from advice.agents.ddpg_lagrangian import lagrangian_loss
from advice.agents.lagrangian import LagrangianAgent
from advice.agents.networks import (
    Learner,
    Network,
    actor_action,
    critic_value,
    critic_values,
    descend,
    init_clock,
    init_critic,
    init_learner,
    next_key,
    rate_numpy,
    update_target,
)
from advice.agents.replay_buffer import Batch
from advice.config import AgentConfig, CSCConfig, MultiplierConfig
from advice.types import Array, Outcome, RateActions, SpaceMismatchError, Verdict


class CSCState(NamedTuple):
    """Networks with their optimisers and targets, and the clock that random keys come from."""

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

    Minimising it raises Q_C on ``policy_actions`` (k, m, action size) of the batch's first k ≤ n
    states: an action without data counts as dangerous.
    """
    on_data = failure_probability(safety_critic, batch.obs, batch.action)
    on_policy = jax.nn.sigmoid(
        critic_values(safety_critic, batch.obs[: len(policy_actions)], policy_actions)
    )
    bellman = 0.5 * jnp.mean((on_data - target) ** 2)
    return bellman + weight * (jnp.mean(on_data) - jnp.mean(on_policy))


def sample_policy_actions(key: Any, actor: Network, obs: Any, size: int, csc: CSCConfig) -> Any:
    """Per state, half of the policy with noise and half uniform, (n, 2m, ``size``)."""
    noise_key, uniform_key = jax.random.split(key)
    shape = (len(obs), csc.conservative_actions, size)
    noise = csc.draw_noise * jax.random.normal(noise_key, shape)
    near = jnp.clip(actor_action(actor, obs)[:, None] + noise, -1, 1)
    return jnp.concatenate([near, jax.random.uniform(uniform_key, shape, minval=-1)], axis=1)


def init_csc(key: Any, obs_size: int, action_size: int, config: AgentConfig) -> CSCState:
    """DDPG's networks, a safety critic and a clock."""
    key, safety_key, clock_key = jax.random.split(key, 3)
    safety_critic = init_critic(safety_key, obs_size, action_size, config.hidden_size)
    return CSCState(
        *init_ddpg(key, obs_size, action_size, config),
        init_learner(safety_critic, config.csc.learning_rate),
        init_clock(clock_key),
    )


def update_csc(state: CSCState, batch: Batch, config: AgentConfig, multiplier: Any) -> CSCState:
    """One gradient step of both critics, then one of the actor."""
    csc = config.csc
    key, clock = next_key(state.clock)

    # critic of the reward: as in DDPG
    critic = update_critic(state.critic, state.actor, batch, batch.reward, config)

    # safety critic: towards failures now and later, and up on actions without data
    next_action = actor_action(state.actor.target, batch.next_obs)
    next_probability = failure_probability(state.safety_critic.target, batch.next_obs, next_action)
    failed = (batch.cost > 0).astype(jnp.float32)
    target = failure_target(failed, next_probability, batch.terminated, csc.gamma)
    states = batch.obs[: csc.conservative_states]
    size = batch.action.shape[1]
    policy_actions = sample_policy_actions(key, state.actor.network, states, size, csc)

    def safety_loss(network: Network) -> Any:
        return conservative_loss(network, batch, target, policy_actions, csc.conservative_weight)

    safety_critic = descend(state.safety_critic, safety_loss, csc.learning_rate)
    safety_critic = update_target(safety_critic, csc.tau)

    # actor: towards more value and less danger, weighed by λ
    def actor_loss(actor: Network) -> Any:
        action = actor_action(actor, batch.obs)
        return lagrangian_loss(
            critic_value(critic.network, batch.obs, action),
            failure_probability(safety_critic.network, batch.obs, action),
            multiplier,
        )

    actor = descend(state.actor, actor_loss, config.actor_learning_rate)
    return CSCState(update_target(actor, config.tau), critic, safety_critic, clock)


class CSC(LagrangianAgent):
    """DDPG-Lag with a conservative safety critic in place of the cost critic."""

    init_state = staticmethod(init_csc)
    update_state = staticmethod(update_csc)
    _exploring = False

    @property
    def multiplier_config(self) -> MultiplierConfig:
        return self.config.csc.multiplier

    def act(self, obs: Array, explore: bool = True) -> Array:
        """One draw of :meth:`draw_actions`, or π(s) without exploring."""
        self._exploring = explore
        if not explore:
            return self.unscale(self.greedy(obs))
        self.noise.step(self.rng)  # once per step, not once per draw
        return self.unscale(self.draw_actions(obs, 1)[0])

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
        logits = rate_numpy(self.weights("safety_critic"), obs, actions.astype(np.float32))
        return (1 + np.tanh(logits / 2)) / 2  # the sigmoid, without overflow

    def end_episode(self, cost: float) -> None:
        """J_C is 1 for an episode that failed, 0 for one that did not."""
        super().end_episode(float(cost > 0))


class SafetyCriticShield:
    """Replaces a proposal of ``agent`` whose failure probability exceeds the threshold.

    The agent trains the critic, so this shield is armed from the start and needs no fit.
    """

    k = 0
    armed = True
    wants_fit = False
    intervention_penalty = 0.0
    """The multiplier already penalises danger."""

    def __init__(self, agent: CSC) -> None:
        self._agent = agent

    def guard(self, obs: Any, action: Any, rate_actions: RateActions | None = None) -> Verdict:
        """Execute the first of up to ``draws`` noisy actions with Q_C ≤ ε, else that of least Q_C.

        The proposal is the first of them. ``rate_actions`` is not used.
        """
        agent, csc = self._agent, self._agent.config.csc
        verdict = Verdict(action, intervened=False, safe_neighbours=0, no_safe_action=False)
        draws = agent.scale(action)[None]
        if agent.failure_probabilities(obs, draws)[0] <= csc.threshold:
            return verdict
        draws = np.concatenate([draws, agent.draw_actions(obs, csc.draws - 1)])
        danger = agent.failure_probabilities(obs, draws)
        allowed = danger <= csc.threshold
        best = np.argmax(allowed) if allowed.any() else np.argmin(danger)
        return verdict._replace(
            action=agent.unscale(draws[best]) if best else action,
            intervened=bool(best),
            no_safe_action=not allowed.any(),
            candidates=len(draws) - 1,
        )

    def fit(self, progress: Callable[..., None] | None = None) -> None:
        """Nothing to fit."""

    def record(self, obs: Any, action: Any, outcome: Outcome) -> None:
        """Nothing to store: the agent's replay buffer has every step."""

    def end_episode(self, violated: bool) -> None:
        """Nothing adapts."""

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The agent's safety critic, so that another run can start with it."""
        arrays, _ = self._agent.snapshot()
        return {name: a for name, a in arrays.items() if name.startswith(".safety_critic")}, {}

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Give the agent the safety critic of a snapshot, or raise and leave it unchanged."""
        for name, expected in self.snapshot()[0].items():
            if arrays[name].shape != expected.shape:
                raise SpaceMismatchError(
                    f"{name}: expected shape {expected.shape}, found {arrays[name].shape}"
                )
        own, own_document = self._agent.snapshot()
        self._agent.restore(own | arrays, own_document)
