"""The only training loop: act, guard, step, record, learn. Every method uses it."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.agents.agent import Agent
from advice.config import ShieldConfig, TrainConfig
from advice.envs.signals import WHAT_TO_GIVE, SignalRules, normalize_step
from advice.files import write_arrays
from advice.runs.checkpoints import Checkpointer, Counters, RecordWriter
from advice.runs.loggers import EventWriter, WandbWriter
from advice.runs.methods import adopt_safety, build, episode_seed, make_environment
from advice.runs.records import RunFolder, is_finished
from advice.shields.autoencoder import FitProgress
from advice.shields.base import PostShield
from advice.shields.options import SessionOptions
from advice.shields.session import ShieldSession
from advice.shields.shield import Shield
from advice.shields.tabular import TabularShield
from advice.types import AdviceError, Array, EpisodeRecord, Transition

ENDLESS = 100_000  # an episode of that many steps is taken for one that never ends


class RunError(AdviceError):
    """A run had to stop; the message names the episode and the step."""


class Listener:
    """Gets what happens during a run; override the methods you need.

    ``ready`` gets the agent and the shield, to look inside or to evaluate between episodes;
    ``stepped`` comes about once a second, also while a fit makes progress.
    """

    def started(self, config: TrainConfig, folder: RunFolder, counters: Counters) -> None: ...
    def ready(self, agent: Agent, shield: PostShield) -> None: ...
    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None: ...
    def stepped(self) -> None: ...
    def fitting(self, progress: FitProgress) -> None: ...
    def said(self, message: str) -> None: ...


class Result(NamedTuple):
    """How a call of :func:`train` ended; not finished if it was asked to stop."""

    folder: RunFolder
    counters: Counters
    finished: bool


def train(
    config: TrainConfig,
    folder: RunFolder | Path | str,
    listener: Listener | None = None,
    overwrite: bool = False,
    checkpoint_seconds: float = 30.0,
    begin: Callable[[ActiveRun], None] | None = None,
    keep: Collection[int] = (),
    wandb: bool = False,
) -> Result:
    """Train in ``folder``, resuming by itself if a part of this very run is there already.

    ``wandb`` also logs to Weights & Biases. For :mod:`advice.runs.branching`: ``begin`` may take a
    new run some episodes further, and the agent is kept as it is after the episodes ``keep``.
    """
    listener = listener or Listener()
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    env = make_environment(config)
    try:
        agent, shield = build(config, env.observation_space, env.action_space)
        with folder.locked():
            if not overwrite:
                folder.refuse_other_settings(config)
                folder.refuse_to_lose()
                folder.check_done()
            if config.shield_from and (overwrite or not folder.state_file.exists()):
                # before anything is deleted or written: it raises if there is no such shield
                adopt_safety(config.shield_from, shield)
            if overwrite or not folder.config_file.exists():
                folder.clear()
                folder.write_config(config)
            run = ActiveRun(config, folder, env, agent, shield, listener, keep)
            if not folder.state_file.exists():  # from now on records without a checkpoint lack it
                run.checkpointer.save(run.counters)
            if run.counters.episode and not run.finished:
                run.checkpointer.load_replay()
                folder.note_resume(run.counters.episode)
            elif begin and not run.counters.episode:
                begin(run)
            if not run.finished:
                listener.started(config, folder, run.counters)
                listener.ready(agent, shield)
                with run.recording(wandb), signals_to(run.ask_to_stop):
                    run.go_on(checkpoint_seconds)
            if run.finished:
                if not folder.done_file.exists():
                    folder.mark_done()
                run.checkpointer.drop_replay()
            return Result(folder, run.counters, run.finished)
    except OSError as error:  # a full or read-only disk becomes one clear message
        raise AdviceError(f"cannot write to {folder.path}: {error.strerror or error}") from error
    finally:
        env.close()


@contextmanager
def signals_to(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``handler``; outside the main thread they cannot."""
    here = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if here else ()
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


@dataclass
class ActiveRun:
    """One run in progress."""

    config: TrainConfig
    folder: RunFolder
    env: Any
    agent: Agent
    shield: PostShield
    listener: Listener
    keep: Collection[int] = ()

    def __post_init__(self) -> None:
        """Go back to the last checkpoint, if there is one."""
        env, agent, shield = self.env, self.agent, self.shield
        parts = {"agent": agent, "shield": shield}
        self.checkpointer = Checkpointer(self.folder.checkpoint, parts, agent.replay)
        self.counters = self.checkpointer.load()
        settings: ShieldConfig | None = self.config.shield
        if isinstance(shield, Shield):  # it brings its settings
            shield.task, settings = self.config.task, None
        options = SessionOptions(shield, settings, agent.rate_actions)
        spaces = (env.observation_space, env.action_space)
        rules = SignalRules.of(env, self.config.env.terminal)
        self.session = ShieldSession(
            *(*spaces, options),
            say=self.listener.said,
            rules=rules,
            learn_from="executed" if agent.stochastic else "both",
        )
        self._step, self._stop = 0, False
        self._next_sign = 0.0  # when to show again that steps are taken

    @contextmanager
    def recording(self, wandb: bool = False) -> Iterator[None]:
        """Open the records at the counters' place, and close them whatever happens."""
        records = RecordWriter(self.folder, self.env.action_space, *self.counters[:2])
        with ExitStack() as opened:
            self.records = opened.enter_context(closing(records))
            before = self.folder.read_episodes()
            self._recent = deque(before, maxlen=100)
            self.session.usual_cost.extend(x.cost for x in before if x.violation and x.k == 0)
            events: Any = EventWriter(self.folder.path, len(before))
            self.loggers = [opened.enter_context(closing(events))]
            if wandb:
                logger = WandbWriter(self.folder.path, self.config)
                self.loggers.append(opened.enter_context(closing(logger)))
            yield

    @property
    def finished(self) -> bool:
        return is_finished(self.config, self.counters.episode, self.counters.violations)

    def ask_to_stop(self, number: int, frame: Any) -> None:
        """A signal: the first asks for a stop after the running episode, the second stops now."""
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        self.listener.said(
            "stopping when this episode ends, with a checkpoint; the same again stops at once"
        )

    def go_on(self, checkpoint_seconds: float) -> None:
        """Episode after episode to the end, or until asked to stop; a broken one is not saved."""
        self.fit_if_due(save_first=False)  # a resumed run may have been killed while it fitted
        last_save = time.monotonic()
        while not self.finished and not self._stop:
            self.episode()
            if self.fit_if_due() or time.monotonic() - last_save >= checkpoint_seconds:
                self.save()
                last_save = time.monotonic()
        self.export()
        self.save()  # last: it may say that the run is finished

    def episode(self) -> None:
        """One episode, from reset to the last step, with all that is learnt and recorded."""
        number, self._step = self.counters.episode + 1, 0
        began = time.perf_counter()
        agent, session, env = self.agent, self.session, self.env
        with self._naming_the_step():
            obs = np.array(env.reset(seed=episode_seed(self.config.seed, number))[0])
        self._check(obs)
        if agent.restart_if_stuck():
            which = f"restart {agent.restarts} of at most {self.config.agent.most_restarts}"
            self.listener.said(f"the policy was stuck at one action and starts anew ({which})")
        agent.start_episode()
        session.start_episode()
        episode_return, ended = 0.0, False
        while not ended:
            self._step += 1
            proposed = agent.act(obs)
            if not np.isfinite(proposed).all():
                hint = "its networks have diverged; try smaller learning rates or rewards"
                raise self._stopped(f"the agent proposes {proposed}, {hint}")
            verdict = session.guard(obs, proposed)
            with self._naming_the_step():
                step = normalize_step(env.step(verdict.action))
                next_obs, reward = np.array(step[0]), float(step[1])  # it may reuse its array
                _, _, terminated, truncated, info = step
                signals = session.record(next_obs, reward, terminated, truncated, info)
            self._check(next_obs, reward)
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
        record = EpisodeRecord(
            number,
            self._step,
            self.counters.total_steps + self._step,
            episode_return,
            episode.cost,
            episode.violated,
            episode.success,
            episode.interventions,
            episode.no_safe_action,
            k if episode.guarded else 0,
            float(agent.multiplier),
            round(time.perf_counter() - began, 6),
        )
        violations = self.counters.violations + record.violation
        self.counters = Counters(number, record.total_steps, violations)
        self.records.episode(record)
        self._recent.append(record)
        for logger in self.loggers:
            logger.write(record, self._recent)
        self.listener.episode_ended(record, self.counters)
        if number in self.keep:
            write_arrays(self.folder.kept_file(number), *agent.snapshot(), "beginning", 1)
        if number == 1 and not session.violation_source:
            self.listener.said(
                "no step of the first episode says whether it is a violation, so none is counted "
                f"and no shield can learn from it: {WHAT_TO_GIVE}"
            )

    def save(self) -> None:
        """Records first, then the checkpoint that counts on them."""
        for part in (self.records, *self.loggers):
            part.flush()
        self.checkpointer.save(self.counters)

    def export(self) -> None:
        """The trained agent and the shield, if it is armed, as files of their own."""
        write_arrays(self.folder.agent_file, *self.agent.snapshot(), kind="agent", version=1)
        if isinstance(self.shield, TabularShield):
            write_arrays(self.folder.table_file, *self.shield.snapshot(), kind="table", version=1)
        if isinstance(self.shield, Shield) and self.shield.armed:
            self.shield.save(self.folder.shield_file)
        else:  # of a shield that was disarmed none stays
            for file in (self.folder.shield_file, self.folder.card_file):
                file.unlink(missing_ok=True)

    def fit_if_due(self, save_first: bool = True) -> bool:
        """Fit the shield if it is due; True if it is now armed and exported.

        The time that fits take is noted apart: no episode counts it.
        """

        def fitting(progress: FitProgress) -> None:
            self.show_progress()
            self.listener.fitting(progress)

        due = self.shield.wants_fit and not self.session.one_class
        if save_first and due and not self.finished:  # a finished run would not fit when resumed
            self.save()  # a fit takes long, and a stop during it must not lose episodes
        began = time.perf_counter()
        fitted = self.session.fit_if_due(fitting)
        if due:
            before = self.folder.read_document()["provenance"].get("fit_seconds", 0.0)
            self.folder.note(fit_seconds=round(before + time.perf_counter() - began, 3))
        if fitted:
            self.export()
        return fitted

    def show_progress(self) -> None:
        """Change the time of the lock file, so that others see that the run does not hang."""
        self._next_sign = time.monotonic() + 1.0
        os.utime(self.folder.lock_file)
        self.listener.stepped()

    @contextmanager
    def _naming_the_step(self) -> Iterator[None]:
        """An environment's own error, or its end of the program, gets its episode and step."""
        try:
            yield
        except (Exception, SystemExit) as error:
            name = type(error).__name__
            raise self._stopped(f"the environment raised {name}: {error}") from error

    def _check(self, obs: Array, reward: float = 0.0) -> None:
        """Stop on what no method can learn from, naming the place."""
        if not math.isfinite(reward):
            raise self._stopped(f"the reward is {reward}")
        if not np.isfinite(obs).all():
            bad = np.count_nonzero(~np.isfinite(obs))
            raise self._stopped(f"the observation has {bad} non-finite numbers")
        if self._step >= ENDLESS:
            limit = "give the task a limit with --env.max-episode-steps"
            raise self._stopped(f"the episode does not end; {limit}")

    def _stopped(self, problem: str) -> RunError:
        return RunError(
            f"episode {self.counters.episode + 1}, step {self._step}: {problem}. The run in "
            f"{self.folder.path} can go on from its last checkpoint, after episode "
            f"{self.checkpointer.saved.episode}"
        )
