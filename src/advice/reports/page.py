"""`advice report`: from folders of runs to one page, with every figure and table beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from advice.reports import curves, plots, summaries
from advice.reports.claims import GOOD_SEEDS, MIN_SEEDS, Claim, compare
from advice.reports.load import Collection, Run, TaskRuns, Variant, load, usable
from advice.reports.maps import Latent, plot_latent
from advice.reports.paper import paper_table
from advice.reports.shields import latent_of, shield_part
from advice.reports.style import Look, method_label, method_looks, method_order, variant_looks
from advice.reports.tables import Table, write_table
from advice.runs.studies import section


class Section(NamedTuple):
    """One part of a task's chapter."""

    anchor: str
    title: str
    figures: list[tuple[plots.Drawing, Markup]]
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
    """True if the curves come twice, of the full training and after activation."""


class Report(NamedTuple):
    """What :func:`write_report` made."""

    page: Path
    collection: Collection
    claims: list[Claim]


def write_report(
    runs: Iterable[Path | str],
    out: Path | str,
    any_version: bool = False,
    progress: Callable[[str], None] = lambda message: None,
    trust_task: bool = False,
) -> Report:
    """Read all runs below ``runs`` and write OUT/index.html, OUT/figures and OUT/tables."""
    progress("reading the runs")
    collection = load(runs, any_version, trust_task)
    tasks = collection.tasks
    groups = [group for task in tasks for group in (*task.compared, *task.all_variants)]
    looks = method_looks({group.method for group in groups})
    writer = _Writer(Path(out))
    chapters = []
    for task in tasks:
        progress(f"drawing {task.task}")
        chapters.append(_chapter(task, looks, writer))
    times = [_time_figure(task, looks) for task in tasks]
    page = {
        "chapters": chapters,
        "overall": writer.tables(paper_table(tasks), summaries.aggregate_table(tasks)),
        "times": writer.section("compute", "Compute time", times, [summaries.time_table(tasks)]),
        "collection": collection,
        "methods": [
            (plots.series_class(m), method_label(m), looks[m].colour)
            for m in method_order(m for task in tasks for m in task.methods)
        ],
        "runs": sum(len(group.runs) for group in groups),
        "min_seeds": MIN_SEEDS,
        "good_seeds": GOOD_SEEDS,
    }
    progress("writing the page")
    path = Path(out) / "index.html"
    path.write_text(render("report.html.j2", page), encoding="utf-8")
    return Report(path, collection, [claim for c in chapters for claim in c.claims])


def render(template: str, values: dict[str, Any]) -> str:
    """A template of this package; every value is escaped unless it is markup already."""
    folder = files("advice.reports") / "templates"
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shared = {
        variable: Markup((folder / name).read_text(encoding="utf-8"))
        for variable, name in (("shared_css", "shared.css"), ("theme_js", "theme.js"))
    }
    source = (folder / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(**values, **shared)


class _Writer:
    """Writes figures and tables to disk, and returns what the page embeds."""

    def __init__(self, out: Path) -> None:
        self._figures, self._tables = out / "figures", out / "tables"
        out.mkdir(parents=True, exist_ok=True)

    def section(
        self,
        anchor: str,
        title: str,
        drawings: Sequence[plots.Drawing],
        tables: Sequence[Table | None],
        notes: Sequence[str] = (),
    ) -> Section:
        figures = []
        for drawing in drawings:
            figures.append((drawing, Markup(plots.save(drawing, self._figures))))
            drawing.figure.clear()  # frees its memory
        return Section(anchor, title, figures, self.tables(*tables), notes)

    def tables(self, *tables: Table | None) -> list[Table]:
        """Those that are not None."""
        found = [table for table in tables if table]
        for table in found:
            write_table(table, self._tables)
        return found


def _chapter(task: TaskRuns, looks: dict[str, Look], writer: _Writer) -> Chapter:
    graded = curves.has_graded_cost([run for group in task.compared for run in group.runs])
    first = compare(task.task, summaries.totals(task, "violation", summaries.after(task)))
    claims = [first._replace(sentence=first.sentence + summaries.goals_and_timeouts(task))]
    if graded:
        claims.append(
            compare(task.task, summaries.totals(task, "cost", summaries.after(task)), what="cost")
        )
    drawings = _curve_figures(task, looks, graded)
    phases = {drawing.phase for drawing in drawings} >= {"full", "after"}
    tables = [summaries.summary_table(task, graded), summaries.comparison_table(task)]
    sections = [
        writer.section(
            f"{task.slug}-curves", "Learning and safety", drawings, tables, _late_shields(task)
        )
    ]
    k_figures, table = _k_figures(task), summaries.k_table(task, task.all_variants)
    if k_figures or table:
        sections.append(writer.section(f"{task.slug}-k", "K over time", k_figures, [table]))
    part = shield_part(task, looks)
    anchor, title = f"{task.slug}-shield", "The shield and its interventions"
    sections.append(writer.section(anchor, title, part.drawings, part.tables, part.notes))
    for key, variants in task.variants.items():
        anchor, title = f"{task.slug}-{key}", f"Study: {section(key).title}"
        drawings = _study_figures(task, key, variants, looks)
        study_tables = [summaries.study_table(task, key, variants)]
        if key == "shift" and (drift := summaries.drift_table(task, variants)):
            study_tables.append(drift)
        sections.append(writer.section(anchor, title, drawings, study_tables))
    return Chapter(task.task, claims, task.missing, sections, phases)


def _curve_figures(task: TaskRuns, looks: dict[str, Look], graded: bool) -> list[plots.Drawing]:
    """Two rows of panels, each twice: after activation, counted from zero, and in full."""
    second = "cost" if graded else "violations"
    rows = {
        "overview": ("Learning and safety", ("return", second, "successes")),
        "rates": (
            "Rates and interventions",
            ("violation-rate", *(("violations",) if graded else ()), "interventions"),
        ),
    }
    drawings = []
    latent = latent_of(task)
    for phase, skip in (("after", task.activation), ("full", 0)):
        for row, (title, names) in rows.items():
            panels = []
            for metric in (curves.METRICS[name] for name in names):
                groups = [(m, method_label(m), runs) for m, runs in task.methods.items()]
                if metric.name == "interventions":
                    groups = [group for group in groups if _has_shield(group[0])]
                if lines := curves.of_groups(groups, metric, skip):
                    panels.append(plots.Panel(metric, lines))
            if not panels:
                continue
            shown = panels[0].curves
            length = int(shown[-1].episodes[-1])
            extra = partial(_plot_latent, latent) if latent and row == "overview" else None
            drawings.append(
                plots.draw_row(
                    f"{task.slug}-{row}-{phase}",
                    title,
                    (f"Counted from zero after episode {skip}. " if skip else "")
                    + f"Averages are over the last {_plural(curves.smoothing(length), 'episode')}; "
                    + f"mean and standard error over {_seeds(shown)}."
                    + (" Right: what one shield remembers." if extra else ""),
                    panels,
                    looks,
                    "episodes since activation" if skip else "episode",
                    phase,
                    task.activation if not skip and length > task.activation else None,
                    extra,
                )
            )
    return drawings


def _plot_latent(found: Latent, axes: Any) -> None:
    plot_latent(axes, found)
    axes.legend(loc="upper right", fontsize=8, markerscale=1.4, handletextpad=0.1)


def _has_shield(method: str) -> bool:
    """True for methods whose shield may replace an action."""
    return method.split("+")[-1] in ("advice", "tabular", "csc")


def _seeds(lines: Sequence[curves.Curve]) -> str:
    least, most = min(line.seeds for line in lines), max(line.seeds for line in lines)
    count = _plural(least, "seed") if least == most else f"{least} to {most} seeds"
    return f"{count} (few)" if least < GOOD_SEEDS else count


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _late_shields(task: TaskRuns) -> list[str]:
    """Shields that were armed later than planned, because one class of features was missing."""
    notes = []
    for method, runs in task.methods.items():
        for run in runs if method.split("+")[-1] == "advice" else ():
            history, due = curves.k_history(run), summaries.activation_of(run) + 1
            if history and history.episodes[0] > due:
                notes.append(
                    f"{method_label(method)}, seed {run.config.seed}: the shield was armed in "
                    f"episode {int(history.episodes[0])}, not {due}."
                )
    return notes


def _k_figures(task: TaskRuns) -> list[plots.Drawing]:
    """K of one run: all armed episodes, and those in which K changes most."""
    runs = [run for group in reversed(task.compared) for run in usable(group.runs)]
    armed = [(run, history) for run in runs if (history := curves.k_history(run))]
    if not armed:
        return []
    run, history = next(((r, h) for r, h in armed if len(set(h.k)) > 1), armed[0])
    shield = run.config.shield
    which = (
        f"{method_label(run.config.method)}, seed {run.config.seed}, h_r = {shield.recent_window}, "
        f"h_d = {shield.distant_window}, rule {shield.k_rule}."
    )
    caption = (
        f"{which} K rises when the recent rate exceeds the upper threshold and falls at the "
        "lower one; shown as each episode leaves it. A threshold below zero is not drawn."
    )
    name, close = f"{task.slug}-k", curves.busiest(history)
    drawings = [
        plots.draw_k_history(f"{name}-history", "K over time", caption, history, slice(None))
    ]
    if (count := close.stop - close.start) < len(history.k):
        caption = f"{which} The {count} episodes in which K changes most."
        drawings.append(
            plots.draw_k_history(f"{name}-close", "K up close", caption, history, close)
        )
    return drawings


def _study_figures(
    task: TaskRuns, key: str, variants: list[Variant], looks: dict[str, Look]
) -> list[plots.Drawing]:
    """The curves of a section's variants, each counted from the run's own activation."""
    study = section(key)
    groups: list[tuple[str, str, list[Run]]]  # key of the look, label, runs
    methods = method_order(variant.method for variant in variants)
    if study.from_start:  # beside all methods
        looks = looks | variant_looks(v.label for v in variants)
        groups = [(m, method_label(m), runs) for m, runs in task.methods.items()]
        groups += [(v.label, f"{method_label(v.method)}, {v.label}", v.runs) for v in variants]
    elif study.reference:
        one = len(methods) == 1
        labels = [v.label if one else f"{method_label(v.method)}, {v.label}" for v in variants]
        groups = [(label, label, v.runs) for label, v in zip(labels, variants, strict=True)]
        if one and methods[0] in task.methods:
            label = f"{task.reference or study.reference} (as above)"
            groups.append((label, label, task.methods[methods[0]]))
    else:  # methods are compared under the changed setting
        ordered = sorted(variants, key=lambda v: (methods.index(v.method), v.label))
        groups = [(v.method, f"{method_label(v.method)}, {v.label}", v.runs) for v in ordered]
    several = len({(v.label, v.method) for v in variants}) > len(methods)
    if study.reference or (several and not study.from_start):
        groups = [(label, label, runs) for _, label, runs in groups]
        looks = variant_looks(label for label, _, _ in groups)
    rates, counts = ("violation-rate", "success-rate"), ("return", "violations", "successes")
    skip: curves.Skip = 0 if study.from_start else summaries.activation_of
    panels = [
        plots.Panel(metric, lines)
        for metric in (curves.METRICS[name] for name in (rates if study.rates else counts))
        if (lines := curves.of_groups(groups, metric, skip))
    ]
    if not panels:
        return []
    start = "every episode" if study.from_start else "each run's own activation"
    return [
        plots.draw_row(
            f"{task.slug}-{key}",
            study.title,
            f"Counted from {start}; mean and standard error over {_seeds(panels[0].curves)}.",
            panels,
            looks,
            "episode" if study.from_start else "episodes since activation",
        )
    ]


def _time_figure(task: TaskRuns, looks: dict[str, Look]) -> plots.Drawing:
    minutes = {
        method: [curves.total(run, "seconds") / 60 for run in usable(runs)]
        for method, runs in task.methods.items()
    }
    caption = "Compute time per run: a dot per run, a bar for the mean."
    return plots.draw_times(f"{task.slug}-time", task.task, caption, minutes, looks)
