"""A run's folder: settings, a CSV line per episode, every executed action, TensorBoard events.

config.json          settings, versions, commit, seed
episodes.csv         one line per episode
actions.bin          per step, as the action space has it: executed action, then proposed action
                     (actions.bin.xz where it is kept as a record)
checkpoint/          what a resume needs        events.*            for TensorBoard
shield.safetensors   the fitted shield          agent.safetensors   the trained agent
card.md              the shield's card          table.safetensors   what a tabular shield stored
done                 digests of the records
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from advice.config import ShieldConfig, TrainConfig, flat, from_dict, to_dict
from advice.files import remove_leftovers, write_atomically, write_json
from advice.types import AdviceError, BrokenFileError, EpisodeRecord, SettingError

TRAINING_VERSIONS = {
    "loop": 2,  # with the tasks and DDPG, which nearly all methods use
    **{"ddpg-lag": 0, "rcpo": 0, "csc": 0, "td3": 0, "sac": 0},
    **{"tabular": 0, "advice": 1},
    "probes": 2,  # of advice, where the shield arms early and is compared with episodes without it
}
"""A part's number is raised with every change of it that alters what a training gives, which
tests/test_golden_runs.py checks. Runs of different commits may be compared if the sums of the
numbers of the parts they use are the present ones."""
COLUMNS = tuple("return" if name == "episode_return" else name for name in EpisodeRecord._fields)
_PACKAGES = ("advice-rl", "numpy", "scipy", "jax", "jaxlib", "optax", "mujoco", "gymnasium")
_TYPES = get_type_hints(EpisodeRecord)
_FLAGS = {"0": False, "1": True}
_TABULAR = ("candidates_per_dimension", "candidate_budget", "unsafe_per_episode")
"""Settings of the ADVICE shield that the tabular shield uses too."""
_LARGE = 1e15  # what no return, cost or time exceeds
_ANEW = "start anew (advice train --overwrite, advice bench --no-only-missing)"


class FolderLockedError(AdviceError):
    """Another process works in this run's folder."""


def file_name(name: str) -> str:
    """A task's or method's name as a part of a path."""
    return name.replace("/", "_").replace(":", "_")


def is_finished(config: TrainConfig, episodes: int, violations: int) -> bool:
    """True if a run has all its episodes, or has spent its violation budget."""
    budget = config.stop_after_violations
    return episodes >= config.episodes or (budget is not None and violations >= budget)


def has_effect(method: str, name: str) -> bool:
    """True if a setting has an effect on a method: an agent's own settings only on that agent."""
    agent, shield = method.split("+")[0], method.split("+")[-1]
    part, _, rest = name.partition(".")
    if part == "shield_from":
        return shield in ("advice", "tabular", "csc")
    if part == "shield":
        return shield == "advice" or (shield == "tabular" and rest in _TABULAR)
    owner, dot, _ = rest.partition(".")  # agent.csc.threshold is of csc alone
    return part != "agent" or not dot or {"lagrangian": "ddpg-lag"}.get(owner, owner) == agent


def training_version(method: str, shield: ShieldConfig) -> int:
    """The number of the training of a method: the sum of its parts', so each change raises it."""
    parts = ["loop", *method.split("+")]
    if "advice" in parts and shield.arm == "early" and shield.probe_violations:
        parts.append("probes")
    return sum(TRAINING_VERSIONS.get(part, 0) for part in parts)


def provenance(config: TrainConfig) -> dict[str, Any]:
    """Versions, commit, machine and command: what one needs to repeat a run."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "versions": versions,
        "training": training_version(config.method, config.shield),
        "commit": _commit(),
        "platform": platform.platform(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "threads": {n: os.environ.get(n) for n in ("OMP_NUM_THREADS", "XLA_FLAGS", "NPROC")},
        "command": sys.argv[1:],
    }


def _commit() -> str | None:
    """The commit of this source tree, with a + if it was changed since; None if installed.

    An installed package may lie below another repository, which does not track this file.
    """
    here = Path(__file__)

    def git(*words: str) -> str:
        command = ["git", "-C", str(here.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)
        changed = "+" if git("status", "--porcelain", "--", str(here.parent)) else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return None


def _is_provenance(made: Any) -> bool:
    """True if readers find what they look for: versions, commit, time of fits, how it resumed."""
    if not isinstance(made, dict) or not isinstance(made.get("versions", {}), dict):
        return False
    words = [made.get("commit"), *made.get("versions", {}).values()]
    resumed, seconds = made.get("resumed", []), made.get("fit_seconds", 0)
    return (
        isinstance(seconds, int | float)
        and 0 <= seconds <= _LARGE
        and all(x is None or (isinstance(x, str) and len(x) <= 200) for x in words)
        and isinstance(resumed, list)
        and all(isinstance(x, dict) and "resumed" not in x and _is_provenance(x) for x in resumed)
    )


def episode_line(record: EpisodeRecord) -> str:
    cells = (str(int(cell)) if isinstance(cell, bool) else repr(cell) for cell in record)
    return ",".join(cells) + "\n"


def parse_line(line: str) -> EpisodeRecord:
    """The episode of one line; ValueError or KeyError if it is none."""
    kinds = zip(_TYPES.values(), line.split(","), strict=True)
    return EpisodeRecord(*(_FLAGS[cell] if kind is bool else kind(cell) for kind, cell in kinds))


def parse_episodes(path: Path, content: bytes) -> list[EpisodeRecord]:
    """The complete lines of ``content``; BrokenFileError names the first that is no episode."""
    text = content.decode(errors="replace")
    header, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
    if header != ",".join(COLUMNS):
        raise BrokenFileError(f"{path}: expected the columns {','.join(COLUMNS)}")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parse_line(line))
        except (ValueError, KeyError):
            what = f"line {number + 1} is not an episode: {line[:200]!r}"
            raise BrokenFileError(f"{path}: {what}") from None
        if (found := records[-1].episode) != number:
            raise BrokenFileError(f"{path}: expected episode {number}, found {found}")
    return records


class RunFolder:
    """The files of one run; a task ``module:Class`` runs its code only with ``trust_task``."""

    def __init__(self, path: Path | str, trust_task: bool = False) -> None:
        self.path, self.trust_task = Path(path), trust_task
        self.config_file = self.path / "config.json"
        self.episodes_file = self.path / "episodes.csv"
        self.actions_file = self.path / "actions.bin"
        self.packed_file = self.path / "actions.bin.xz"
        self.shield_file = self.path / "shield.safetensors"
        self.card_file = self.path / "card.md"
        self.agent_file = self.path / "agent.safetensors"
        self.table_file = self.path / "table.safetensors"
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
        if not path.is_dir():
            why = "is a file, expected a run's folder" if path.exists() else "no such folder"
            raise AdviceError(f"{path}: {why}")
        alone = [path] if (path / "config.json").is_file() else []
        found = alone or sorted(config.parent for config in path.rglob("config.json"))
        if not found:
            raise AdviceError(f"{path}: no run in this folder (it would have a config.json)")
        if len(found) > 1:
            listed = "".join(f"\n  {name}" for name in found[:20]) + "\n  ..." * (len(found) > 20)
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
            *(
                self.packed_file,
                self.table_file,
                self.path / "wandb-id.txt",
                *self.path.glob("events.*"),
            ),
        ):
            path.unlink(missing_ok=True)
        if self.checkpoint.exists():
            shutil.rmtree(self.checkpoint)

    def write_config(self, config: TrainConfig) -> None:
        made = provenance(config)
        write_json(self.config_file, {"config": to_dict(config), "provenance": made})

    def read_document(self) -> dict[str, Any]:
        """config.json as it is: "config" and "provenance"."""
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            document: dict[str, Any] = json.loads(self.config_file.read_text())
            if isinstance(document["config"], dict) and _is_provenance(document["provenance"]):
                return document
        what = "expected a run's settings and its provenance as JSON"
        raise BrokenFileError(f"{self.config_file}: {what}")

    def read_config(self) -> TrainConfig:
        """The run's settings; an error names the file."""
        try:
            return from_dict(TrainConfig, self.read_document()["config"])
        except (SettingError, TypeError) as error:  # TypeError: a number in quotation marks
            raise BrokenFileError(
                f"{self.config_file}: {str(error)[:500]}; another version may have made it"
            ) from None

    def note(self, **facts: Any) -> None:
        """Add to the provenance."""
        document = self.read_document()
        document["provenance"] |= facts
        write_json(self.config_file, document)

    def note_resume(self, episode: int) -> None:
        """Add to the provenance if other code than before goes on after ``episode``."""
        made, now = self.read_document()["provenance"], provenance(self.read_config())
        before = made.get("resumed", [])
        code = {name: now[name] for name in ("training", "commit", "versions")}
        if any((before or [made])[-1].get(name) != value for name, value in code.items()):
            self.note(resumed=[*before, {"after_episode": episode, **code}])

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
        records = (self.done_file, self.episodes_file, self.actions_file, self.packed_file)
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
        self.refuse_changed(self.episodes_file)

    def refuse_changed(self, path: Path) -> None:
        """Raise BrokenFileError if a finished run's file is not as ``done`` says."""
        if self.done_file.exists():
            self.refuse_digest(path.name, _digest(path))

    def refuse_digest(self, name: str, digest: str) -> None:
        """The same for a file of this name, by its digest."""
        if self.done_file.exists():  # of an earlier version it is empty
            words = self.done_file.read_bytes()[:1000].decode(errors="replace").split()
            digests = dict(zip(words[1::2], words[::2], strict=False))
            if words and digests.get(name) != digest:
                raise BrokenFileError(f"{self.path / name} was changed after the run was done")

    def kept_file(self, episode: int) -> Path:
        """Where the agent is kept as it was after an episode, for runs that branch off there."""
        return self.checkpoint / f"after-{episode:06d}.safetensors"

    def read_episodes(self) -> list[EpisodeRecord]:
        """The complete lines of episodes.csv; a half-written last line is left out."""
        return parse_episodes(self.episodes_file, self.episodes_file.read_bytes())

    def read_checked_episodes(self) -> list[EpisodeRecord]:
        """The same; BrokenFileError if no run with the settings of this one can have them."""
        path, config, records = self.episodes_file, self.read_config(), self.read_episodes()
        if len(records) > config.episodes:
            raise BrokenFileError(
                f"{path}: expected at most {config.episodes} episodes, found {len(records)}"
            )
        table = np.array(records, np.float64).reshape(-1, len(COLUMNS))
        columns = dict(zip(COLUMNS, table.T, strict=True))
        steps, total = columns["steps"], np.cumsum(columns["steps"])
        bounds: dict[str, tuple[Any, Any]] = {
            "steps": (1, config.env.max_episode_steps or _LARGE),
            "total_steps": (total, total),
            "return": (-_LARGE, _LARGE),
            "cost": (-_LARGE, np.where(columns["violation"], _LARGE, 0)),  # a cost is a violation
            **dict.fromkeys(("interventions", "no_safe_action"), (0, steps)),
            "k": (0, config.shield.k_max),
            **dict.fromkeys(("multiplier", "seconds"), (0, _LARGE)),
        }
        for name, limits in bounds.items():
            low, high = (np.broadcast_to(limit, steps.shape) for limit in limits)
            found = columns[name]
            for row in np.flatnonzero(~((low <= found) & (found <= high)))[:1]:
                raise BrokenFileError(
                    f"{path}: line {row + 2}: expected {name} in {low[row]:g} to {high[row]:g}, "
                    f"found {found[row]:g}"
                )
        self.check_done()
        return records


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _comparable(config: TrainConfig) -> dict[str, Any]:
    """The settings that have an effect, without labels; the shield's path is made absolute."""
    shield_from = config.shield_from and str(Path(config.shield_from).resolve())
    settings = flat(config) | {"shield_from": shield_from, "study": ""}
    return {name: value for name, value in settings.items() if has_effect(config.method, name)}
