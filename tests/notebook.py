"""Run a notebook without Jupyter: ``python tests/notebook.py PATH`` also keeps what it prints."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt


def run_notebook(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, which run in order as one script."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": path.name}
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for number, cell in enumerate(code, 1):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
        lines = stream.getvalue().splitlines(keepends=True)
        text = {"output_type": "stream", "name": "stdout", "text": lines}
        cell["execution_count"], cell["outputs"] = number, [text] if lines else []
        for figure in map(plt.figure, plt.get_fignums()):
            picture = io.BytesIO()
            figure.savefig(picture, dpi=80, bbox_inches="tight")
            data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
            cell["outputs"].append({"output_type": "display_data", "data": data, "metadata": {}})
        plt.close("all")
    return notebook


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(json.dumps(run_notebook(file), indent=1) + "\n")
