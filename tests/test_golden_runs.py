"""Training has not changed: each method still gives the recorded episodes, weights and decisions.

After a change that is meant to alter training, raise the number of the part that changed in
TRAINING_VERSIONS of runs/records.py, record anew with ``python tests/test_golden_runs.py`` and
say in the commit why. There is one record for each kind of processor and set of packages on which
they were made; elsewhere the test is skipped. A report compares runs of different commits if their
numbers are the present ones of their methods.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import platform
import re
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advice.config import PRESETS, AgentConfig, EnvConfig, ShieldConfig, TrainConfig
from advice.files import read_arrays
from advice.runs.loop import Listener, train
from advice.runs.records import TRAINING_VERSIONS, training_version
from advice.runs.studies import TASK_OPTIONS
from marks import slow_but

RECORDED = Path(__file__).parent / "data" / "golden_runs.json"
AGENT = AgentConfig(hidden_size=32, batch_size=32, noise_dt=0.5, warmup_steps=0)
SMALL: Any = {"construction_episodes": 20, "hidden_size": 32, "intervention_penalty": 0.05}
PAPER = dataclasses.replace(PRESETS["paper"], max_epochs=8, **SMALL)
DEFAULT = ShieldConfig(fit_steps=200, refit_episodes=5, arm="fixed", learn_from="both", **SMALL)
EARLY = dataclasses.replace(DEFAULT, arm="early", construction_episodes=1000, probe_violations=2)
WARM = dataclasses.replace(AGENT, warmup_steps=1500)
CORRIDOR = {"task": "tiny:Corridor", "episodes": 40}
DRIVING = {
    "task": "randomised-goal",
    "episodes": 40,
    "env": EnvConfig(max_episode_steps=80, options={"cubes": 14}),
}
CIRCLE = EnvConfig(max_episode_steps=80, options=TASK_OPTIONS["randomised-circle"])
OBSERVATION_SIZES = {
    **{"tiny:Corridor": 2, "randomised-circle": 32},
    **{"randomised-goal": 32, "constrained-randomised-goal": 48},
}
RUNS: dict[str, dict[str, Any]] = {
    method: {"method": method, **CORRIDOR}
    for method in ("ddpg", "ddpg-lag", "rcpo", "tabular", "csc", "advice", "td3", "sac+advice")
} | {
    "advice-driving": {"method": "advice", **DRIVING},
    "advice-default": {"method": "advice", "shield": DEFAULT, **CORRIDOR},
    "advice-default-driving": {"method": "advice", "shield": DEFAULT, **DRIVING},
    "advice-early": {
        **{"method": "advice", "shield": EARLY, "agent": WARM},
        **{**CORRIDOR, "episodes": 160},
    },
    "ddpg-warm-up": {"method": "ddpg", "agent": WARM, **CORRIDOR, "episodes": 160},
    "csc-driving": {"method": "csc", **DRIVING},
    "advice-constrained": {
        **{"method": "advice", "shield": DEFAULT, **DRIVING},
        "task": "constrained-randomised-goal",
    },
    "ddpg-circle": {"method": "ddpg", **DRIVING, "task": "randomised-circle", "env": CIRCLE},
}


class Keep(Listener):
    """Keeps the shield of a run."""

    def ready(self, agent: Any, shield: Any) -> None:
        self.shield = shield


def versions() -> dict[str, str]:
    """Everything that may round differently."""
    packages = ("numpy", "scipy", "jax", "jaxlib", "optax", "mujoco")
    return {name: metadata.version(name) for name in packages} | {"processor": processor()}


def processor() -> str:
    """Vendor, family and model: compilers and BLAS choose their instructions by these."""
    if not (cpuinfo := Path("/proc/cpuinfo")).exists():
        return platform.processor() or platform.machine()
    found = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE))
    return " ".join(found.get(key, "?") for key in ("vendor_id", "cpu family", "model"))


def numbers() -> dict[str, int]:
    """The number of the training of each run."""
    return {
        name: training_version(run["method"], run.get("shield", PAPER))
        for name, run in RUNS.items()
    }


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def decisions(shield: Any, size: int) -> str:
    """What the final shield says about fixed observations of that size and actions."""
    if not shield.armed:
        return "unarmed"
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1 if size == 2 else 0, 1, (100, size)).astype(np.float32)
    actions = rng.uniform(-1, 1, (100, 2)).astype(np.float32)
    verdicts = [shield.guard(*pair) for pair in zip(observations, actions, strict=True)]
    return digest(
        [
            np.asarray(v.action).tobytes() + bytes([v.intervened, v.safe_neighbours])
            for v in verdicts
        ]
    )


def fingerprint(run: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Digests of a run's episodes, actions, learnt arrays and the shield's decisions."""
    keep = Keep()
    train(TrainConfig(seed=3, **{"agent": AGENT, "shield": PAPER, **run}), folder, keep)
    with open(folder / "episodes.csv", newline="") as stream:
        rows = [row[:-1] for row in csv.reader(stream)]  # all but the seconds
    arrays, _ = read_arrays(folder / "agent.safetensors", "agent", 1)
    violation, interventions = rows[0].index("violation"), rows[0].index("interventions")
    return {
        "violations": sum(int(row[violation] in ("1", "True")) for row in rows[1:]),
        "interventions": sum(int(row[interventions]) for row in rows[1:]),
        "episodes": digest([",".join(row).encode() for row in rows]),
        "actions": digest([(folder / "actions.bin").read_bytes()]),
        # the names of the arrays may change, what they hold may not
        "weights": digest(sorted(array.tobytes() for array in arrays.values())),
        "decisions": decisions(keep.shield, OBSERVATION_SIZES[run["task"]]),
    }


def records() -> list[dict[str, Any]]:
    """Every record, each of other versions."""
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", slow_but(["ddpg", "advice"], RUNS))
def test_training_is_as_recorded(name: str, tmp_path: Path) -> None:
    recorded = next((one for one in records() if one["versions"] == versions()), None)
    if recorded is None or name not in recorded["runs"]:
        pytest.skip(f"recorded with {[one['versions'] for one in records()]}, found {versions()}")
    assert fingerprint(RUNS[name], tmp_path / "run") == recorded["runs"][name]


def check_number(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise ValueError if a run that both have has changed but the number of its method has not."""
    changed = [
        name
        for name in new["runs"].keys() & old["runs"].keys()
        if new["runs"][name] != old["runs"][name] and new["training"][name] == old["training"][name]
    ]
    if changed and old["versions"] == new["versions"]:
        raise ValueError(f"raise TRAINING_VERSIONS: {', '.join(sorted(changed))} changed")


def test_the_number_of_the_training_is_recorded() -> None:
    present = numbers()
    for one in records():  # of another processor it may lack runs that came later
        assert one["training"] == {name: present[name] for name in one["runs"]}
    recorded = records()[0]
    changed = {**recorded, "runs": recorded["runs"] | {"ddpg": {}, "advice": {}}}
    with pytest.raises(ValueError, match="raise TRAINING_VERSIONS: advice, ddpg changed"):
        check_number(recorded, changed)
    raised = recorded["training"] | {"advice": recorded["training"]["advice"] + 1}
    with pytest.raises(ValueError, match="raise TRAINING_VERSIONS: ddpg changed"):
        check_number(recorded, changed | {"training": raised})
    check_number(recorded, {**recorded, "runs": recorded["runs"] | {"new": {}}})


def test_a_part_is_raised_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = numbers()
    assert before["ddpg"] == 2  # as the records of before there were parts
    monkeypatch.setitem(TRAINING_VERSIONS, "advice", TRAINING_VERSIONS["advice"] + 1)
    raised = {name for name, number in numbers().items() if number != before[name]}
    assert raised == {name for name in RUNS if "advice" in name}
    without = ShieldConfig(probe_violations=0)
    assert training_version("ddpg", ShieldConfig()) == training_version("ddpg", without)
    assert training_version("sac+advice", ShieldConfig()) > training_version("sac+advice", without)


def record() -> None:
    """Train every run and write what came out; records of another training go."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: fingerprint(run, Path(folder) / name) for name, run in RUNS.items()}
    found = {"training": numbers(), "versions": versions(), "runs": runs}
    for one in records():
        check_number(one, found)
    same = [one for one in records() if one["training"].items() <= found["training"].items()]
    others = [one for one in same if one["versions"] != found["versions"]]
    RECORDED.write_text(json.dumps([*others, found], indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    from advice.threads import restart_with_one_thread

    restart_with_one_thread()
    sys.path.insert(0, str(Path(__file__).parent))
    record()
