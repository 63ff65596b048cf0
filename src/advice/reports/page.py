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
from advice.reports.claims import paper_table
from advice.reports.load import Collection, Run, TaskRuns, Variant, load, totals, usable
from advice.reports.shields import plot_latent, shield_section
from advice.reports.style import Look, method_label, method_looks, method_order, variant_looks
from advice.reports.summaries import GOOD_SEEDS, MIN_SEEDS, Claim, compare
from advice.reports.tables import Exhibit, Section, write_csv
from advice.runs.records import file_name
from advice.runs.studies import PAPER_TASKS, section
from advice.shields.shield import Shield


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
    tables = [paper_table(tasks), summaries.comparison_table(tasks) if len(tasks) > 1 else None]
    overall = [table for table in tables if table]
    pictures = _write(overall, out)
    claims, chapters = [], []
    for task in tasks:
        progress(f"drawing {task.task}")
        claims += _claims(task)
        chapters.append((task, _sections(task, looks)))
        for part in chapters[-1][1]:
            pictures |= _write(part.exhibits, out)
    progress("writing the page")
    names = method_order(group.method for task in tasks for group in task.pictured)
    phased = {t.task for t, parts in chapters if any(x.phase == "after" for x in parts[0].exhibits)}
    values = {
        "collection": collection,
        "runs": sum(len(group.runs) for group in groups),
        "methods": [(plots.series_class(m), method_label(m), looks[m].colour) for m in names],
        "claims": claims,
        "overall": overall,
        "chapters": chapters,
        "phased": phased,  # tasks with figures of two phases, of which one is shown at a time
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


def _write(exhibits: Sequence[Exhibit], out: Path) -> dict[str, Markup]:
    """Write tables and figures; returns the figures' SVG by name."""
    pictures = {}
    for exhibit in exhibits:
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
    """After activation, and of ADVICE armed early from the first episode on."""
    claims = []
    if task.early is None or "advice" in task.methods:
        claims += _claims_of(task, task.task, task.methods, task.activation)
    if task.early is not None:
        about = f"{task.task} (armed early, all episodes counted)"
        claims += _claims_of(task, about, {**task.methods, "advice": task.early.runs}, 0)
    return claims


def _claims_of(task: TaskRuns, about: str, methods: dict[str, list[Run]], skip: int) -> list[Claim]:
    violations, costs, steps = (
        {method: totals(runs, column, skip) for method, runs in methods.items()}
        for column in ("violation", "cost", "steps")
    )
    what = "violations"
    if task.task not in PAPER_TASKS:  # elsewhere every episode may end with one, sooner or later
        what = "violations per 1,000 steps"
        for method, found in violations.items():
            violations[method] = {s: 1000 * n / steps[method][s] for s, n in found.items()}
    first = compare(about, violations, what)
    first = first._replace(sentence=first.sentence + summaries.goals_and_timeouts(methods, skip))
    return [first, compare(about, costs, "cost")] if _graded(task) else [first]


def _sections(task: TaskRuns, looks: dict[str, Look]) -> list[Section]:
    slug = file_name(task.task)
    shown, shield = shield_section(task, looks)
    found = [*_curve_figures(task, looks, shield), summaries.summary_table(task)]
    if comparison := summaries.comparison_table([task]):
        found.append(comparison)
    found.append(_time_figure(task, looks))
    sections = [Section(f"{slug}-curves", "Learning and safety", found)]
    if figures := _k_figures(task):
        sections.append(Section(f"{slug}-k", "K over time", figures))
    sections.append(shown)
    for key, variants in task.variants.items():
        if all(variant in task.pictured for variant in variants):
            continue  # the first figures show them already
        found = [*_study_figures(task, key, looks), summaries.study_table(task, key)]
        if key == "shift" and (drift := summaries.drift_table(task)):
            found.append(drift)
        sections.append(Section(f"{slug}-{key}", f"Study: {section(key).title}", found))
    return sections


def _curve_figures(task: TaskRuns, looks: dict[str, Look], shield: Shield | None) -> list[Exhibit]:
    """Two rows of panels, each twice: after activation, counted from zero, and in full."""
    groups = [(group.method, group.name, group.runs) for group in task.pictured]
    shielded = [group for group in groups if group[0].split("+")[-1] in ("advice", "tabular")]
    csc = [group for group in groups if group[0] == "csc"]  # its many would flatten the others'
    drawings, graded = [], _graded(task)
    latent = partial(plot_latent, shield=shield) if shield else None
    goals = any(run.column("success").any() for *_, runs in groups for run in runs)
    last = "successes" if goals or task.task in PAPER_TASKS else "steps"
    counts = ("return", "cost" if graded else "violations", last)
    rates = ("violation-rate", "violations") if graded else ("violation-rate",)
    for phase, skip in (("after", task.counted_from), ("full", 0)):
        panels = plots.panels(groups, counts, skip)
        if panels and (skip or phase == "full"):
            found = _curves(task, "overview", "Learning and safety", panels, looks, skip, latent)
            drawings.append(found._replace(kind=f"overview-{phase}", phase=phase))
            panels = plots.panels(groups, rates, skip)
            panels |= plots.panels(shielded, ["interventions"], skip)
            panels |= plots.panels(csc, ["interventions-csc"], skip)
            found = _curves(task, "rates", "Rates and interventions", panels, looks, skip)
            drawings.append(found._replace(kind=f"rates-{phase}", phase=phase))
    return drawings


def _curves(
    task: TaskRuns,
    kind: str,
    title: str,
    panels: dict[str, list[plots.Curve]],
    looks: dict[str, Look],
    skip: int | None,
    last: Callable[[Any], None] | None = None,
) -> Exhibit:
    """A row of panels, counted after ``skip`` episodes or each run's activation."""
    lines = next(iter(panels.values()))
    seeds, length = [line.seeds for line in lines], int(lines[-1].episodes[-1])
    starts = {None: "each run's own activation", 0: "the first episode"}
    caption = (
        f"Counted from {starts.get(skip, f'zero after episode {skip}')}. Mean and standard error "
        f"over seeds ({' to '.join(map(str, sorted({min(seeds), max(seeds)})))}"
        f"{', few' * (min(seeds) < GOOD_SEEDS)}). Averages are over {plots.smoothing(length)} "
        "episodes."
    )
    if last:
        caption += " Right: what one shield remembers; blue ground it endorses, red it refuses."
    armed = task.pictured_activation
    whole = skip == 0 and kind not in task.variants and length > armed
    x_label = "episode" if skip == 0 else "episodes since activation"
    drawn = plots.draw_row(panels, looks, x_label, armed if whole else None, last)
    return Exhibit(task.task, kind, title, caption, *drawn)


def _k_figures(task: TaskRuns) -> list[Exhibit]:
    """K of a run of the comparison, and of one with the paper's windows."""
    windows = task.variants.get("windows", [])
    paper = [variant for variant in windows if variant.label == "h_r = 2, h_d = 10"]
    return _k_of_one("k", task, task.pictured[::-1]) + _k_of_one("k-paper", task, paper)


def _k_of_one(kind: str, task: TaskRuns, groups: Sequence[Variant]) -> list[Exhibit]:
    """K of one run, where it changes if there is such a run: all of it, and up close."""
    runs = [run for group in groups for run in usable(group.runs)]
    armed = [run for run in runs if run.column("k").any()]
    if not armed:
        return []
    run = max(armed, key=lambda run: len(set(plots.k_history(run)["k_after"])) > 1)
    shield, history = run.config.shield, plots.k_history(run)
    windows = f"h_r = {shield.recent_window}, h_d = {shield.distant_window}"
    which = f"{run.name}, {windows}, rule {shield.k_rule}."
    title, close = f"K over time, {windows}", plots.busiest(history)
    drawn = plots.draw_k_history(history, title)
    figures = [Exhibit(task.task, f"{kind}-history", title, which, figure=drawn)]
    if close is not history:
        title = f"K up close, {windows}"
        drawn = plots.draw_k_history(close, title)
        which += f" The {len(close['episode'])} episodes in which K changes most."
        figures.append(Exhibit(task.task, f"{kind}-close", title, which, figure=drawn))
    return figures


def _time_figure(task: TaskRuns, looks: dict[str, Look]) -> Exhibit:
    minutes = {group.method: [run.minutes for run in usable(group.runs)] for group in task.pictured}
    drawn = plots.draw_times(minutes, looks)
    which = "Of each run in full" + ", ADVICE armed early" * (len(minutes) > len(task.methods))
    return Exhibit(task.task, "time", "Compute time", f"{which}.", *drawn)


def _study_figures(task: TaskRuns, key: str, looks: dict[str, Look]) -> list[Exhibit]:
    """The curves of a section's variants, beside the comparison's runs if of one method."""
    study, variants = section(key), task.variants[key]
    methods = {variant.method for variant in variants}
    one = len(methods) == 1
    beside = {m: r for m, r in task.methods.items() if study.from_start or methods == {m}}
    groups = [
        (m, task.reference or study.reference or method_label(m), runs)
        for m, runs in beside.items()
    ]
    if beside or len(variants) > len(methods):
        looks = looks | variant_looks(variant.name for variant in variants)
        short = one and not study.from_start
        groups += [(v.name, v.label if short else v.name, v.runs) for v in variants]
    else:  # methods are compared under the changed setting
        groups = [(v.method, v.name, v.runs) for v in variants]
    rates, counts = ("violation-rate", "success-rate"), ("return", "violations", "successes")
    skip = 0 if study.from_start else None
    panels = plots.panels(groups, rates if study.rates else counts, skip)
    return [_curves(task, key, study.title, panels, looks, skip)] if panels else []
