"""What each command does: call the rooms, print what they answer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advice.config import TrainConfig, flat
from advice.options import (
    Bench,
    CheckEnv,
    Demo,
    Evaluate,
    Inspect,
    Methods,
    Replay,
    Report,
    Tasks,
    Train,
)
from advice.types import AdviceError

INTERRUPTED = 130


def train(options: Train) -> int:
    from advice.display import TrainingDisplay
    from advice.runs.loop import train as run
    from advice.runs.records import RunFolder

    config = train_config(options)
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
    from advice.shields.shield import Shield

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


def report(options: Report) -> int:
    from advice.reports.page import write_report

    made = write_report(options.runs, options.out, options.any_version, say)
    for item in made.collection.left_out:
        say(f"left out {item.path}: {item.why}")
    for task in made.collection.tasks:
        for line in task.missing:
            say(f"{task.task}: {line}")
    for claim in made.claims:
        say(claim.sentence)
    say(f"report: {made.page}")
    return 0


def replay(options: Replay) -> int:
    from advice.reports.replay_page import judged_in_words, write_replay
    from advice.runs.evaluate import check_video_name

    if (options.episode is not None) + options.worst + options.first_violation > 1:
        raise AdviceError("choose one of --episode N, --worst and --first-violation")
    if options.video:
        check_video_name(options.video)
    made = write_replay(
        options.run,
        options.out,
        ("first-violation" if options.first_violation else "worst")
        if options.episode is None
        else options.episode,
        options.video,
        options.counterfactual,
        options.horizon,
    )
    say(f"episode {made.episode}, {made.interventions} interventions")
    if made.judged is not None:
        say(f"needed within {options.horizon} steps: {judged_in_words(made.judged)}")
    if options.video:
        say(f"video: {options.video}")
    say(f"replay: {made.page}")
    return 0


def check_env(options: CheckEnv) -> int:
    from advice.envs.check import check_env as check
    from advice.envs.make import make_from_name

    findings = check(lambda: make_from_name(options.env), episodes=options.episodes)
    marks = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}
    rows = [(marks[f.level], f.name, f.found, f.advice) for f in findings]
    print_table(("", "check", "found", "what to do"), rows)
    works = all(finding.level != "error" for finding in findings)
    say("shielding will work here" if works else "shielding would not work here yet")
    return 0 if works else 1


def bench(options: Bench) -> int:
    from advice.envs.tasks import short_name
    from advice.runs.grid import cells_of, check_shields
    from advice.runs.methods import find_method
    from advice.runs.studies import Study, find_suite, select, set_by

    if options.status is not None:
        return show_status(options.status)
    base = train_config(options)
    tasks, methods = tuple(map(short_name, options.tasks)), options.methods
    if options.suite:
        studies = select(find_suite(options.suite), tasks, methods)
        default, asked = flat(TrainConfig()), flat(base)
        clashes = [name for name in sorted(set_by(studies)) if asked[name] != default[name]]
        if clashes:
            raise AdviceError(
                f"the suite {options.suite} decides {', '.join(clashes)}; for other values "
                "make a grid of your own with --tasks and --methods alone"
            )
    else:
        studies = (Study("", tasks or (base.task,), methods or (base.method,), method_settings={}),)
    seeds = range(options.seed, options.seed + options.seeds)
    cells = cells_of(studies, seeds, options.out, base)
    for name in {cell.config.method for cell in cells}:
        find_method(name)
    check_shields(cells)
    if options.dry_run:
        return show_plan(cells, options)
    return run_grid(cells, options)


def run_grid(cells: Sequence[Any], options: Bench) -> int:
    from advice.display import GridDisplay
    from advice.runs.engines import run_local
    from advice.runs.grid import status_of, write_grid
    from advice.runs.loop import refuse_other_settings
    from advice.runs.records import RunFolder

    with RunFolder(options.out).locked():
        for cell in cells:
            if options.only_missing:
                refuse_other_settings(cell.folder, cell.config, overwrite=False)
            elif cell.folder.path.exists():
                with cell.folder.locked():
                    cell.folder.clear()
        write_grid(options.out, cells)
        todo = [cell for cell in cells if not cell.folder.done_file.exists()]
        parallel = options.processes or os.cpu_count() or 1
        with GridDisplay(console(), cells, parallel) as display:
            if options.engine == "ray":
                from advice.runs.ray_engine import run_ray

                outcome = run_ray(
                    todo, display.update, options.address, options.attempts, options.shared_storage
                )
            else:
                outcome = run_local(todo, display.update, options.processes, options.attempts)
    if outcome.stopped:
        without = "" if options.only_missing else ", but without --no-only-missing,"
        say(f"stopped; the same command again{without} continues")
        return INTERRUPTED
    for cell in outcome.failed:
        say(f"failed: {cell.name}: {status_of(cell).reason or 'see its log.txt'}")
    return 1 if outcome.failed else 0


def show_status(out: Path) -> int:
    from advice.display import grid_table
    from advice.runs.grid import read_grid, status_of

    statuses = [status_of(cell) for cell in read_grid(out)]
    console().print(grid_table(statuses, os.cpu_count() or 1, len(statuses)))
    return 0


def show_plan(cells: Sequence[Any], options: Bench) -> int:
    from advice.runs.plan import plan

    say("measuring the speed of this machine ...")
    estimate = plan(cells, options.processes or os.cpu_count() or 1, options.only_missing)
    print_table(
        ("run", "episodes", "state"),
        [(cell.name, str(cell.config.episodes), status) for cell, status in estimate.cells],
    )
    say(str(estimate))
    return 0


def demo(options: Demo) -> int:
    from advice.config import PRESETS, EnvConfig
    from advice.demo import demo_cells, demo_rows, draw, train_pair
    from advice.display import GridDisplay
    from advice.runs.evaluate import evaluate

    if options.episodes <= options.construction_episodes:
        raise AdviceError(
            f"expected more --episodes than the {options.construction_episodes} that are watched "
            f"before the shield is fitted (--construction-episodes), found {options.episodes}"
        )
    shield = dataclasses.replace(
        PRESETS["lidar"], construction_episodes=options.construction_episodes
    )
    config = TrainConfig(
        task=options.task,
        seed=options.seed,
        episodes=options.episodes,
        shield=shield,
        env=EnvConfig(max_episode_steps=500),
    )
    cells = demo_cells(options.out, config)
    say(f"training plain DDPG and ADVICE side by side: {options.task}, seed {options.seed}")
    with GridDisplay(console(), cells, parallel=2) as display:
        if not train_pair(options.out, cells, display.update):
            say("stopped; the same command again continues")
            return INTERRUPTED
    titles = ("method", "episodes", "violations", "goals", "mean steps", "interventions", "time")
    print_table(titles, demo_rows(cells))
    draw(cells, options.out / "demo.png")
    say(f"figure: {options.out / 'demo.png'}")
    try:
        evaluate(cells[1].folder, episodes=3, video=options.out / "demo.mp4")
    except AdviceError as error:  # an environment of one's own that draws no pictures
        say(f"no video: {error}")
    else:
        say(f"video:  {options.out / 'demo.mp4'}")
    return 0


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


def train_config(options: TrainConfig) -> TrainConfig:
    """The settings of a run alone, without those of the command; a task has one name."""
    from advice.envs.tasks import short_name

    names = [field.name for field in dataclasses.fields(TrainConfig)]
    settings = {name: getattr(options, name) for name in names}
    return TrainConfig(**settings | {"task": short_name(options.task)})


# ---- printing


def console() -> Any:
    from rich.console import Console

    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=160)


def say(message: str) -> None:
    console().print(message, soft_wrap=True, markup=False)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title, *cells in zip(titles, *rows, strict=True):
        table.add_column(title, no_wrap=max(map(len, cells), default=0) <= 40, overflow="fold")
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
