"""`advice replay`: one episode as a page to play and to step through."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from advice.reports.page import render
from advice.reports.shields import KIND_COLOURS, outcome
from advice.reports.style import method_label
from advice.runs import resimulate as again
from advice.runs.records import RunFolder
from advice.runs.resimulate import Choice, Counterfactual, Replay
from advice.shields.cautiousness import required_votes
from advice.shields.shield import Shield
from advice.types import Array, BrokenFileError, RateActions

_MEMORY = 4000  # remembered features shown in the latent space
_FRAMES = 400  # at most this many frames, of at most this width
_FRAME_WIDTH = 400


class ReplayReport(NamedTuple):
    """What :func:`write_replay` made."""

    page: Path
    episode: int
    interventions: int
    counterfactuals: list[Counterfactual] | None


def write_replay(
    run: Path | str,
    out: Path | str,
    choice: Choice | int = "intervened",
    video: Path | None = None,
    counterfactual: bool = False,
    horizon: int = 10,
    trust_task: bool = False,
) -> ReplayReport:
    """Simulate one episode of a run again and write its page (and film)."""
    folder = RunFolder.find(run, trust_task)
    config, episode = folder.read_config(), again.choose_episode(folder, choice)
    replay = again.resimulate(folder, episode)
    found = again.counterfactuals(folder, replay, horizon) if counterfactual else None
    shield, notes = _shield_view(folder, replay)
    numbers = ("proposed", "executed", "rewards", "costs", "violations", "successes", "intervened")
    arrays = shield | {name: getattr(replay, name) for name in numbers}
    arrays["observations"] = replay.observations.reshape(len(replay.observations), -1)
    frames = []
    if replay.poses is not None:
        arrays["poses"] = replay.poses
    else:
        try:
            frames = _jpegs(again.film(folder, replay))
        except Exception as error:  # whatever a foreign environment raises where it cannot draw
            notes.append(f"There are no frames of this environment: {error}")
    data = {
        "arrays": {name: _packed(array) for name, array in arrays.items()},
        "layout": {kind: places.tolist() for kind, places in replay.layout.items()},
        **{name: getattr(replay, name) for name in ("sizes", "lidars", "bins", "fps")},
        "colours": KIND_COLOURS | {"target": KIND_COLOURS["goal"]},
        "kMax": config.shield.k_max,
        "armed": replay.record.k > 0,
        "counterfactuals": [list(item) for item in found or []],
        "horizon": horizon if found is not None else 0,
        "frames": frames,
    }
    values = {
        "config": config,
        "method": method_label(config.method),
        "replay": replay,
        "outcome": outcome(replay),
        "episodes": len(folder.read_episodes()),
        "needed": needed_in_words(found) if found is not None else "",
        "horizon": horizon,
        "notes": notes,
        "data": data,
    }
    page = Path(out)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render("replay.html.j2", values), encoding="utf-8")
    if video:
        again.save_film(folder, replay, video)
    return ReplayReport(page, episode, int(replay.intervened.sum()), found)


def needed_in_words(found: list[Counterfactual]) -> str:
    """How many interventions were needed."""
    needed = [item for item in found if item.needed]
    failed = sum(item.harmed_anyway for item in needed)
    words = f"{len(needed)} of {len(found)} interventions"
    return words + (f", of which {failed} did not prevent it" if failed else "")


def _shield_view(folder: RunFolder, replay: Replay) -> tuple[dict[str, Array], list[str]]:
    """Per step what the shield saw: votes and ratings of the fixed candidates, latent space."""
    if not folder.shield_file.exists():
        return {}, ["This run has no fitted shield, so there is no action map and no latent space."]
    try:
        shield = Shield.load(folder.shield_file)
    except BrokenFileError as error:
        return {}, [f"The shield cannot be shown: {error}"]
    rate = again.final_critic(folder)
    notes = ["The maps show the shield as the run left it; it may be fitted anew in a run."]
    if replay.record.k == 0:
        notes.append(
            "The shield did not guard in this episode: the maps show what it would have said, with "
            f"K = {shield.k} as at the end of the run."
        )
    if rate is None:
        notes.append("No agent was kept: actions are rated by nearness to the proposal.")
    return _explained(shield, replay, rate), notes


def _explained(shield: Shield, replay: Replay, rate: RateActions | None) -> dict[str, Array]:
    steps = [*zip(replay.observations[:-1], replay.proposed, replay.executed, strict=True)]
    seen = [shield.explain(obs, proposed, rate) for obs, proposed, _ in steps]
    executed = np.array([shield.explain(obs, action).latent for obs, _, action in steps])
    memory, memory_safe = seen[0].memory, seen[0].memory_safe
    candidates = np.array([x.candidates.reshape(len(x.candidates), -1) for x in seen])
    fixed = (candidates == candidates[0]).all(axis=(0, 2))  # others follow the proposal
    ratings = np.array([x.candidate_ratings for x in seen], dtype=np.float64)[:, fixed]
    low, span = ratings.min(axis=1, keepdims=True), np.ptp(ratings, axis=1, keepdims=True)
    shades = np.rint(255 * (ratings - low) / np.where(span > 0, span, 1)).astype(np.uint8)
    required = required_votes(replay.record.k or shield.k, shield.config.k_max, len(memory))
    every = -(-len(memory) // _MEMORY)
    return {
        "candidates": _plane(candidates[0][fixed]),
        "votes": np.array([x.candidate_safe_neighbours for x in seen], np.uint8)[:, fixed],
        "ratings": shades,
        "ratingRange": np.hstack((low, low + span)),
        "latentProposed": _plane(np.array([x.latent for x in seen])),
        "latentExecuted": _plane(executed),
        "neighbours": _plane(memory[np.array([x.verdict.neighbours for x in seen])]),
        "neighboursSafe": np.array([x.neighbour_safe for x in seen]),
        "ownVotes": np.array([x.verdict.safe_neighbours for x in seen], np.uint8),
        "noSafe": np.array([x.verdict.no_safe_action for x in seen]),
        "memory": _plane(memory[::every]),
        "memorySafe": memory_safe[::every],
        "required": np.array([required], np.uint8),
    }


def _jpegs(frames: list[Array]) -> list[str]:
    """Some of the frames, evenly spaced, as data addresses of small pictures."""
    found = []
    for frame in frames[:: -(-len(frames) // _FRAMES)]:
        picture, stream = Image.fromarray(frame), io.BytesIO()
        picture.thumbnail((_FRAME_WIDTH, _FRAME_WIDTH))
        picture.save(stream, "JPEG", quality=72)
        found.append("data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode())
    return found


def _plane(points: Array) -> Array:
    """The first two numbers along the last axis; a missing second one is 0."""
    return np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, 1)])[..., :2]


def _packed(array: Array) -> dict[str, Any]:
    """An array as its type, shape and base64 bytes: flags and counts as u1, numbers as f4."""
    kind = "u1" if array.dtype in (np.uint8, np.bool_) else "f4"
    data = base64.b64encode(array.astype(f"<{kind}").tobytes()).decode("ascii")
    return {"type": kind, "shape": list(array.shape), "data": data}
