"""Every Python block of these pages runs as it stands; every public name is documented."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import advice
from blocks import ROOT, run_blocks
from marks import slow_but

PAGES = ["README.md", "docs/index.md", "docs/limits.md", "docs/tasks.md", "docs/guides/transfer.md"]
ELSEWHERE = {
    "docs/guides/own-environment.md",
    "docs/guides/deployment.md",
    "docs/guides/relying-on-a-shield.md",
    "docs/guides/stable-baselines3.md",
    "docs/shield.md",
}


@pytest.mark.parametrize("page", slow_but(["docs/tasks.md"], PAGES))
def test_code_of_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


def test_no_page_with_code_is_forgotten() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    with_code = {str(p.relative_to(ROOT)) for p in pages if "```python" in p.read_text()}
    assert with_code == {*PAGES, *ELSEWHERE}


def find(name: str) -> Any:
    """The object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        return importlib.import_module(name)


def test_the_reference_names_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    names = re.findall(r"^::: (\S+)", text, re.M)
    documented = [find(name) for name in names if "sb3" not in name]  # that one needs PyTorch
    assert all(getattr(advice, name) in documented for name in advice.__all__)
    sb3 = ast.parse((ROOT / "src/advice/integrations/sb3.py").read_text())
    assert "advice.integrations.sb3.shield" in names
    assert "shield" in {node.name for node in sb3.body if isinstance(node, ast.FunctionDef)}


def test_links_and_pictures_of_pages_exist() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert listed == pages


def test_badges_are_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]

    def badge(name: str) -> str:
        return (ROOT / "docs" / "images" / f"badge-{name}.svg").read_text()

    assert f"<title>python: {' | '.join(versions)}</title>" in badge("python")
    assert f"<title>licence: {project['license']}</title>" in badge("licence")
    assert "no PyTorch" in badge("install")
    assert not any("torch" in dependency for dependency in project["dependencies"])
