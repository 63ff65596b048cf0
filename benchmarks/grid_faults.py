"""Disturb grids of runs in every way we know, and compare every run with an undisturbed grid's.

    python benchmarks/grid_faults.py --rounds 20

A round is a grid of three runs, one of which starts with the shield of another. Until it is done,
faults come at random: SIGKILL of a worker or of the grid itself, SIGSTOP of either, a limit on the
size of files (writes fail as on a full disk), and environments that hang, exit, vanish or raise in
the middle of an episode. A grid that ends or dies is started again. A round is identical when
records (but for the seconds), actions, weights, shields and counters of all runs are, bit for bit.
The loss of a node of a Ray cluster is a test of its own: tests/extras/test_ray.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = [str(ROOT / "benchmarks"), *(str(ROOT / "tests" / name) for name in ("", "runs"))]
sys.path[:0] = SEARCHED

from helpers import LOOK_AHEAD, assert_same_run, small

from advice.runs.engines import run_local
from advice.runs.grid import Cell
from advice.runs.records import RunFolder
from advice.threads import one_thread
from tiny import Corridor

MOODS = {
    "hang": lambda: time.sleep(3600),
    "exit": lambda: sys.exit(0),
    "vanish": lambda: os._exit(0),
    "raise": lambda: 1 / 0,
}
FAULTS = (*MOODS, "kill worker", "kill grid", "stop worker", "stop grid", "full disk")


class Moody(Corridor):
    """A corridor that does once what a file in the folder of moods is called."""

    def step(self, action: Any) -> Any:
        for name in os.listdir(os.environ["MOODS"]):
            with suppress(FileNotFoundError):  # another worker was faster
                os.unlink(os.path.join(os.environ["MOODS"], name))
                MOODS[name]()
        return super().step(action)


def grid(out: Path) -> list[Cell]:
    task = "grid_faults:Moody"
    configs = [
        small(episodes=30, task=task, shield=LOOK_AHEAD),
        small("ddpg", episodes=60, task=task),
    ]
    cells = [Cell(config, RunFolder.of(out, config)) for config in configs]
    lender = cells[0].folder.path
    last = small("advice", episodes=20, task=task, shield_from=str(lender), seed=7)
    return [*cells, Cell(last, RunFolder.of(out, last), lender)]


def start(out: Path, moods: Path, stall: float, full_disk: bool = False) -> subprocess.Popen[bytes]:
    """A process that runs the grid, in which every write beyond some kilobytes may fail."""
    moods.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([*SEARCHED, os.environ.get("PYTHONPATH", "")])
    environment = one_thread({**os.environ, "PYTHONPATH": paths, "MOODS": str(moods)})

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    return subprocess.Popen(
        [sys.executable, __file__, "--grid", str(out), "--stall-seconds", str(stall)],
        env=environment,
        preexec_fn=limit if full_disk else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def disturbed(
    out: Path, moods: Path, rng: random.Random, stall: float, faults: int
) -> Counter[str]:
    """Run a grid to its end under ``faults`` faults; which came."""
    came: Counter[str] = Counter()
    process = start(out, moods, stall)
    done = [cell.folder.done_file for cell in grid(out)]
    deadline = time.monotonic() + 3600
    while not all(path.exists() for path in done):
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"{out}: not done after an hour, faults {dict(came)}")
        time.sleep(rng.uniform(0.5, 6.0))
        full_disk = False
        if came.total() < faults:
            fault = rng.choice(FAULTS)
            came[fault] += 1
            found = workers(process)
            if fault in MOODS:
                (moods / fault).touch()
            elif fault == "full disk":
                process.kill()
                full_disk = True
            elif fault == "kill grid":
                process.kill()
            elif fault == "stop grid":
                send(process.pid, signal.SIGSTOP)
                time.sleep(2.0)
                send(process.pid, signal.SIGCONT)
            elif found:
                kill = fault == "kill worker"
                send(rng.choice(found), signal.SIGKILL if kill else signal.SIGSTOP)
        if full_disk or process.poll() is not None:
            process.wait()
            process = start(out, moods, stall, full_disk)
    process.wait(timeout=600)
    return came


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--faults", type=int, default=8, help="faults of one round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stall-seconds", type=float, default=20.0)
    parser.add_argument("--grid", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grid:
        run_local(
            [cell for cell in grid(options.grid) if not cell.folder.done_file.exists()],
            lambda: None,
            processes=3,
            attempts=4,
            stall_minutes=options.stall_seconds / 60,
        )
        return
    rng = random.Random(options.seed)
    identical, came = 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        start(scratch / "whole", scratch / "calm", 3600.0).wait()
        for number in range(1, options.rounds + 1):
            out = scratch / f"round-{number}"
            faults = disturbed(
                out, scratch / f"moods-{number}", rng, options.stall_seconds, options.faults
            )
            came += faults
            for whole, cell in zip(grid(scratch / "whole"), grid(out), strict=True):
                assert_same_run(whole.folder.path, cell.folder.path)
            identical += 1
            print(f"round {number}: identical after {dict(faults)}", flush=True)
    print(json.dumps({"rounds": options.rounds, "identical": identical, "faults": dict(came)}))


if __name__ == "__main__":
    main()
