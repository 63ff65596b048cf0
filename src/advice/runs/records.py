"""A run's folder: settings, a CSV line per episode, every executed action, TensorBoard events.

config.json          settings, versions, commit, seed
episodes.csv         one line per episode
actions.bin          per step, as the action space has it: executed action, then proposed action
checkpoint/          what a resume needs        events.*            for TensorBoard
shield.safetensors   the fitted shield          agent.safetensors   the trained agent
card.md              the shield's card          done                digests of the records
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from advice.config import TrainConfig, flat, from_dict, to_dict
from advice.files import remove_leftovers, write_atomically, write_json
from advice.runs.episodes import COLUMNS, check_episodes, episode_line, is_finished, parse_episodes
from advice.runs.provenance import is_provenance, provenance
from advice.types import AdviceError, Array, BrokenFileError, EpisodeRecord, SettingError

_ANEW = "start anew (advice train --overwrite, advice bench --no-only-missing)"


def file_name(name: str) -> str:
    """A task's or method's name as a part of a path."""
    return name.replace("/", "_").replace(":", "_")


class FolderLockedError(AdviceError):
    """Another process works in this run's folder."""


class RunFolder:
    """The files of one run; a task ``module:Class`` runs its code only with ``trust_task``."""

    def __init__(self, path: Path | str, trust_task: bool = False) -> None:
        self.path, self.trust_task = Path(path), trust_task
        self.config_file = self.path / "config.json"
        self.episodes_file = self.path / "episodes.csv"
        self.actions_file = self.path / "actions.bin"
        self.shield_file = self.path / "shield.safetensors"
        self.card_file = self.path / "card.md"
        self.agent_file = self.path / "agent.safetensors"
        self.checkpoint = self.path / "checkpoint"
        self.state_file = self.checkpoint / "state.safetensors"
        self.done_file = self.path / "done"
        self.lock_file = self.path / "lock"
        self.error_file = self.path / "error.txt"

    @classmethod
    def of(cls, root: Path | str, config: TrainConfig) -> RunFolder:
        """root/<task>/<method>/seed-<n>, with names that are safe as folders."""
        names = (config.task, config.method, f"seed-{config.seed}")
        return cls(Path(root).joinpath(*map(file_name, names)))

    @classmethod
    def find(cls, path: Path | str, trust_task: bool = False) -> RunFolder:
        """The run in ``path``, or the only one below it."""
        path = Path(path)
        if (path / "config.json").is_file():
            return cls(path, trust_task)
        if not path.is_dir():
            why = "is a file, expected a run's folder" if path.exists() else "no such folder"
            raise AdviceError(f"{path}: {why}")
        found = sorted(config.parent for config in path.rglob("config.json"))
        if not found:
            raise AdviceError(f"{path}: no run in this folder (it would have a config.json)")
        if len(found) > 1:
            names = [*map(str, found[:20]), *(["..."] if len(found) > 20 else [])]
            listed = "".join(f"\n  {name}" for name in names)
            raise AdviceError(f"{path}: {len(found)} runs in this folder, name one:{listed}")
        return cls(found[0], trust_task)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; the lock ends with the process at the latest."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.lock_file, "a") as stream:
            for _ in range(6):  # is_locked() of another process may hold it for an instant
                with suppress(BlockingIOError):
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.1)
            else:
                raise FolderLockedError(
                    f"{self.path} is in use by another process; wait for it, or stop it"
                )
            remove_leftovers(self.path)
            remove_leftovers(self.checkpoint)
            yield

    def is_locked(self) -> bool:
        """True while a process works in this folder."""
        try:
            with suppress(FileNotFoundError), open(self.lock_file) as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def clear(self) -> None:
        """Delete a run's files, first those that mark it as one; the log stays."""
        for path in (
            *(self.done_file, self.config_file, self.error_file, self.episodes_file),
            *(self.actions_file, self.shield_file, self.card_file, self.agent_file),
            *(self.path / "wandb-id.txt", *self.path.glob("events.*")),
        ):
            path.unlink(missing_ok=True)
        if self.checkpoint.exists():
            shutil.rmtree(self.checkpoint)

    # ---- the settings and where the run comes from

    def write_config(self, config: TrainConfig) -> None:
        made = provenance(config.method)
        write_json(self.config_file, {"config": to_dict(config), "provenance": made})

    def read_document(self) -> dict[str, Any]:
        """config.json as it is: "config" and "provenance"."""
        try:
            document: dict[str, Any] = json.loads(self.config_file.read_text())
            dict(**document["config"]), document["provenance"]
        except (ValueError, KeyError, TypeError, RecursionError):
            what = "expected a run's settings as JSON"
            raise BrokenFileError(f"{self.config_file}: {what}") from None
        if not is_provenance(document["provenance"]):
            what = "expected a provenance with the versions and the commit"
            raise BrokenFileError(f"{self.config_file}: {what}")
        return document

    def read_config(self) -> TrainConfig:
        """The run's settings; an error names the file."""
        try:
            return from_dict(TrainConfig, self.read_document()["config"])
        except (SettingError, TypeError) as error:  # TypeError: a number in quotation marks
            raise BrokenFileError(
                f"{self.config_file}: {str(error)[:500]}; another version may have made it"
            ) from None

    def note_resume(self, episode: int) -> None:
        """Add to the provenance if other code than before goes on after ``episode``."""
        document = self.read_document()
        made, now = document["provenance"], provenance(document["config"].get("method", ""))
        last = (made.get("resumed") or [made])[-1]
        code = {name: now[name] for name in ("training", "commit", "versions")}
        if any(last.get(name) != value for name, value in code.items()):
            made.setdefault("resumed", []).append({"after_episode": episode, **code})
            write_json(self.config_file, document)

    def note_branch(self, source: dict[str, Any]) -> None:
        """Add to the provenance which run's beginning this one shares."""
        document = self.read_document()
        document["provenance"]["branched"] = source
        write_json(self.config_file, document)

    # ---- what must not be mixed, lost or changed

    def refuse_other_settings(self, config: TrainConfig) -> None:
        """Raise AdviceError if there is a run here with other settings."""
        if not self.config_file.exists():
            return
        old, new = _comparable(self.read_config()), _comparable(config)
        different = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        if different:
            lines = [f"\n  {n}: {old.get(n)!r} there, {new.get(n)!r} now" for n in different]
            raise AdviceError(
                f"{self.path} holds a run with other settings; choose another folder, or {_ANEW}. "
                f"They differ in:{''.join(lines)}"
            )

    def refuse_to_lose(self) -> None:
        """Raise AdviceError if training here would delete a run that lacks a part."""
        records = (self.done_file, self.episodes_file, self.actions_file)
        held = [x.name for x in (*records, self.shield_file, self.agent_file) if x.exists()]
        needed = (self.config_file, self.state_file)
        lacks = [str(x.relative_to(self.path)) for x in needed if not x.exists()]
        if held and lacks:
            raise AdviceError(
                f"{self.path} holds {', '.join(held)} of a run, but no {' and no '.join(lacks)}: "
                "it cannot go on, and training here would delete it. Put the files back, choose "
                f"another folder, or {_ANEW}"
            )

    def mark_done(self) -> None:
        """Mark the run as complete, with the digests of its records (``sha256sum -c done``)."""
        kept = [path for path in (self.episodes_file, self.actions_file) if path.exists()]
        lines = [f"{_digest(path)}  {path.name}\n" for path in kept]
        write_atomically(self.done_file, [line.encode() for line in lines])

    def check_done(self) -> None:
        """Raise BrokenFileError if the run is marked as done and is not, or was changed since."""
        if not self.done_file.exists():
            return
        lacks = [x.name for x in (self.config_file, self.episodes_file) if not x.exists()]
        if lacks:
            raise BrokenFileError(f"{self.path} is marked as done, but lacks {' and '.join(lacks)}")
        config, records = self.read_config(), self.read_episodes()
        if not is_finished(config, len(records), sum(record.violation for record in records)):
            has = f"{len(records)} of {config.episodes} episodes"
            raise BrokenFileError(f"{self.path} is marked as done, but has {has}")
        self._refuse_changed(self.episodes_file)

    def _refuse_changed(self, path: Path) -> None:
        """Raise BrokenFileError if a finished run's file is not as ``done`` says."""
        if self.done_file.exists():  # of an earlier version it is empty
            words = self.done_file.read_bytes()[:1000].decode(errors="replace").split()
            digests = dict(zip(words[1::2], words[::2], strict=False))
            if words and digests.get(path.name) != _digest(path):
                raise BrokenFileError(f"{path} was changed after the run was done")

    def check_actions(self) -> None:
        """Raise AdviceError if the run was kept without its actions, or they were changed."""
        if not self.actions_file.exists():
            raise AdviceError(f"{self.path} was kept without its actions (actions.bin)")
        self._refuse_changed(self.actions_file)

    # ---- episodes and actions

    def kept_file(self, episode: int) -> Path:
        """Where the agent is kept as it was after an episode, for runs that branch off there."""
        return self.checkpoint / f"after-{episode:06d}.safetensors"

    def read_episodes(self) -> list[EpisodeRecord]:
        """The complete lines of episodes.csv; a half-written last line is left out."""
        return parse_episodes(self.episodes_file, self.episodes_file.read_bytes())

    def read_checked_episodes(self) -> list[EpisodeRecord]:
        """The same, if a run with the settings of this one can have such episodes."""
        records = self.read_episodes()
        check_episodes(self.episodes_file, records, self.read_config())
        self.check_done()
        return records

    def read_steps(self, start: int, stop: int, space: Any) -> tuple[Array, Array]:
        """Executed and proposed actions of the steps from ``start`` to ``stop``: (steps, size)."""
        kind, size = _columns(space)
        count, offset = (stop - start) * 2 * size, start * 2 * size * kind.itemsize
        values = np.fromfile(self.actions_file, kind, count, offset=offset)
        if len(values) < count:
            raise BrokenFileError(f"{self.actions_file}: expected {stop} steps, found fewer")
        rows = values.reshape(-1, 2 * size)
        return rows[:, :size], rows[:, size:]


def read_actions(folder: RunFolder, episode: int, space: Any) -> tuple[Array, Array]:
    """Executed and proposed actions of one episode (counted from 1) in this action space."""
    records = folder.read_episodes()
    if not 1 <= episode <= len(records):
        expected = f"expected an episode from 1 to {len(records)}, found {episode}"
        raise AdviceError(f"{folder.path}: {expected}")
    folder.check_actions()
    record = records[episode - 1]
    return folder.read_steps(record.total_steps - record.steps, record.total_steps, space)


class RecordWriter:
    """Appends episodes and actions; first truncates both files to ``episodes`` and ``steps``."""

    def __init__(self, folder: RunFolder, space: Any, episodes: int, steps: int) -> None:
        file, kept = folder.episodes_file, (",".join(COLUMNS) + "\n").encode()
        if episodes:
            kept = b"".join(file.read_bytes().splitlines(keepends=True)[: episodes + 1])
            if (found := len(parse_episodes(file, kept))) < episodes:
                raise BrokenFileError(f"{file}: expected {episodes} episodes, found {found}")
        write_atomically(file, [kept])
        self._episodes = open(file, "ab")
        self._actions = open(folder.actions_file, "ab")
        self._type, width = _columns(space)
        size = steps * 2 * width * self._type.itemsize
        if self._actions.tell() < size:
            raise BrokenFileError(f"{folder.actions_file}: expected {size} bytes, found fewer")
        self._actions.truncate(size)
        self.flush()

    def step(self, executed: Array, proposed: Array) -> None:
        for action in (executed, proposed):
            self._actions.write(action.astype(self._type).tobytes())

    def episode(self, record: EpisodeRecord) -> None:
        """Write one finished episode and flush, so that readers see it."""
        self._episodes.write(episode_line(record).encode())
        self._actions.flush()
        self._episodes.flush()

    def flush(self) -> None:
        """Write everything so far to disk (fsync)."""
        for stream in (self._actions, self._episodes):
            stream.flush()
            os.fsync(stream.fileno())

    def close(self) -> None:
        self.flush()
        self._actions.close()
        self._episodes.close()


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _columns(space: Any) -> tuple[np.dtype[Any], int]:
    """Type and count of the numbers in an action of this space."""
    return space.dtype.newbyteorder("<"), int(np.prod(space.shape))


def _comparable(config: TrainConfig) -> dict[str, Any]:
    """All settings but the study, which is a label; the shield's path is made absolute."""
    shield_from = config.shield_from and str(Path(config.shield_from).resolve())
    return flat(config) | {"shield_from": shield_from, "study": ""}
