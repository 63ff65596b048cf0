"""A MkDocs hook: formulas between dollar signs become MathML, which browsers draw by themselves."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

CODE_OR_FORMULA = re.compile(r"(```.*?```|`[^`\n]*`)|\$\$(.+?)\$\$|\$([^$\n]+)\$", re.S)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace ``$$...$$`` and ``$...$`` outside code."""

    def replace(found: re.Match[str]) -> str:
        code, block, inline = found.groups()
        if code:
            return str(code)
        return convert(block or inline, display="block" if block else "inline")

    return CODE_OR_FORMULA.sub(replace, markdown)
