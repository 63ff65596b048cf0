"""The page about the shield: its example runs, and its table lists every setting."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from advice import ShieldConfig

PAGE = (Path(__file__).parents[2] / "docs" / "shield.md").read_text()


@pytest.mark.slow
def test_the_example_runs_and_the_shield_helps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = next(x for x in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "Ledge" in x)
    names: dict[str, object] = {}
    exec(compile(example, "shield.md", "exec"), names)
    assert names["unshielded"] > 3 * names["shielded"]
    assert (tmp_path / "ledge.safetensors").exists()
    assert "balanced accuracy" in capsys.readouterr().out
    verdict = names["shield"].guard(np.array([0.95], np.float32), np.array([0.8], np.float32))
    assert verdict.intervened


def test_the_table_lists_every_setting_with_its_default():
    for setting in dataclasses.fields(ShieldConfig):
        assert f"`{setting.name}`" in PAGE, setting.name
        row = next(
            line
            for line in PAGE.splitlines()
            if line.startswith("|") and f"`{setting.name}`" in line
        )
        names = re.findall(r"`(\w+)`", row.split("|")[1])
        value = row.split("|")[2].replace(" ", "").split(",")[names.index(setting.name)].strip("`")
        if isinstance(setting.default, str):
            assert value == setting.default
        elif setting.default is None:
            assert value == "notgiven"
        else:
            assert float(value) == setting.default
