"""`advice report`: from folders of runs to one page, with every figure and table beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advice.reports import plots, summaries
from advice.reports.load import Collection, TaskRuns, load, totals, usable
from advice.reports.shields import plot_latent, shield_of, shield_section
from advice.reports.style import Look, method_label, method_looks, method_order, variant_looks
from advice.reports.summaries import GOOD_SEEDS, MIN_SEEDS, Claim, compare
from advice.reports.tables import Exhibit, Section, write_csv
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
    together = summaries.aggregate_table(tasks)
    overall = Section("overall", "", [together] if together else [])
    times = Section("compute", "Compute time", [summaries.time_table(tasks)])
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
            write_csv(out / "tables" / f"{exhibit.name}.csv", exhibit.rows)
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
    sections = [Section(f"{slug}-curves", "Learning and safety", found)]
    if table := summaries.k_table(task):
        sections.append(Section(f"{slug}-k", "K over time", [*_k_figures(task), table]))
    sections.append(shield_section(task, looks))
    for key in task.variants:
        found = [*_study_figures(task, key, looks), summaries.study_table(task, key)]
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
    for phase, skip in (("after", task.activation), ("full", 0)):
        for row, metrics in rows.items():
            panels = plots.panels(groups, metrics, skip)
            if row == "rates":
                panels |= plots.panels(shielded, ["interventions"], skip)
            if not panels:
                continue
            shown = next(iter(panels.values()))
            length = int(shown[-1].episodes[-1])
            caption = f"Counted from zero after episode {skip}. " if skip else ""
            caption += f"{_seeds(shown)} Averages are over {plots.smoothing(length)} episodes."
            latent = None
            if shield and row == "overview":
                latent = partial(plot_latent, shield=shield)
                caption += (
                    " Right: the features that one shield remembers. Blue ground: at least "
                    f"{shield.k} of the {shield.config.k_max} nearest are safe, so an action there "
                    "is endorsed; red ground: refused."
                )
            armed = task.activation if not skip and length > task.activation else None
            x_label = "episodes since activation" if skip else "episode"
            drawn = plots.draw_row(panels, looks, x_label, armed, latent)
            title = "Learning and safety" if row == "overview" else "Rates and interventions"
            drawings.append(Exhibit(task.task, f"{row}-{phase}", title, caption, *drawn, phase))
    return drawings


def _seeds(lines: Sequence[plots.Curve]) -> str:
    counts = [line.seeds for line in lines]
    shown = " to ".join(map(str, sorted({min(counts), max(counts)})))
    return f"Mean and standard error over seeds ({shown}{', few' * (min(counts) < GOOD_SEEDS)})."


def _k_figures(task: TaskRuns) -> list[Exhibit]:
    """K of one run: all armed episodes, and those in which K changes most."""
    runs = [run for group in reversed(task.compared) for run in usable(group.runs)]
    armed = [run for run in runs if run.column("k").any()]
    varied = [run for run in armed if len(set(run.column("k")[run.armed_after :])) > 1]
    if not armed:
        return []
    run = (varied or armed)[0]
    history, shield = plots.k_history(run), run.config.shield
    close = plots.busiest(history)
    which = (
        f"{run.name}, h_r = {shield.recent_window}, h_d = {shield.distant_window}, "
        f"rule {shield.k_rule}."
    )
    parts = {"k-history": ("K over time", history)}
    if close is not history:
        parts["k-close"] = ("K up close: where it changes most", close)
    return [
        Exhibit(task.task, kind, title, which, figure=plots.draw_k_history(part, title))
        for kind, (title, part) in parts.items()
    ]


def _study_figures(task: TaskRuns, key: str, looks: dict[str, Look]) -> list[Exhibit]:
    """The curves of a section's variants, each counted from the run's own activation.

    They are drawn beside the comparison's runs if all are of one method.
    """
    study, variants = section(key), task.variants[key]
    methods = {variant.method for variant in variants}
    one = len(methods) == 1
    beside = {m: runs for m, runs in task.methods.items() if one and m in methods}
    if study.from_start:
        beside = task.methods
    groups = [
        (m, f"{task.reference or study.reference or method_label(m)} (as above)", runs)
        for m, runs in beside.items()
    ]
    if beside or len(variants) > len(methods):
        looks = looks | variant_looks(variant.name for variant in variants)
        groups += [(v.name, v.label if one else v.name, v.runs) for v in variants]
    else:  # methods are compared under the changed setting
        groups = [(v.method, v.name, v.runs) for v in variants]
    rates, counts = ("violation-rate", "success-rate"), ("return", "violations", "successes")
    skip = 0 if study.from_start else None
    panels = plots.panels(groups, rates if study.rates else counts, skip)
    if not panels:
        return []
    start = "every episode" if study.from_start else "each run's own activation"
    caption = f"Counted from {start}. {_seeds(next(iter(panels.values())))}"
    x_label = "episode" if study.from_start else "episodes since activation"
    drawn = plots.draw_row(panels, looks, x_label)
    return [Exhibit(task.task, key, study.title, caption, *drawn)]
