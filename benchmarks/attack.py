"""Damage and forge every kind of file, load it, and count what happens.

    python benchmarks/attack.py --count 50000

A *damaged* file is changed as a disk or an editor would: bytes, cuts, cells, values of JSON. A
*forged* one is changed by someone who makes its digests anew. Each is loaded as the commands do:

refused     an error that names the reason
same        loads and behaves as the original does
different   loads and behaves otherwise. A damaged file never may, unless it is config.json, which
            people edit. A forged one may: digests are no signatures (SECURITY.md)
crashed     any other error
hung        more than ten seconds of computing
code run    a program or module named by a file was executed
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("", "runs", "shields")]

import numpy as np
from advice_mutations import mutations
from helpers import LOOK_AHEAD, small

from advice import Shield
from advice.config import flat
from advice.files import read_arrays, write_arrays
from advice.reports.load import read_run
from advice.runs.actions import pack_actions
from advice.runs.checkpoints import Checkpointer, Counters
from advice.runs.loop import Listener, train
from advice.runs.methods import build, environment_of, make_environment
from advice.runs.records import RunFolder
from advice.runs.resimulate import resimulate
from advice.types import AdviceError, EpisodeRecord

SECONDS = 10.0
OUTCOMES = ("tried", "refused", "same", "different", "crashed", "hung")
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 3, 7.5, 1e300, float("nan"), float("inf"), 2**70, 10**9),
    *("", "x", "nan", "../..", "$\\frac{$", "\x1b[2J", "a" * 300, "subprocess:Popen", "evil:Env"),
    *([], [1], {}, {"a": 1}, [[[]]], ["x"] * 50),
]
"""Values that a field does not expect."""


class Hung(BaseException):
    """Too much computing."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise :class:`Hung` after some seconds of computing; waiting does not count."""

    def stop(number: int, frame: object) -> None:
        raise Hung

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


class Target(NamedTuple):
    """One kind of file: how to change it, and what a reader sees of it."""

    file: Path
    change: Callable[[random.Random], None]
    look: Callable[[], Any]


# ---- changes


def replace_somewhere(value: Any, rng: random.Random) -> Any:
    """A copy of JSON values with one of them odd, missing, new or another number."""
    value = copy.deepcopy(value)
    place = value
    while True:
        keys = [*place] if isinstance(place, dict) else [*range(len(place))]
        if not keys:
            return value
        key = rng.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.1:
            break
        place = inner
    kind = rng.random()
    if kind < 0.1 and isinstance(place, dict):
        place[str(rng.choice(ODD))] = place.pop(key)
    elif kind < 0.2:
        del place[key]
    elif kind < 0.4 and isinstance(inner, int | float) and not isinstance(inner, bool):
        place[key] = inner * rng.choice((-1, 2, 1000, 10**12))
    else:
        place[key] = rng.choice(ODD)
    return value


def change_array(arrays: dict[str, Any], rng: random.Random) -> None:
    """Another type, shape, size or content of one array."""
    name = rng.choice([*arrays])
    array = np.array(arrays[name])
    with np.errstate(all="ignore"):
        changed: list[Callable[[], Any]] = [
            lambda: array.astype(rng.choice(("f8", "f4", "i8", "i4", "u1", "?"))),
            lambda: array[:0],
            lambda: array[: len(array) // 2],
            lambda: np.concatenate([array, array]),
            lambda: array.reshape(-1),
            lambda: array[None],
            lambda: np.zeros(()),
            lambda: np.full_like(array, rng.choice((0, 1, -1, 100, np.nan, np.inf, 1e300))),
            lambda: np.random.default_rng(rng.getrandbits(32)).permutation(array),
            lambda: -array,
            lambda: np.zeros((rng.choice((1, 100, 10_000)),)),
        ]
        try:
            arrays[name] = rng.choice(changed)()
        except (TypeError, ValueError, IndexError):  # not possible with this one
            del arrays[name]


def damage_arrays(file: Path) -> Callable[[random.Random], None]:
    return lambda rng: write(file, next(mutations(file.read_bytes(), 1, rng.getrandbits(32))))


def forge_arrays(file: Path, kind: str, version: int) -> Callable[[random.Random], None]:
    def change(rng: random.Random) -> None:
        arrays, document = read_arrays(file, kind, version)
        if rng.random() < 0.5:
            document = replace_somewhere(document, rng)
        else:
            change_array(arrays, rng)
        write_arrays(file, arrays, document, kind, version)

    return change


def write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def change_json(file: Path) -> Callable[[random.Random], None]:
    def change(rng: random.Random) -> None:
        if rng.random() < 0.2:
            change_bytes(file, rng)
            return
        document = json.loads(file.read_text())
        for _ in range(rng.choice((1, 1, 3))):
            document = replace_somewhere(document, rng)
        if rng.random() < 0.1:
            proof = file.parent.parent / "proof"
            document["config"] = document.get("config") or {}
            if isinstance(document["config"], dict):
                document["config"] |= {
                    "task": rng.choice(("subprocess:Popen", "evil:Env", "os:system")),
                    "env": {"options": {"args": f"touch {proof}", "shell": True}},
                }
        file.write_text(json.dumps(document))

    return change


def change_bytes(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    at = rng.randrange(len(content))
    kind = rng.randrange(4)
    if kind == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del content[at:]
    elif kind == 2:
        content[at:at] = rng.randbytes(rng.randrange(1, 40))
    else:
        del content[at : at + rng.randrange(1, 40)]
    file.write_bytes(bytes(content))


def change_csv(file: Path) -> Callable[[random.Random], None]:
    cells = ("", "x", "-1", "0", "1", "99", "1e300", "nan", "inf", "1e-5", "9" * 5000, '"', "7.5")

    def change(rng: random.Random) -> None:
        if rng.random() < 0.3:
            change_bytes(file, rng)
            return
        lines = [line.split(",") for line in file.read_text().splitlines()]
        line = rng.randrange(len(lines))
        kind = rng.randrange(5)
        if kind == 0:
            lines.insert(line, list(lines[rng.randrange(len(lines))]))
        elif kind == 1:
            del lines[line]
        else:
            lines[line][rng.randrange(len(lines[line]))] = rng.choice(cells)
        file.write_text("\n".join(map(",".join, lines)) + "\n")

    return change


def resigned(run: RunFolder, change: Callable[[random.Random], None]) -> Any:
    """The change, and then the digests in ``done`` made anew."""

    def both(rng: random.Random) -> None:
        change(rng)
        run.mark_done()

    return both


# ---- what a reader sees


def digest(arrays: dict[str, Any], document: Any) -> str:
    found = hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


class Breaks(Listener):
    """Ends a run before it is done, so that its checkpoint holds a replay."""

    def episode_ended(self, record: EpisodeRecord, counters: Counters) -> None:
        if record.episode == 12:
            raise InterruptedError


def targets(run: RunFolder, half: RunFolder) -> dict[str, Target]:
    """Every kind of file of a run, damaged and forged; of ``half`` a run its checkpoint."""
    config = run.read_config()
    env = make_environment(config)
    agent, shield = build(config, env.observation_space, env.action_space)
    state = half.checkpoint / "state.safetensors"

    def load_shield() -> Any:
        loaded = Shield.load(run.shield_file)
        loaded.guard(np.zeros(2, np.float32), np.zeros(2, np.float32))
        loaded.explain(np.zeros(2, np.float32), np.ones(2, np.float32))
        str(loaded.audit())
        return digest(*loaded.snapshot())

    def load_checkpoint() -> Any:
        keeper = Checkpointer(half.checkpoint, {"agent": agent, "shield": shield}, agent.replay)
        counters = keeper.load()
        keeper.load_replay()
        proposed = agent.act(np.zeros(2, np.float32), explore=False)
        parts = [digest(*part.snapshot()) for part in (agent, shield)]
        return counters, parts, proposed.tobytes(), digest({"replay": agent.replay.table}, 0)

    def load_config() -> Any:
        settings = flat(read_run(run).config)
        untrusted = RunFolder(run.path)
        try:
            environment_of(untrusted).close()
        except AdviceError as error:
            if "--trust-task" not in str(error):
                raise
        return str(sorted(settings.items(), key=str))

    def load_episodes() -> Any:
        return read_run(run).table[:, :-1].tobytes()  # the times may differ

    def replay(folder: RunFolder = run) -> Any:
        found = resimulate(folder, 2)
        return found.executed.tobytes(), found.proposed.tobytes(), found.rewards.tobytes()

    kept, unsigned = (
        RunFolder(run.path.with_name(name), trust_task=True) for name in ("kept", "unsigned")
    )
    for folder in (kept, unsigned):
        shutil.copytree(run.path, folder.path)
        pack_actions(run, folder)
        folder.actions_file.unlink()
    unsigned.done_file.unlink()
    packed, unsigned_csv = kept.packed_file, unsigned.episodes_file

    shields, checkpoints = damage_arrays(run.shield_file), damage_arrays(state)
    csv, actions = run.episodes_file, run.actions_file
    return {
        "shield, damaged": Target(run.shield_file, shields, load_shield),
        "shield, forged": Target(
            run.shield_file, forge_arrays(run.shield_file, "shield", 2), load_shield
        ),
        "checkpoint, damaged": Target(state, checkpoints, load_checkpoint),
        "checkpoint, forged": Target(state, forge_arrays(state, "checkpoint", 1), load_checkpoint),
        "config.json": Target(run.config_file, change_json(run.config_file), load_config),
        "episodes.csv, damaged": Target(csv, change_csv(csv), load_episodes),
        "episodes.csv, forged": Target(csv, resigned(run, change_csv(csv)), load_episodes),
        "actions.bin, damaged": Target(actions, lambda rng: change_bytes(actions, rng), replay),
        "actions.bin, forged": Target(
            actions, resigned(run, lambda rng: change_bytes(actions, rng)), replay
        ),
        "actions.bin.xz, damaged": Target(
            packed, lambda rng: change_bytes(packed, rng), partial(replay, kept)
        ),
        "episodes.csv of packed actions, forged": Target(
            unsigned_csv, change_csv(unsigned_csv), partial(replay, unsigned)
        ),
    }


def attack(
    count: int, seed: int, scratch: Path, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """``count`` changed files in all; what came of them, by kind of file."""
    run = RunFolder(scratch / "run", trust_task=True)
    half = RunFolder(scratch / "half")
    config = small(episodes=14, shield=LOOK_AHEAD)
    train(config, run)
    with suppress(AdviceError):
        train(config, half, Breaks(), checkpoint_seconds=0)
    shutil.copytree(run.path, scratch / "good")
    (scratch / "evil.py").write_text(f"open({str(scratch / 'proof')!r}, 'w').close()\n")
    sys.path.append(str(scratch))
    found: dict[str, Counter[str]] = {}
    code_run = 0
    before = peak_mb()
    rng, kinds = random.Random(seed), targets(run, half)
    for number in range(count):
        name = [*kinds][number % len(kinds)]
        target, counts = kinds[name], found.setdefault(name, Counter())
        if number < len(kinds):
            kinds[name] = target = target._replace(look=_remembering(target.look))
            target.look()
        original = target.file.read_bytes()
        target.change(rng)
        outcome, error = _try(target)
        counts["tried"] += 1
        counts[outcome] += 1
        if outcome in ("crashed", "hung"):
            kept = scratch / f"{outcome}-{number}-{target.file.name}"
            shutil.copy(target.file, kept)
            say(f"{outcome}: {name}, change {number}: {type(error).__name__}: {str(error)[:300]}")
        if (scratch / "proof").exists():
            code_run += 1
            (scratch / "proof").unlink()
        target.file.write_bytes(original)
        shutil.copy(scratch / "good" / "done", run.done_file)
    sys.path.remove(str(scratch))
    return {"found": found, "code run": code_run, "memory": (before, peak_mb())}


def peak_mb() -> int:
    """The most memory that this process has had so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _remembering(look: Callable[[], Any]) -> Callable[[], Any]:
    """The first call sees the original; the others say whether they see the same."""
    first: list[Any] = []

    def compare() -> Any:
        seen = look()
        if not first:
            first.append(seen)
        return seen == first[0]

    return compare


def _try(target: Target) -> tuple[str, BaseException | None]:
    try:
        with limited(), np.errstate(all="ignore"):
            return ("same" if target.look() else "different"), None
    except (AdviceError, FileNotFoundError) as error:
        return "refused", error
    except Hung as error:
        return "hung", error
    except Exception as error:  # anything else is a finding
        return "crashed", error


def silent(result: dict[str, Any]) -> int:
    """Differences that nobody documented: those of damaged files with a digest."""
    return sum(n["different"] for name, n in result["found"].items() if name.endswith("damaged"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = attack(options.count, options.seed, Path(scratch))
    print(f"{'':<24}" + "".join(f"{word:>11}" for word in OUTCOMES))
    for name, counts in result["found"].items():
        print(f"{name:<24}" + "".join(f"{counts[word]:>11,}" for word in OUTCOMES))
    total: Counter[str] = sum(result["found"].values(), Counter())
    figures = {word: total[word] for word in OUTCOMES}
    figures |= {"silent": silent(result), "code_run": result["code run"]}
    before, peak = result["memory"]
    print(json.dumps(figures | {"before_mb": before, "peak_mb": peak}))
    sys.exit(bool(total["crashed"] or total["hung"] or silent(result) or result["code run"]))


if __name__ == "__main__":
    main()
