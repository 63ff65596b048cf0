"""Print the lowest versions that pyproject.toml allows, as constraints for pip."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for line in (*project["dependencies"], *extras["dev"]):
    found = re.match(r"([\w-]+)(?:\[.*\])?>=([\w.]+)", line)
    if found is None:
        raise SystemExit(f"expected a lowest version, found {line!r}")
    print("==".join(found.groups()))
