"""A shield around a Stable-Baselines3 model: ``model = shield(model)``, then learn as before."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize

from advice.config import ShieldConfig
from advice.envs.signals import SignalRules, named
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession
from advice.types import AdviceError, Array, RateActions, SettingError

LearnFrom: TypeAlias = Literal["executed", "proposed"]


def shield(
    model: Any,
    config: ShieldConfig | None = None,
    shield: Any = None,
    on_policy_learns: LearnFrom = "executed",
    **options: Any,
) -> Any:
    """Put a shield between an SB3 model and its environments; returns the same model.

    DDPG, TD3, SAC and DQN: the critic rates the candidates, the replay buffer holds the executed
    actions, the replaced ones with what really happened (see ``config.learn_from``; not in a buffer
    whose rows depend on each other) and, with ``config.intervention_penalty``, the replaced ones
    with their penalty. PPO and A2C: the safe action nearest to the proposal is executed; where the
    shield intervened the rollout holds the executed action with its own log-probability, or the
    proposal if ``on_policy_learns`` says so.

    ``model.learn``, callbacks, ``model.save`` and ``load`` work as before; ``model.shield`` is the
    shield, to be saved by itself. Only ``learn`` is guarded, the environment that was given stays
    as it is. When ``max_violations`` is spent ``learn`` returns as if a callback had stopped it,
    and another call raises :class:`advice.types.BudgetSpentError`. The shield is also saved to
    ``save_path`` whenever ``learn`` returns. The options are those of :class:`advice.ShieldedEnv`.
    """
    if on_policy_learns not in get_args(LearnFrom):
        raise SettingError(
            f"on_policy_learns: expected one of {', '.join(get_args(LearnFrom))}, "
            f"found {on_policy_learns!r}"
        )
    if not isinstance(model, OffPolicyAlgorithm | OnPolicyAlgorithm):
        raise TypeError(f"model: expected one of Stable-Baselines3's, found {type(model).__name__}")
    if isinstance(model, ShieldedModel):
        raise AdviceError("model: it has a shield already, see model.shield")
    if model.env is None:
        raise AdviceError("model: it has no environment yet, call model.set_env(env) first")
    normalised = model.get_vec_normalize_env()
    given = SessionOptions(shield, config, _critic_of(model), **options)
    try:  # the first environment with its wrappers, as it describes itself
        described = str(model.env.env_method("__str__", indices=0)[0])
    except (AttributeError, NotImplementedError):
        described = ""
    session = ShieldSession(
        (model.env if normalised is None else normalised.venv).observation_space,
        model.action_space,
        given,
        model.n_envs,
        rules=SignalRules.of(described, given.terminal),
        task=named(described),
        learn_from="executed" if hasattr(model, "ent_coef") else "both",  # SAC and its kind
    )
    off_policy = isinstance(model, OffPolicyAlgorithm)
    if session.penalty > 0 and off_policy and not _takes_extra_rows(model):
        raise AdviceError(
            "intervention_penalty: expected an ordinary ReplayBuffer without "
            f"optimize_memory_usage, found {type(model.replay_buffer).__name__} with "
            f"optimize_memory_usage={model.optimize_memory_usage}"
        )
    kind = type(model)
    model.__class__ = type(f"Shielded{kind.__name__}", (ShieldedModel, kind), {})
    model.session, model.on_policy_learns = session, on_policy_learns
    model.set_env(model.env)
    return model


class ShieldedModel(BaseAlgorithm):
    """What :func:`shield` adds to a model's class, using SB3's own hooks for subclasses."""

    env: Any
    session: ShieldSession
    on_policy_learns: LearnFrom

    shield = property(attrgetter("session.shield"))
    """The shield that guards this model's environments."""

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Change the environment; the shield comes along and sees it from a reset on."""
        super().set_env(env.venv if isinstance(env, GuardedVecEnv) else env, force_reset)
        self._last_obs = None
        self.env = GuardedVecEnv(self.env, self.session)

    def get_env(self) -> Any:
        """The environment as it was given, without the guard."""
        return self.env.venv

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Any:
        """A bare model of the class that was shielded: the shield is a file of its own."""
        bare: Any = cls.__bases__[-1]
        return bare.load(*args, **kwargs)

    def _init_callback(self, callback: Any, progress_bar: bool = False) -> BaseCallback:
        theirs = callback if isinstance(callback, list) else [callback] if callback else []
        theirs = [x if isinstance(x, BaseCallback) else ConvertCallback(x) for x in theirs]
        ours = CallbackList([_ShieldCallback(), *theirs])
        made: BaseCallback = super()._init_callback(ours, progress_bar)
        return made

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "session", "on_policy_learns"]

    def _store_transition(
        self, replay_buffer: Any, buffer_action: Array, new_obs: Any, reward: Any, dones: Any,
        infos: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        """Off-policy: store what ``config.learn_from`` says, then proposals with their penalty."""
        executed, learn_from = buffer_action.copy(), self.session.learn_from
        replaced = np.array([info["shield"]["intervened"] for info in infos])
        for i in np.flatnonzero(replaced):
            action = infos[i]["shield"]["executed"]
            box = isinstance(self.action_space, Box)  # the buffer holds boxes scaled to [-1, 1]
            executed[i] = self.policy.scale_action(action) if box else action
        before = self._last_obs if self._vec_normalize_env is None else self._last_original_obs
        stored = buffer_action if learn_from == "proposed" else executed
        super()._store_transition(replay_buffer, stored, new_obs, reward, dones, infos)
        if learn_from == "both" and replaced.any() and _takes_extra_rows(self):
            _add_rows(replay_buffer, before, buffer_action, replaced, None, infos)
        penalties = np.array([info["shield"]["penalty"] for info in infos])
        if penalties.any():
            _add_rows(replay_buffer, before, buffer_action, penalties > 0, penalties, infos)


class GuardedVecEnv(VecEnvWrapper):
    """Guards the actions of all environments and tells ``infos[i]["shield"]`` about it.

    The shield sees observations before a VecNormalize changes them, so that their scale stays.
    """

    def __init__(self, venv: VecEnv, session: ShieldSession) -> None:
        super().__init__(venv)
        self._session, self._normalised = session, unwrap_vec_normalize(venv)
        self._obs: list[Any] = []

    def reset(self) -> Any:
        for env_index in range(self.num_envs):
            self._session.start_episode(env_index)
        obs = self.venv.reset()
        seen = obs if self._normalised is None else self._normalised.get_original_obs()
        self._obs = [_each(itemgetter(i), seen) for i in range(self.num_envs)]
        return obs

    def step_async(self, actions: Array) -> None:
        proposed = np.array(actions)
        verdicts = self._session.guard_batch(self._obs, proposed)
        self._said = [self._session.describe(*x) for x in zip(verdicts, proposed, strict=True)]
        self.venv.step_async(np.stack([verdict.action for verdict in verdicts]))

    def step_wait(self) -> Any:
        listener = None
        if self._normalised is not None:
            # An episode's last observation is nowhere else: VecNormalize only gives it clipped.
            listener = self._normalised.venv = _Listener(self._normalised.venv)
        try:
            step = self.venv.step_wait()
        finally:
            if listener is not None:
                self._normalised.venv = listener.venv
        self._record(*(step if listener is None else listener.raw))
        for info, said in zip(step[3], self._said, strict=True):
            info["shield"] = said
        return step

    def _record(self, obs: Any, rewards: Any, dones: Any, infos: Any) -> None:
        self._obs = [_each(itemgetter(i), obs) for i in range(self.num_envs)]
        for i, info in enumerate(infos):
            cut = bool(info.get("TimeLimit.truncated", False))
            self._session.record(
                info["terminal_observation"] if dones[i] else self._obs[i],
                float(rewards[i]),
                bool(dones[i]) and not cut,
                cut,
                info,
                env_index=i,
            )
            if dones[i]:
                self._session.end_episode(i)
        self._session.close_if_spent()


class _Listener:
    """Takes the place of the environment below a VecNormalize for one step and keeps its result."""

    def __init__(self, venv: VecEnv) -> None:
        self.venv = venv

    def __getattr__(self, name: str) -> Any:
        return getattr(self.venv, name)

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        self.raw = obs, rewards, dones, [dict(info) for info in infos]
        return obs, rewards, dones, infos


class _ShieldCallback(BaseCallback):
    """Logs the shield's counts, stops at the violation budget, corrects on-policy rollouts."""

    def _on_rollout_start(self) -> None:
        self._step = 0
        self._replaced: list[tuple[int, int, Array]] = []

    def _on_step(self) -> bool:
        session = self.model.session
        for name in ("interventions", "violations", "fallbacks"):
            self.logger.record(f"shield/{name}", getattr(session, name))
        self.logger.record("shield/armed", int(session.shield.armed))
        self.logger.record("shield/k", session.shield.k)
        for i, info in enumerate(self.locals["infos"]):
            if info["shield"]["intervened"]:
                self._replaced.append((self._step, i, info["shield"]["executed"]))
        self._step += 1
        return not session.budget_spent

    def _on_rollout_end(self) -> None:
        """On-policy: executed actions take the proposals' places, with their log-probability."""
        on_policy = isinstance(self.model, OnPolicyAlgorithm)
        if not (on_policy and self._replaced) or self.model.on_policy_learns == "proposed":
            return
        buffer, policy = self.model.rollout_buffer, self.model.policy
        steps, indices, executed = zip(*self._replaced, strict=True)
        where = (np.array(steps), np.array(indices))
        if isinstance(self.model.action_space, Box) and policy.squash_output:
            executed = tuple(policy.scale_action(action) for action in executed)
        actions = np.stack(executed).reshape(len(steps), -1)
        obs = _each(itemgetter(where), buffer.observations)
        tensor = torch.as_tensor(actions, device=self.model.device)
        if isinstance(self.model.action_space, Discrete):
            tensor = tensor.long().flatten()
        with torch.no_grad():
            _, log_probs, _ = policy.evaluate_actions(policy.obs_to_tensor(obs)[0], tensor)
        buffer.actions[where] = actions
        buffer.log_probs[where] = log_probs.cpu().numpy()

    def _on_training_end(self) -> None:
        self.model.session.save()


def _critic_of(model: Any) -> RateActions | None:
    """How the model's critic rates actions in a (not normalised) observation, if it can."""
    if not isinstance(model, DQN | TD3 | SAC):
        return None

    def rate(obs: Any, actions: Array) -> Array:
        normalised = model.get_vec_normalize_env()
        obs = obs if normalised is None else normalised.normalize_obs(obs)
        count = 1 if isinstance(model, DQN) else len(actions)
        rows = _each(lambda x: np.repeat(x[None], count, axis=0), obs)
        with torch.no_grad():
            seen = model.policy.obs_to_tensor(rows)[0]
            if isinstance(model, DQN):
                return np.asarray(model.q_net(seen)[0].cpu().numpy()[actions])
            scaled = torch.as_tensor(
                model.policy.scale_action(actions), dtype=torch.float32, device=model.device
            )
            if isinstance(model, SAC):  # the lowest of its critics, as SAC itself uses
                values = torch.cat(model.critic(seen, scaled), dim=1).min(dim=1).values
            else:
                values = model.critic.q1_forward(seen, scaled)[:, 0]
        return np.asarray(values.cpu().numpy())

    return rate


def _takes_extra_rows(model: OffPolicyAlgorithm) -> bool:
    """False for buffers in which one row depends on the next."""
    plain = type(model.replay_buffer) in (ReplayBuffer, DictReplayBuffer)
    return plain and not model.optimize_memory_usage


def _add_rows(
    buffer: Any,
    before: Any,
    proposed: Array,
    replaced: Array,
    penalties: Array | None,
    infos: list[dict[str, Any]],
) -> None:
    """Add the proposals where they were ``replaced``: with what really happened, or, given
    ``penalties``, as (s, proposal, -penalty, s).

    A row of the buffer holds all environments; elsewhere the last transition is repeated.
    """
    last = (buffer.pos - 1) % buffer.buffer_size
    actions = buffer.actions[last].copy().reshape(proposed.shape)
    actions[replaced] = proposed[replaced]
    stays = replaced & (penalties is not None)
    rewards, dones = buffer.rewards[last], buffer.dones[last]
    if penalties is not None:
        rewards, dones = np.where(stays, -penalties, rewards), np.where(stays, 0.0, dones)

    def after(was: Array, stored: Array) -> Array:
        rows = stored[last].copy().reshape(was.shape)
        rows[stays] = was[stays]
        return rows

    led_to = _each(after, before, buffer.next_observations)
    notes = [{} if each else info for each, info in zip(stays, infos, strict=True)]
    buffer.add(before, led_to, actions, rewards, dones, notes)


def _each(function: Callable[..., Any], obs: Any, *others: Any) -> Any:
    """Apply ``function`` to an observation, or to each part of a dictionary of them."""
    if isinstance(obs, dict):
        return {key: function(x, *(other[key] for other in others)) for key, x in obs.items()}
    return function(obs, *others)
