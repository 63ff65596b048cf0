"""Why the shield decided as it did: a table, and a plot of actions and latent space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advice.shields.encoder import Floats
from advice.shields.rules import Rule
from advice.types import Array, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN = 10  # candidates a table shows
_DOTS = 5000  # remembered features a picture shows
_REASONS = {
    "forbidden": " because a rule forbids it",
    "allowed": " because a rule allows it",
    "far": " because it is far from all data",
    "risk": " because its risk exceeds the calibrated limit",
}
_SAFE, _UNSAFE = "#2b7bba", "#c8452d"


@dataclass(frozen=True)
class Explanation:
    """One decision with everything it was based on."""

    proposal: Any
    verdict: Verdict
    k: int
    required: int
    """Safe neighbours that were asked for (K, or its share while there are few features)."""
    neighbour_safe: NDArray[np.bool_]
    """Of the proposal's neighbours (in ``verdict``), nearest first."""
    latent: Floats
    """(latent,) where the proposal lies."""
    candidates: Array
    """(C, ...) the alternatives."""
    candidate_safe_neighbours: NDArray[np.int64]
    candidate_passes: NDArray[np.bool_]
    """(C,) which of them are safe, rules and the other checks included."""
    candidate_ratings: Floats
    """The agent's, or else minus the distance to the proposal."""
    memory: Floats
    """(N, latent) the remembered features."""
    memory_safe: NDArray[np.bool_]
    rule: Rule | None = None
    """The rule that decides on the proposal."""
    own_fallback: bool = False
    """Where nothing is safe, a function of the user decides."""

    @property
    def decision(self) -> str:
        """In words."""
        verdict = self.verdict
        why = _REASONS.get(verdict.reason, "")
        if verdict.fallback:
            by = "your own fallback" if self.own_fallback else "the least risky"
            end = f"replaced by {by}" if verdict.intervened else "executed anyway"
            none = "no candidate is safe" if verdict.no_safe_action else "left to the fallback"
            return f"refused{why}, {none}, {end}"
        return ("replaced" if verdict.intervened else "endorsed") + why

    def __str__(self) -> str:
        neighbours, distances = self.verdict.neighbours, self.verdict.distances
        assert neighbours is not None  # guard was asked for details
        assert distances is not None
        voters = len(self.neighbour_safe)
        lines = [
            f"proposed {_brief(self.proposal)}: {self.decision}",
            f"executed {_brief(self.verdict.action)}",
            f"safe neighbours {self.verdict.safe_neighbours} of {voters}, needed {self.required} "
            f"(K = {self.k})",
            *([] if self.rule is None else [str(self.rule)]),
            "",
            "neighbour     index    distance  label",
        ]
        rows = zip(neighbours, distances, self.neighbour_safe, strict=True)
        lines += [
            f"{rank:>9} {index:>9} {distance:>11.4g}  {'safe' if safe else 'unsafe'}"
            for rank, (index, distance, safe) in enumerate(rows, start=1)
        ]
        good = self.candidate_passes
        # The safe ones as they are rated; where there are none, the least risky first.
        risk = ~good if good.any() else -self.candidate_safe_neighbours
        order = np.lexsort((-self.candidate_ratings, risk))
        lines += [
            "",
            f"{int(good.sum())} of {len(good)} candidates are safe"
            + (f"; the first {_SHOWN}:" if len(good) > _SHOWN else ":"),
            "   safe neighbours      rating  action",
        ]
        lines += [
            f"{'*' if good[i] else ' '}  {self.candidate_safe_neighbours[i]:>15} "
            f"{self.candidate_ratings[i]:>11.4g}  {_brief(self.candidates[i])}"
            for i in order[:_SHOWN]
        ]
        return "\n".join(lines)

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw the action map beside the latent map; written to ``path`` if given."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 5), layout="constrained")
        actions, latent = figure.subplots(1, 2)
        self._draw_actions(figure, actions)
        self._draw_latent(latent)
        figure.suptitle(
            f"{self.decision}: {self.verdict.safe_neighbours} safe neighbours, "
            f"{self.required} needed"
        )
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def _draw_actions(self, figure: Figure, axes: Axes) -> None:
        x, y = _plane(self.candidates)
        votes = axes.scatter(
            x,
            y,
            c=self.candidate_safe_neighbours,
            cmap="RdYlBu",
            vmin=0,
            vmax=len(self.neighbour_safe),
            marker="s",
            s=40,
        )
        figure.colorbar(votes, ax=axes, label="safe neighbours")
        for action, marker, name in (
            (self.proposal, "x", "proposed"),
            (self.verdict.action, "+", "executed"),
        ):
            axes.scatter(
                *_plane(np.asarray(action)[None]), c="black", marker=marker, s=120, label=name
            )
        axes.set(title="Candidate actions", xlabel="action 0", ylabel="action 1")
        axes.legend(loc="upper right")

    def _draw_latent(self, axes: Axes) -> None:
        step = -(-len(self.memory) // _DOTS)
        points, safe = self.memory[::step], self.memory_safe[::step]
        for kind, colour, name in ((safe, _SAFE, "safe"), (~safe, _UNSAFE, "unsafe")):
            axes.scatter(*_plane(points[kind]), s=8, c=colour, alpha=0.5, label=name)
        axes.scatter(
            *_plane(self.memory[self.verdict.neighbours]),
            s=70,
            facecolors="none",
            edgecolors="black",
            label="neighbours",
        )
        axes.scatter(*_plane(self.latent[None]), marker="x", s=120, c="black", label="proposed")
        axes.set(title="Latent space", xlabel="latent 0", ylabel="latent 1")
        axes.legend(loc="upper right")


def _plane(rows: Array) -> tuple[Array, Array]:
    """The first two numbers of each row (the second is 0 where there is one)."""
    flat = rows.reshape(len(rows), -1)
    return flat[:, 0], flat[:, 1] if flat.shape[1] > 1 else np.zeros(len(flat))


def _brief(action: Any) -> str:
    return np.array2string(np.asarray(action), precision=3, threshold=8, separator=", ")
