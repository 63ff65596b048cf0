"""What every learner has in common: replay, noise, acting in NumPy, exact snapshots.

A method subclasses :class:`Agent` with its networks, its pure update and, where it differs, the
way it acts. Inside, actions live in [-1, 1]; outside, in the action space's own bounds.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any

import jax
import numpy as np

from advice.agents.multiplier import ascend
from advice.agents.networks import Network, apply_numpy, rate_numpy
from advice.agents.noise import OrnsteinUhlenbeck
from advice.agents.replay import Batch, Replay, split
from advice.config import AgentConfig, MultiplierConfig
from advice.types import Array, SpaceMismatchError, Transition


class Agent(ABC):
    """A learner of continuous actions from replayed transitions."""

    vetoes: int = 0
    """Own proposals that this episode's acting rejected, where the method does so."""

    def __init__(
        self, observation_space: Any, action_space: Any, config: AgentConfig, seed: int
    ) -> None:
        obs_size, low, high = _sizes(observation_space, action_space)
        self.config = config
        self.multiplier = self.price.initial if self.price else 0.0
        self.obs_size, self.action_size = obs_size, len(low)
        self._middle = (high + low) / 2
        self._half = np.where(high > low, (high - low) / 2, np.float32(1))  # one value only: no 0/0
        self._low, self._high = low, high
        self._action_shape, self._action_dtype = action_space.shape, action_space.dtype
        self.rng = np.random.default_rng([seed, 1])
        self.replay = Replay(config.replay_capacity, obs_size, self.action_size)
        self.noise = OrnsteinUhlenbeck(
            self.action_size,
            config.noise_theta,
            config.noise_sigma,
            config.noise_dt,
            config.noise_shared,
        )
        self.state: Any = self.initial_state(jax.random.key(seed))
        self._update = _compiled(type(self), config, self.obs_size, self.action_size)
        self._copies: dict[str, Any] = {}

    # ---- what a method defines

    @abstractmethod
    def initial_state(self, key: Any) -> Any:
        """Networks, targets and optimisers as a NamedTuple with ``actor`` and ``critic``."""

    @abstractmethod
    def update(self, state: Any, rows: Any, multiplier: Any) -> Any:
        """One pure gradient update from sampled replay rows: the next state."""

    @property
    def price(self) -> MultiplierConfig | None:
        """How the Lagrangian multiplier learns, where the method has one."""
        return None

    # ---- what the loop calls

    def start_episode(self) -> None:
        self.vetoes = 0
        if self.config.noise_reset:
            self.noise.reset()

    def act(self, obs: Array, explore: bool = True) -> Array:
        """The action for one observation, of the action space's type and within its bounds."""
        action = self.greedy(obs)
        if explore:
            action = action + self.noise.step(self.rng)
        return self._outside(np.clip(action, -1, 1))

    def rate_actions(self, obs: Array, actions: Array) -> Array:
        """The critic's value of each row of ``actions`` in state ``obs``, shape (n,)."""
        flat = np.asarray(actions).reshape(len(actions), self.action_size)
        inside = ((flat - self._middle) / self._half).astype(np.float32)
        obs = np.asarray(obs, np.float32).ravel()
        return np.min([rate_numpy(critic, obs, inside) for critic in self.rating_critics()], axis=0)

    def observe(self, step: Transition) -> None:
        """Keep one transition for replay."""
        action = (np.asarray(step.action).ravel() - self._middle) / self._half
        self.replay.add(
            step._replace(action=action, obs=step.obs.ravel(), next_obs=step.next_obs.ravel())
        )

    def learn(self) -> None:
        """One round of gradient updates, once a batch has been collected."""
        if len(self.replay) < self.config.batch_size:
            return
        for _ in range(self.config.updates_per_step):
            rows = self.replay.sample(self.rng, self.config.batch_size)
            self.state = self._update(self.state, rows, np.float32(self.multiplier))
        self._copies = {}

    def end_episode(self, cost: float) -> None:
        """Raise or lower the price of cost by the whole episode's, where the method has one."""
        if self.price:
            self.multiplier = ascend(self.multiplier, cost, self.price)

    def adopt_safety(self, arrays: dict[str, Array]) -> bool:
        """Take over what a snapshot knows about safety; False if this agent keeps no such thing."""
        return False

    # ---- checkpoints

    def snapshot(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Everything but the replay, as named arrays and a JSON document."""
        leaves = jax.tree_util.tree_flatten_with_path(self.state)[0]
        arrays = {jax.tree_util.keystr(path): np.array(leaf) for path, leaf in leaves}
        return arrays, {
            "multiplier": self.multiplier,
            "noise": self.noise.value.tolist(),
            "generator": self.rng.bit_generator.state,
        }

    def restore(self, arrays: dict[str, Array], document: dict[str, Any]) -> None:
        """Continue exactly where :meth:`snapshot` was taken (the replay is restored apart)."""
        leaves, tree = jax.tree_util.tree_flatten_with_path(self.state)
        fresh = [jax.numpy.asarray(arrays[jax.tree_util.keystr(path)]) for path, _ in leaves]
        self.state = jax.tree_util.tree_unflatten(tree, fresh)
        self.multiplier = document["multiplier"]
        self.noise.value = np.array(document["noise"])
        self.rng.bit_generator.state = document["generator"]
        self._copies = {}

    # ---- shared parts

    def batch(self, rows: Any) -> Batch:
        """Sampled replay rows by name; the settings may let values flow through terminal states."""
        batch = split(rows, self.obs_size, self.action_size)
        if self.config.bootstrap_through_terminal:
            batch = batch._replace(terminated=jax.numpy.zeros_like(batch.terminated))
        return batch

    def greedy(self, obs: Array) -> Array:
        """The policy's own choice in [-1, 1], without noise, shape (action size,)."""
        return np.tanh(apply_numpy(self.weights("actor"), np.asarray(obs, np.float32).ravel()))

    def _outside(self, action: Array) -> Array:
        scaled = (self._middle + self._half * action).astype(np.float32)
        within = np.clip(scaled, self._low, self._high).reshape(self._action_shape)
        return within.astype(self._action_dtype, copy=False)

    def weights(self, name: str) -> Any:
        """A part's network as NumPy's own arrays, copied when first needed after an update."""
        if name not in self._copies:
            self._copies[name] = jax.tree.map(np.array, getattr(self.state, name).network)
        return self._copies[name]

    def rating_critics(self) -> tuple[Network, ...]:
        """The networks whose least value rates a candidate for a shield."""
        return (self.weights("critic"),)


@functools.lru_cache(maxsize=16)
def _compiled(kind: type[Agent], config: AgentConfig, obs_size: int, action_size: int) -> Any:
    """The jitted update, compiled once for all agents alike; settings and sizes are all it sees."""
    blank = object.__new__(kind)
    blank.config, blank.obs_size, blank.action_size = config, obs_size, action_size
    return jax.jit(blank.update, donate_argnums=0)


def _sizes(observation_space: Any, action_space: Any) -> tuple[int, Array, Array]:
    """Observation size and action bounds of two Box spaces, or an error naming what was found."""
    low, high = (np.asarray(getattr(action_space, side, np.nan)) for side in ("low", "high"))
    bounded = np.isfinite(low).all() and np.isfinite(high).all()
    if not bounded or not np.issubdtype(action_space.dtype, np.floating):
        raise SpaceMismatchError(
            f"the agents need a bounded Box action space of floats, found {action_space}"
        )
    if getattr(observation_space, "low", None) is None:
        raise SpaceMismatchError(
            f"the agents need a Box observation space, found {observation_space}"
        )
    return int(np.prod(observation_space.shape)), *_float32_within(low.ravel(), high.ravel())


def _float32_within(low: Array, high: Array) -> tuple[Array, Array]:
    """The bounds in float32, rounded inwards: float32(0.1) lies outside of a float64 Box to 0.1."""
    near_low, near_high = low.astype(np.float32), high.astype(np.float32)
    return (
        np.where(near_low < low, np.nextafter(near_low, np.float32(np.inf)), near_low),
        np.where(near_high > high, np.nextafter(near_high, np.float32(-np.inf)), near_high),
    )
