"""A few of the files that benchmarks/attack.py changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advice.runs.records import RunFolder
from marks import slow_but

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from attack import attack, silent


@pytest.mark.parametrize("each", slow_but([10], [10, 30]))
def test_changed_files_are_refused_or_the_same(each: int, tmp_path: Path) -> None:
    said: list[str] = []
    result = attack(11 * each, seed=1, scratch=tmp_path, say=said.append)
    assert not said  # nothing crashed or hung
    assert silent(result) == 0
    assert result["code run"] == 0
    assert {counts["tried"] for counts in result["found"].values()} == {each}
    refused = [counts["refused"] > 0 for counts in result["found"].values()]
    assert all(refused) if each >= 30 else sum(refused) >= 7  # of few changes all may be valid
    assert RunFolder(tmp_path / "run").read_episodes()
