"""A page says what the shield did, not what it would have done."""

from __future__ import annotations

from pathlib import Path

from advice.reports.replay_page import write_replay
from advice.runs.records import RunFolder


def test_the_page_of_an_unarmed_episode_says_so(trained: Path, tmp_path: Path) -> None:
    records = RunFolder(trained).read_episodes()
    armed = next(record.episode for record in records if record.k)
    for episode, said in ((1, '"armed": false'), (armed, '"armed": true')):
        page = write_replay(trained, tmp_path / "page.html", episode, trust_task=True).page
        assert said in page.read_text()
    text = page.read_text()
    assert (
        "data.armed ? `Safe neighbours of the proposal" in text
    )  # the votes needed are said if it was armed
    assert "The shield did not guard; at the end" in text
