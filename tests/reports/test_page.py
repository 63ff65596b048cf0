"""The report on disk: curves equal their CSV, every table is a file, nothing from outside."""

from __future__ import annotations

import csv
import dataclasses
import html
import re
from pathlib import Path

import numpy as np
import pytest
from made_up import PROVENANCE, write_grid, write_run

from advice.config import EnvConfig, ShieldConfig, TrainConfig
from advice.reports.load import load, read_run, totals
from advice.reports.page import Report, _curve_figures, write_report
from advice.reports.plots import (
    METRICS,
    busiest,
    curve,
    draw_k_history,
    draw_row,
    draw_times,
    k_history,
    save,
)
from advice.reports.statistics import Estimate, Interval
from advice.reports.style import METHOD_LOOKS, method_looks, method_order, variant_looks
from advice.reports.summaries import (
    compare,
    comparison_table,
    study_table,
    summary_table,
)
from advice.reports.tables import Exhibit, shown, write_csv
from advice.runs.records import COLUMNS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report of a small grid with studies, an unfinished run, a broken one."""
    root = tmp_path_factory.mktemp("grid")
    write_grid(root / "core", methods=("ddpg", "rcpo", "advice"))
    write_grid(root / "core", ("constrained-randomised-goal",), ("ddpg", "advice"), range(2))
    base = TrainConfig(
        task="randomised-goal", episodes=120, shield=ShieldConfig(construction_episodes=60)
    )
    for k in (3, 5):
        fixed = dataclasses.replace(base.shield, k=k, k_rule="fixed")
        write_run(root / f"fixed-k-{k}", dataclasses.replace(base, shield=fixed))
    early = dataclasses.replace(base.shield, construction_episodes=30)
    write_run(root / "activation-250", dataclasses.replace(base, episodes=90, shield=early))
    long = dataclasses.replace(base, method="ddpg", env=EnvConfig(max_episode_steps=2000))
    write_run(root / "long-episodes", long)
    write_run(root / "core", dataclasses.replace(base, method="rcpo", seed=7), episodes=20)
    broken = write_run(root / "core", dataclasses.replace(base, method="csc", seed=1))
    broken.episodes_file.write_text("<b>not a table</b>")
    return write_report([root], root / "report")


def test_the_page_is_complete_and_self_contained(made: Report) -> None:
    text = made.page.read_text()
    for row in ("overview", "rates"):
        for phase in ("full", "after"):
            assert f'id="figure-randomised-goal-{row}-{phase}"' in text
    article = re.search(r'<article id="task-randomised-goal" class="(\w*)"', text)
    assert article is not None
    assert article.group(1) == "phased"  # one of the two phases is shown at a time
    for part in ("k-history", "fixed-k", "activation", "steps"):
        assert f'id="figure-randomised-goal-{part}"' in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "@import" not in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_every_figure_and_table_is_a_file_too(made: Report) -> None:
    text, folder = made.page.read_text(), made.page.parent
    figures = re.findall(r'<figure id="figure-([^"]+)"', text)
    tables = re.findall(r'<table id="table-([^"]+)"', text)
    assert len(figures) > 10
    assert len(tables) > 6
    for name in figures:
        assert all((folder / "figures" / f"{name}.{e}").stat().st_size for e in ("png", "pdf"))
    for name in tables:
        assert (folder / "tables" / f"{name}.csv").stat().st_size
    for link in re.findall(r'href="((?:figures|tables)/[^"]+)"', text):
        assert (folder / link).is_file()


def test_the_page_says_what_is_missing_and_left_out(made: Report) -> None:
    text = html.unescape(made.page.read_text())
    assert "RCPO: seed 7 is unfinished (20 of 120 episodes)" in text
    assert "too few seeds to claim anything" in text  # two seeds on the constrained task
    assert "preliminary" in text  # three on the other
    assert "expected the columns" in text
    assert "<b>not a table" not in text


def test_what_is_written_is_what_was_recorded(made: Report) -> None:
    path = made.page.parent / "figures" / "randomised-goal-overview-after.csv"
    with open(path) as stream:
        rows = [row for row in csv.DictReader(stream) if row["series"] == "ADVICE"]
    assert {row["metric"] for row in rows} == {"return", "violations", "successes"}
    written = [row for row in rows if row["metric"] == "violations"]
    (task,) = (task for task in made.collection.tasks if task.task == "randomised-goal")
    runs = task.methods["advice"]
    totals = np.array([np.cumsum(run.column("violation")[60:]) for run in runs])
    assert [int(row["episode"]) for row in written] == list(range(1, 61))
    assert [float(row["mean"]) for row in written] == totals.mean(axis=0).tolist()
    errors = totals.std(axis=0, ddof=1) / np.sqrt(3)
    assert [float(row["standard_error"]) for row in written] == pytest.approx(errors.tolist())


def test_lines_hold_the_numbers_of_their_csv(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg", "advice"), seeds=range(2))
    methods = load([tmp_path]).tasks[0].methods
    curves = [c for m, r in methods.items() if (c := curve(m, m, r, METRICS["return"]))]
    drawn = draw_row({"return": curves}, method_looks(methods), "episode")
    drawing = Exhibit("x", "x", "x", "x", *drawn)
    rows = drawn_and_written(drawing, tmp_path / "figures")
    for line in drawing.figure.axes[0].lines:
        mine = [row for row in rows if row["series"] == line.get_label()]
        assert [float(row["mean"]) for row in mine] == np.asarray(line.get_ydata()).tolist()
        assert [float(row["episode"]) for row in mine] == np.asarray(line.get_xdata()).tolist()
    history = k_history(methods["advice"][0])
    above, below = draw_k_history(history, "K over time").axes
    for name, line in zip(("upper", "lower", "mu_r"), above.lines, strict=False):
        assert np.asarray(line.get_ydata()).tolist() == history[name].tolist()
    assert np.asarray(below.lines[0].get_ydata()).tolist() == history["k_after"].tolist()


def test_a_legend_fits_below_its_panels(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, methods=("advice",), seeds=[0])
    read = [read_run(run) for run in runs]
    labels = [f"DDPG-Lag, a variant with a long name, number {i}" for i in range(8)]
    lines = [item for x in labels if (item := curve(x, x, read, METRICS["return"]))]
    _, figure = draw_row({"return": lines}, variant_looks(labels), "episode")
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 8
    assert legend.get_window_extent().width <= figure.bbox.width


def test_bands_stay_where_a_metric_can_be(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg", "advice"), seeds=range(2))
    methods = load([tmp_path]).tasks[0].methods
    for name, lowest, highest in (("violation-rate", 0, 1), ("violations", 0, np.inf)):
        found = [c for m, r in methods.items() if (c := curve(m, m, r, METRICS[name]))]
        wide = [item._replace(error=item.error + 2.0) for item in found]
        _, figure = draw_row({name: wide}, method_looks(methods), "episode")
        for band in figure.axes[0].collections:
            (path,) = band.get_paths()
            assert path.vertices[:, 1].min() >= lowest
            assert path.vertices[:, 1].max() <= highest
        assert figure.axes[0].get_ylim()[0] == 0


def test_tasks_come_in_the_papers_order(tmp_path: Path) -> None:
    tasks = ("constrained-randomised-goal", "a-task", "randomised-circle", "semi-random-goal")
    write_grid(tmp_path, tasks, ("ddpg",), seeds=[0], episodes=3)
    found = [task.task for task in load([tmp_path]).tasks]
    paper = ["semi-random-goal", "randomised-circle", "constrained-randomised-goal"]
    assert found == [*paper, "a-task"]


def test_arming_early_is_counted_from_the_first_episode(tmp_path: Path) -> None:
    write_grid(tmp_path / "core", methods=("ddpg", "advice"), seeds=range(2))
    early = ShieldConfig(construction_episodes=70, arm="early")
    write_run(tmp_path / "early", TrainConfig("randomised-goal", "advice", 0, 120, shield=early))
    (task,) = load([tmp_path]).tasks
    table = study_table(task, "early")
    rows = {row["runs"]: row for row in table.rows}
    assert set(rows) == {
        "DDPG, as compared above",
        "ADVICE, as compared above",
        "ADVICE, armed early",
    }
    for row in rows.values():
        assert row["violations"].value == row["violations, full training"].value


def drawn_and_written(drawing: Exhibit, folder: Path) -> list[dict[str, str]]:
    save(drawing, folder)
    with open(folder / f"{drawing.name}.csv") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.usefixtures("undrawn")
def test_up_close_are_the_episodes_in_which_k_changes_most(tmp_path: Path) -> None:
    (run,) = write_grid(tmp_path, methods=("advice",), seeds=[0], episodes=400)
    whole = k_history(read_run(run))
    close = busiest(whole)
    start = np.flatnonzero(whole["episode"] == close["episode"][0])[0]
    for name, column in close.items():
        assert column.tolist() == whole[name][start : start + 80].tolist()
    moves = np.diff(whole["k_after"], prepend=whole["k_after"][0]) != 0
    counts = [moves[i : i + 80].sum() for i in range(len(moves) - 79)]
    assert counts[start] == max(counts) > 0
    assert busiest(close) is close
    shield = ShieldConfig(construction_episodes=60, recent_window=2, distant_window=10)
    paper = TrainConfig("randomised-goal", "advice", episodes=400, shield=shield)
    write_run(tmp_path / "windows-2-10", dataclasses.replace(paper, study="windows-2-10"))
    page = write_report([tmp_path], tmp_path / "report").page.read_text()
    for which, windows in (("k", "h_r = 3, h_d = 25"), ("k-paper", "h_r = 2, h_d = 10")):
        figure = page.split(f'id="figure-randomised-goal-{which}-history"')[1].split("</figure>")[0]
        assert f"ADVICE, seed 0, {windows}, rule" in figure
        assert f'id="figure-randomised-goal-{which}-close"' in page


@pytest.mark.usefixtures("undrawn")
def test_interventions_of_csc_have_a_panel_of_their_own(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg", "tabular", "csc", "advice"), seeds=[0])
    (task,) = load([tmp_path]).tasks
    found = {}
    for drawing in _curve_figures(task, method_looks(task.methods), None):
        for row in drawing.rows:
            found.setdefault(row["metric"], set()).add(row["series"])
    assert found["interventions"] == {"Tabular shield", "ADVICE"}
    assert found["interventions-csc"] == {"CSC"}


@pytest.mark.usefixtures("undrawn")
def test_several_versions_of_packages_are_named(tmp_path: Path) -> None:
    *_, odd = write_grid(tmp_path, methods=("ddpg",))
    several = "made with several versions of packages"
    assert several not in write_report([tmp_path], tmp_path / "out").page.read_text()
    versions = PROVENANCE["versions"] | {"jax": "0.9", "numpy": "2.0", "mujoco": "3.4"}
    odd.note(versions=versions, resumed=[PROVENANCE])
    made = write_report([tmp_path], tmp_path / "out", any_version=True)
    note = made.page.read_text().split(several)[1].split("</p>")[0]
    assert "jax unknown, numpy unknown, mujoco 3.3.0 (2 runs)" in note
    assert "jax 0.9, numpy 2.0, mujoco 3.4, then jax unknown, numpy" in note


def test_the_time_of_fits_counts_if_it_was_noted(tmp_path: Path) -> None:
    (folder,) = write_grid(tmp_path, methods=("advice",), seeds=[0])
    run = read_run(folder)
    assert run.minutes == pytest.approx(run.total("seconds") / 60)
    folder.note(fit_seconds=90.0)
    assert read_run(folder).minutes == pytest.approx(run.minutes + 1.5)


def test_compute_times_are_bars_and_dots() -> None:
    minutes = {"ddpg": [1.0, 3.0], "advice": [4.0]}
    rows, figure = draw_times(minutes, method_looks(minutes))
    assert [(row["method"], row["minutes"]) for row in rows] == [
        *(("DDPG", 1.0), ("DDPG", 3.0)),
        ("ADVICE", 4.0),
    ]
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [2.0, 4.0]
    assert [line.get_xdata().tolist() for line in axes.lines] == [*minutes.values()]


def test_the_same_runs_give_the_same_figure(tmp_path: Path) -> None:
    (run,) = write_grid(tmp_path / "runs", methods=("advice",), seeds=[0])
    history = k_history(read_run(run))
    drawings = [Exhibit("k", "k", "k", "k", figure=draw_k_history(history, "K")) for _ in range(2)]
    first, second = (save(d, tmp_path / str(i)) for i, d in enumerate(drawings))
    assert first == second
    for ending in ("png", "pdf"):
        assert len({(tmp_path / i / f"k-k.{ending}").read_bytes() for i in "01"}) == 1


def test_methods_look_the_same_everywhere() -> None:
    looks = method_looks(["advice", "ddpg", "rcpo+advice"])
    assert looks["advice"] == METHOD_LOOKS["advice"]
    assert len({look.colour for look in looks.values()}) == len(METHOD_LOOKS) + 1
    assert method_looks(["rcpo+advice"])["rcpo+advice"] == looks["rcpo+advice"]
    assert method_order(["advice", "rcpo+advice", "csc", "ddpg"])[0] == "ddpg"
    assert method_order(["advice", "rcpo+advice", "csc", "ddpg"])[-1] == "advice"


def test_tables_as_csv_and_on_the_page(tmp_path: Path) -> None:
    row = {
        "name": "a_b & 5 %",
        "mean": Estimate(12.345, 0.678, 3),
        "ratio": Interval(1.5, 1.0, 2.0),
    }
    table = Exhibit("", "t", "Title", "", [row | {"n": 3}, row | {"ratio": "none", "n": 4}])
    write_csv(tmp_path / "t.csv", table.rows)
    with open(tmp_path / "t.csv") as stream:
        first, second = csv.DictReader(stream)
    assert first["name"] == "a_b & 5 %"
    assert [first[f"mean ({x})"] for x in ("value", "error", "seeds")] == ["12.345", "0.678", "3"]
    assert [first[f"ratio ({x})"] for x in ("value", "low", "high")] == ["1.5", "1.0", "2.0"]
    assert (first["n"], second["ratio"], second["ratio (low)"]) == ("3", "none", "")
    assert table.text[1] == ["a_b & 5 %", "12.35 ± 0.68", "1.50 [1.00, 2.00]", "3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(2.1003108, 0.0000099, 5), "2.100 ± <0.001"),
        (Estimate(0.2115, 0.0055, 5), "0.2115 ± 0.0055"),
        (Estimate(628.0, 12.3, 5), "628 ± 12"),
        (Estimate(1000.0, 0.0, 5), "1000"),
        (Interval(77.8, 65.0, 86.04), "78 [65, 86]"),
        (Interval(1.0, 0.5625, 1.0), "1.00 [0.56, 1.00]"),
        (Interval(5.0, np.nan, np.nan), "5"),
        (Interval(0.5, -np.inf, np.inf), "0.5 [−∞, ∞]"),
    ],
)
def test_numbers_are_rounded_to_what_is_known(value: Estimate | Interval, text: str) -> None:
    assert shown(value) == text


@pytest.mark.slow
def test_a_task_of_a_package_has_clean_file_names(tmp_path: Path) -> None:
    write_grid(tmp_path / "runs", ("package:space/Maze-v0",), ("ddpg", "advice"))
    report = write_report([tmp_path / "runs"], tmp_path / "report")
    text = report.page.read_text()
    assert "<h2>package:space/Maze-v0</h2>" in text
    links = re.findall(r'href="((?:figures|tables)/[^"]+)"', text)
    assert "tables/package_space_Maze-v0-summary.csv" in links
    assert all((tmp_path / "report" / link).is_file() for link in links)


@pytest.mark.usefixtures("undrawn")
def test_arming_early_has_a_headline_of_its_own(tmp_path: Path) -> None:
    write_grid(tmp_path / "core", methods=("ddpg",))
    for seed in range(3):
        early = ShieldConfig(construction_episodes=70, arm="early")
        config = TrainConfig("randomised-goal", "advice", seed, 120, shield=early)
        write_run(tmp_path / "early", config)
    report = write_report([tmp_path], tmp_path / "report")
    (alone,), text = report.claims, report.page.read_text()
    assert "Arming early, counted" not in text  # the first figures show it already
    assert "randomised-goal-overview-full</td>" in text
    assert "Full training" not in text  # there is but one phase to show
    assert "on randomised-goal (armed early, all episodes counted)" in alone.sentence
    (task,) = load([tmp_path]).tasks
    assert [(group.method, group.label) for group in task.pictured] == [
        ("ddpg", ""),
        ("advice", "armed early"),
    ]
    assert (task.activation, task.counted_from) == (60, 0)  # every episode counts
    assert task.pictured_activation == 70  # where the figures say "armed"
    assert not any("ADVICE" in line for line in task.missing)
    with open(tmp_path / "report" / "tables" / "randomised-goal-summary.csv") as stream:
        rows = [row["runs"] for row in csv.DictReader(stream)]
    assert rows == ["DDPG", "ADVICE, armed early"]
    goals = [run.total("success") for run in task.variants["early"][0].runs]
    assert f"In 120 episodes it reaches {np.mean(goals):.0f} goals" in alone.sentence
    write_grid(tmp_path / "core", methods=("advice",))
    both = [claim.sentence for claim in write_report([tmp_path], tmp_path / "report").claims]
    assert ["armed early" in sentence for sentence in both] == [False, True]
    (task,) = load([tmp_path]).tasks
    assert [group.label for group in task.pictured] == ["", ""]


def test_totals_are_of_complete_runs_only(tmp_path: Path) -> None:
    """Runs with fewer episodes have fewer violations, so their totals are not compared."""
    write_grid(tmp_path, methods=("ddpg", "advice"))
    shield = ShieldConfig(construction_episodes=60)
    for method, episodes in (("rcpo", 50), ("csc", 80)):
        for seed in range(3):
            write_run(
                tmp_path, TrainConfig("randomised-goal", method, seed, 120, shield=shield), episodes
            )
    (task,) = load([tmp_path]).tasks
    counts = {m: totals(runs, "violation", task.activation) for m, runs in task.methods.items()}
    assert (counts["rcpo"], counts["csc"], len(counts["ddpg"])) == ({}, {}, 3)
    claim = compare(task.task, counts)
    assert "best other method (DDPG)" in claim.sentence
    left_out = "Not compared, because their runs are incomplete: RCPO, CSC."
    assert claim.sentence.endswith(left_out)
    table = comparison_table([task])
    assert table is not None
    assert [row["against"] for row in table.rows] == ["DDPG"]
    assert table.caption.endswith(left_out)
    rows = {row["runs"]: row for row in summary_table(task).rows}
    for name in ("violations", "violations per goal", "successes", "timeouts"):
        assert shown(rows["CSC"][name]) == "–"
    assert shown(rows["CSC"]["steps"]) != "–"  # a mean per episode may stand
    overall = comparison_table([task, task._replace(task="another")])
    assert overall is not None
    assert [(row["against"], row["tasks"]) for row in overall.rows] == [("DDPG", 2)]
    for name in ("fewer violations, %", "probability of fewer"):  # of two equal tasks
        assert overall.rows[0][name].value == pytest.approx(table.rows[0][name].value)


def test_elsewhere_violations_are_counted_per_step(tmp_path: Path) -> None:
    config = TrainConfig(
        "CartPole-v1", "sac", episodes=200, shield=ShieldConfig(construction_episodes=20)
    )
    rates: dict[str, list[float]] = {"sac": [], "sac+advice": []}
    for method, seed in ((method, seed) for method in rates for seed in range(3)):
        made = write_run(tmp_path, dataclasses.replace(config, method=method, seed=seed))
        with made.episodes_file.open() as stream:
            rows = [{**row, "success": "0"} for row in csv.DictReader(stream)]
        with made.episodes_file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        count, steps = (sum(int(row[name]) for row in rows[20:]) for name in ("violation", "steps"))
        rates[method].append(count / steps)
    report = write_report([tmp_path], tmp_path / "report")
    fewer = 100 * (1 - np.mean(rates["sac+advice"]) / np.mean(rates["sac"]))
    start = f"SAC + ADVICE: {fewer:.0f} % fewer violations per 1,000 steps than the best other"
    assert report.claims[0].sentence.startswith(start)
    assert load([tmp_path]).tasks[0].missing == []
    (curves,) = (tmp_path / "report/figures").glob("*overview-after.csv")
    metrics = {row["metric"] for row in csv.DictReader(curves.read_text().splitlines())}
    assert metrics == {"return", "violations", "steps"}  # without goals no curve of goals
