"""The front door: parse, call, print. Heavy rooms are imported by the command that needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from advice import commands, options
from advice.types import AdviceError, suggest


class Command(NamedTuple):
    """One row of the command table."""

    options: type
    run: Callable[[Any], int]
    about: str
    one_thread: bool = False


COMMANDS = {
    "demo": Command(
        options.Demo,
        commands.demo,
        "ADVICE beside plain DDPG: table, figure and video in minutes",
        True,
    ),
    "train": Command(options.Train, commands.train, "train one agent (resumes by itself)", True),
    "bench": Command(
        options.Bench, commands.bench, "train a grid of runs on all cores or a Ray cluster", True
    ),
    "eval": Command(
        options.Evaluate, commands.evaluate, "play greedy episodes with a trained agent", True
    ),
    "inspect": Command(
        options.Inspect,
        commands.inspect,
        "what a run or a shield file holds, with the shield's audit",
        True,
    ),
    "report": Command(
        options.Report, commands.report, "one page of figures, tables and claims", True
    ),
    "replay": Command(options.Replay, commands.replay, "play one recorded episode again", True),
    "check-env": Command(
        options.CheckEnv, commands.check_env, "would shielding work in this environment?"
    ),
    "tasks": Command(options.Tasks, commands.tasks, "list the tasks"),
    "methods": Command(
        options.Methods, commands.methods, "list the methods and how to compose them"
    ),
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
        fail(f"unknown command {name!r}{suggest(name, COMMANDS)}\n\n{usage()}")
    command = COMMANDS[name]
    helping = {"-h", "--help"} & set(words)
    if command.one_thread and arguments is None and not helping:
        from advice.threads import restart_with_one_thread

        restart_with_one_thread()
    import tyro

    try:
        chosen: Any = tyro.cli(
            command.options,
            prog=f"advice {name}",
            args=words[1:],
            default=starting_point(command.options, words),
            config=(tyro.conf.PositionalRequiredArgs,),
        )
        sys.exit(command.run(chosen))
    except AdviceError as error:
        fail(str(error))
    except BrokenPipeError:  # whoever reads, say `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(commands.INTERRUPTED)


def starting_point(kind: type, words: Sequence[str]) -> Any:
    """The defaults of a command whose line names a preset: its shield's settings come from there.

    tyro's mark for a missing default otherwise.
    """
    import tyro

    from advice.config import PRESETS

    line = [part for word in words for part in word.split("=", 1)]
    named = [value for option, value in pairwise(line) if option == "--preset"]
    if not named or named[-1] not in PRESETS or not hasattr(kind, "preset"):
        return tyro.MISSING_NONPROP
    return kind(preset=named[-1], shield=PRESETS[named[-1]])


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {row.about}" for name, row in COMMANDS.items())
    return f"""usage: advice COMMAND [options]

ADVICE lets an agent crash for a while, learns what a crash looks like, then stands in between.

{lines}

`advice COMMAND --help` explains every option. A first try:
  advice demo
  advice train --task randomised-goal --method advice --preset lidar"""


def fail(message: str) -> NoReturn:
    print(f"advice: {message}", file=sys.stderr)
    sys.exit(2)
