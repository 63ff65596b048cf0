"""Kill a training at random moments, start it again, and compare with an undisturbed one.

    python benchmarks/kill_resume.py --kills 100

Every trial starts ``python -m advice train`` anew, kills it with SIGKILL after a random time (often
in the middle of a save: the checkpoints come as fast as they can), and goes on until it is done.
A trial counts as identical when records (but for the seconds), actions, weights, shield and
counters equal the undisturbed run's, bit for bit.
"""

from __future__ import annotations

import argparse
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

from advice.threads import one_thread

OPTIONS = {
    "--task": "tiny:Corridor",
    "--method": "advice",
    "--episodes": "40",
    "--checkpoint-seconds": "0",
    "--agent.hidden-size": "16",
    "--agent.batch-size": "16",
    "--agent.replay-capacity": "300",
    "--shield.construction-episodes": "15",
    "--shield.hidden-size": "16",
    "--shield.max-epochs": "4",
}
RUN = Path("tiny_Corridor/advice/seed-0")


def start(out: Path) -> subprocess.Popen[bytes]:
    words = [word for pair in OPTIONS.items() for word in pair]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "advice", "train", *words, "--out", str(out)],
        env=one_thread({**os.environ, "PYTHONPATH": paths}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def trial(out: Path, whole: Path, kills: int, longest: float, rng: random.Random) -> int:
    """Kill one run ``kills`` times (fewer if it is done before), finish it, compare."""
    done = 0
    for _ in range(kills):
        process = start(out)
        # wait until it is past its imports, so that the kill meets real work
        began, before = time.monotonic(), latest_change(out / RUN)
        while process.poll() is None and latest_change(out / RUN) == before:
            if time.monotonic() - began > 60:
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0, longest))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        done += 1
    process = start(out)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors.decode())
    assert_same_run(whole / RUN, out / RUN)
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
    identical = kills = trials = 0
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole"
        began = time.monotonic()
        process = start(whole)
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(errors.decode())
        longest = (time.monotonic() - began) / options.per_trial / 2
        while kills < options.kills:
            trials += 1
            planned = min(options.per_trial, options.kills - kills)
            survived = trial(Path(scratch) / f"trial-{trials}", whole, planned, longest, rng)
            kills += survived
            identical += survived
            print(
                f"trial {trials}: killed {survived} times, identical; {kills} kills so far",
                flush=True,
            )
    print(json.dumps({"kills": kills, "identical": identical, "trials": trials}))


if __name__ == "__main__":
    main()
