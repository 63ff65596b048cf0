"""Shared beginnings: runs that are the same until a shield may act train that part only once.

Until its shield is armed, a run of ADVICE with ``arm="fixed"`` is plain DDPG. In a grid the longest
such part of the same task, seed, agent and environment is the trunk, which keeps its agent at the
episodes where others branch off. A branch repeats the recorded actions in the simulator, so that
its shield, replay buffer and records fill as if it had trained itself, then takes over the kept
agent and goes on. The result is the same to the bit as a run from the start.

The tabular shield is armed from the start: its run is the trunk's until it intervenes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from advice.agents.agent import Agent
from advice.config import TrainConfig, to_dict
from advice.files import read_arrays, write_atomically
from advice.runs.actions import read_steps
from advice.runs.checkpoints import read_part
from advice.runs.grid import Cell
from advice.runs.loop import ActiveRun, Listener, Result, train
from advice.runs.methods import find_method
from advice.runs.records import RunFolder, provenance
from advice.types import Array, EpisodeRecord, Transition


def unshielded(config: TrainConfig) -> int:
    """Episodes at the beginning of a run in which no shield acts and none is fitted."""
    shield = find_method(config.method).shield
    if shield == "none":
        return config.episodes
    if shield == "advice" and config.shield.arm == "fixed" and not config.shield_from:
        return min(config.shield.construction_episodes, config.episodes)
    return 0


def share_beginnings(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with what each shares: where it branches off, and what a trunk keeps."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_beginning(cell.config), []).append(cell)
    found = {cell.folder.path: cell for cell in cells}
    for group in groups.values():
        trunk = max(group, key=lambda cell: unshielded(cell.config))  # the first of the longest
        path, points = trunk.folder.path, set()
        for cell in (cell for cell in group if cell is not trunk):
            tabular = find_method(cell.config.method).shield == "tabular"  # which rarely acts
            shareable = cell.config.episodes if tabular else unshielded(cell.config)
            if point := min(shareable, unshielded(trunk.config)):
                found[cell.folder.path] = cell._replace(trunk=path, shared=point)
                points.add(point)
        found[path] = trunk._replace(keep=tuple(sorted(points)))
    return list(found.values())


def _beginning(config: TrainConfig) -> str:
    """What decides the unshielded part of a run; a violation budget is never shared."""
    agent = find_method(config.method).agent
    values = [config.task, config.seed, agent, to_dict(config.agent), to_dict(config.env)]
    own = to_dict(config) if config.stop_after_violations is not None else None
    return json.dumps([*values, own], sort_keys=True)


def may_branch(trunk: Path, episode: int) -> bool:
    """True once a trunk has come as far as a branch after ``episode`` needs."""
    folder = RunFolder(trunk)
    return folder.kept_file(episode).exists() or folder.done_file.exists()


class BeginningDiffersError(Exception):
    """A run is the same as its trunk for so many episodes only: its shield acted, say."""


class _Recorded:
    """An agent that proposes what another run did, and fills the replay buffer of its own."""

    def __init__(self, agent: Agent, trunk: RunFolder, records: list[EpisodeRecord], space: Any):
        self._agent, self._records, self._space = agent, records, space
        self._executed, self._proposed = read_steps(trunk, 0, records[-1].total_steps, space)
        self._episode = self._step = 0

    @property
    def multiplier(self) -> float:
        return self._records[self._episode - 1].multiplier

    def restart_if_stuck(self) -> bool:
        return False

    def start_episode(self) -> None:
        self._episode += 1

    def act(self, obs: Array) -> Array:
        if self._step == self._records[self._episode - 1].total_steps:  # it ended here
            raise BeginningDiffersError(self._episode - 1)
        return self._proposed[self._step].reshape(self._space.shape)

    def observe(self, step: Transition) -> None:
        if (np.ravel(step.action) != self._executed[self._step]).any():
            raise BeginningDiffersError(self._episode - 1)
        self._agent.observe(step)
        self._step += 1

    def learn(self) -> None: ...
    def end_episode(self, cost: float) -> None: ...


def repeat(run: ActiveRun, trunk: RunFolder, episodes: int) -> None:
    """Take a new run as far as ``trunk`` was after ``episodes``, and save it.

    Does nothing if other code made the trunk, or it did not keep its agent there or its actions.
    """
    made, now = trunk.read_document()["provenance"], provenance(trunk.read_config())
    kept, records = trunk.kept_file(episodes), trunk.read_episodes()
    if any(made.get(name) != now[name] for name in ("training", "versions")):
        return
    if not trunk.actions_file.exists():
        return
    if kept.exists():
        state = read_arrays(kept, "beginning", 1)
    elif trunk.state_file.exists() and trunk.done_file.exists() and len(records) == episodes:
        state = read_part(trunk.checkpoint, "agent")
    else:
        return
    agent, records = run.agent, records[:episodes]
    run.agent = cast(Agent, _Recorded(agent, trunk, records, run.env.action_space))
    with run.recording():
        for _ in records:
            run.episode()
        for mine, theirs in zip(run.folder.read_episodes(), records, strict=True):
            if mine._replace(seconds=theirs.seconds) != theirs:
                raise BeginningDiffersError(theirs.episode - 1)
        run.agent = agent
        agent.restore(*state)
        if run.finished:
            run.export()
        run.save()
    lines = trunk.episodes_file.read_bytes().splitlines(keepends=True)
    write_atomically(run.folder.episodes_file, lines[: episodes + 1])  # with the trunk's seconds
    source = {"from": "/".join(trunk.path.parts[-4:]), "after_episode": episodes}
    run.folder.note(branched={**source, "commit": made.get("commit")})


def train_cell(cell: Cell, listener: Listener | None = None) -> Result:
    """:func:`advice.runs.loop.train`, beginning with what the run shares with its trunk."""
    run = partial(train, cell.config, cell.folder, listener, keep=cell.keep)
    trunk, again = RunFolder(cell.trunk or ""), False
    episodes = cell.shared if cell.trunk and trunk.config_file.exists() else 0
    while episodes:
        try:
            return run(begin=partial(repeat, trunk=trunk, episodes=episodes), overwrite=again)
        except BeginningDiffersError as error:
            same = range(error.args[0], 0, -1)  # the last point up to which they agree
            episodes = next((point for point in same if trunk.kept_file(point).exists()), 0)
            again = True
    return run(overwrite=again)
