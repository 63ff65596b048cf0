"""The only training loop: act, guard, step, record, learn. Every method uses it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.agents.agent import Agent
from advice.config import TrainConfig
from advice.envs.make import make_from_name, refuse_foreign_code
from advice.envs.signals import WHAT_TO_GIVE, SignalRules, normalize_step
from advice.files import write_arrays
from advice.runs.checkpoints import Checkpointer, Counters, EnvironmentState, Snapshotable
from advice.runs.episodes import is_finished
from advice.runs.events import EventWriter, WandbWriter
from advice.runs.methods import build
from advice.runs.records import RecordWriter, RunFolder
from advice.runs.stopping import stop_on_signal
from advice.runs.transfer import adopt_safety
from advice.shields.autoencoder import FitProgress
from advice.shields.base import PostShield
from advice.shields.session import SessionOptions, ShieldSession
from advice.shields.shield import Shield
from advice.types import AdviceError, Array, EpisodeRecord, Transition

ENDLESS = 100_000
"""An episode of that many steps is taken for one that never ends."""


class RunError(AdviceError):
    """A run had to stop; the message names the episode and the step."""


class DivergedError(AdviceError):
    """The agent's networks no longer hold numbers: nothing of them is worth saving."""


class Listener:
    """Gets what happens during a run; override the methods you need."""

    def started(self, config: TrainConfig, folder: RunFolder, counters: Counters) -> None: ...
    def ready(self, agent: Agent, shield: PostShield) -> None:
        """What is about to learn; keep it to look inside or to evaluate between episodes."""

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None: ...
    def stepped(self) -> None:
        """About once a second while steps are taken or a fit makes progress."""

    def fitting(self, progress: FitProgress) -> None: ...
    def saved(self, counters: Counters) -> None: ...
    def said(self, message: str) -> None: ...


class Result(NamedTuple):
    """How a call of :func:`train` ended."""

    folder: RunFolder
    counters: Counters
    finished: bool
    """False if it was asked to stop and can be resumed."""


def train(
    config: TrainConfig,
    folder: RunFolder | Path | str,
    listener: Listener | None = None,
    overwrite: bool = False,
    checkpoint_seconds: float = 30.0,
    shield_source: str | None = None,
    wandb: bool = False,
    begin: Callable[[ActiveRun], None] | None = None,
) -> Result:
    """Train in ``folder``, resuming by itself if a part of this very run is there already.

    ``shield_source`` is the path of ``config.shield_from`` on this machine, if it is another one.
    ``wandb`` also logs to Weights & Biases.
    ``begin`` may take a new run some episodes further (:mod:`advice.runs.branching`).
    """
    listener = listener or Listener()
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    env = make_environment(config)
    try:
        agent, shield = build(config, env.observation_space, env.action_space)
        with _writing_to(folder.path), folder.locked():
            parts: dict[str, Snapshotable] = {
                "agent": agent,
                "shield": shield,
                "env": EnvironmentState(env),
            }
            checkpointer = Checkpointer(folder.checkpoint, parts, agent.replay)
            refuse_other_settings(folder, config, overwrite)
            if not overwrite:
                folder.refuse_to_lose()
                folder.check_done()
            if config.shield_from and (overwrite or not checkpointer.exists):
                # before anything is deleted or written: it raises if there is no such shield
                adopt_safety(shield_source or config.shield_from, shield)
            if overwrite or not folder.config_file.exists():
                folder.clear()
                folder.write_config(config)
            counters = checkpointer.load()
            run = ActiveRun(config, folder, env, agent, shield, listener, counters, checkpointer)
            if not checkpointer.exists:  # from now on records without a checkpoint lack it
                checkpointer.save(counters, without=("env",))
            if begin and not counters.episode:
                begin(run)
            if not run.finished:
                if counters.episode:
                    checkpointer.load_replay()
                    folder.note_resume(counters.episode)
                listener.started(config, folder, run.counters)
                listener.ready(agent, shield)
                with run.recording(wandb), stop_on_signal(listener.said) as stop:
                    run.go_on(stop, checkpoint_seconds)
            if run.finished:
                if not folder.done_file.exists():
                    folder.mark_done()
                checkpointer.discard_replay()
            return Result(folder, run.counters, run.finished)
    finally:
        env.close()


def make_environment(config: TrainConfig, **kwargs: Any) -> Any:
    """The task of a run, with the run's settings for it."""
    options: dict[str, Any] = {**config.env.options, **kwargs}
    if config.env.max_episode_steps is not None:
        options["max_episode_steps"] = config.env.max_episode_steps
    if config.env.observe_velocity:
        options["observe_velocity"] = True
    return make_from_name(config.task, **options)


def environment_of(folder: RunFolder, **kwargs: Any) -> Any:
    """The task that a run's folder names; SettingError if that would run code it may not."""
    config = folder.read_config()
    if not folder.trust_task:
        refuse_foreign_code(config.task)
    return make_environment(config, **kwargs)


def rules_of(config: TrainConfig, env: Any) -> SignalRules:
    """How to read what the steps of a run's environment say about safety."""
    return SignalRules.of(env, config.env.terminal)


def episode_seed(seed: int, episode: int) -> int:
    """The seed that resets an episode: the same start for every method of the same run seed."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


@contextmanager
def _writing_to(path: Path) -> Iterator[None]:
    """A full or read-only disk becomes one clear message."""
    try:
        yield
    except OSError as error:
        raise AdviceError(f"cannot write to {path}: {error.strerror or error}") from error


def refuse_other_settings(folder: RunFolder, config: TrainConfig, overwrite: bool) -> None:
    """A folder never mixes two configurations."""
    if folder.config_file.exists() and not overwrite:
        different = folder.differences(config)
        if different:
            raise AdviceError(
                f"{folder.path} holds a run with other settings; choose another folder, or start "
                "anew (advice train --overwrite, advice bench --no-only-missing). They differ in:"
                + "".join(f"\n  {line}" for line in different)
            )


class ActiveRun:
    """One run in progress."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        env: Any,
        agent: Agent,
        shield: PostShield,
        listener: Listener,
        counters: Counters,
        checkpointer: Checkpointer,
    ) -> None:
        self.config, self.folder, self.listener = config, folder, listener
        self.env, self.agent, self.shield = env, agent, shield
        self.counters, self.checkpointer = counters, checkpointer
        self._next_sign = 0.0  # when to show again that steps are taken
        own = isinstance(shield, Shield)  # it brings its settings
        if isinstance(shield, Shield):
            shield.task = config.task
        options = SessionOptions(shield, None if own else config.shield, agent.rate_actions)
        spaces = env.observation_space, env.action_space
        rules = rules_of(config, env)
        self.session = ShieldSession(*spaces, options, say=listener.said, rules=rules)

    @contextmanager
    def recording(self, wandb: bool = False) -> Iterator[None]:
        """Open the records at the counters' place, and close them whatever happens."""
        counters, actions = self.counters, self.env.action_space
        self.records = RecordWriter(self.folder, actions, counters.episode, counters.total_steps)
        before = self.folder.read_episodes()
        self.loggers: list[EventWriter | WandbWriter] = [EventWriter(self.folder.path, before)]
        if wandb:
            self.loggers.append(WandbWriter(self.folder.path, self.config, before))
        self.session.usual_cost.extend(x.cost for x in before if x.violation and x.k == 0)
        try:
            yield
        finally:
            for logger in self.loggers:
                logger.close()
            self.records.close()

    @property
    def finished(self) -> bool:
        return is_finished(self.config, self.counters.episode, self.counters.violations)

    def go_on(self, stop: threading.Event, checkpoint_seconds: float) -> None:
        """Episode after episode to the end, or until asked to stop.

        An episode that breaks is not saved: a resume repeats what came after the last checkpoint,
        as if nothing had happened.
        """
        self.fit_if_due(save_first=False)  # a resumed run may have been killed while it fitted
        last_save = time.monotonic()
        while not self.finished and not stop.is_set():
            self.episode()
            if self.fit_if_due() or time.monotonic() - last_save >= checkpoint_seconds:
                self.save()
                last_save = time.monotonic()
        self.export()
        self.save()  # last: it may say that the run is finished

    def episode(self) -> None:
        """One episode, from reset to the last step, with all that is learnt and recorded."""
        number = self.counters.episode + 1
        began = time.perf_counter()
        agent, session, env = self.agent, self.session, self.env
        with self._naming_the_step(number, 0):
            obs = np.array(env.reset(seed=episode_seed(self.config.seed, number))[0])
        self._check(number, 0, obs=obs)
        agent.start_episode()
        session.start_episode()
        steps, episode_return, ended = 0, 0.0, False
        while not ended:
            steps += 1
            proposed = agent.act(obs)
            self._check_proposal(number, steps, proposed)
            verdict = session.guard(obs, proposed)
            with self._naming_the_step(number, steps):
                step = normalize_step(env.step(verdict.action))
                next_obs, reward = np.array(step[0]), float(step[1])  # it may reuse its array
                _, _, terminated, truncated, info = step
                signals = session.record(next_obs, reward, terminated, truncated, info)
            self._check(number, steps, obs=next_obs, reward=reward, cost=signals.cost)
            for action in session.learnt_actions(verdict, proposed):
                agent.observe(Transition(obs, action, reward, signals.cost, next_obs, terminated))
            if verdict.intervened and session.penalty > 0:
                agent.observe(Transition(obs, proposed, -session.penalty, 0.0, obs, False))
            agent.learn()
            if time.monotonic() >= self._next_sign:
                self.show_progress()
            self.records.step(verdict.action, proposed)
            obs, ended = next_obs, terminated or truncated
            episode_return += reward
        k = self.shield.k if self.shield.armed else 0
        episode = session.end_episode(fit=False)
        agent.end_episode(episode.cost)
        total_steps = self.counters.total_steps + steps
        violations = self.counters.violations + episode.violated
        self.counters = Counters(number, total_steps, violations)
        record = EpisodeRecord(
            number,
            steps,
            total_steps,
            episode_return,
            episode.cost,
            episode.violated,
            episode.success,
            episode.interventions,
            episode.no_safe_action,
            k,
            float(agent.multiplier),
            round(time.perf_counter() - began, 6),
        )
        self.records.episode(record)
        for logger in self.loggers:
            logger.episode(record)
        self.listener.episode_ended(record, self.counters)
        if number == 1 and not session.violation_source:
            self.listener.said(
                "no step of the first episode says whether it is a violation, so none is counted "
                f"and no shield can learn from it: {WHAT_TO_GIVE}"
            )

    def save(self) -> None:
        """Records first, then the checkpoint that counts on them."""
        self.records.flush()
        for logger in self.loggers:
            logger.flush()
        self.checkpointer.save(self.counters)
        self.listener.saved(self.counters)

    def export(self) -> None:
        """The trained agent and the fitted shield as files of their own."""
        arrays, document = self.agent.snapshot()
        write_arrays(self.folder.agent_file, arrays, document, kind="agent", version=1)
        if isinstance(self.shield, Shield) and self.shield.armed:
            self.shield.save(self.folder.shield_file)

    def fit_if_due(self, save_first: bool = True) -> bool:
        """Fit the shield if it is due; True if it is now armed and exported."""
        due = self.shield.wants_fit and not self.session.one_class
        if save_first and due and not self.finished:  # a finished run would not fit when resumed
            self.save()  # a fit takes long, and a stop during it must not lose episodes
        if not self.session.fit_if_due(self._fitting):
            return False
        self.export()
        return True

    def _fitting(self, progress: FitProgress) -> None:
        self.show_progress()
        self.listener.fitting(progress)

    def show_progress(self) -> None:
        """Change the time of the lock file, so that others see that the run does not hang."""
        self._next_sign = time.monotonic() + 1.0
        os.utime(self.folder.lock_file)
        self.listener.stepped()

    @contextmanager
    def _naming_the_step(self, episode: int, step: int) -> Iterator[None]:
        """An environment's own error, or its end of the program, gets its episode and step."""
        try:
            yield
        except (Exception, SystemExit) as error:
            raise self._stopped(
                episode, step, f"the environment raised {type(error).__name__}: {error}"
            ) from error

    def _check_proposal(self, episode: int, step: int, proposed: Array) -> None:
        if not np.isfinite(proposed).all():
            raise DivergedError(
                f"episode {episode}, step {step}: the agent proposes {proposed}, its networks "
                "have diverged; try smaller learning rates or rewards. The last checkpoint, "
                f"after episode {self.checkpointer.saved.episode}, is kept"
            )

    def _check(self, episode: int, step: int, obs: Array, **numbers: float) -> None:
        """Stop on what no method can learn from, naming the place."""
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise self._stopped(episode, step, f"the {name} is {value}")
        if not np.isfinite(obs).all():
            bad = np.count_nonzero(~np.isfinite(obs))
            raise self._stopped(episode, step, f"the observation has {bad} non-finite numbers")
        if step >= ENDLESS:
            raise self._stopped(
                episode,
                step,
                "the episode does not end; give the task a limit with --env.max-episode-steps",
            )

    def _stopped(self, episode: int, step: int, problem: str) -> RunError:
        return RunError(
            f"episode {episode}, step {step}: {problem}. The run in {self.folder.path} can go on "
            f"from its last checkpoint, after episode {self.checkpointer.saved.episode}"
        )
