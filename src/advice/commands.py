"""The commands: each function is one, and its signature and docstring are its options and help."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Literal

from advice.config import TrainConfig
from advice.printing import console, print_table, say, summary
from advice.settings import flat
from advice.types import AdviceError, SettingError, Terminal, suggest

INTERRUPTED = 130


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
    from advice.envs.tasks import short_name
    from advice.runs.loop import train as run
    from advice.runs.methods import check_arming
    from advice.runs.records import RunFolder

    config = dataclasses.replace(config, task=short_name(config.task))
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
    say(played.bound_in_words(results))
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

    if path.is_dir():
        folder = RunFolder.find(path)
        say(summary(folder))
        path = folder.shield_file
        if not path.exists():
            say("no fitted shield in this run (yet)")
            return
    shield = Shield.load(path)
    audit = shield.audit() if shield.compacted is None else "compact, see the card"
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

    Without a choice it is the last episode in which the armed shield intervened, or else the worst.

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
    which: Choice | int = "worst" if worst else "intervened"
    if first_violation:
        which = "any-violation" if any else "first-violation"
    elif episode is not None:
        which = episode
    made = write_replay(run, out, which, video, counterfactual, horizon, trust_task)
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
    from advice.envs.check import check_env as check
    from advice.envs.check import conclude
    from advice.envs.make import make_from_name

    check_positive(episodes=episodes)
    findings = check(lambda: make_from_name(env), episodes=episodes, terminal=terminal)
    rows = [(f.level.upper(), f.name, f.found, f.advice) for f in findings]
    print_table(("", "check", "found", "what to do"), rows)
    say(conclude(findings))
    return 1 if any(finding.level == "error" for finding in findings) else 0


def bench(
    config: TrainConfig,
    suite: str | None = None,
    tasks: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    seeds: int = 5,
    out: Path = Path("runs"),
    processes: int | None = None,
    attempts: int = 3,
    stall_minutes: float = 10.0,
    only_missing: bool = True,
    dry_run: bool = False,
    status: Path | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str = "auto",
    shared_storage: bool = True,
) -> int:
    """Train a grid of runs on all cores or on a Ray cluster. The same command again continues it.

    Args:
        suite: A named grid, such as smoke, core or paper; an unknown name lists them all.
        tasks: The tasks of a grid without a suite, or the part of the suite to run.
        methods: The methods, likewise.
        seeds: Number of seeds, from --seed on.
        out: The grid's folder.
        processes: Runs at a time on this machine; one per core by default.
        attempts: How often a failing run is tried, each time from its checkpoint.
        stall_minutes: A run that takes no step for this long is stopped and tried again.
        only_missing: Keep finished runs (--no-only-missing: delete them and run all again).
        dry_run: Only print what would run, what runs share, and the time and disk it takes.
        status: Only print the state of the grid in this folder.
        engine: Where to run: processes on this machine, or a Ray cluster (needs advice-rl[ray]).
        address: Ray: the cluster's address (auto, or ray://HOST:PORT).
        shared_storage: Ray: every node sees the grid's folder (--no-shared-storage: files are
            copied to this machine).
    """
    from advice.display import GridDisplay, grid_table
    from advice.envs.tasks import short_name
    from advice.runs import studies as table
    from advice.runs.branching import share_beginnings
    from advice.runs.engines import run_local
    from advice.runs.grid import cells_of, check_shields, read_grid, status_of, write_grid
    from advice.runs.plan import plan
    from advice.runs.records import RunFolder

    if status is not None:
        states = [status_of(cell) for cell in read_grid(status)]
        console().print(grid_table(states, os.cpu_count() or 1))
        return 0
    parallel = os.cpu_count() or 1 if processes is None else processes
    check_positive(seeds=seeds, processes=parallel, attempts=attempts, stall_minutes=stall_minutes)
    tasks = tuple(map(short_name, tasks))
    if suite:
        studies = table.select(table.find_suite(suite), tasks, methods)
        default = flat(TrainConfig())
        given = [name for name, value in flat(config).items() if value != default.get(name)]
        sets = sorted(table.set_by(studies))
        if clashes := [x for x in sets if any(f"{name}.".startswith(f"{x}.") for name in given)]:
            raise AdviceError(
                f"the suite {suite} sets {', '.join(clashes)}; for other values "
                "use --tasks and --methods without a suite"
            )
    else:
        tasks, methods = tasks or (config.task,), methods or (config.method,)
        studies = (table.Study("", tasks, methods, method_settings={}),)
    numbers = range(config.seed, config.seed + seeds)
    cells = share_beginnings(cells_of(studies, numbers, out, config))
    check_shields(cells)
    if dry_run:
        say("measuring the speed of this machine ...")
        rows, words = plan(cells, parallel, only_missing)
        titles = ("study", "runs", "done", "episodes to do", "of these shared", "core-hours alone")
        print_table((*titles, "core-hours"), rows)
        say(words)
        return 0
    with RunFolder(out).locked():
        for cell in cells:
            if only_missing:
                cell.folder.refuse_other_settings(cell.config)
                cell.folder.check_done()
            elif cell.folder.path.exists():
                with cell.folder.locked():
                    cell.folder.clear()
        write_grid(out, cells)
        todo = [cell for cell in cells if not cell.folder.done_file.exists()]
        with GridDisplay(cells, parallel) as display:
            if engine == "ray":
                from advice.runs.ray_engine import run_ray

                outcome = run_ray(todo, display.update, address, attempts, shared_storage)
            else:
                outcome = run_local(todo, display.update, processes, attempts, stall_minutes, say)
    if outcome.stopped:
        without = "" if only_missing else ", but without --no-only-missing,"
        say(f"stopped; the same command again{without} continues")
        return INTERRUPTED
    for cell in outcome.failed:
        say(f"failed: {cell.name}: {status_of(cell).reason or 'see its log.txt'}")
    return 1 if outcome.failed else 0


def demo(
    out: Path = Path("demo"),
    task: str = "randomised-goal",
    seed: int = 100,
    episodes: int = 300,
    construction_episodes: int = 200,
) -> int:
    """Train plain DDPG and ADVICE from the same starts: a table, a figure, a video and a report.

    Args:
        out: Folder for the runs and what is made from them.
        task: The task to learn.
        seed: Seed of all random numbers.
        episodes: Episodes of each of the two runs.
        construction_episodes: Episodes after which the shield is armed at the latest.
    """
    from advice.demo import demo_cells, run_demo

    cells = demo_cells(out, task, seed, episodes, construction_episodes)
    say(
        f"Plain DDPG and ADVICE learn {task} from the same starts (seed {seed}), at the same time. "
        "Until its shield is armed, ADVICE is DDPG."
    )
    if run_demo(cells, out):
        return 0
    say("stopped; the same command again continues")
    return INTERRUPTED


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
            known = ", ".join(files)
            raise AdviceError(f"no example {name!r}{suggest(name, files)}; there are {known}")
        if (out / path.name).exists() and not overwrite:
            raise AdviceError(f"{out / path.name} exists already; --overwrite replaces it")
        out.mkdir(parents=True, exist_ok=True)
        say(f"copied to {shutil.copyfile(path, out / path.name)}")
    if not names:
        texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
        for name, text in texts.items():
            if files[name].suffix == ".ipynb":
                texts[name] = "".join(json.loads(text)["cells"][0]["source"])
        rows = [(name, text.splitlines()[0].strip('"# ')) for name, text in texts.items()]
        print_table(("example", "what it is"), rows)
        say("copy one: advice example NAME")


def check_positive(**numbers: float) -> None:
    """Raise SettingError unless every number is more than 0."""
    for name, number in numbers.items():
        if not number > 0:
            raise SettingError(f"{name}: expected more than 0, found {number}")
