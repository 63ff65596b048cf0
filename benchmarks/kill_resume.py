"""Kill a training at random moments, start it again, and compare with an undisturbed one.

    python benchmarks/kill_resume.py --kills 100

Every trial starts ``python -m advice train`` anew, kills it with SIGKILL after a random time (often
in the middle of a save: the checkpoints come as fast as they can), and goes on until it is done.
The trials take the six methods in turn; the shield of ADVICE is fitted anew every five episodes.
A trial counts as identical when records (but for the seconds), actions, weights, shield and
counters equal the undisturbed run's, bit for bit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "runs")]

from helpers import assert_same_run

from advice.runs.studies import SIX_METHODS
from advice.threads import one_thread

OPTIONS = {
    "--task": "tiny:Corridor",
    "--episodes": "40",
    "--checkpoint-seconds": "0",
    "--agent.hidden-size": "16",
    "--agent.batch-size": "16",
    "--agent.replay-capacity": "300",
    "--shield.construction-episodes": "15",
    "--shield.hidden-size": "16",
    "--shield.fit-steps": "60",
    "--shield.refit-episodes": "5",
}


def start(method: str, out: Path) -> subprocess.Popen[bytes]:
    words = [word for pair in OPTIONS.items() for word in pair]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "advice", "train", "--method", method, *words, "--out", str(out)],
        env=one_thread({**os.environ, "PYTHONPATH": paths}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(method: str, out: Path) -> Path:
    """Run to the end; the folder of the run."""
    process = start(method, out)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors.decode())
    return folder(method, out)


def folder(method: str, out: Path) -> Path:
    return out / "tiny_Corridor" / method / "seed-0"


def trial(
    method: str, out: Path, whole: Path, kills: int, longest: float, rng: random.Random
) -> int:
    """Kill one run ``kills`` times (fewer if it is done before), finish it, compare."""
    done, run = 0, folder(method, out)
    for _ in range(kills):
        process = start(method, out)
        # wait until it is past its imports, so that the kill meets real work
        began, before = time.monotonic(), latest_change(run)
        while process.poll() is None and latest_change(run) == before:
            if time.monotonic() - began > 60:
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0, longest))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        done += 1
    assert_same_run(whole, finish(method, out))
    return done


def latest_change(run: Path) -> int:
    path = run / "episodes.csv"
    return path.stat().st_mtime_ns if path.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--per-trial", type=int, default=5, help="kills of one run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    killed = dict.fromkeys(SIX_METHODS, 0)
    wholes: dict[str, Path] = {}
    longest: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, method in enumerate(itertools.cycle(SIX_METHODS), 1):
            left = options.kills - sum(killed.values())
            if left <= 0:
                break
            if method not in wholes:
                began = time.monotonic()
                wholes[method] = finish(method, Path(scratch) / "whole")
                longest[method] = (time.monotonic() - began) / options.per_trial / 2
            out, planned = Path(scratch) / f"trial-{number}", min(options.per_trial, left)
            survived = trial(method, out, wholes[method], planned, longest[method], rng)
            killed[method] += survived
            print(f"trial {number}: {method} killed {survived} times, identical", flush=True)
    print(json.dumps({"kills": sum(killed.values()), "trials": number - 1, "by_method": killed}))


if __name__ == "__main__":
    main()
