"""`advice replay`: one episode as a page to play and to step through."""

from __future__ import annotations

import base64
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
    final_critic,
    resimulate,
    save_film,
)
from advice.shields.cautiousness import required_votes
from advice.types import Array, BrokenFileError, RateActions

_MEMORY = 4000  # remembered features shown in the latent space


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
    choice: Choice | int = "worst",
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
    record = replay.record
    data = {
        "arrays": {name: _packed(array) for name, array in (_arrays(replay) | shield).items()},
        "layout": {kind: places.tolist() for kind, places in replay.layout.items()},
        "sizes": replay.sizes,
        "colours": KIND_COLOURS | {"target": KIND_COLOURS["goal"]},
        "lidars": list(replay.lidars),
        "bins": replay.bins,
        "kMax": config.shield.k_max,
        "counterfactuals": [list(item) for item in found or []],
        "horizon": horizon if found is not None else 0,
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
            "has_lidar": replay.bins > 0,
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
    notes = []
    if replay.record.k == 0:
        notes.append(
            "The shield was not armed in this episode: the maps show what it would have said, with "
            f"K = {shield.k} as at the end of the run."
        )
    rate = final_critic(folder)
    if rate is None:
        notes.append("The run has no checkpoint: actions are rated by nearness to the proposal.")
    else:
        notes.append("Ratings are those of the critic as the run left it.")
    return _explained(shield, replay, rate), notes


def _explained(shield: Any, replay: Replay, rate: RateActions | None) -> dict[str, Array]:
    candidates, votes, ratings, latent, done, neighbours, safe, own = ([] for _ in range(8))
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
        "memory": _plane(seen.memory[::step]),
        "memorySafe": seen.memory_safe[::step].astype(np.uint8),
        "required": np.array([required], dtype=np.uint8),
    }


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
