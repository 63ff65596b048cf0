"""Every Python block of the README and of these pages runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocks import ROOT, run_blocks

PAGES = ["README.md", "docs/index.md", "docs/tasks.md", "docs/guides/transfer.md"]
ELSEWHERE = {
    "docs/guides/own-environment.md",
    "docs/guides/deployment.md",
    "docs/guides/stable-baselines3.md",
    "docs/shield.md",
}


@pytest.mark.parametrize("page", PAGES)
def test_code_of_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


def test_no_page_with_code_is_forgotten() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    with_code = {str(p.relative_to(ROOT)) for p in pages if "```python" in p.read_text()}
    assert with_code == {*PAGES, *ELSEWHERE}
