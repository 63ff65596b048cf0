"""`advice report`: from folders of runs to one page, with every figure and table beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from advice.reports.claims import GOOD_SEEDS, MIN_SEEDS, Claim, compare
from advice.reports.curves import (
    BY_NAME,
    METRICS,
    curve,
    has_graded_cost,
    k_history,
    liveliest,
    smoothing,
    total,
)
from advice.reports.load import Collection, TaskRuns, Variant, load, usable
from advice.reports.plots import (
    Drawing,
    draw_curves,
    draw_k_history,
    draw_times,
    save,
    series_class,
)
from advice.reports.shields import shield_part
from advice.reports.style import Look, method_label, method_looks, method_order, variant_looks
from advice.reports.summaries import (
    activation_of,
    after,
    aggregate_table,
    comparison_table,
    k_table,
    study_table,
    summary_table,
    time_table,
    totals,
)
from advice.reports.tables import Table, write_table
from advice.runs.studies import section

Progress = Callable[[str], None]


class Section(NamedTuple):
    """One part of a task's chapter."""

    anchor: str
    title: str
    figures: list[tuple[Drawing, Markup]]
    """Each with its SVG, which the page embeds."""
    tables: list[Table]
    notes: Sequence[str]


class Chapter(NamedTuple):
    """Everything about one task."""

    task: str
    claims: list[Claim]
    missing: list[str]
    sections: list[Section]
    phases: bool


class Report(NamedTuple):
    """What :func:`write_report` made."""

    page: Path
    collection: Collection
    claims: list[Claim]


def write_report(
    runs: Iterable[Path | str],
    out: Path | str,
    any_version: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Read all runs below ``runs`` and write OUT/index.html, OUT/figures and OUT/tables."""
    out = Path(out)
    say = progress or (lambda message: None)
    say("reading the runs")
    collection = load(runs, any_version)
    looks = method_looks(
        {m for t in collection.tasks for m in t.methods}
        | {v.method for t in collection.tasks for vs in t.variants.values() for v in vs}
    )
    writer = _Writer(out)
    chapters = []
    for task in collection.tasks:
        say(f"drawing {task.task}")
        chapters.append(_chapter(task, looks, writer))
    times = _time_figures(collection.tasks, looks)
    page = {
        "chapters": chapters,
        "overall": writer.tables(aggregate_table(collection.tasks)),
        "times": writer.section("compute", "Compute time", times, [time_table(collection.tasks)]),
        "collection": collection,
        "methods": [
            (series_class(m), method_label(m), looks[m].colour)
            for m in method_order({m for t in collection.tasks for m in t.methods})
        ],
        "runs": sum(len(r) for t in collection.tasks for r in t.methods.values())
        + sum(len(v.runs) for t in collection.tasks for vs in t.variants.values() for v in vs),
        "min_seeds": MIN_SEEDS,
        "good_seeds": GOOD_SEEDS,
    }
    say("writing the page")
    path = out / "index.html"
    path.write_text(render("report.html.j2", page), encoding="utf-8")
    return Report(path, collection, [claim for c in chapters for claim in c.claims])


def render(template: str, values: dict[str, Any]) -> str:
    """A template of this package; every value is escaped unless it is markup already."""
    folder = files("advice.reports") / "templates"
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shared = {
        name: Markup((folder / name).read_text(encoding="utf-8"))
        for name in ("house.css", "theme.js")
    }
    source = (folder / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(
        **values, house_css=shared["house.css"], theme_js=shared["theme.js"]
    )


class _Writer:
    """Puts figures and tables on disk and hands the page what it embeds."""

    def __init__(self, out: Path) -> None:
        self._figures, self._tables = out / "figures", out / "tables"
        out.mkdir(parents=True, exist_ok=True)

    def section(
        self,
        anchor: str,
        title: str,
        drawings: Sequence[Drawing],
        tables: Sequence[Table | None],
        notes: Sequence[str] = (),
    ) -> Section:
        figures = []
        for drawing in drawings:
            figures.append((drawing, Markup(save(drawing, self._figures))))
            drawing.figure.clear()  # on disk and in the SVG; it would stay until the page is done
        return Section(anchor, title, figures, self.tables(*tables), notes)

    def tables(self, *tables: Table | None) -> list[Table]:
        """Those that there are."""
        found = [table for table in tables if table]
        for table in found:
            write_table(table, self._tables)
        return found


def _chapter(task: TaskRuns, looks: dict[str, Look], writer: _Writer) -> Chapter:
    claims = [compare(task.task, totals(task, "violation", after(task)))] if task.methods else []
    runs = [run for group in task.methods.values() for run in group]
    graded = has_graded_cost(runs)
    if graded:
        claims.append(compare(task.task, totals(task, "cost", after(task)), what="cost"))
    sections = []
    curves = _curve_figures(task, looks, graded)
    if task.methods:
        tables = [summary_table(task), comparison_table(task)]
        notes, anchor = _late_shields(task), f"{task.slug}-curves"
        sections.append(writer.section(anchor, "Learning and safety", curves, tables, notes))
    variants = [v for vs in task.variants.values() for v in vs]
    k_figures, table = _k_figures(task), k_table(task, variants)
    if k_figures or table:
        title = "How cautious: K over time"
        sections.append(writer.section(f"{task.slug}-k", title, k_figures, [table]))
    title, part = "The shield, and where it stepped in", shield_part(task, looks)
    anchor = f"{task.slug}-shield"
    sections.append(writer.section(anchor, title, part.drawings, part.tables, part.notes))
    for key, found in task.variants.items():
        drawings = _study_figures(task, key, found, looks)
        tables = [study_table(task, key, found)]
        anchor, title = f"{task.slug}-{key}", f"Study: {section(key).title}"
        sections.append(writer.section(anchor, title, drawings, tables))
    phases = {drawing.phase for drawing in curves} >= {"full", "after"}
    return Chapter(task.task, claims, task.missing, sections, phases)


def _curve_figures(task: TaskRuns, looks: dict[str, Look], graded: bool) -> list[Drawing]:
    """Every metric twice: the full training, and the part after activation counted from zero."""
    drawings = []
    metrics = [m for m in METRICS if m.name != "success-rate" and (graded or m.name != "cost")]
    for phase, skip in (("after", task.activation), ("full", 0)):
        for metric in metrics:
            curves = [
                found
                for method, runs in task.methods.items()
                if (found := curve(method, method_label(method), runs, metric, skip))
            ]
            if not curves:
                continue
            length = int(curves[-1].episodes[-1])
            how = (
                "Running total"
                if metric.cumulative
                else f"Average of the last {_plural(smoothing(length), 'episode')}"
            )
            seeds = sorted({item.seeds for item in curves})
            counted = _plural(seeds[0], "seed")
            if len(seeds) > 1:
                counted = f"{seeds[0]} to {seeds[-1]} seeds"
            part = f"Counted from zero after episode {skip}. " if skip else ""
            drawings.append(
                draw_curves(
                    f"{task.slug}-{metric.name}-{phase}",
                    metric.title,
                    f"{part}{how}; mean and standard error over {counted}.",
                    curves,
                    looks,
                    "episodes since activation" if skip else "episode",
                    phase,
                    None if skip else task.activation if length > task.activation else None,
                )
            )
    return drawings


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _late_shields(task: TaskRuns) -> list[str]:
    """Shields that were armed later than planned, because a class of features was missing."""
    notes = []
    for method, runs in task.methods.items():
        for run in runs:
            history = k_history(run) if method.split("+")[-1] == "advice" else None
            due = activation_of(run) + 1
            if history and history.episodes[0] > due:
                notes.append(
                    f"{method_label(method)}, seed {run.config.seed}: the shield was armed in "
                    f"episode {int(history.episodes[0])}, not {due}."
                )
    return notes


def _k_figures(task: TaskRuns) -> list[Drawing]:
    """K of one run: all armed episodes, and a close look at the liveliest stretch."""
    runs = [run for group in reversed(task.methods.values()) for run in usable(group)]
    armed = [(run, history) for run in runs if (history := k_history(run))]
    if not armed:
        return []
    run, history = next(((r, h) for r, h in armed if len(set(h.k)) > 1), armed[0])
    shield = run.config.shield
    which = (
        f"{method_label(run.config.method)}, seed {run.config.seed}, h_r = {shield.recent_window}, "
        f"h_d = {shield.distant_window}, rule {shield.k_rule}."
    )
    whole = slice(None)
    drawings = [
        draw_k_history(
            f"{task.slug}-k-history",
            "K over time",
            f"{which} K rises when the recent rate exceeds the upper threshold and falls at the "
            "lower one; shown as each episode leaves it.",
            history,
            whole,
        )
    ]
    close = liveliest(history)
    if close.stop - close.start < len(history.k):
        drawings.append(
            draw_k_history(
                f"{task.slug}-k-close",
                "K up close",
                f"{which} The {close.stop - close.start} episodes in which K changes most.",
                history,
                close,
            )
        )
    return drawings


def _study_figures(
    task: TaskRuns, key: str, variants: list[Variant], looks: dict[str, Look]
) -> list[Drawing]:
    """The paper's curves for a study, each counted from the run's own activation."""
    study = section(key)
    if not study.reference:  # methods are compared under the changed setting
        groups = [(v.method, f"{method_label(v.method)}, {v.label}", v.runs) for v in variants]
        order = method_order({method for method, _, _ in groups})
        groups.sort(key=lambda group: (order.index(group[0]), group[1]))
        labels = sorted({v.label for v in variants})
        if len(labels) > 1:  # several variants of one method cannot share its colour
            groups = [(label, label, runs) for _, label, runs in groups]
            looks = variant_looks(label for label, _, _ in groups)
    else:
        methods = sorted({v.method for v in variants})
        groups = [
            (label, label, v.runs)
            for v in variants
            for label in [v.label if len(methods) == 1 else f"{method_label(v.method)}, {v.label}"]
        ]
        if len(methods) == 1 and task.methods.get(methods[0]):
            usual = task.methods[methods[0]]
            label = f"{task.reference or study.reference} (as above)"
            groups.append((label, label, usual))
        looks = variant_looks(label for label, _, _ in groups)
    rates = ("violation-rate", "success-rate")
    wanted = rates if study.rates else ("return", "violations", "successes")
    drawings = []
    for metric in (BY_NAME[name] for name in wanted):
        curves = [
            found
            for key, label, runs in groups
            if (found := curve(key, label, runs, metric, [activation_of(r) for r in usable(runs)]))
        ]
        if curves:
            drawings.append(
                draw_curves(
                    f"{task.slug}-{key}-{metric.name}",
                    metric.title,
                    "Counted from each run's own activation; mean and standard error over seeds.",
                    curves,
                    looks,
                    "episodes since activation",
                )
            )
    return drawings


def _time_figures(tasks: Sequence[TaskRuns], looks: dict[str, Look]) -> list[Drawing]:
    drawings = []
    for task in tasks:
        minutes = {
            method: [total(run, "seconds") / 60 for run in usable(runs)]
            for method, runs in task.methods.items()
        }
        if minutes:
            drawings.append(
                draw_times(
                    f"{task.slug}-time",
                    task.task,
                    "Compute time per run: a dot per run, a bar for the mean.",
                    minutes,
                    looks,
                )
            )
    return drawings
