"""`advice demo`: DDPG and ADVICE from the same starts: a table, a figure, a video, a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.config import AgentConfig, EnvConfig, ShieldConfig, TrainConfig
from advice.display import PairDisplay
from advice.reports.plots import canvas
from advice.reports.style import METHOD_LOOKS, method_label
from advice.runs.engines import run_local
from advice.runs.evaluate import write_video
from advice.runs.grid import Cell, status_of, write_grid
from advice.runs.records import RunFolder
from advice.runs.resimulate import Replay, film, resimulate
from advice.shields.shield import Shield
from advice.types import AdviceError, Array, EpisodeRecord

FILMED = 5
"""The first so many episodes after arming are filmed."""
MAX_STEPS = 250
HIDDEN = 64
"""Width of the agents' layers: small ones learn this task too, in a third of the time."""
_EVERY = 2  # steps per frame
_LAST = 18  # frames of a caption's last picture
_INK, _GROUND = (32, 38, 46), (250, 250, 247)
_COLOURS = {"goal": (28, 124, 80), "crash": (192, 40, 50), "time is up": (110, 116, 124)}
_REPLACED = (213, 94, 0)


class Pair(NamedTuple):
    """The two runs, from the records, split where the shield was armed."""

    plain: list[EpisodeRecord]
    shielded: list[EpisodeRecord]
    armed_after: int
    """Episodes before arming; all of them if it never was."""

    @property
    def after(self) -> tuple[list[EpisodeRecord], list[EpisodeRecord]]:
        return self.plain[self.armed_after :], self.shielded[self.armed_after :]


def demo_cells(
    out: Path, task: str, seed: int, episodes: int, construction_episodes: int
) -> list[Cell]:
    """The same run twice: without and with the shield."""
    if episodes <= construction_episodes:
        raise AdviceError(
            f"expected more --episodes than the {construction_episodes} after which the shield is "
            f"armed at the latest (--construction-episodes), found {episodes}"
        )
    configs = [
        TrainConfig(
            *(task, method, seed, episodes),
            shield=ShieldConfig(construction_episodes=construction_episodes),
            agent=AgentConfig(hidden_size=HIDDEN),
            env=EnvConfig(max_episode_steps=MAX_STEPS),
        )
        for method in ("ddpg", "advice")
    ]
    # the user has just named the task, so that running its code is no surprise
    paths = [RunFolder.of(out / "runs", config).path for config in configs]
    pairs = zip(configs, paths, strict=True)
    return [Cell(config, RunFolder(path, trust_task=True)) for config, path in pairs]


def run_demo(cells: list[Cell], out: Path, console: Any, say: Callable[[str], None]) -> bool:
    """Train and show; False if it was interrupted."""
    began = time.monotonic()
    write_grid(out, cells)
    with PairDisplay(console, cells) as display:
        outcome = run_local(cells, display.update)
    for cell in outcome.failed:
        raise AdviceError(f"{cell.name} failed: {status_of(cell).reason or 'see its log.txt'}")
    if outcome.stopped:
        return False
    pair = read_pair(cells)
    trained = time.monotonic()
    if cells[1].folder.shield_file.exists():
        audit = Shield.load(cells[1].folder.shield_file).audit()
        say(f"The shield was armed after episode {pair.armed_after}; at the end {audit.line}.")
    from advice.printing import print_table

    print_table(TITLES, demo_rows(pair))
    for line in conclusion(pair):
        say(line)
    draw(pair, out / "demo.png")
    say(f"figure  {out / 'demo.png'}")
    _show_film(cells, pair, out / "demo.mp4", say)
    from advice.reports.page import write_report

    report = write_report([out / "runs"], out / "report", trust_task=True)
    say(f"report  {report.page}")
    done = time.monotonic()
    say(f"training took {trained - began:.0f} s, the rest {done - trained:.0f} s")
    run = cells[1].folder.path
    say("To go on:")
    say(f"  advice replay {run} --out {out / 'replay.html'}   # one episode, step by step")
    say(f"  advice inspect {run}   # how good is the shield?")
    say(f"  advice train --task {cells[1].config.task} --episodes 2000   # a real training")
    return True


def read_pair(cells: Sequence[Cell]) -> Pair:
    """The records of both runs."""
    plain, shielded = (cell.folder.read_episodes() for cell in cells)
    armed = (record.episode - 1 for record in shielded if record.k > 0)
    return Pair(plain, shielded, next(armed, len(shielded)))


TITLES = ("", "episodes", "violations", "goals", "neither", "mean steps", "replaced actions")


def demo_rows(pair: Pair) -> list[tuple[str, ...]]:
    """Counts from the records: before arming (both runs are the same there) and after it."""
    split = pair.armed_after
    rows = [_row("before arming, both the same", pair.shielded[:split])]
    if any(a[:-1] != b[:-1] for a, b in zip(pair.plain[:split], pair.shielded, strict=False)):
        rows = [
            _row("before arming, DDPG", pair.plain[:split]),
            _row("before arming, ADVICE", pair.shielded[:split]),
        ]
    for name, part in zip(("DDPG", "ADVICE"), pair.after, strict=True):
        if part:
            rows.append(_row(f"after arming, {name}", part))
    return rows


def _row(name: str, part: Sequence[EpisodeRecord]) -> tuple[str, ...]:
    if not part:
        return (name, "none", *("-" for _ in TITLES[2:]))
    violations, goals = sum(r.violation for r in part), sum(r.success for r in part)
    steps = sum(r.steps for r in part)
    return (
        name,
        f"{part[0].episode}-{part[-1].episode}",
        str(violations),
        str(goals),
        str(sum(not (r.violation or r.success) for r in part)),
        f"{steps / len(part):.0f}",
        f"{sum(r.interventions for r in part) / steps:.0%}",
    )


def conclusion(pair: Pair) -> list[str]:
    """What was measured, in words."""
    plain, shielded = pair.after
    if not shielded:
        return ["The shield was not armed in this run, so there is nothing to compare."]
    mine, other = sum(r.violation for r in shielded), sum(r.violation for r in plain)
    goals, others = sum(r.success for r in shielded), sum(r.success for r in plain)
    share = f" ({mine / other:.2f} times as many)" if other else ""
    return [
        f"In the {len(shielded)} episodes after arming, from the same starts: ADVICE {mine} "
        f"violations, DDPG {other}{share}; ADVICE {goals} goals, DDPG {others}.",
        "One seed of one short training: it shows how ADVICE works, not how well in general.",
    ]


def draw(pair: Pair, path: Path) -> None:
    """Plot violations and goals of both methods, counted from arming on."""
    counted = {"violation": "violations", "success": "goals reached"}
    with canvas(1, 2, (10, 3.8)) as (figure, axes):
        for axis, (what, title) in zip(axes, counted.items(), strict=True):
            curves = {
                method: [0, *np.cumsum([getattr(record, what) for record in part])]
                for method, part in zip(("ddpg", "advice"), pair.after, strict=True)
            }
            height = max(1, *(curve[-1] for curve in curves.values()))
            apart = curves["advice"][-1] - curves["ddpg"][-1]
            for method, curve in curves.items():
                colour, dash, width = METHOD_LOOKS[method]
                axis.plot(curve, color=colour, ls=dash, lw=width)
                up = method == ("advice" if apart >= 0 else "ddpg")
                align = "center" if abs(apart) > 0.08 * height else "bottom" if up else "top"
                label = f" {method_label(method)} {curve[-1]}"
                axis.annotate(label, (len(curve) - 1, curve[-1]), color=colour, va=align)
            axis.set(title=f"{title} since the shield was armed", xlabel="episodes since then")
            axis.set_ylim(0, 1.08 * height)
            axis.margins(x=0)
        figure.savefig(path, dpi=130, facecolor="white")


# ---- the video


def _show_film(cells: Sequence[Cell], pair: Pair, path: Path, say: Callable[[str], None]) -> None:
    first = pair.armed_after + 1
    filmed = range(first, min(first + FILMED, len(pair.shielded) + 1))
    if not filmed:
        return
    try:
        write_video(path, side_by_side([cell.folder for cell in cells], filmed))
    except Exception as error:  # the environment cannot render, or ffmpeg is not there
        say(f"no video: {error}")
    else:
        chosen = f"the first {len(filmed)} episodes after arming, whatever happens in them"
        say(f"video   {path}   ({chosen}; left DDPG, right ADVICE, twice as fast as real time)")


def side_by_side(folders: Sequence[RunFolder], episodes: Sequence[int]) -> list[Array]:
    """Frames of the same episodes of two runs beside each other, with captions."""
    frames: list[Array] = []
    for number, episode in enumerate(episodes, 1):
        name = f"episode {episode} ({number} of {len(episodes)})"
        halves = [
            _captioned(folder, resimulate(folder, episode), f"{title}, {name}")
            for folder, title in zip(folders, ("DDPG", "ADVICE"), strict=True)
        ]
        length = max(map(len, halves)) + _LAST
        padded = [half + [half[-1]] * (length - len(half)) for half in halves]
        gap = np.full((len(padded[0][0]), 16, 3), _GROUND, np.uint8)
        frames += [np.hstack((left, gap, right)) for left, right in zip(*padded, strict=True)]
    return frames


def _captioned(folder: RunFolder, replay: Replay, title: str) -> list[Array]:
    """One episode's frames, each with the title above and what happens below."""
    from PIL import Image, ImageDraw, ImageFont

    pictures = film(folder, replay, _EVERY)
    height, width, _ = pictures[0].shape
    strip, font = max(24, width // 12), ImageFont.load_default(max(12, width // 24))
    otherwise = "goal" if replay.successes.any() else "time is up"
    end = "crash" if replay.violations.any() else otherwise
    frames = []
    for number, picture in enumerate(pictures):
        steps = slice(max(0, (number - 1) * _EVERY), number * _EVERY)
        words, colour = "", _INK
        if number == len(pictures) - 1:
            words, colour = end, _COLOURS[end]
        elif replay.intervened[steps].any():
            words, colour = "shield replaced the action", _REPLACED
        canvas = Image.new("RGB", (width, height + 2 * strip), _GROUND)
        canvas.paste(Image.fromarray(picture), (0, strip))
        pen = ImageDraw.Draw(canvas)
        pen.text((10, strip // 2), title, _INK, font, "lm")
        if words:
            pen.rectangle((0, height + strip, width, height + 2 * strip), colour)
            pen.text((width // 2, height + strip + strip // 2), words, "white", font, "mm")
        frames.append(np.asarray(canvas))
    return frames
