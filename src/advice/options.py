"""Every command's options: a field's docstring is its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from advice.config import TrainConfig, check_numbers

Preset = Literal["paper", "lidar"]


@dataclass(frozen=True)
class Train(TrainConfig):
    """Train one agent with one method on one task. The same command again resumes the run."""

    preset: Preset = "paper"
    """Where the --shield options start from: lidar is better on the built-in tasks."""
    out: Path = Path("runs")
    """Root of the results; this run goes to OUT/<task>/<method>/seed-<n>."""
    overwrite: bool = False
    """Delete what is in the run's folder and start anew."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints (taken at episode ends)."""


@dataclass(frozen=True)
class Evaluate:
    """Play greedy episodes with a trained agent and its shield."""

    run: Path
    """The run's folder."""
    episodes: int = 50
    """How many episodes to play."""
    shield: bool = True
    """Guard with the run's shield (--no-shield: see what the agent alone would do)."""
    video: Path | None = None
    """Film the first three episodes to this mp4 file."""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class Inspect:
    """Say what is in a run's folder or a shield file, with the shield's audit."""

    path: Path
    """A run's folder, or a shield.safetensors."""


@dataclass(frozen=True)
class CheckEnv:
    """Examine an environment: would shielding work, and what should be mended first?"""

    env: str
    """A task of `advice tasks`, a registered Gymnasium id, or module:Class."""
    episodes: int = 20
    """Episodes of random actions to watch."""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class Demo:
    """Unshielded DDPG beside ADVICE, same task and seed: a table, a figure and a video."""

    out: Path = Path("demo")
    """Where the runs, the figure and the video go."""
    task: str = "randomised-goal"
    """The task to learn."""
    seed: int = 0
    """Everything random follows from this number."""
    episodes: int = 400
    """Episodes of each of the two runs."""
    construction_episodes: int = 250
    """When the shield is fitted and armed."""

    def __post_init__(self) -> None:
        check_numbers(self, seed=(0, 2**32 - 1))


@dataclass(frozen=True)
class Bench(TrainConfig):
    """Run a grid of trainings on all cores, or on a Ray cluster. The same command continues it."""

    task: str = field(default=TrainConfig.task, init=False)  # no options here: --tasks, --methods
    method: str = field(default=TrainConfig.method, init=False)
    preset: Preset = "paper"
    """Where the --shield options start from; the suites bring their own."""
    suite: str | None = None
    """A named grid: smoke, core, constrained, paper-settings, transfer, long-episodes, k-sweep,
    activation-sweep, windows or paper."""
    tasks: tuple[str, ...] = ()
    """The tasks of a grid of your own, or the part of a suite that you want."""
    methods: tuple[str, ...] = ()
    """The methods, likewise."""
    seeds: int = 5
    """How many seeds, from --seed on."""
    out: Path = Path("runs")
    """The grid's folder."""
    processes: int | None = None
    """Runs at a time on this machine; one per core if not given."""
    attempts: int = 3
    """How often a failing run is tried, each time from its checkpoint."""
    only_missing: bool = True
    """Leave finished runs alone (--no-only-missing: do all of them anew)."""
    dry_run: bool = False
    """Only say what would run, how long it would take and how much disk it needs."""
    status: Path | None = None
    """Only say where the grid in this folder stands."""
    engine: Literal["local", "ray"] = "local"
    """Where to run: processes here, or a Ray cluster (needs advice-rl[ray])."""
    address: str = "auto"
    """Ray: the cluster's address (auto, or ray://HOST:PORT)."""
    shared_storage: bool = True
    """Ray: the grid's folder is visible on every node (--no-shared-storage: files travel home)."""


@dataclass(frozen=True)
class Report:
    """Turn folders of runs into one page: curves, tables, claims, and each figure as a file."""

    runs: tuple[Path, ...]
    """Folders with runs below them, finished or not."""
    out: Path = Path("report")
    """Where index.html, figures/ and tables/ go."""
    any_version: bool = False
    """Compare runs of different code versions too (the page says so)."""


@dataclass(frozen=True)
class Replay:
    """Simulate one recorded episode again, exactly, and write a page to play it step by step."""

    run: Path
    """The run's folder."""
    episode: int | None = None
    """The episode's number, from 1."""
    worst: bool = False
    """The episode that cost most and, of those, earned least (this one if none is named)."""
    first_violation: bool = False
    """The first episode with a violation."""
    out: Path = Path("replay.html")
    """The page to write."""
    video: Path | None = None
    """Also film the episode to this mp4 file."""
    counterfactual: bool = False
    """At each intervention, also try the vetoed action: was the intervention needed?"""
    horizon: int = 10
    """Steps for which a vetoed action is held."""


@dataclass(frozen=True)
class Tasks:
    """List the tasks."""


@dataclass(frozen=True)
class Methods:
    """List the methods, and how to compose your own."""
