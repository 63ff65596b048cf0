"""What all agents share: replay buffer, noise, acting in NumPy, exact snapshots.

A method subclasses :class:`Agent` with two pure functions, one that makes its state and one that
updates it, and with its own way to act where it differs. Networks and the replay buffer use
actions in [-1, 1]; the environment uses the bounds of its action space.
"""

from __future__ import annotations

import functools
from abc import ABC
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from gymnasium.spaces import Box

from advice.agents.networks import Network, apply_numpy, rate_numpy
from advice.config import AgentConfig
from advice.types import Array, SettingError, SpaceMismatchError, Transition, as_float_vector

SOON = 50_000
"""Steps after a start in which a policy may be found stuck."""
LOOK_BACK = 500
"""Stored steps of which every tenth is looked at for that."""
SATURATED = 5.0
"""Outputs beyond this hardly change with learning: the slope of tanh is below 0.0002 there."""
PATIENCE = 8_000
"""Steps for which a policy must be stuck before it starts anew."""
KEPT = ("safety_critic", "cost_critic")
"""What a restart does not renew: they learn from costs, whatever the policy does."""


class Batch(NamedTuple):
    """Columns of sampled rows, each (n, ...) float32."""

    obs: Any
    action: Any
    reward: Any
    cost: Any
    next_obs: Any
    terminated: Any


def as_batch(rows: Any, obs_size: int) -> Batch:
    """The columns of buffer rows by name; works on NumPy and JAX arrays."""
    reward = rows.shape[1] - obs_size - 3  # behind it: cost, next observation, terminated
    return Batch(
        obs=rows[:, :obs_size],
        action=rows[:, obs_size:reward],
        reward=rows[:, reward],
        cost=rows[:, reward + 1],
        next_obs=rows[:, reward + 2 : -1],
        terminated=rows[:, -1],
    )


class ReplayBuffer:
    """The most recent ``capacity`` transitions; row i is in slot i modulo capacity."""

    def __init__(self, capacity: int, obs_size: int, action_size: int) -> None:
        self.capacity = capacity
        self.width = 2 * obs_size + action_size + 3
        try:
            self.table = np.zeros((capacity, self.width), np.float32)
        except MemoryError as error:
            raise SettingError(
                f"no memory for a replay buffer of {capacity} transitions between observations of "
                f"{obs_size} numbers; lower --agent.replay-capacity ({error})"
            ) from None
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, step: Transition) -> None:
        self.table[self.added % self.capacity] = np.concatenate(
            [step.obs, step.action, (step.reward, step.cost), step.next_obs, (step.terminated,)]
        )
        self.added += 1

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """``size`` rows drawn uniformly with replacement, shape (size, width)."""
        return self.table[rng.integers(0, len(self), size)]

    def rows(self, start: int, stop: int) -> Array:
        """Rows number start..stop-1 in the order they were added; all must still be stored."""
        return self.table[np.arange(start, stop) % self.capacity]

    def put(self, start: int, rows: Array) -> None:
        """Store rows that were numbered from ``start`` on; the inverse of :meth:`rows`."""
        self.table[np.arange(start, start + len(rows)) % self.capacity] = rows


WARMUP_HOLD = 5
"""Steps for which each action of the warm-up is held; single random actions cancel out."""


class OrnsteinUhlenbeck:
    """x <- x - theta * x * dt + sigma * sqrt(dt) * N(0, 1), one value per action dimension."""

    def __init__(self, size: int, theta: float, sigma: float, dt: float) -> None:
        self._theta, self._sigma, self._dt = theta, sigma, dt
        self.value: Array = np.zeros(size)

    def reset(self) -> None:
        self.value = np.zeros_like(self.value)

    def step(self, rng: np.random.Generator) -> Array:
        """Advance once and return the noise, shape (size,)."""
        kick = self._sigma * np.sqrt(self._dt) * rng.standard_normal(len(self.value))
        self.value = self.value - self._theta * self.value * self._dt + kick
        return self.value


@functools.partial(
    jax.jit, static_argnames=("update", "config", "obs_size"), donate_argnames="state"
)
def jitted_update(
    state: Any, rows: Any, *inputs: Any, update: Any, config: AgentConfig, obs_size: int
) -> Any:
    """``update`` on sampled buffer rows; compiled once for all agents with equal settings."""
    batch = as_batch(rows, obs_size)
    if config.bootstrap_through_terminal:
        batch = batch._replace(terminated=jax.numpy.zeros_like(batch.terminated))
    return update(state, batch, config, *inputs)


class Agent(ABC):
    """Learns continuous actions from replayed transitions."""

    init_state: ClassVar[Callable[..., Any]]
    """(key, obs_size, action_size, config) -> state, a NamedTuple of :class:`Learner` and more."""
    update_state: ClassVar[Callable[..., Any]]
    """(state, batch, config, *:meth:`update_inputs`) -> state, one gradient update."""
    multiplier: float = 0.0
    """The weight of cost; 0 for a method without a multiplier."""
    stochastic: ClassVar[bool] = False
    """True if the policy itself is random: such an agent learns from executed actions alone."""

    def __init__(
        self, observation_space: Any, action_space: Any, config: AgentConfig, seed: int
    ) -> None:
        if not (isinstance(action_space, Box) and action_space.is_bounded()) or not np.issubdtype(
            action_space.dtype, np.floating
        ):
            raise SpaceMismatchError(
                f"the agents need a bounded Box action space of floats, found {action_space}"
            )
        if not isinstance(observation_space, Box):
            raise SpaceMismatchError(
                f"the agents need a Box observation space, found {observation_space}"
            )
        self.config, self._action_space = config, action_space
        self.obs_size, self.action_size = (
            int(np.prod(space.shape)) for space in (observation_space, action_space)
        )
        low, high = action_space.low.ravel(), action_space.high.ravel()
        self._offset = (high + low) / 2
        self._scale = np.where(high > low, (high - low) / 2, np.float32(1))  # avoids 0/0
        self.rng = np.random.default_rng([seed, 1])
        self.replay = ReplayBuffer(config.replay_capacity, self.obs_size, self.action_size)
        noise = config.noise_theta, config.noise_sigma, config.noise_dt
        self.noise = OrnsteinUhlenbeck(self.action_size, *noise)
        self._seed, self.restarts = seed, 0
        self.stuck_since = -1  # the step; -1 if it is not stuck
        self.state: Any = self._untrained()
        self._update = functools.partial(
            jitted_update, update=type(self).update_state, config=config, obs_size=self.obs_size
        )
        self._copies: dict[str, Any] = {}
        self.steps = 0  # actions taken while exploring
        self.held: Array = np.zeros(self.action_size)  # the present action of the warm-up

    def start_episode(self) -> None:
        if self.config.noise_reset:
            self.noise.reset()

    def restart_if_stuck(self) -> bool:
        """Between two episodes: start anew, with another warm-up, if the policy has been stuck for
        long; True if so."""
        if self.restarts >= self.config.most_restarts or not self.is_stuck():
            self.stuck_since = -1
            return False
        if self.stuck_since < 0:
            self.stuck_since = self.steps
        if self.steps - self.stuck_since < PATIENCE:
            return False
        self.restarts += 1
        kept = {name: getattr(self.state, name) for name in KEPT if hasattr(self.state, name)}
        self.state = self._untrained()._replace(**kept)
        self._copies, self.steps, self.stuck_since = {}, 0, -1
        return True

    def _untrained(self) -> Any:
        """A new state, another one after each restart."""
        key = jax.random.key(self._seed)
        if self.restarts:
            key = jax.random.fold_in(key, self.restarts)
        return self.init_state(key, self.obs_size, self.action_size, self.config)

    def is_stuck(self) -> bool:
        """True if, soon after a start, the policy gives the same extreme action in recent states.

        Where tanh is flat there is no gradient, so such a policy may never change again.
        """
        trained = self.steps - self.config.warmup_steps
        if not 0 < trained < SOON or len(self.replay) < LOOK_BACK:
            return False
        rows = self.replay.rows(self.replay.added - LOOK_BACK, self.replay.added)[::10]
        outputs = apply_numpy(self.weights("actor"), rows[:, : self.obs_size])
        outputs = outputs[:, : self.action_size]
        least, most = outputs.min(axis=0), outputs.max(axis=0)
        return bool(((least > SATURATED) | (most < -SATURATED)).all())

    def act(self, obs: Array, explore: bool = True) -> Array:
        """The action for one observation, of the action space's type and within its bounds.

        Exploring begins with ``warmup_steps`` uniform actions, each held for some steps.
        """
        if not explore:
            return self.unscale(self.greedy(obs))
        self.steps += 1
        if self.steps > self.config.warmup_steps:
            return self.unscale(np.clip(self.explore(obs), -1, 1))
        if (self.steps - 1) % WARMUP_HOLD == 0:
            self.held = self.rng.uniform(-1, 1, self.action_size)
        return self.unscale(self.held)

    def explore(self, obs: Array) -> Array:
        """The policy's action with the method's exploration noise, shape (action size,)."""
        return self.greedy(obs) + self.noise.step(self.rng)

    def rate_actions(self, obs: Array, actions: Array) -> Array:
        """The critic's value of each row of ``actions`` in state ``obs``, shape (n,)."""
        flat = np.asarray(actions).reshape(len(actions), self.action_size)
        scaled = ((flat - self._offset) / self._scale).astype(np.float32)
        obs = np.asarray(obs, np.float32).ravel()
        return np.min([rate_numpy(critic, obs, scaled) for critic in self.rating_critics()], axis=0)

    def observe(self, step: Transition) -> None:
        """Store one transition in the replay buffer."""
        action, obs, next_obs = self.scale(step.action), step.obs.ravel(), step.next_obs.ravel()
        self.replay.add(step._replace(action=action, obs=obs, next_obs=next_obs))

    def learn(self) -> None:
        """One round of gradient updates, once the warm-up is over and the buffer holds a batch."""
        if self.steps < self.config.warmup_steps or len(self.replay) < self.config.batch_size:
            return
        for _ in range(self.config.updates_per_step):
            rows = self.replay.sample(self.rng, self.config.batch_size)
            self.state = self._update(self.state, rows, *self.update_inputs())
        self._copies = {}

    def update_inputs(self) -> tuple[Any, ...]:
        """What the update takes besides state, batch and config."""
        return ()

    def end_episode(self, cost: float) -> None:
        """Adapt to the whole episode's cost, where the method does so."""

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Everything but the replay buffer, as named arrays and a JSON document."""
        leaves = jax.tree_util.tree_flatten_with_path(self.state)[0]
        arrays = {jax.tree_util.keystr(path): np.array(leaf) for path, leaf in leaves}
        return arrays, {
            "noise": self.noise.value.tolist(),
            "steps": self.steps,
            "restarts": self.restarts,
            "stuck_since": self.stuck_since,
            "held": self.held.tolist(),
            "generator": self.rng.bit_generator.state,
        }

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Take the state of a :meth:`snapshot`; the replay buffer is restored separately.

        Raises ValueError if the snapshot is of other networks.
        """
        leaves, tree = jax.tree_util.tree_flatten_with_path(self.state)
        fresh = []
        for path, leaf in leaves:
            name, wanted = jax.tree_util.keystr(path), (leaf.shape, leaf.dtype)
            array = arrays[name]
            if (array.shape, array.dtype) != wanted:
                raise ValueError(f"{name}: expected {wanted}, found {array.shape}, {array.dtype}")
            fresh.append(jax.numpy.array(array))  # a copy: updates overwrite their state
        noise = as_float_vector(document["noise"], len(self.noise.value), "noise")
        steps = int(document.get("steps", self.config.warmup_steps))  # absent in earlier versions
        held = as_float_vector(document.get("held", self.held), self.action_size, "held")
        restarts, since = int(document.get("restarts", 0)), int(document.get("stuck_since", -1))
        if min(steps, restarts, since + 1) < 0:
            raise ValueError(f"expected steps and restarts from 0 on, found {document}")
        self.rng.bit_generator.state = document["generator"]
        self.steps, self.held, self.restarts, self.stuck_since = steps, held, restarts, since
        self.state, self.noise.value = jax.tree_util.tree_unflatten(tree, fresh), noise
        self._copies = {}

    def greedy(self, obs: Array) -> Array:
        """The policy's action in [-1, 1], without noise, shape (action size,)."""
        output = apply_numpy(self.weights("actor"), np.asarray(obs, np.float32).ravel())
        return np.tanh(output[: self.action_size])  # SAC's actor also gives standard deviations

    def scale(self, action: Any) -> Array:
        """An action of the action space in [-1, 1], shape (action size,)."""
        return np.asarray((np.asarray(action).ravel() - self._offset) / self._scale)

    def unscale(self, action: Array) -> Array:
        """An action in [-1, 1] as one of the action space, within its bounds."""
        space = self._action_space
        scaled = (self._offset + self._scale * action).reshape(space.shape)
        return np.clip(scaled, space.low, space.high).astype(space.dtype)

    def weights(self, name: str) -> Any:
        """A network of the state as NumPy arrays, copied on first use after an update."""
        if name not in self._copies:
            self._copies[name] = jax.tree.map(np.array, getattr(self.state, name).network)
        return self._copies[name]

    def rating_critics(self) -> tuple[Network, ...]:
        """The networks whose lowest value rates an action for a shield."""
        return (self.weights("critic"),)
