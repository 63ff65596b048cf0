"""`advice bench` and `advice demo`: the commands that train several runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from advice.config import TrainConfig
from advice.printing import console, print_table, say
from advice.types import AdviceError, SettingError

INTERRUPTED = 130


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
) -> int:
    """Train a grid of runs on all cores or on a Ray cluster. The same command again continues it.

    Args:
        suite: A named grid, such as smoke, core or paper; an unknown name lists them all.
        tasks: The tasks of a grid without a suite, or the part of the suite to run.
        methods: The methods, likewise.
        seeds: Number of seeds, from --seed on.
        out: The grid's folder; with Ray one that every node sees.
        processes: Runs at a time on this machine; one per core by default.
        attempts: How often a failing run is tried, each time from its checkpoint.
        stall_minutes: A run that takes no step for this long is stopped and tried again.
        only_missing: Keep finished runs (--no-only-missing: delete them and run all again).
        dry_run: Only print what would run, what runs share, and the time and disk it takes.
        status: Only print the state of the grid in this folder.
        engine: Where to run: processes on this machine, or a Ray cluster (needs advice-rl[ray]).
        address: Ray: the cluster's address (auto, or ray://HOST:PORT).
    """
    from advice.display import GridDisplay, grid_table
    from advice.envs.tasks import short_name
    from advice.runs.branching import share_beginnings
    from advice.runs.engines import run_local, run_ray
    from advice.runs.grid import read_grid, status_of, write_grid
    from advice.runs.plan import plan
    from advice.runs.records import RunFolder
    from advice.runs.studies import Study, cells_of, find_suite

    parallel = os.cpu_count() or 1 if processes is None else processes
    check_positive(seeds=seeds, processes=parallel, attempts=attempts, stall_minutes=stall_minutes)
    if status is not None:
        console().print(grid_table([status_of(cell) for cell in read_grid(status)], parallel))
        return 0
    tasks = tuple(map(short_name, tasks))
    if suite:
        studies = find_suite(suite, config, tasks, methods)
    else:
        tasks, methods = tasks or (config.task,), methods or (config.method,)
        studies = (Study("", tasks=tasks, methods=methods, method_settings={}),)
    out = out.resolve() if engine == "ray" else out  # its nodes have working folders of theirs
    numbers = range(config.seed, config.seed + seeds)
    cells = share_beginnings(cells_of(studies, numbers, out, config))
    present = {cell.folder.path for cell in cells}
    for cell in cells:
        if cell.after and cell.after not in present and not (cell.after / "done").exists():
            raise AdviceError(f"this part needs a shield that is not there: {cell.after}")
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
        missing = [cell for cell in cells if not cell.folder.done_file.exists()]
        with GridDisplay(cells, parallel) as display:
            if engine == "ray":
                outcome = run_ray(missing, display.update, address, attempts)
            else:
                outcome = run_local(
                    missing, display.update, processes, attempts, stall_minutes, say
                )
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
    episodes: int = 230,
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


def check_positive(**numbers: float) -> None:
    """Raise SettingError unless every number is more than 0."""
    for name, number in numbers.items():
        if not number > 0:
            raise SettingError(f"{name}: expected more than 0, found {number}")
