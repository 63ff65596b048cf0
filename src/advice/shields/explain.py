"""Why the shield decided as it did: a table, and a plot of actions and latent space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advice.shields.checks import Rule, brief
from advice.shields.spaces import Bools, Floats, Ints
from advice.types import Array, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN, _DOTS = 10, 5000  # candidates a table shows, remembered features a picture shows
_REASONS = {
    "": "",
    "forbidden": " because a rule forbids it",
    "allowed": " because a rule allows it",
    "far": " because it is far from all data",
    "risk": " because its risk exceeds the calibrated limit",
}


@dataclass(frozen=True)
class Explanation:
    """One decision with everything it was based on."""

    proposal: Any
    verdict: Verdict
    k: int
    required: int  # safe neighbours asked for: K, or its share while there are few features
    neighbour_safe: Bools  # of the proposal's neighbours, nearest first
    latent: Floats  # (latent,) where the proposal lies
    candidates: Array  # (C, ...) the alternatives
    candidate_safe_neighbours: Ints
    candidate_passes: Bools  # (C,) the safe ones, rules and other checks included
    candidate_ratings: Floats  # the agent's, or else minus the distance to the proposal
    memory: Floats  # (N, latent) the remembered features
    memory_safe: Bools
    rule: Rule | None = None  # the one that decides on the proposal
    own_fallback: bool = False  # where nothing is safe, a function of the user decides

    @property
    def decision(self) -> str:
        """In words."""
        verdict, why = self.verdict, _REASONS[self.verdict.reason]
        if not verdict.fallback:
            return ("replaced" if verdict.intervened else "endorsed") + why
        by = "your own fallback" if self.own_fallback else "the least risky"
        end = f"replaced by {by}" if verdict.intervened else "executed anyway"
        none = "no candidate is safe" if verdict.no_safe_action else "left to the fallback"
        return f"refused{why}, {none}, {end}"

    def __str__(self) -> str:
        verdict, votes, good = self.verdict, self.candidate_safe_neighbours, self.candidate_passes
        neighbours, distances = np.array(verdict.neighbours), np.array(verdict.distances)
        # the safe ones as they are rated; where there are none, the least risky first
        order = np.lexsort((-self.candidate_ratings, ~good if good.any() else -votes))
        shown = f"; the first {_SHOWN}:" if len(good) > _SHOWN else ":"
        lines = [
            f"proposed {brief(self.proposal)}: {self.decision}",
            f"executed {brief(verdict.action)}",
            f"safe neighbours {verdict.safe_neighbours} of {len(self.neighbour_safe)}, "
            f"needed {self.required} (K = {self.k})",
            *([str(self.rule)] if self.rule else []),
            "",
            "neighbour     index    distance  label",
            *(
                f"{i + 1:>9} {neighbours[i]:>9} {distances[i]:>11.4g}  {'' if safe else 'un'}safe"
                for i, safe in enumerate(self.neighbour_safe)
            ),
            "",
            f"{good.sum()} of {len(good)} candidates are safe{shown}",
            "   safe neighbours      rating  action",
            *(
                f"{'*' if good[i] else ' '}  {votes[i]:>15} {self.candidate_ratings[i]:>11.4g}  "
                + brief(self.candidates[i])
                for i in order[:_SHOWN]
            ),
        ]
        return "\n".join(lines)

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw the action map beside the latent map; written to ``path`` if given."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 5), layout="constrained")
        figure.suptitle(self.decision)
        actions, latent = figure.subplots(1, 2)
        colours = {"c": self.candidate_safe_neighbours, "cmap": "RdYlBu"}
        limits = {"vmin": 0, "vmax": len(self.neighbour_safe)}
        votes = actions.scatter(*_plane(self.candidates), marker="s", s=40, **colours, **limits)
        figure.colorbar(votes, ax=actions, label="safe neighbours")
        chosen = ((self.proposal, "x", "proposed"), (self.verdict.action, "+", "executed"))
        for action, marker, name in chosen:
            point = _plane(np.asarray(action)[None])
            actions.scatter(*point, c="black", marker=marker, s=120, label=name)
        step = -(-len(self.memory) // _DOTS)
        points, safe = self.memory[::step], self.memory_safe[::step]
        for kind, colour, name in ((safe, "#2b7bba", "safe"), (~safe, "#c8452d", "unsafe")):
            latent.scatter(*_plane(points[kind]), s=8, c=colour, alpha=0.5, label=name)
        ring = {"facecolors": "none", "edgecolors": "black", "label": "neighbours"}
        latent.scatter(*_plane(self.memory[self.verdict.neighbours]), s=70, **ring)
        latent.scatter(*_plane(self.latent[None]), marker="x", s=120, c="black", label="proposed")
        actions.set(title="Candidate actions", xlabel="action 0", ylabel="action 1")
        latent.set(title="Latent space", xlabel="latent 0", ylabel="latent 1")
        for axes in (actions, latent):
            axes.legend(loc="upper right")
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


def _plane(rows: Array) -> tuple[Array, Array]:
    """The first two numbers of each row (the second is 0 where there is one)."""
    flat = rows.reshape(len(rows), -1)
    return flat[:, 0], flat[:, 1] if flat.shape[1] > 1 else np.zeros(len(flat))
