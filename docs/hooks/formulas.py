"""A MkDocs hook: formulas between dollar signs become MathML, which browsers draw by themselves.

Roles in docstrings, such as ``:meth:``, are left out; the name after them stays.
"""

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
        if inline:
            return convert(inline, display="inline")
        made = convert(block, display="block")
        return f'<span style="display: block; overflow-x: auto">{made}</span>'  # for phones

    return CODE_OR_FORMULA.sub(replace, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Remove the roles that mkdocstrings leaves as they are."""
    return re.sub(r":(?:meth|class|func|data|attr|mod):(?=<code>)", "", html)
