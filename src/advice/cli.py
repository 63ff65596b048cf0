"""The front door: parse, call, print. Heavy rooms are imported by the command that needs them."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from advice.config import TrainConfig
from advice.types import AdviceError

INTERRUPTED = 130


# ---- the commands' options: a field's docstring is its help


@dataclass(frozen=True)
class Train(TrainConfig):
    """Train one agent with one method on one task. The same command again resumes the run."""

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


@dataclass(frozen=True)
class Demo:
    """Unshielded DDPG beside ADVICE, same task and seed: a table, a figure and a video."""

    out: Path = Path("demo")
    """Where the runs, the figure and the video go."""
    task: str = "randomised-goal"
    """The task to learn."""
    seed: int = 0
    """Everything random follows from this number."""
    episodes: int = 600
    """Episodes of each of the two runs."""
    construction_episodes: int = 300
    """When the shield is fitted and armed."""


@dataclass(frozen=True)
class Tasks:
    """List the tasks."""


@dataclass(frozen=True)
class Methods:
    """List the methods, and how to compose your own."""


# ---- what they do


def train(options: Train) -> int:
    from advice.display import TrainingDisplay
    from advice.runs.loop import train as run
    from advice.runs.records import RunFolder

    config = TrainConfig(
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(TrainConfig)}
    )
    folder = RunFolder.of(options.out, config)
    with TrainingDisplay(console()) as display:
        result = run(config, folder, display, options.overwrite, options.checkpoint_seconds)
    if not result.finished:
        say(f"stopped after episode {result.counters.episode}; the same command again continues")
        return INTERRUPTED
    say(f"done: {summary(folder)}")
    return 0


def evaluate(options: Evaluate) -> int:
    from rich.progress import Progress

    from advice.runs.evaluate import evaluate as play
    from advice.runs.records import RunFolder

    folder = RunFolder.find(options.run)
    with Progress(console=console(), disable=not console().is_terminal, transient=True) as bar:
        task = bar.add_task("evaluating", total=options.episodes)
        results = play(
            folder,
            options.episodes,
            options.shield,
            options.video,
            lambda done: bar.update(task, completed=done),
        )
    count = len(results)
    rows = [
        ("episodes", f"{count}{'' if options.shield else ' (without the shield)'}"),
        ("violations", f"{sum(r.violation for r in results)}"),
        ("successes", f"{sum(r.success for r in results)}"),
        ("mean return", f"{sum(r.episode_return for r in results) / count:.3f}"),
        ("mean cost", f"{sum(r.cost for r in results) / count:.3f}"),
        ("mean steps", f"{sum(r.steps for r in results) / count:.1f}"),
        ("interventions", f"{sum(r.interventions for r in results)}"),
    ]
    print_table(("", folder.path.as_posix()), rows)
    if options.video:
        say(f"video: {options.video}")
    return 0


def inspect(options: Inspect) -> int:
    from advice.runs.records import RunFolder
    from advice.shields.advice import Shield

    shield_file = options.path
    if options.path.is_dir():
        folder = RunFolder.find(options.path)
        say(summary(folder))
        shield_file = folder.shield_file
        if not shield_file.exists():
            say("no fitted shield in this run (yet)")
            return 0
    shield = Shield.load(shield_file)
    say(str(shield))
    say(str(shield.audit()))
    return 0


def check_env(options: CheckEnv) -> int:
    from advice.envs.check import check_env as check
    from advice.envs.check import make_from_name

    findings = check(lambda: make_from_name(options.env), episodes=options.episodes)
    marks = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}
    rows = [(marks[f.level], f.name, f.found, f.advice) for f in findings]
    print_table(("", "check", "found", "what to do"), rows)
    works = all(finding.level != "error" for finding in findings)
    say("shielding will work here" if works else "shielding would not work here yet")
    return 0 if works else 1


def demo(options: Demo) -> int:
    from advice.demo import run_demo

    return run_demo(
        options.out, options.task, options.seed, options.episodes, options.construction_episodes
    )


def tasks(options: Tasks) -> int:
    from advice.envs.tasks import TASKS

    rows = [
        (name, spec.id, str(spec.max_episode_steps), spec.description)
        for name, spec in TASKS.items()
    ]
    print_table(("task", "Gymnasium id", "steps", "what it is"), rows)
    return 0


def methods(options: Methods) -> int:
    from advice.runs.methods import AGENTS, METHODS, SHIELDS

    print_table(
        ("method", "agent", "shield", "what it is"), [(name, *row) for name, row in METHODS.items()]
    )
    say(
        f"Compose your own as agent+shield, for example --method {next(iter(AGENTS))}+advice.\n"
        f"agents: {', '.join(AGENTS)}\nshields: {', '.join(SHIELDS)}"
    )
    return 0


class Command(NamedTuple):
    """One row of the command table."""

    options: type
    run: Callable[[Any], int]
    about: str
    one_thread: bool = False


COMMANDS = {
    "demo": Command(
        Demo, demo, "ADVICE beside plain DDPG in five minutes: table, figure, video", True
    ),
    "train": Command(Train, train, "train one agent (resumes by itself)", True),
    "eval": Command(Evaluate, evaluate, "play greedy episodes with a trained agent", True),
    "inspect": Command(
        Inspect, inspect, "what a run or a shield file holds, with the shield's audit", True
    ),
    "check-env": Command(CheckEnv, check_env, "would shielding work in this environment?"),
    "tasks": Command(Tasks, tasks, "list the tasks"),
    "methods": Command(Methods, methods, "list the methods and how to compose them"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; every user's mistake ends in one message and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        print(usage())
        sys.exit(0)
    if name == "--version":
        from advice import __version__

        print(f"advice {__version__}")
        sys.exit(0)
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean 'advice {close[0]}'?" if close else ""
        fail(f"unknown command {name!r}.{hint}\n\n{usage()}")
    command = COMMANDS[name]
    helping = {"-h", "--help"} & set(words)
    if command.one_thread and arguments is None and not helping:
        from advice.threads import restart_with_one_thread

        restart_with_one_thread()
    import tyro

    options: Any = tyro.cli(
        command.options,
        prog=f"advice {name}",
        args=words[1:],
        config=(tyro.conf.PositionalRequiredArgs,),
    )
    try:
        sys.exit(command.run(options))
    except (AdviceError, FileNotFoundError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {row.about}" for name, row in COMMANDS.items())
    return f"""usage: advice COMMAND [options]

ADVICE lets an agent crash for a while, learns what a crash looks like, then stands in between.

{lines}

`advice COMMAND --help` explains every option. A first try:
  advice demo
  advice train --task randomised-goal --method advice --episodes 2000"""


# ---- printing


def console() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def say(message: str) -> None:
    console().print(message, soft_wrap=True, markup=False)


def fail(message: str) -> None:
    print(f"advice: {message}", file=sys.stderr)
    sys.exit(2)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(*titles, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console().print(table, markup=False)


def summary(folder: Any) -> str:
    """One line about a run, from its records."""
    records = folder.read_episodes() if folder.episodes_file.exists() else []
    config = folder.read_config()
    counts = {
        "violations": sum(record.violation for record in records),
        "successes": sum(record.success for record in records),
        "interventions": sum(record.interventions for record in records),
        "steps": sum(record.steps for record in records),
    }
    return (
        f"{config.method} on {config.task}, seed {config.seed}: "
        f"{len(records)}/{config.episodes} episodes, "
        + ", ".join(f"{count} {name}" for name, count in counts.items())
        + f" in {sum(record.seconds for record in records):.0f} s -> {folder.path}"
    )
