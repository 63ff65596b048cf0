"""The package's structure in figures: lines, imports, files before the first step, guard depth.

`python tests/import_graph.py` prints them, and as its last line one JSON object.
"""

from __future__ import annotations

import ast
import graphlib
import inspect
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import advice

SOURCE = Path(advice.__file__).parent
ROOT = f"{SOURCE}/"


def modules() -> dict[str, Path]:
    """Every module of the package, by dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(source: str, module: str, known: set[str]) -> dict[str, bool]:
    """Modules of the package that a source imports: True if the import runs with the module.

    False: the import stands in a function and runs only when that is called. Imports for type
    checkers alone are left out.
    """
    tree = ast.parse(source)
    in_functions = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: dict[str, bool] = {}
    for node in ast.walk(tree):
        if node in for_types or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            package = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*package, *filter(None, [node.module])])
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
                for alias in node.names
            ]
        for name in names:
            if name in known and name != module:
                found[name] = found.get(name, False) or node not in in_functions
    return found


def graph(with_module_alone: bool) -> dict[str, set[str]]:
    """Which modules each module imports: with the module alone, or in its functions too."""
    paths = modules()
    known = set(paths)
    return {
        name: {
            target
            for target, at_once in imports_of(path.read_text(), name, known).items()
            if at_once or not with_module_alone
        }
        for name, path in paths.items()
    }


def reached(edges: dict[str, set[str]], start: str) -> set[str]:
    """All modules that ``start`` imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found - {start}


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """One cycle of imports, or an empty list."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def lines_per_folder() -> dict[str, int]:
    lines: dict[str, int] = defaultdict(int)
    for path in modules().values():
        folder = path.relative_to(SOURCE).parent.as_posix()
        lines["top" if folder == "." else folder] += len(path.read_text().splitlines())
    return dict(lines)


class FirstStep(BaseException):
    """Raised by the trace when the environment makes its first step."""


def files_before_the_first_step() -> list[str]:
    """Files of the package with a function that `advice train` calls before the first step."""
    from advice.cli import parse

    touched: set[str] = set()

    def trace(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # not the body of a module or class
        if event == "call" and is_function and code.co_filename.startswith(ROOT):
            touched.add(code.co_filename.removeprefix(ROOT))
            if code.co_qualname == "NavigationEnv.step":
                raise FirstStep

    with tempfile.TemporaryDirectory() as out:
        sys.setprofile(trace)
        try:
            parse("train", ["--out", out])()
        except FirstStep:
            pass
        finally:
            sys.setprofile(None)
    return sorted(touched)


def guard_depth() -> int:
    """Functions of the package on the stack at the deepest point of a call that endorses."""
    import numpy as np
    from gymnasium.spaces import Box

    shield = advice.Shield(
        Box(-1, 1, (2,)), Box(-1, 1, (2,)), advice.ShieldConfig(hidden_size=8, max_epochs=1)
    )
    for number, values in enumerate(np.random.default_rng(0).uniform(-1, 1, (40, 4))):
        outcome = advice.Outcome.UNSAFE if number == 0 else advice.Outcome.SAFE
        shield.record(values[:2], values[2:], outcome)
        shield.end_episode(False)
    for number in range(5):
        shield.record(np.full(2, -1.0), np.full(2, -1.0 + number / 100), advice.Outcome.UNSAFE)
        shield.end_episode(True)
    shield.fit()
    shield.guard(np.zeros(2), np.zeros(2))  # the first call prepares the candidates
    deepest = depth = 0

    def trace(frame: Any, event: str, _: Any) -> None:
        nonlocal depth, deepest
        if event in ("call", "return") and frame.f_code.co_filename.startswith(ROOT):
            depth += 1 if event == "call" else -1
            deepest = max(deepest, depth)

    sys.setprofile(trace)
    try:
        verdict = shield.guard(np.zeros(2), np.zeros(2))
    finally:
        sys.setprofile(None)
    assert not verdict.intervened
    return deepest


def main() -> None:
    edges = graph(with_module_alone=True)
    for name, targets in edges.items():
        print(f"{name:<36} {' '.join(sorted(t.removeprefix('advice.') for t in targets))}")
    lines = lines_per_folder()
    for folder, count in lines.items():
        print(f"{folder:<36} {count} lines")
    files = files_before_the_first_step()
    for path in modules().values():
        if (count := len(path.read_text().splitlines())) > 400:
            print(f"over 400 lines: {path.relative_to(SOURCE)} {count}")
    print("files before the first step:", " ".join(files))
    figures = {
        "lines": sum(lines.values()),
        "cycle": cycle(edges),
        "files_before_the_first_step": len(files),
        "guard_depth": guard_depth(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
