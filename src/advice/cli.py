"""The command line: parse with tyro, call one function of `advice.commands`, report mistakes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn, get_type_hints

from advice import __version__, commands
from advice.config import PRESETS, AutoencoderConfig, Preset, TrainConfig, from_dict, to_dict
from advice.threads import restart_with_one_thread
from advice.types import AdviceError, printable, suggest

COMMANDS: dict[str, Callable[..., int | None]] = {
    "demo": commands.demo,
    "train": commands.train,
    "bench": commands.bench,
    "eval": commands.evaluate,
    "inspect": commands.inspect,
    "report": commands.report,
    "replay": commands.replay,
    "check-env": commands.check_env,
    "tasks": commands.tasks,
    "methods": commands.methods,
    "example": commands.example,
}
_RARE_OF_SHIELD = """fit_steps recent_window distant_window candidates_per_dimension
    candidate_budget capacity_per_class unsafe_per_episode far"""
RARELY_USED = {
    "agent",
    "tabular",
    *AutoencoderConfig.__dataclass_fields__,
    *_RARE_OF_SHIELD.split(),
}
"""Settings that --help leaves out and --help-all shows; they are options all the same."""
USAGE = """usage: advice COMMAND [options]

Train agents with ADVICE, a learned shield, and compare them.

{}

`advice COMMAND --help` explains the options. To start:
  advice demo
  advice train --task randomised-goal --method advice"""


@dataclasses.dataclass(frozen=True)
class Early:
    """Options that decide how the others are read."""

    preset: Preset = "default"
    """Values that the --shield options start from; paper: the paper to the letter."""
    help_all: bool = False
    """List all options, also those of the agents and of the shield's fit."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. A mistake of the user ends in one message and exit code 2."""
    name, *words = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
        sys.exit(0)
    if name == "--version":
        print(f"advice {__version__}")
        sys.exit(0)
    if name not in COMMANDS:
        fail(f"unknown command {name!r}{suggest(name, COMMANDS)}\n\n{usage()}")
    try:
        call = parse(name, words)
        if arguments is None:
            restart_with_one_thread()
        sys.exit(call())
    except AdviceError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(commands.INTERRUPTED)


def parse(name: str, words: Sequence[str]) -> Callable[[], int | None]:
    """The call that the words after ``advice name`` ask for; prints help or an error and exits.

    A command that takes a ``config`` is parsed twice: the first pass reads `--preset`, so that the
    second starts from its values.
    """
    import tyro

    command = COMMANDS[name]
    required = (tyro.conf.PositionalRequiredArgs,)
    cli: Any = functools.partial(tyro.cli, prog=f"advice {name}", config=required)
    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    if "config" in parameters:
        early, _ = cli(Early, args=words, add_help=False, return_unknown_args=True)
        short = {"-h", "--help"} & set(words) and not early.help_all
        hidden = {"task", "method"} if "tasks" in parameters else set()  # a grid has several
        config = TrainConfig(shield=PRESETS[early.preset])
        config = hide(config, hidden | RARELY_USED if short else hidden)
        words = ["--help"] if early.help_all else words
        plain = tyro.conf.arg(name="")  # --task, not --config.task
        kind: Any = Annotated[type(config), plain]
        parameters["config"] = parameters["config"].replace(default=config, annotation=kind)
        kind = Annotated[Early, plain, tyro.conf.FlagCreatePairsOff]
        parameters["early"] = inspect.Parameter(
            "early", inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=Early()
        )

    def bind(**options: Any) -> Callable[[], int | None]:
        if options.pop("early", None):
            options["config"] = from_dict(TrainConfig, to_dict(options["config"]))
        return functools.partial(command, **options)

    bind.__doc__ = command.__doc__
    bind.__annotations__ = {key: value.annotation for key, value in parameters.items()}
    bind.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters.values()]
    )
    bound: Callable[[], int | None] = cli(bind, args=words)
    return bound


def hide(config: Any, hidden: set[str]) -> Any:
    """``config`` as an instance of a subclass of which tyro shows and parses no hidden setting."""
    import tyro

    kinds: dict[str, Any] = get_type_hints(type(config))
    values = dict(vars(config))
    for name, value in values.items():
        if name in hidden:
            kinds[name] = Annotated[kinds[name], tyro.conf.Suppress]
        elif dataclasses.is_dataclass(value):
            values[name] = hide(value, hidden)
            kinds[name] = type(values[name])
    made = dataclasses.make_dataclass(
        type(config).__name__, kinds.items(), bases=(type(config),), frozen=True, kw_only=True
    )
    return made(**values)


def usage() -> str:
    lines = [f"  {name:<9}  {(c.__doc__ or '').splitlines()[0]}" for name, c in COMMANDS.items()]
    return USAGE.format("\n".join(lines))


def fail(message: str) -> NoReturn:
    print(f"advice: {printable(message)}", file=sys.stderr)
    sys.exit(2)
