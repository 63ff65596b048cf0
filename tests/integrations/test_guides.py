"""What the guides show runs as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blocks import run_blocks

pytestmark = pytest.mark.slow  # test_docs.py runs a shorter page


def test_own_environment(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks("docs/guides/own-environment.md")
    assert "Shield(armed" in capsys.readouterr().out


def test_relying_on_a_shield(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks("docs/guides/relying-on-a-shield.md")
    assert "rule 1: forbid" in capsys.readouterr().out
    assert len(names["shield"].rules) == 1
    assert (tmp_path / "card.md").exists()


def test_deployment(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks("docs/guides/deployment.md")
    assert names["shield"].armed
