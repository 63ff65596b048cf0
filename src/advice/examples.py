"""The examples that come with the package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from advice.types import AdviceError, suggest


def find_examples() -> dict[str, Path]:
    """The files by name: of the installed package, or of the source tree."""
    inside = Path(__file__).parent / "_examples"
    folder = inside if inside.is_dir() else Path(__file__).parents[2] / "examples"
    return {path.stem: path for path in sorted(folder.iterdir()) if path.is_file()}


def about(path: Path) -> str:
    """The first line of an example's description."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return "".join(json.loads(text)["cells"][0]["source"]).splitlines()[0].lstrip("# ")
    return text.splitlines()[0].strip('" ')


def copy_example(name: str, out: Path, overwrite: bool) -> Path:
    """Copy an example into a folder; returns the new file. Raises AdviceError if it cannot."""
    files = find_examples()
    if Path(name).stem not in files:
        raise AdviceError(
            f"no example {name!r}{suggest(name, files)}; there are {', '.join(files)}"
        )
    path = files[Path(name).stem]
    target = out / path.name
    if target.exists() and not overwrite:
        raise AdviceError(f"{target} exists already; --overwrite replaces it")
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    return target
