"""`advice replay`: one episode as a page to play and to step through."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from advice.reports.maps import KIND_COLOURS, outcome
from advice.reports.page import render
from advice.reports.style import method_label
from advice.runs.records import RunFolder
from advice.runs.resimulate import (
    Choice,
    Counterfactual,
    Replay,
    choose_episode,
    counterfactuals,
    film,
    final_critic,
    resimulate,
    save_film,
)
from advice.shields.cautiousness import required_votes
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
    notes: list[str]


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
    config = folder.read_config()
    episode = choose_episode(folder, choice)
    replay = resimulate(folder, episode)
    found = counterfactuals(folder, replay, horizon) if counterfactual else None
    shield, notes = _shield_view(folder, replay)
    frames = []
    if replay.poses is None:
        try:
            frames = _jpegs(film(folder, replay))
        except Exception as error:  # whatever a foreign environment raises where it cannot draw
            notes.append(f"There are no frames of this environment: {error}")
    record = replay.record
    data = {
        "arrays": {name: _packed(array) for name, array in (_arrays(replay) | shield).items()},
        "layout": {kind: places.tolist() for kind, places in replay.layout.items()},
        "sizes": replay.sizes,
        "colours": KIND_COLOURS | {"target": KIND_COLOURS["goal"]},
        "lidars": list(replay.lidars),
        "bins": replay.bins,
        "kMax": config.shield.k_max,
        "armed": record.k > 0,
        "counterfactuals": [list(item) for item in found or []],
        "horizon": horizon if found is not None else 0,
        "fps": replay.fps,
        "frames": frames,
    }
    facts = [
        ("task", config.task),
        ("method", method_label(config.method)),
        ("seed", config.seed),
        ("episode", f"{episode} of {len(folder.read_episodes())}"),
        ("ended with", outcome(replay)),
        ("steps", record.steps),
        ("return", f"{record.episode_return:.3f}"),
        ("cost", f"{record.cost:.2f}"),
        ("interventions", int(replay.intervened.sum())),
        ("K", record.k or "not armed"),
    ]
    if found is not None:
        facts.append((f"needed within {horizon} steps", needed_in_words(found)))
    page = Path(out)
    page.parent.mkdir(parents=True, exist_ok=True)
    text = render(
        "replay.html.j2",
        {
            "title": f"{method_label(config.method)} on {config.task}, episode {episode}",
            "facts": facts,
            "notes": notes,
            # "</" inside a script element would end it.
            "data": Markup(json.dumps(data, separators=(",", ":")).replace("</", "<\\/")),
            "has_car": replay.poses is not None,
            "has_frames": bool(frames),
            "has_lidar": replay.bins > 0,
            "action_size": replay.executed.shape[1],
            "has_shield": bool(shield),
        },
    )
    page.write_text(text, encoding="utf-8")
    if video:
        save_film(folder, replay, video)
    return ReplayReport(page, episode, int(replay.intervened.sum()), found, notes)


def needed_in_words(found: list[Counterfactual]) -> str:
    """How many interventions were needed."""
    needed = [item for item in found if item.needed]
    failed = sum(item.harmed_anyway for item in needed)
    words = f"{len(needed)} of {len(found)} interventions"
    return words + (f", of which {failed} did not prevent it" if failed else "")


def _arrays(replay: Replay) -> dict[str, Array]:
    """The episode itself."""
    flags = ("violations", "successes", "intervened")
    numbers = ("proposed", "executed", "rewards", "costs")
    observations = replay.observations.reshape(len(replay.observations), -1)
    arrays: dict[str, Array] = {"observations": observations.astype("<f4")}
    arrays |= {name: getattr(replay, name).astype("<f4") for name in numbers}
    arrays |= {name: getattr(replay, name).astype(np.uint8) for name in flags}
    if replay.poses is not None:
        arrays["poses"] = replay.poses.astype("<f4")
    return arrays


def _shield_view(folder: RunFolder, replay: Replay) -> tuple[dict[str, Array], list[str]]:
    """Per step what the shield saw: votes and ratings of the fixed candidates, latent space."""
    if not folder.shield_file.exists():
        return {}, ["This run has no fitted shield, so there is no action map and no latent space."]
    from advice import Shield

    try:
        shield = Shield.load(folder.shield_file)
    except BrokenFileError as error:
        return {}, [f"The shield cannot be shown: {error}"]
    notes = ["The maps show the shield as the run left it; it may be fitted anew in a run."]
    if replay.record.k == 0:
        notes = [
            "The shield was not armed in this episode: the maps show what it would have said, with "
            f"K = {shield.k} as at the end of the run."
        ]
    rate = final_critic(folder)
    if rate is None:
        notes.append("The run has no checkpoint: actions are rated by nearness to the proposal.")
    else:
        notes.append("Ratings are those of the critic as the run left it.")
    return _explained(shield, replay, rate), notes


def _explained(shield: Any, replay: Replay, rate: RateActions | None) -> dict[str, Array]:
    candidates, votes, ratings, latent, done, neighbours, safe, own, stuck = ([] for _ in range(9))
    for obs, proposed, executed in zip(
        replay.observations[:-1], replay.proposed, replay.executed, strict=True
    ):
        seen = shield.explain(obs, proposed, rate)
        candidates.append(seen.candidates.reshape(len(seen.candidates), -1))
        votes.append(seen.candidate_safe_neighbours)
        ratings.append(seen.candidate_ratings)
        latent.append(seen.latent)
        changed = (proposed != executed).any()
        done.append(shield.explain(obs, executed).latent if changed else seen.latent)
        neighbours.append(seen.memory[seen.verdict.neighbours])
        safe.append(seen.neighbour_safe)
        own.append(seen.verdict.safe_neighbours)
        stuck.append(seen.verdict.no_safe_action)
    step = -(-len(seen.memory) // _MEMORY)
    fixed = (np.array(candidates) == candidates[0]).all(axis=(0, 2))  # others follow the proposal
    flat = np.array(ratings, dtype=np.float64)[:, fixed]
    low, span = flat.min(axis=1, keepdims=True), np.ptp(flat, axis=1, keepdims=True)
    shades = np.rint(255 * (flat - low) / np.where(span > 0, span, 1)).astype(np.uint8)
    required = required_votes(replay.record.k or shield.k, shield.config.k_max, len(seen.memory))
    return {
        "candidates": _plane(candidates[0][fixed]),
        "votes": np.array(votes, dtype=np.uint8)[:, fixed],
        "ratings": shades,
        "ratingRange": np.hstack((low, low + span)).astype("<f4"),
        "latentProposed": _plane(np.array(latent)),
        "latentExecuted": _plane(np.array(done)),
        "neighbours": _plane(np.array(neighbours)),
        "neighboursSafe": np.array(safe, dtype=np.uint8),
        "ownVotes": np.array(own, dtype=np.uint8),
        "noSafe": np.array(stuck, dtype=np.uint8),
        "memory": _plane(seen.memory[::step]),
        "memorySafe": seen.memory_safe[::step].astype(np.uint8),
        "required": np.array([required], dtype=np.uint8),
    }


def _jpegs(frames: list[Array]) -> list[str]:
    """Some of the frames, evenly spaced, as data addresses of small pictures."""
    from PIL import Image

    found = []
    for frame in frames[:: -(-len(frames) // _FRAMES)]:
        picture = Image.fromarray(frame)
        picture.thumbnail((_FRAME_WIDTH, _FRAME_WIDTH))
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=72)
        found.append("data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode())
    return found


def _plane(points: Array) -> Array:
    """The first two numbers along the last axis, float32; a missing second one is 0."""
    flat = points[..., :2].astype("<f4")
    if flat.shape[-1] == 1:
        flat = np.concatenate((flat, np.zeros_like(flat)), axis=-1)
    return np.asarray(flat)


def _packed(array: Array) -> dict[str, Any]:
    """An array as its type, shape and base64 bytes."""
    kind = "u1" if array.dtype == np.uint8 else "f4"
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"type": kind, "shape": list(array.shape), "data": data}
