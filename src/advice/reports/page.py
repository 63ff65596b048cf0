"""`advice report`: from folders of runs to one page, with every figure and table beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advice.reports import curves, plots, summaries
from advice.reports.claims import GOOD_SEEDS, MIN_SEEDS, Claim, compare, paper_table
from advice.reports.load import Collection, Run, TaskRuns, load, totals, usable
from advice.reports.maps import plot_latent
from advice.reports.shields import shield_of, shield_section
from advice.reports.style import Look, method_label, method_looks, method_order, variant_looks
from advice.reports.tables import Exhibit, Section, write_table
from advice.runs.records import file_name
from advice.runs.studies import WITH_SHIELD, section


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
    tasks, out = collection.tasks, Path(out)
    groups = [group for task in tasks for group in task.groups]
    looks = method_looks({group.method for group in groups})
    tables = (paper_table(tasks), summaries.aggregate_table(tasks))
    overall = Section("overall", "", [table for table in tables if table])
    times = Section("compute", "Compute time", [_time_figure(task, looks) for task in tasks])
    times.exhibits.append(summaries.time_table(tasks))
    pictures = _write(overall, out) | _write(times, out)
    claims, chapters = [], []
    for task in tasks:
        progress(f"drawing {task.task}")
        claims += _claims(task)
        chapters.append((task, _sections(task, looks)))
        for part in chapters[-1][1]:
            pictures |= _write(part, out)
    progress("writing the page")
    names = method_order(method for task in tasks for method in task.methods)
    values = {
        "collection": collection,
        "runs": sum(len(group.runs) for group in groups),
        "methods": [(plots.series_class(m), method_label(m), looks[m].colour) for m in names],
        "claims": claims,
        "overall": overall,
        "chapters": chapters,
        "times": times,
        "pictures": pictures,
        "min_seeds": MIN_SEEDS,
        "good_seeds": GOOD_SEEDS,
    }
    path = out / "index.html"
    path.write_text(render("report.html.j2", values), encoding="utf-8")
    return Report(path, collection, claims)


def render(template: str, values: dict[str, Any]) -> str:
    """A template of this package; every value is escaped unless it is markup already."""
    environment = Environment(
        loader=PackageLoader("advice.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)


def _write(part: Section, out: Path) -> dict[str, Markup]:
    """Write a section's tables and figures; returns the figures' SVG by name."""
    pictures = {}
    for exhibit in part.exhibits:
        if exhibit.figure is None:
            write_table(exhibit, out / "tables")
        else:
            pictures[exhibit.name] = plots.save(exhibit, out / "figures")
            exhibit.figure.clear()  # frees its memory
    return pictures


def _graded(task: TaskRuns) -> bool:
    """True for constrained tasks: an episode's cost says more than whether it was violated."""
    costs = (run.column("cost") for group in task.compared for run in group.runs)
    return any(len(np.unique(cost[cost > 0].round(6))) > 1 for cost in costs)


def _claims(task: TaskRuns) -> list[Claim]:
    violations, costs = (
        {method: totals(runs, column, task.after) for method, runs in task.methods.items()}
        for column in ("violation", "cost")
    )
    first = compare(task.task, violations)
    first = first._replace(sentence=first.sentence + summaries.goals_and_timeouts(task))
    return [first, compare(task.task, costs, "cost")] if _graded(task) else [first]


def _sections(task: TaskRuns, looks: dict[str, Look]) -> list[Section]:
    graded, slug = _graded(task), file_name(task.task)
    found = [*_curve_figures(task, looks, graded), summaries.summary_table(task, graded)]
    if comparison := summaries.comparison_table(task):
        found.append(comparison)
    sections = [Section(f"{slug}-curves", "Learning and safety", found, _late_shields(task))]
    if table := summaries.k_table(task):
        sections.append(Section(f"{slug}-k", "K over time", [*_k_figures(task), table]))
    sections.append(shield_section(task, looks))
    for key in task.variants:
        found = [*_study_figures(task, key, looks), summaries.study_table(task, key)]
        if key == "shift" and (drift := summaries.drift_table(task)):
            found.append(drift)
        sections.append(Section(f"{slug}-{key}", f"Study: {section(key).title}", found))
    return sections


def _curve_figures(task: TaskRuns, looks: dict[str, Look], graded: bool) -> list[Exhibit]:
    """Two rows of panels, each twice: after activation, counted from zero, and in full."""
    rows = {
        "overview": ["return", "cost" if graded else "violations", "successes"],
        "rates": ["violation-rate", *(["violations"] if graded else [])],
    }
    groups = [(m, method_label(m), runs) for m, runs in task.methods.items()]
    shielded = [group for group in groups if group[0].split("+")[-1] in WITH_SHIELD]
    drawings, shield = [], shield_of(task)

    def latent(axes: Any) -> None:
        assert shield
        plot_latent(axes, shield)
        axes.legend(loc="upper right", fontsize=8, markerscale=1.4, handletextpad=0.1)

    for phase, skip in (("after", task.activation), ("full", 0)):
        for row, metrics in rows.items():
            panels = curves.panels(groups, metrics, skip)
            if row == "rates":
                panels |= curves.panels(shielded, ["interventions"], skip)
            if not panels:
                continue
            shown = next(iter(panels.values()))
            length = int(shown[-1].episodes[-1])
            last = latent if shield and row == "overview" else None
            caption = f"Counted from zero after episode {skip}. " if skip else ""
            caption += f"{_seeds(shown)} Averages are over {curves.smoothing(length)} episodes."
            caption += " Right: what one shield remembers." if last else ""
            armed = task.activation if not skip and length > task.activation else None
            x_label = "episodes since activation" if skip else "episode"
            drawn = plots.draw_row(panels, looks, x_label, armed, last)
            title = "Learning and safety" if row == "overview" else "Rates and interventions"
            found = Exhibit(task.task, f"{row}-{phase}", title, caption, *drawn, phase)
            drawings.append(found)
    return drawings


def _seeds(lines: Sequence[curves.Curve]) -> str:
    counts = [line.seeds for line in lines]
    shown = " to ".join(map(str, sorted({min(counts), max(counts)})))
    return f"Mean and standard error over seeds ({shown}{', few' * (min(counts) < GOOD_SEEDS)})."


def _late_shields(task: TaskRuns) -> list[str]:
    """Shields that were armed later than planned, because one class of features was missing."""
    runs = [run for runs in task.methods.values() for run in runs if run.column("k").any()]
    return [
        f"{run.name}: the shield was armed in episode {run.armed_after + 1}, "
        f"not {run.activation + 1}."
        for run in runs
        if run.config.method.split("+")[-1] == "advice" and run.armed_after > run.activation
    ]


def _k_figures(task: TaskRuns) -> list[Exhibit]:
    """K of one run: all armed episodes, and those in which K changes most."""
    runs = [run for group in reversed(task.compared) for run in usable(group.runs)]
    armed = [run for run in runs if run.column("k").any()]
    varied = [run for run in armed if len(set(run.column("k")[run.armed_after :])) > 1]
    if not armed:
        return []
    run = (varied or armed)[0]
    history, shield = curves.k_history(run), run.config.shield
    which = (
        f"{run.name}, h_r = {shield.recent_window}, h_d = {shield.distant_window}, "
        f"rule {shield.k_rule}."
    )
    close, title = curves.busiest(history), "K over time"
    drawn = plots.draw_k_history(history, title)
    drawings = [Exhibit(task.task, "k-history", title, which, *drawn)]
    if close is not history:
        title = "K up close"
        which += f" The {len(close.episode)} episodes in which K changes most."
        drawn = plots.draw_k_history(close, title)
        drawings.append(Exhibit(task.task, "k-close", title, which, *drawn))
    return drawings


def _study_figures(task: TaskRuns, key: str, looks: dict[str, Look]) -> list[Exhibit]:
    """The curves of a section's variants, each counted from the run's own activation."""
    study, variants = section(key), task.variants[key]
    methods = method_order(variant.method for variant in variants)
    groups: list[tuple[str, str, list[Run]]]  # key of the look, label, runs
    if study.from_start:  # beside all methods
        looks = looks | variant_looks(v.label for v in variants)
        groups = [(m, method_label(m), runs) for m, runs in task.methods.items()]
        groups += [(v.label, v.name, v.runs) for v in variants]
    elif study.reference:
        one = len(methods) == 1
        groups = [("", v.label if one else v.name, v.runs) for v in variants]
        if one and methods[0] in task.methods:
            label = f"{task.reference or study.reference} (as above)"
            groups.append(("", label, task.methods[methods[0]]))
    else:  # methods are compared under the changed setting
        ordered = sorted(variants, key=lambda v: (methods.index(v.method), v.label))
        groups = [(v.method, v.name, v.runs) for v in ordered]
    if study.reference or (len(variants) > len(methods) and not study.from_start):
        groups = [(label, label, runs) for _, label, runs in groups]
        looks = variant_looks(label for label, _, _ in groups)
    rates, counts = ("violation-rate", "success-rate"), ("return", "violations", "successes")
    skip = 0 if study.from_start else None
    panels = curves.panels(groups, rates if study.rates else counts, skip)
    if not panels:
        return []
    start = "every episode" if study.from_start else "each run's own activation"
    caption = f"Counted from {start}. {_seeds(next(iter(panels.values())))}"
    x_label = "episode" if study.from_start else "episodes since activation"
    drawn = plots.draw_row(panels, looks, x_label)
    return [Exhibit(task.task, key, study.title, caption, *drawn)]


def _time_figure(task: TaskRuns, looks: dict[str, Look]) -> Exhibit:
    minutes = {
        method: [run.total("seconds") / 60 for run in usable(runs)]
        for method, runs in task.methods.items()
    }
    drawn = plots.draw_times(minutes, looks, task.task)
    return Exhibit(task.task, "time", task.task, "Compute time per run.", *drawn)
