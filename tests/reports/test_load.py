"""Which runs belong together, which are a study, which are left out and why."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from made_up import PROVENANCE, write_grid, write_run

from advice.config import PRESETS, AgentConfig, ShieldConfig, TrainConfig
from advice.reports.load import Collection, Run, complete, load
from advice.reports.plots import METRICS, curve, k_history, thinned
from advice.reports.summaries import compare
from advice.runs.records import COLUMNS, TRAINING_VERSIONS, RunFolder
from advice.runs.studies import STUDIES, SUITES, cells_of, with_settings
from advice.types import AdviceError

BASE = TrainConfig(
    task="randomised-goal", episodes=120, shield=ShieldConfig(construction_episodes=60)
)


def reasons(found: Collection) -> str:
    return "\n".join(f"{path.name}: {why}" for path, why in found.left_out.items())


def test_a_grid_is_one_comparison(tmp_path: Path) -> None:
    write_grid(tmp_path, seeds=range(2))
    found = load([tmp_path])
    (task,) = found.tasks
    assert list(task.methods) == ["ddpg", "ddpg-lag", "rcpo", "tabular", "csc", "advice"]
    assert all(len(runs) == 2 for runs in task.methods.values())
    assert (task.activation, task.missing, found.left_out) == (60, [], {})


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(AdviceError, match="found none"):
        load([tmp_path])
    with pytest.raises(AdviceError, match="no such folder"):
        load([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text.replace(",return,", ",reward,", 1), "expected the columns"),
        (lambda text: text + "121,half a\n", "line 122"),
        (lambda text: text.replace("\n7,", "\n8,", 1), "expected episode 7, found 8"),
        (lambda text: text.splitlines()[0] + "\n", "no episodes yet"),
        (lambda text: re.sub(r"(\n5,\d+,\d+),[^,]+", r"\1,nan", text), "line 6: expected return"),
        (lambda text: "\0\1garbage", "expected the columns"),
    ],
)
def test_a_broken_csv_is_left_out(tmp_path: Path, damage: object, why: str) -> None:
    broken = write_grid(tmp_path, methods=("ddpg",), seeds=range(3))[1]
    text = broken.episodes_file.read_text()
    broken.episodes_file.write_text(damage(text))  # type: ignore[operator]
    found = load([tmp_path])
    assert [run.config.seed for run in found.tasks[0].methods["ddpg"]] == [0, 2]
    assert why in reasons(found)


def test_a_half_written_last_line_is_no_damage(tmp_path: Path) -> None:
    (run,) = write_grid(tmp_path, methods=("ddpg",), seeds=[0])
    with open(run.episodes_file, "a") as stream:
        stream.write("121,50")
    assert len(load([tmp_path]).tasks[0].methods["ddpg"][0].table) == 120


def test_broken_settings_are_left_out(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, methods=("ddpg",), seeds=range(5))
    runs[0].config_file.write_text("{")
    runs[1].config_file.write_text('{"config": {"colour": 1}, "provenance": {}}')
    runs[2].config_file.unlink()
    runs[3].config_file.write_text('{"config": {"shield": {"k_max": "5"}}, "provenance": {}}')
    found = load([tmp_path])
    assert len(found.left_out) == 4
    assert "as JSON" in reasons(found)
    assert "has no setting 'colour'" in reasons(found)
    assert "config.json is missing" in reasons(found)


def test_other_settings_are_never_mixed(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg", "advice"))
    odd = dataclasses.replace(BASE, method="ddpg", seed=9, agent=AgentConfig(gamma=0.9))
    write_run(tmp_path / "odd", odd)
    short = dataclasses.replace(BASE, method="advice", seed=9, episodes=70)
    write_run(tmp_path / "short", short)
    found = load([tmp_path])
    assert all(run.config.seed < 9 for runs in found.tasks[0].methods.values() for run in runs)
    assert "agent.gamma is 0.9, elsewhere 0.95" in reasons(found)
    assert "episodes is 70, elsewhere 120" in reasons(found)


def test_other_code_is_never_mixed_silently(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg",))
    other = PROVENANCE | {"commit": "f" * 40 + "+"}
    write_run(tmp_path / "new", dataclasses.replace(BASE, method="ddpg", seed=9), None, other)
    found = load([tmp_path])
    assert len(found.tasks[0].methods["ddpg"]) == 3
    assert "another code version: 0.1.0 at ffffffffff+" in reasons(found)
    mixed = load([tmp_path], any_version=True)
    assert len(mixed.tasks[0].methods["ddpg"]) == 4
    assert mixed.code.startswith(
        "of several versions, mixed as asked: 0.1.0 at 0123456789 (3 runs)"
    )


def test_commits_with_equal_golden_runs_are_one_code(tmp_path: Path) -> None:
    numbered = PROVENANCE | {"training": 7}
    for seed, commit in enumerate(("a" * 40, "b" * 40, "c" * 40 + "+")):
        config = dataclasses.replace(BASE, method="ddpg", seed=seed)
        write_run(tmp_path, config, provenance=numbered | {"commit": commit})
    old = dataclasses.replace(BASE, method="ddpg", seed=3)
    write_run(tmp_path, old, provenance=PROVENANCE)
    found = load([tmp_path])
    assert [run.config.seed for run in found.tasks[0].methods["ddpg"]] == [0, 1]
    assert found.code == "training 7"
    assert "training 7 at cccccccccc+" in reasons(found)  # the tree had changes
    assert "0.1.0 at 0123456789" in reasons(found)


def test_the_present_numbers_of_several_methods_are_one_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("advice", "probes"):
        monkeypatch.setitem(TRAINING_VERSIONS, part, 1)
    for method, seed, number in (
        ("ddpg", 0, 2),
        ("rcpo", 0, 2),
        ("advice", 0, 4),
        ("advice", 1, 3),
    ):
        config = dataclasses.replace(BASE, method=method, seed=seed)
        write_run(tmp_path, config, provenance=PROVENANCE | {"training": number})
    found = load([tmp_path])
    seeds = {
        name: [run.config.seed for run in runs] for name, runs in found.tasks[0].methods.items()
    }
    assert seeds == {"ddpg": [0], "rcpo": [0], "advice": [0]}
    assert "training 3, the report's is the present training" in reasons(found)


def test_a_run_that_other_code_went_on_with_is_of_both(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg",), seeds=range(3))
    resumed = {"after_episode": 30, "commit": "e" * 40, "versions": PROVENANCE["versions"]}
    changed = dataclasses.replace(BASE, method="ddpg", seed=3)
    write_run(tmp_path, changed, provenance=PROVENANCE | {"resumed": [resumed]})
    found = load([tmp_path])
    assert len(found.tasks[0].methods["ddpg"]) == 3
    assert ", then 0.1.0 at eeeeeeeeee" in reasons(found)


def test_the_same_run_counts_once(tmp_path: Path) -> None:
    write_grid(tmp_path / "a", methods=("ddpg",), seeds=[0])
    write_grid(tmp_path / "b", methods=("ddpg",), seeds=[0])
    found = load([tmp_path / "a", tmp_path, tmp_path / "b"])
    assert len(found.tasks[0].methods["ddpg"]) == 1
    assert "the same run as" in reasons(found)
    short = dataclasses.replace(BASE, method="ddpg", seed=1)
    write_run(tmp_path / "a", short, episodes=10)
    write_run(tmp_path / "b", short)
    kept = load([tmp_path]).tasks[0].methods["ddpg"]
    assert [len(run.table) for run in kept] == [120, 120]  # the longer one of the two


def study_run(root: Path, study: str, config: TrainConfig = BASE) -> RunFolder:
    """A run with the settings of a study's row, scaled down to 120 episodes."""
    settings = STUDIES[study].settings_of(config.method) | {"episodes": 120}
    return write_run(root, with_settings(dataclasses.replace(config, study=study), settings))


def test_studies_are_known_by_name(tmp_path: Path) -> None:
    write_grid(tmp_path / "a", study="core")
    long = dataclasses.replace(BASE, method="ddpg")
    studies = ("fixed-k-3", "activation-250", "windows-3-10", "long-episodes", "transfer")
    for study in studies:
        study_run(tmp_path / study, study, long if study == "long-episodes" else BASE)
    write_run(tmp_path / "mine", dataclasses.replace(BASE, study="mine"))
    found = load([tmp_path])
    assert "the same run as" in reasons(found)  # "mine" changes nothing
    labels = {key: variants[0].label for key, variants in found.tasks[0].variants.items()}
    assert labels == {
        "fixed-k": "K = 3",
        "activation": "E = 250",
        "windows": "h_r = 3, h_d = 10",
        "steps": "T = 2000",
        "transfer": "plain",
    }
    assert len(found.tasks[0].methods["advice"]) == 3


def test_a_run_without_a_name_belongs_to_the_study_of_its_folder(tmp_path: Path) -> None:
    write_grid(tmp_path / "core", methods=("ddpg", "advice"))
    fixed = with_settings(BASE, STUDIES["fixed-k-5"].settings)
    write_run(tmp_path / "fixed-k-5", fixed)
    write_run(tmp_path / "elsewhere", dataclasses.replace(fixed, seed=1))
    found = load([tmp_path])
    assert found.left_out == {}
    (task,) = found.tasks
    assert list(task.methods) == ["ddpg", "advice"]
    labels = {key: [v.label for v in variants] for key, variants in task.variants.items()}
    assert labels == {"fixed-k": ["K = 5"], "other-runs": ["other-runs"]}
    alone = load([tmp_path / "fixed-k-5"]).tasks[0]
    assert (list(alone.methods), alone.variants, alone.reference) == (["advice"], {}, "K = 5")


def test_transfer_compares_plain_and_pre_trained_methods(tmp_path: Path) -> None:
    base = dataclasses.replace(BASE, task="semi-random-goal")
    for method in ("ddpg", "advice"):
        write_run(tmp_path / "core", dataclasses.replace(base, method=method))
        source = "elsewhere" if method == "advice" else None
        moved = dataclasses.replace(base, method=method, episodes=60, shield_from=source)
        write_run(tmp_path / "transfer", moved)
    found = load([tmp_path])
    assert found.left_out == {}
    (task,) = found.tasks
    variants = task.variants["transfer"]
    assert [(v.method, v.label) for v in variants] == [("ddpg", "plain"), ("advice", "pre-trained")]


def test_a_study_of_any_other_name_has_a_section_of_its_own(tmp_path: Path) -> None:
    write_grid(tmp_path / "core", methods=("ddpg", "advice"))
    odd = dataclasses.replace(BASE, study="small steps", agent=AgentConfig(gamma=0.9))
    write_run(tmp_path / "odd", odd)
    (task,) = load([tmp_path]).tasks
    assert [variant.label for variant in task.variants["small-steps"]] == ["small-steps"]


def test_the_committed_records_have_their_study_by_their_folder() -> None:
    root = Path(__file__).parents[2] / "results-earlier"
    found = load([root], any_version=True)
    assert found.left_out == {}
    (goal,) = (task for task in found.tasks if task.task == "randomised-goal")
    assert {key: [v.label for v in variants] for key, variants in goal.variants.items()} == {
        "own": ["defaults"],
        "fixed-k": ["K = 3", "K = 4", "K = 5"],
        "activation": ["E = 250", "E = 250, patience 200", "E = 500", "E = 750"],
    }
    assert all(len(runs) == 5 for runs in goal.methods.values())


def test_an_unfinished_grid_says_what_is_missing(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("ddpg", "advice"), seeds=range(2))
    write_run(tmp_path, dataclasses.replace(BASE, method="advice", seed=2), episodes=45)
    (task,) = load([tmp_path]).tasks
    assert "no runs of DDPG-Lag, RCPO, Tabular shield, CSC" in task.missing
    assert "DDPG: no seed 2" in task.missing
    assert "ADVICE: seed 2 is unfinished (45 of 120 episodes)" in task.missing
    found = curve("advice", "ADVICE", task.methods["advice"], METRICS["violations"])
    assert found is not None
    assert found.seeds == 2  # means are over the finished ones
    assert found.episodes[-1] == 120


def test_what_a_budget_ended_is_finished_but_not_complete() -> None:
    config = TrainConfig(episodes=4, stop_after_violations=2)
    whole, ended = np.zeros((4, len(COLUMNS))), np.zeros((3, len(COLUMNS)))
    ended[1:, COLUMNS.index("violation")] = 1
    complete_run, ended_early = (
        Run(RunFolder("run"), config, {}, table) for table in (whole, ended)
    )
    assert ended_early.finished
    assert len(complete([complete_run])) == 1
    assert complete([ended_early]) == []
    assert (
        complete([complete_run, ended_early]) == []
    )  # the complete ones alone would look too good


def test_curves_by_hand(tmp_path: Path) -> None:
    for seed, crashes in ((0, "0110"), (1, "0001")):
        run = write_run(
            tmp_path, TrainConfig(task="t", method="ddpg", seed=seed, episodes=4), episodes=4
        )
        rows = [
            f"{i},5,{5 * i},1.0,0.{c},{c},0,0,0,0,0.0,1.0" for i, c in enumerate(crashes, start=1)
        ]
        run.episodes_file.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    runs = load([tmp_path]).tasks[0].methods["ddpg"]
    full = curve("ddpg", "DDPG", runs, METRICS["violations"])
    assert full is not None
    assert full.mean.tolist() == [0, 0.5, 1, 1.5]  # totals 0 1 2 2 and 0 0 0 1
    assert full.error == pytest.approx([0, 0.5, 1, 0.5])
    later = curve("ddpg", "DDPG", runs, METRICS["violations"], 2)
    assert later is not None
    assert later.episodes.tolist() == [1, 2]  # counted from zero
    assert later.mean.tolist() == [0.5, 1]  # totals 1 1 and 0 1


def test_thinning_keeps_the_end() -> None:
    assert thinned(3).tolist() == [0, 1, 2]
    assert len(thinned(2000)) == 200
    assert thinned(2000)[-1] == 1999
    assert thinned(1007)[-1] == 1006


def test_k_history_explains_every_move_of_k(tmp_path: Path) -> None:
    """Where mu_r is above the upper threshold K rises, at or below the lower one it falls."""
    write_grid(tmp_path, methods=("advice",), seeds=[1], episodes=400, construction=50)
    run = load([tmp_path]).tasks[0].methods["advice"][0]
    history = k_history(run)
    assert history["episode"][0] == 51
    before = np.concatenate(([4], history["k_after"][:-1]))[:-1]
    after = history["k_after"][:-1]
    recent, lower, upper = (history[name][:-1] for name in ("mu_r", "lower", "upper"))
    expected = np.where(
        recent > upper + 1e-9,
        np.minimum(before + 1, 5),
        np.where(recent <= lower + 1e-9, np.maximum(before - 1, 3), before),
    )
    assert (after == expected).all()
    assert len(np.unique(after)) > 1


def test_k_history_leaves_probes_out(tmp_path: Path) -> None:
    write_grid(tmp_path, methods=("advice",), seeds=[1], episodes=60, construction=50)
    run = load([tmp_path]).tasks[0].methods["advice"][0]
    whole = k_history(run)
    k = run.table[:, COLUMNS.index("k")]
    k[54] = 0  # episode 55 was a probe, 58 and 59 had no armed shield
    k[57:59] = 0
    history = k_history(run)
    assert history["episode"].tolist() == [51, 52, 53, 54, 56, 57, 60]
    assert (history["k_after"] > 0).all()
    assert history["mu_r"][:4].tolist() == whole["mu_r"][:4].tolist()


def test_the_headline_is_computed() -> None:
    totals = {
        "ddpg": dict(enumerate([100.0, 110, 90, 105, 95])),
        "rcpo": dict(enumerate([50.0, 55, 45, 52, 48])),
        "advice": dict(enumerate([20.0, 25, 15, 22, 18])),
    }
    claim = compare("T", totals)
    assert claim.holds
    assert claim.sentence.startswith(
        "ADVICE: 60 % fewer violations than the best other method (RCPO) on T, 95 % interval "
    )
    assert claim.sentence.endswith(", 5 seeds.")
    worse = compare("T", {"advice": totals["ddpg"], "rcpo": totals["rcpo"]})
    assert "100 % more violations" in worse.sentence
    assert not worse.holds
    same = compare("T", {"advice": totals["rcpo"], "ddpg": totals["rcpo"]})
    assert "no difference can be claimed" in same.sentence
    other = compare("T", {"sac+advice": totals["advice"], "sac": totals["rcpo"]})
    assert other.sentence.startswith("SAC + ADVICE: 60 % fewer violations than the best other")


def test_too_few_seeds_claim_nothing() -> None:
    few = {"advice": {0: 1.0, 1: 2.0}, "ddpg": {0: 50.0, 1: 60.0, 2: 70.0}}
    claim = compare("T", few)
    assert "too few seeds to claim anything" in claim.sentence
    assert not claim.holds
    three = {"advice": {i: 1.0 + i for i in range(3)}, "ddpg": {i: 50.0 + i for i in range(3)}}
    assert "preliminary" in compare("T", three).sentence
    assert "no run of ADVICE" in compare("T", {"ddpg": {0: 1.0}}).sentence
    assert "no other method" in compare("T", {"advice": {0: 1.0}}).sentence
    assert "incomplete" in compare("T", {"advice": {}, "ddpg": {0: 1.0}}).sentence
    none = {"advice": dict.fromkeys(range(3), 0.0), "ddpg": dict.fromkeys(range(3), 0.0)}
    assert "had none" in compare("T", none).sentence


def test_few_seeds_that_vary_claim_nothing() -> None:
    rare = {"advice": dict.fromkeys(range(3), 1.0), "ddpg": {0: 0.0, 1: 0.0, 2: 6.0}}
    claim = compare("T", rare)
    assert "50 % fewer" in claim.sentence
    assert re.search(
        r"95 % interval -\d+ to 99 %, 3 seeds; the interval includes zero", claim.sentence
    )
    assert not claim.holds


def test_a_method_without_any_violation_has_no_interval() -> None:
    never = {"advice": dict.fromkeys(range(5), 0.0), "ddpg": {i: 10.0 + i for i in range(5)}}
    claim = compare("T", never)
    assert "100 % fewer violations" in claim.sentence
    assert "no interval, because its runs had none" in claim.sentence
    assert claim.holds  # by the rank test: 2 of 252 orders
    assert not compare("T", {m: dict(list(x.items())[:3]) for m, x in never.items()}).holds


@pytest.mark.parametrize("suite", [name for name in SUITES if name != "smoke"])
def test_every_run_of_a_suite_has_its_place(tmp_path: Path, suite: str) -> None:
    cells = cells_of(SUITES[suite], [0], tmp_path, TrainConfig())
    for cell in cells:
        root = cell.folder.path.parents[2]
        write_run(root, cell.config, episodes=3)
    found = load([tmp_path])
    assert found.left_out == {}
    compared = {task.task: set(task.methods) for task in found.tasks}
    if suite in ("core", "paper"):
        assert all(len(methods) == 6 for methods in compared.values())
    sections = {key for task in found.tasks for key in task.variants}
    of_suite = {
        "paper-settings": {"preset"},
        "k-sweep": {"fixed-k"},
        "activation-sweep": {"activation"},
        "windows": {"windows"},
        "shift": {"shift"},
        "paper": {"preset", "transfer", "fixed-k", "activation", "windows", "steps", "early"},
    }
    assert sections == of_suite.get(suite, set())
    for task in found.tasks:
        arm = "early" if suite == "early" else "fixed"  # after E, as in the paper
        expected = dataclasses.replace(PRESETS["default"], arm=arm)
        assert all(run.config.shield == expected for run in task.methods.get("advice", []))
