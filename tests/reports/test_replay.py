"""Episodes come back bit for bit, or not at all."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from driven import SHIELD, drive
from gymnasium.spaces import Box
from matplotlib.image import imread

from advice import Shield
from advice.config import AgentConfig, EnvConfig, TrainConfig
from advice.reports.page import write_report
from advice.reports.replay_page import needed_in_words, write_replay
from advice.runs.checkpoints import RecordWriter
from advice.runs.loop import train
from advice.runs.methods import episode_seed, make_environment
from advice.runs.records import COLUMNS, RunFolder
from advice.runs.resimulate import (
    Counterfactual,
    choose_episode,
    counterfactuals,
    film,
    final_critic,
    resimulate,
)
from advice.types import AdviceError, EpisodeRecord


@pytest.fixture(scope="module")
def run(driven: dict[str, RunFolder]) -> RunFolder:
    return driven["advice"]


@pytest.fixture(scope="module")
def busy(run: RunFolder) -> int:
    """An episode with interventions."""
    return max(run.read_episodes(), key=lambda record: record.interventions).episode


def test_every_episode_comes_back_as_recorded(run: RunFolder) -> None:
    for record in run.read_episodes():
        replay = resimulate(run, record.episode)
        assert len(replay.executed) == record.steps
        assert sum(replay.rewards.tolist()) == record.episode_return
        assert replay.intervened.sum() == record.interventions
        assert replay.observations.shape == (record.steps + 1, 32)


def test_the_shield_refuses_the_same_proposals_again(run: RunFolder, busy: int) -> None:
    """Resimulated observations are exact: the shield refuses the very same proposals."""
    replay = resimulate(run, busy)
    shield = Shield.load(run.shield_file)
    needed = replay.record.k
    refused = [
        shield.guard(obs, action).safe_neighbours < needed
        for obs, action in zip(replay.observations[:-1], replay.proposed, strict=True)
    ]
    assert sum(refused) == replay.record.interventions + replay.record.no_safe_action
    assert all(np.array(refused)[replay.intervened])


def test_another_ending_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "copy")
    shutil.copytree(run.path, other.path)
    actions = np.fromfile(other.actions_file, "<f4")
    actions[:40] = -actions[:40]
    actions.tofile(other.actions_file)
    with pytest.raises(AdviceError, match="cannot be repeated"):
        resimulate(other, 1)


def test_choosing_an_episode(run: RunFolder) -> None:
    records = run.read_episodes()
    first = next(record.episode for record in records if record.violation)
    assert choose_episode(run, "any-violation") == first
    armed = next(record.episode for record in records if record.k and record.violation)
    assert choose_episode(run, "first-violation") == armed > first
    busy = [record for record in records if record.k and record.interventions]
    wins = [record for record in busy if record.success]
    assert choose_episode(run, "intervened") == (wins or busy)[-1].episode
    worst = records[choose_episode(run, "worst") - 1]
    assert worst.violation
    assert worst.episode_return == min(r.episode_return for r in records if r.violation)
    with pytest.raises(AdviceError, match="from 1 to 20, found 21"):
        resimulate(run, 21)
    with pytest.raises(AdviceError, match="found 0"):
        resimulate(run, 0)


def test_no_violation_after_arming_is_said(tmp_path: Path) -> None:
    config = TrainConfig(episodes=3)
    folder = RunFolder(tmp_path)
    folder.write_config(config)

    def write(*episodes: tuple[int, bool, int]) -> None:
        lines = [f"{n},5,{5 * n},0.0,0.0,{int(v)},0,0,0,{k},0.0,0.1" for n, v, k in episodes]
        folder.episodes_file.write_text("\n".join((",".join(COLUMNS), *lines, "")))

    write((1, True, 0), (2, False, 4), (3, False, 4))
    with pytest.raises(AdviceError, match=r"violation after the shield was armed in episode 2; --"):
        choose_episode(folder, "first-violation")
    assert choose_episode(folder, "intervened") == 1  # no interventions: the worst
    write((1, True, 0))
    with pytest.raises(AdviceError, match="its shield was never armed"):
        choose_episode(folder, "first-violation")
    write((1, False, 0))
    with pytest.raises(AdviceError, match=r"no episode with a violation$"):
        choose_episode(folder, "any-violation")


def test_a_success_is_shown_rather_than_a_later_timeout(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_config(TrainConfig(episodes=3))
    lines = [f"{n},5,{5 * n},0.0,0.0,0,{int(n == 2)},3,0,4,0.0,0.1" for n in (1, 2, 3)]
    folder.episodes_file.write_text("\n".join((",".join(COLUMNS), *lines, "")))
    assert choose_episode(folder, "intervened") == 2


def test_the_film_shows_as_far_as_asked(driven: dict[str, RunFolder]) -> None:
    folder = driven["ddpg"]
    replay = resimulate(folder, 1)
    assert replay.poses is not None
    assert replay.farthest >= max(1.5, np.abs(replay.poses[:, :2]).max())
    assert replay._replace(poses=None).farthest == 0
    near, far = (film(folder, replay, 1000, farthest)[0] for farthest in (1.5, 6.0))
    assert near.shape == far.shape
    # the car is red and looks smaller from higher up
    red = [
        ((x[..., 0] > 150) & (x[..., 1] < 90)).sum() for x in (near.astype(int), far.astype(int))
    ]
    assert red[0] > 4 * red[1] > 0


def test_counterfactuals_restore_the_state(run: RunFolder, busy: int) -> None:
    """Each is what one gets by driving there again and holding the refused action."""
    replay, horizon = resimulate(run, busy), 15
    found = counterfactuals(run, replay, horizon)
    assert [item.step for item in found] == np.flatnonzero(replay.intervened).tolist()
    config = run.read_config()
    for item in found[:: max(1, len(found) // 6)]:
        env = make_environment(config)
        env.reset(seed=episode_seed(config.seed, busy))
        for action in replay.executed[: item.step]:
            env.step(action)
        harm = 0
        for step in range(1, horizon + 1):
            _, _, terminated, truncated, info = env.step(replay.proposed[item.step])
            if info["violation"]:
                harm = step
            if terminated or truncated:
                break
        assert item.harm_after == harm
        assert item.needed == (harm > 0)
    with pytest.raises(AdviceError, match="at least 1 step"):
        counterfactuals(run, replay, 0)


def test_counterfactuals_in_words() -> None:
    found = [
        Counterfactual(0, True, 3, False),
        Counterfactual(1, True, 2, True),
        Counterfactual(2, False, 0, False),
    ]
    assert needed_in_words(found) == "2 of 3 interventions, of which 1 did not prevent it"
    assert needed_in_words([]) == "0 of 0 interventions"


def data_of(page: Path) -> dict[str, Any]:
    script = r'<script id="data" type="application/json">(.*?)</script>'
    found = re.search(script, page.read_text(), re.DOTALL)
    assert found
    return dict(json.loads(found.group(1)))


def test_the_page_holds_the_episode(run: RunFolder, busy: int, tmp_path: Path) -> None:
    made = write_replay(run.path, tmp_path / "replay.html", busy, counterfactual=True, horizon=5)
    data = data_of(made.page)
    steps = run.read_episodes()[busy - 1].steps
    shapes = {name: tuple(packed["shape"]) for name, packed in data["arrays"].items()}
    assert shapes["poses"] == (steps + 1, 3)
    assert shapes["votes"] == shapes["ratings"] == (steps, 121)
    assert shapes["neighbours"] == (steps, SHIELD.k_max, 2)
    assert len(data["counterfactuals"]) == made.interventions
    assert data["lidars"] == ["target", "cubes"]
    assert not re.search(r"(src|href)=[\"']?https?:", made.page.read_text())
    shield, replay = Shield.load(run.shield_file), resimulate(run, busy)
    stuck = [
        shield.guard(obs, action).no_safe_action
        for obs, action in zip(replay.observations[:-1], replay.proposed, strict=True)
    ]
    assert base64.b64decode(data["arrays"]["noSafe"]["data"]) == bytes(stuck)


def test_candidates_that_follow_the_proposal_are_not_on_the_page(tmp_path: Path) -> None:
    # 20 are fixed; of the 20 made from the proposal one, zero times it, is always the middle
    budget = dataclasses.replace(SHIELD, candidate_budget=40)
    made = write_replay(drive(tmp_path, shield=budget).path, tmp_path / "replay.html", 20)
    assert data_of(made.page)["arrays"]["candidates"]["shape"] == [21, 2]


def test_the_critic_of_a_run(tmp_path: Path) -> None:
    config = TrainConfig(
        task="semi-random-goal",
        method="ddpg",
        episodes=1,
        env=EnvConfig(max_episode_steps=5),
        agent=AgentConfig(warmup_steps=0, hidden_size=8, batch_size=4),
    )
    folder = RunFolder.of(tmp_path, config)
    assert final_critic(folder) is None
    train(config, folder)
    rate = final_critic(folder)
    assert rate is not None
    values = rate(np.zeros(32, np.float32), np.zeros((3, 2), np.float32))
    assert np.shape(values) == (3,)
    assert np.isfinite(values).all()
    shutil.rmtree(folder.checkpoint)  # as in the committed results: the agent alone is kept
    again = final_critic(folder)
    assert again is not None
    np.testing.assert_array_equal(
        again(np.zeros(32, np.float32), np.zeros((3, 2), np.float32)), values
    )


def test_a_run_without_a_shield_shows_what_there_is(
    driven: dict[str, RunFolder], tmp_path: Path
) -> None:
    made = write_replay(
        driven["ddpg"].path, tmp_path / "replay.html", 1, video=tmp_path / "film.mp4"
    )
    text = made.page.read_text()
    assert 'id="arena"' in text
    assert 'id="latent"' not in text
    assert "no fitted shield" in text
    assert (tmp_path / "film.mp4").stat().st_size > 1000


@pytest.mark.slow
def test_a_report_shows_the_shield_and_the_ways(run: RunFolder, tmp_path: Path) -> None:
    report = write_report([run.path.parents[2]], tmp_path)
    text = report.page.read_text()
    assert 'id="figure-semi-random-goal-trajectories"' in text
    for ending in ("png", "pdf"):
        assert (tmp_path / "figures" / f"semi-random-goal-trajectories.{ending}").exists()
    assert "Right: what one shield remembers" in text  # the latent space
    diagnostics = (tmp_path / "tables" / "semi-random-goal-diagnostics.csv").read_text()
    assert "Theorem 4" in diagnostics
    assert ("Theorem 2" in diagnostics) != ("The bounds are not given: " in text)
    assert str(Shield.load(run.shield_file).audit()) in html.unescape(text)


class Line(gym.Env[Any, Any]):
    """Standing is safe, three steps ahead lies the cliff. Its state can be set."""

    observation_space = action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._at += int(action[0] > 0.5)
        fell = self._at >= 3
        return np.zeros(1, np.float32), 0.0, fell, False, {"violation": fell}

    def get_state(self) -> int:
        return self._at

    def set_state(self, state: int) -> None:
        self._at = state


def test_a_wrappers_time_limit_ends_no_trial(tmp_path: Path) -> None:
    config = TrainConfig(task=f"{__name__}:Line", env=EnvConfig(max_episode_steps=50))
    folder = RunFolder(tmp_path, trust_task=True)
    folder.write_config(config)
    writer = RecordWriter(folder, Line.action_space, 0, 0)
    for _ in range(50):
        writer.step(np.zeros(1), np.ones(1))
    writer.episode(EpisodeRecord(1, 50, 50, 0.0, 0.0, False, False, 50, 0, 4, 0.0, 0.1))
    writer.close()
    found = counterfactuals(folder, resimulate(folder, 1), horizon=10)
    assert [(item.needed, item.harm_after) for item in found] == [(True, 3)] * 50


class Drawn(Line):
    """The same, with frames: redder at each step."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._at += 1
        return np.zeros(1, np.float32), 0.0, self._at == 6, False, {"violation": self._at == 6}

    def render(self) -> Any:
        frame = np.zeros((300, 600, 3), np.uint8)
        frame[..., 0] = 40 * self._at
        return frame


@pytest.mark.parametrize("name", ["Drawn", "Line"])
def test_frames_of_a_foreign_environment(name: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, trust_task=True)
    folder.write_config(TrainConfig(task=f"{__name__}:{name}", method="ddpg"))
    writer = RecordWriter(folder, Line.action_space, 0, 0)
    steps = 6 if name == "Drawn" else 3
    for _ in range(steps):
        writer.step(np.ones(1), np.ones(1))
    writer.episode(EpisodeRecord(1, steps, steps, 0.0, 0.0, True, False, 0, 0, 0, 0.0, 0.1))
    writer.close()
    made = write_replay(folder.path, tmp_path / "replay.html", trust_task=True)
    data = data_of(made.page)
    if name == "Line":
        assert data["frames"] == []
        assert "There are no frames of this environment" in made.page.read_text()
        return
    assert data["fps"] == 50
    pictures = [
        imread(io.BytesIO(base64.b64decode(frame.split(",")[1])), format="jpeg")
        for frame in data["frames"]
    ]
    assert [picture.shape for picture in pictures] == [(200, 400, 3)] * 7
    red = [int(picture[..., 0].mean()) for picture in pictures]
    assert red == pytest.approx([40 * step for step in range(7)], abs=6)


class Fine(gym.Env[Any, Any]):
    """Float64 actions, as some environments have them, and a reward that shows every bit."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Box(-0.7, 0.7, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), float(np.sin(3 * action[0])), False, False, {}


def test_float64_actions_come_back_in_all_their_bits(tmp_path: Path) -> None:
    config = TrainConfig(
        task=f"{__name__}:Fine",
        method="ddpg",
        episodes=2,
        env=EnvConfig(max_episode_steps=20),
        agent=AgentConfig(warmup_steps=0, hidden_size=8, batch_size=4),
    )
    folder = RunFolder(tmp_path, trust_task=True)
    train(config, folder)
    assert resimulate(folder, 2).executed.dtype == np.float64
    folder.done_file.unlink()  # it holds a digest of the episodes
    writer = RecordWriter(folder, Fine.action_space, 0, 0)
    for _ in range(20):
        writer.step(np.array([-0.1]), np.array([-0.1]))  # float32 has no such number
    earned = float(np.full(20, np.sin(3 * -0.1)).cumsum()[-1])
    writer.episode(EpisodeRecord(1, 20, 20, earned, 0.0, False, False, 0, 0, 0, 0.0, 0.1))
    writer.close()
    assert resimulate(folder, 1).executed.tolist() == [[-0.1]] * 20
