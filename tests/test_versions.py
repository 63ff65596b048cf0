"""The file of tested versions names everything that the package needs, within its bounds."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from blocks import ROOT


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(x) for x in re.findall(r"\d+", version)[:3])


def test_tested_versions_are_within_the_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "requirements-tested.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"[\w.]+", version) for version in tested.values())  # versions alone
    listed = subprocess.run(
        [sys.executable, ROOT / ".ci" / "lowest.py"], capture_output=True, text=True, check=True
    ).stdout.split()
    lowest = dict(line.split("==") for line in listed)
    assert len(lowest) == len(project["dependencies"]) + len(
        project["optional-dependencies"]["dev"]
    )
    for name, version in lowest.items():
        assert numbers(tested[name.lower()]) >= numbers(version), name
