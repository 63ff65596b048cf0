"""How long does a report of 150 runs of 2,000 episodes take, and how much memory?

    python benchmarks/report_speed.py [--repeats 3]

Records are made up: five tasks, six methods, five seeds. Each report is made in a process of its
own; wall time, processor time and peak memory are those of that process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from advice.threads import restart_with_one_thread

restart_with_one_thread()
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reports"))

from made_up import write_grid

TASKS = (
    "semi-random-goal",
    "randomised-goal",
    "randomised-button",
    "randomised-circle",
    "constrained-randomised-goal",
)
ONE_REPORT = """
import json, resource, sys, time
began = time.perf_counter()
from advice.reports.page import write_report
report = write_report([sys.argv[1]], sys.argv[2])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "processor_seconds": used.ru_utime + used.ru_stime,
    "peak_mb": used.ru_maxrss / 1024,
    "page_mb": report.page.stat().st_size / 2**20,
    "runs": sum(len(runs) for task in report.collection.tasks for runs in task.methods.values()),
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        write_grid(runs, TASKS, seeds=range(5), episodes=2000, construction=1000)
        found = []
        for i in range(repeats):
            command = [sys.executable, "-c", ONE_REPORT, str(runs), str(Path(folder) / f"out-{i}")]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append(json.loads(answer.splitlines()[-1]))
    median = {name: statistics.median(one[name] for one in found) for name in found[0]}
    targets = {"seconds": "under 60", "peak_mb": "under 1024", "runs": "150"}
    print(f"{'median of ' + str(repeats):<20}{'measured':>12}  target")
    for name, value in median.items():
        print(f"{name:<20}{value:>12.1f}  {targets.get(name, '')}")
    print(json.dumps({f"report_{name}": round(value, 2) for name, value in median.items()}))


if __name__ == "__main__":
    main()
