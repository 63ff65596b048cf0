"""The Python code blocks of a page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def run_blocks(page: str) -> dict[str, Any]:
    """Run all ```python blocks of a page in order, as one script; its names."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert blocks, f"{page} has no code"
    names: dict[str, Any] = {"__name__": page}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names
