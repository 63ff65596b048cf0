"""The command line: each command is a function, its signature and docstring its options and help.

:func:`parse` reads the options with tyro; :func:`main` calls the function and reports mistakes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

from advice import __version__
from advice.bench import INTERRUPTED, bench, check_positive, demo
from advice.config import PRESETS, AutoencoderConfig, Preset, TrainConfig, from_dict, to_dict
from advice.printing import console, print_table, printable, say, summary
from advice.threads import restart_with_one_thread
from advice.types import AdviceError, Terminal, suggest

RARELY_USED = {
    *("agent", "tabular", *AutoencoderConfig.__dataclass_fields__, "fit_steps", "recent_window"),
    *("distant_window", "candidates_per_dimension", "candidate_budget", "capacity_per_class"),
    *("unsafe_per_episode", "far"),
}
"""Settings that --help leaves out and --help-all shows; they are options all the same."""
USAGE = """usage: advice COMMAND [options]

Train agents with ADVICE, a learned shield, and compare them.

{}

`advice COMMAND --help` explains the options. To start:
  advice demo
  advice train --task randomised-goal --method advice"""


def train(
    config: TrainConfig,
    out: Path = Path("runs"),
    overwrite: bool = False,
    checkpoint_seconds: float = 30.0,
    wandb: bool = False,
) -> int:
    """Train one agent with one method on one task. The same command again resumes the run.

    Args:
        out: Root of the results; this run goes to OUT/<task>/<method>/seed-<n>.
        overwrite: Delete the run's folder and start again.
        checkpoint_seconds: Seconds between checkpoints, which are taken when an episode ends.
        wandb: Also log to Weights & Biases (needs advice-rl[wandb]; WANDB_MODE=offline works too).
    """
    from advice.display import TrainingDisplay
    from advice.runs.loop import train as run
    from advice.runs.methods import check_arming
    from advice.runs.records import RunFolder

    check_arming(config)
    folder = RunFolder.of(out, config)
    display = TrainingDisplay()
    with display.progress:
        result = run(config, folder, display, overwrite, checkpoint_seconds, wandb=wandb)
    if not result.finished:
        say(f"stopped after episode {result.counters.episode}; the same command again continues")
        return INTERRUPTED
    say(f"done: {summary(folder)}")
    return 0


def evaluate(
    run: Path,
    episodes: int = 50,
    shield: bool = True,
    video: Path | None = None,
    trust_task: bool = False,
    certify: bool = False,
) -> None:
    """Run greedy episodes with a trained agent and its shield, and bound the violation probability.

    Args:
        run: The run's folder.
        episodes: Number of episodes.
        shield: Guard with the run's shield (--no-shield: the agent alone).
        video: Film the first three episodes to this mp4 file.
        trust_task: Run the code of the module that the run's task module:Class names.
        certify: Write the result into the run's shield file and card, for the drift alarm.
    """
    from rich.progress import Progress

    from advice.runs import evaluate as played
    from advice.runs.records import RunFolder

    check_positive(episodes=episodes)
    folder = RunFolder.find(run, trust_task)
    with Progress(console=console(), disable=not console().is_terminal, transient=True) as bar:
        task = bar.add_task("evaluating", total=episodes)
        results = played.evaluate(
            folder, episodes, shield, video, lambda done: bar.update(task, completed=done)
        )
    print_table(("", folder.path.as_posix()), played.summary_rows(results, shield))
    say(played.bound_in_words(results, shield))
    if certify:
        say(played.certify_shield(folder, results, shield))
    if video:
        say(f"video: {video}")


def inspect(path: Path) -> None:
    """Describe a run or a shield file, with the shield's audit and card.

    Args:
        path: A run's folder, or a shield.safetensors.
    """
    from advice.runs.records import RunFolder
    from advice.shields.shield import Shield

    if not path.exists():
        raise AdviceError(f"{path}: no such file or folder")
    if path.is_dir():
        folder = RunFolder.find(path)
        say(summary(folder))
        path = folder.shield_file
        if not path.exists():
            say("no shield in this run: none was fitted (yet), or it was not kept")
            return
    shield = Shield.load(path)
    audit: Any = "compact, see the card" if shield.compacted else "not fitted yet"
    if shield.armed and not shield.compacted:
        audit = shield.audit()
    say(f"{shield}\n{audit}\n\n{shield.card()}")


def report(
    runs: tuple[Path, ...],
    out: Path = Path("report"),
    any_version: bool = False,
    trust_task: bool = False,
) -> None:
    """Write one page of curves, tables and claims about runs, and each figure as a file.

    Args:
        runs: Folders with runs below them, finished or not.
        out: Folder for index.html, figures/ and tables/.
        any_version: Compare runs of different code versions too (the page says so).
        trust_task: Run the code of the modules that tasks of the form module:Class name.
    """
    from advice.reports.page import write_report

    made = write_report(runs, out, any_version, say, trust_task)
    for path, why in made.collection.left_out.items():
        say(f"left out {path}: {why}")
    for task in made.collection.tasks:
        for line in task.missing:
            say(f"{task.task}: {line}")
    for line in (*(claim.sentence for claim in made.claims), f"report: {made.page}"):
        say(line)


def replay(
    run: Path,
    episode: int | None = None,
    worst: bool = False,
    first_violation: bool = False,
    any: bool = False,
    out: Path = Path("replay.html"),
    video: Path | None = None,
    counterfactual: bool = False,
    horizon: int = 10,
    trust_task: bool = False,
) -> None:
    """Simulate one recorded episode again, exactly, and write a page to view it step by step.

    Without a choice it is the last success in which the armed shield intervened, or else the last
    such episode, or else the worst.

    Args:
        run: The run's folder.
        episode: The episode's number, from 1.
        worst: The episode of highest cost and, among those, lowest return.
        first_violation: The first episode with a violation after the shield was armed.
        any: With --first-violation: also before it was armed.
        out: The page to write.
        video: Also film the episode to this mp4 file.
        counterfactual: At each intervention, also try the proposed action: was it unsafe?
        horizon: Steps for which the proposed action is held in that trial.
        trust_task: Run the code of the module that the run's task module:Class names.
    """
    from advice.reports.replay_page import needed_in_words, write_replay
    from advice.runs.evaluate import check_video_name
    from advice.runs.resimulate import Choice

    if (episode is not None) + worst + first_violation > 1:
        raise AdviceError("choose one of --episode N, --worst and --first-violation")
    if any and not first_violation:
        raise AdviceError("--any goes with --first-violation")
    check_positive(horizon=horizon)
    if video:
        check_video_name(video)
    violation: Choice = "any-violation" if any else "first-violation"
    which: Choice = "worst" if worst else violation if first_violation else "intervened"
    chosen = which if episode is None else episode
    made = write_replay(run, out, chosen, video, counterfactual, horizon, trust_task)
    say(f"episode {made.episode}, {made.interventions} interventions")
    if made.counterfactuals is not None:
        say(f"needed within {horizon} steps: {needed_in_words(made.counterfactuals)}")
    if video:
        say(f"video: {video}")
    say(f"replay: {made.page}")


def check_env(env: str, episodes: int = 20, terminal: Terminal | None = None) -> int:
    """Check whether shielding can work in an environment, and say what to fix first.

    Args:
        env: A task of `advice tasks`, a registered Gymnasium id, or module:Class.
        episodes: Episodes of random actions.
        terminal: What a termination means where the environment does not say the opposite.
    """
    from advice.envs import check
    from advice.envs.make import make_from_name

    check_positive(episodes=episodes)
    findings = check.check_env(lambda: make_from_name(env), episodes=episodes, terminal=terminal)
    rows = [(f.level.upper(), f.name, f.found, f.advice) for f in findings]
    print_table(("", "check", "found", "what to do"), rows)
    say(check.conclude(findings))
    return 1 if any(finding.level == "error" for finding in findings) else 0


def tasks() -> None:
    """List the tasks."""
    from advice.envs.tasks import TASKS

    rows = [(name, t.id, str(t.max_episode_steps), t.description) for name, t in TASKS.items()]
    print_table(("task", "Gymnasium id", "steps", "what it is"), rows)


def methods() -> None:
    """List the methods, and the agents and shields to compose others from."""
    from advice.runs.methods import AGENTS, METHODS, SHIELDS

    rows = [(name, *row) for name, row in METHODS.items()]
    print_table(("method", "agent", "shield", "what it is"), rows)
    say(
        f"Compose your own as agent+shield, for example --method {next(iter(AGENTS))}+advice.\n"
        f"agents: {', '.join(AGENTS)}\nshields: {', '.join(SHIELDS)}"
    )


def example(names: tuple[str, ...], out: Path = Path("."), overwrite: bool = False) -> None:
    """List the examples that come with the package, or copy some.

    Args:
        names: The examples to copy; without a name they are listed.
        out: Folder to copy them to.
        overwrite: Replace files of these names.
    """
    inside = Path(__file__).parent / "_examples"  # in the source tree they are beside src
    folder = inside if inside.is_dir() else Path(__file__).parents[2] / "examples"
    files = {path.stem: path for path in sorted(folder.iterdir()) if path.is_file()}
    for name in names:
        path = files.get(Path(name).stem)
        if path is None:
            hint = suggest(name, files) or f"; there are {', '.join(files)}"
            raise AdviceError(f"no example {name!r}{hint}")
        if (out / path.name).exists() and not overwrite:
            raise AdviceError(f"{out / path.name} exists already; --overwrite replaces it")
        out.mkdir(parents=True, exist_ok=True)
        say(f"copied to {shutil.copyfile(path, out / path.name)}")
    if not names:
        rows = []
        for name, path in files.items():
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".ipynb":
                text = json.loads(text)["cells"][0]["source"][0]
            rows.append((name, text.splitlines()[0].strip('"# ')))
        print_table(("example", "what it is"), rows)
        say("copy one: advice example NAME")


COMMANDS: dict[str, Callable[..., int | None]] = {
    **{"demo": demo, "train": train, "bench": bench, "eval": evaluate, "inspect": inspect},
    **{"report": report, "replay": replay, "check-env": check_env, "tasks": tasks},
    **{"methods": methods, "example": example},
}


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
        sys.exit(INTERRUPTED)


def parse(name: str, words: Sequence[str]) -> Callable[[], int | None]:
    """The call that the words after ``advice name`` ask for; prints help or an error and exits.

    A command that takes a ``config`` is parsed twice: the first pass reads `--preset` and `--task`,
    so that the second starts from their values.
    """
    import tyro

    command = COMMANDS[name]
    required = (tyro.conf.PositionalRequiredArgs,)
    cli: Any = functools.partial(tyro.cli, prog=f"advice {name}", config=required)
    parameters = dict(signature(command, eval_str=True).parameters)
    if "config" in parameters:
        from advice.envs.tasks import short_name
        from advice.runs.studies import for_task, with_settings, with_task_options

        task = [("task", str, TrainConfig.task)]  # an option of the config, read early too
        kind: Any = dataclasses.make_dataclass("Early", task, bases=(Early,), frozen=True)
        early, _ = cli(kind, args=words, add_help=False, return_unknown_args=True)
        short = {"-h", "--help"} & set(words) and not early.help_all
        hidden = {"task", "method"} if "tasks" in parameters else set()  # a grid has several
        config = for_task(TrainConfig(short_name(early.task), shield=PRESETS[early.preset]))
        config = with_settings(config, {"env.options": {}})  # else each is an option of its own
        config = hide(config, hidden | RARELY_USED if short else hidden)
        words = ["--help"] if early.help_all else words
        plain = tyro.conf.arg(name="")  # --task, not --config.task
        kind = Annotated[type(config), plain]
        parameters["config"] = parameters["config"].replace(default=config, annotation=kind)
        kind = Annotated[Early, plain, tyro.conf.FlagCreatePairsOff]
        only = Parameter.KEYWORD_ONLY
        parameters["early"] = Parameter("early", only, annotation=kind, default=Early())

    def bind(**options: Any) -> Callable[[], int | None]:
        if options.pop("early", None):
            config = from_dict(TrainConfig, to_dict(options["config"]))
            task = {"task": short_name(config.task)}
            options["config"] = with_task_options(with_settings(config, task))
        return functools.partial(command, **options)

    bind.__doc__ = command.__doc__
    bind.__annotations__ = {key: value.annotation for key, value in parameters.items()}
    bind.__signature__ = Signature([*parameters.values()])  # type: ignore[attr-defined]
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
