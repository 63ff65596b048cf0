"""`advice demo`: DDPG and ADVICE from the same starts: a table, a figure, a video, a report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advice.config import AgentConfig, EnvConfig, ShieldConfig, TrainConfig
from advice.display import GridDisplay
from advice.printing import print_table, say
from advice.reports.load import Run, read_run
from advice.reports.page import write_report
from advice.reports.shields import outcome
from advice.runs.engines import run_local
from advice.runs.evaluate import write_video
from advice.runs.grid import Cell, status_of
from advice.runs.records import RunFolder
from advice.runs.resimulate import Replay, film, resimulate
from advice.runs.studies import for_task
from advice.shields.shield import Shield
from advice.types import AdviceError, Array

NAMES = ("DDPG", "ADVICE")
TITLES = ("", "episodes", "violations", "goals", "neither", "mean steps", "replaced actions")
FILMED = 5  # episodes, the first after arming
_EVERY = 3  # steps per frame
_LAST = 18  # frames of a caption's last picture
_COLOURS = {  # of a caption, by what happens
    **{"": "#20262e", "shield replaced the action": "#d55e00", "goal": "#1c7c50"},
    **{"crash": "#c02832", "time is up": "#6e747c", "with cost": "#6e747c"},
}


def demo_cells(
    out: Path, task: str, seed: int, episodes: int, construction_episodes: int
) -> list[Cell]:
    """The same run twice: without and with the shield. Small networks learn this task too."""
    if episodes <= construction_episodes:
        raise AdviceError(
            f"expected more --episodes than the {construction_episodes} after which the shield is "
            f"armed at the latest (--construction-episodes), found {episodes}"
        )
    cells = []
    for method in ("ddpg", "advice"):
        config = TrainConfig(
            *(task, method, seed, episodes),
            shield=ShieldConfig(construction_episodes=construction_episodes),
            agent=AgentConfig(hidden_size=64),
            env=EnvConfig(max_episode_steps=400),
        )
        config = for_task(config)
        # the user has just named the task, so that running its code is no surprise
        path = RunFolder.of(out / "runs", config).path
        cells.append(Cell(config, RunFolder(path, trust_task=True)))
    return cells


def run_demo(cells: list[Cell], out: Path) -> bool:
    """Train and show; False if it was interrupted."""
    began = time.monotonic()
    with GridDisplay(cells, 2) as display:
        done = run_local(cells, display.update)
    for cell in done.failed:
        raise AdviceError(f"{cell.name} failed: {status_of(cell).reason or 'see its log.txt'}")
    if done.stopped:
        return False
    trained = time.monotonic()
    folders = [cell.folder for cell in cells]
    runs = [read_run(folder) for folder in folders]
    armed, last = runs[1].armed_after, len(runs[1].table)
    if folders[1].shield_file.exists():
        audit = Shield.load(folders[1].shield_file).audit()
        say(f"The shield was armed after episode {armed}; at the end {audit.line}.")
    parts = {"before": slice(armed), "after": slice(armed, None)}
    rows = [
        (f"{when} arming, {name}", *counts(run, part))
        for when, part in parts.items()
        for name, run in zip(NAMES, runs, strict=True)
        if len(run.table[part])
    ]
    print_table(TITLES, rows)
    say("One seed of one short training: it shows how ADVICE works, not how well in general.")
    if filmed := range(armed + 1, min(armed + FILMED, last) + 1):
        say("making the video")
        try:
            write_video(out / "demo.mp4", side_by_side(folders, filmed))
            say(
                f"video   {out / 'demo.mp4'}   (the first {len(filmed)} episodes after arming, "
                "whatever happens in them; left DDPG, right ADVICE, three times real time)"
            )
        except Exception as error:  # the environment cannot render, or ffmpeg is not there
            say(f"no video: {error}")
    else:
        say("The shield was not armed in this run, so there is nothing to compare.")
    say("making the report")
    report = write_report([out / "runs"], out / "report", trust_task=True)
    figures = sorted(report.page.parent.glob("figures/*-overview-*.png"))  # -after, -full
    shutil.copyfile(figures[0], out / "demo.png")
    took, run = (trained - began, time.monotonic() - trained), folders[1].path
    say(
        f"figure  {out / 'demo.png'}\nreport  {report.page}\n"
        f"training took {took[0]:.0f} s, the rest {took[1]:.0f} s\nTo go on:\n"
        f"  advice replay {run} --out {out / 'replay.html'}   # one episode, step by step\n"
        f"  advice inspect {run}   # how good is the shield?\n"
        f"  advice train --task {cells[1].config.task} --episodes 2000   # a real training"
    )
    return True


def counts(run: Run, part: slice) -> tuple[str, ...]:
    """A row of the table: what happened in a part of a run."""
    columns = ("violation", "success", "timeout", "steps", "interventions")
    violations, goals, neither, steps, replaced = (run.column(x)[part].sum() for x in columns)
    episodes = run.column("episode")[part]
    return (
        f"{episodes[0]:.0f}-{episodes[-1]:.0f}",
        *(f"{count:.0f}" for count in (violations, goals, neither, steps / len(episodes))),
        f"{replaced / steps:.0%}",
    )


def side_by_side(folders: Sequence[RunFolder], episodes: Sequence[int]) -> list[Array]:
    """Frames of the same episodes of two runs beside each other, with captions."""
    frames: list[Array] = []
    for episode in episodes:
        replays = [resimulate(folder, episode) for folder in folders]
        view = max(replay.farthest for replay in replays)
        runs = zip(folders, NAMES, replays, strict=True)
        halves = [_captioned(*run, view) for run in runs]
        length = max(map(len, halves)) + _LAST
        padded = [half + [half[-1]] * (length - len(half)) for half in halves]
        frames += [np.hstack(pair) for pair in zip(*padded, strict=True)]
    return frames


def _captioned(folder: RunFolder, name: str, replay: Replay, view: float) -> list[Array]:
    """One episode's frames, each with a strip above that says what happens."""
    from PIL import Image, ImageDraw, ImageFont

    pictures = film(folder, replay, _EVERY, view)
    height, width, _ = pictures[0].shape
    strip, font = max(24, width // 12), ImageFont.load_default(max(12, width // 24))
    strip += -(height + strip) % 16  # what video codecs take
    frames = []
    for number, picture in enumerate(pictures):
        steps = slice(max(0, (number - 1) * _EVERY), number * _EVERY)
        event = "shield replaced the action" if replay.intervened[steps].any() else ""
        if number == len(pictures) - 1:
            event = {"violation": "crash", "success": "goal"}.get(end := outcome(replay), end)
        image = Image.new("RGB", (width + 16, height + strip), "white")
        image.paste(Image.fromarray(picture), (8, strip))
        pen = ImageDraw.Draw(image)
        pen.rectangle((8, 0, width + 7, strip), _COLOURS[event])
        caption = f"{name}, episode {replay.record.episode}" + (f": {event}" if event else "")
        pen.text((18, strip // 2), caption, "white", font, "lm")
        frames.append(np.asarray(image))
    return frames
