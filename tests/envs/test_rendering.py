"""Rendering: objects at the right pixels and in the right colours."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

import advice
from advice.envs import TASKS
from advice.envs.rendering import _gl_context, name_gl_library
from advice.types import AdviceError


def pixel_of(env, x: float, y: float, frame: np.ndarray) -> np.ndarray:
    """The colour seen at a place on the floor by the top camera."""
    half = len(frame) / 2
    scale = half / (env.task.arena + 0.3)
    return frame[int(half - y * scale), int(half + x * scale)].astype(int)


def test_the_top_view_shows_car_cubes_and_goal_where_they_are():
    env = advice.make("randomised-goal", render_mode="rgb_array", render_size=(240, 240))
    env.reset(seed=3)
    frame = env.render()
    assert frame.shape == (240, 240, 3)
    assert frame.dtype == np.uint8
    red, green, blue = pixel_of(env, *env.car_pose[:2], frame)
    assert red > 2 * green
    assert red > 2 * blue
    red, green, blue = pixel_of(env, *env.layout["goal"][0], frame)
    assert green > red + 30
    assert green > blue + 30
    for x, y in env.layout["cubes"]:
        red, green, blue = pixel_of(env, x, y, frame)
        assert blue > green + 30
        assert red > green
    env.close()


@pytest.mark.parametrize("task", TASKS)
def test_every_task_renders_from_both_cameras_with_lidar_rings(task):
    frames = []
    for camera, rings in (("top", False), ("top", True), ("chase", True)):
        env = advice.make(
            task, render_mode="rgb_array", camera=camera, draw_lidar=rings, render_size=(120, 160)
        )
        env.reset(seed=0)
        frames.append(env.render())
        env.close()
    assert all(frame.shape == (120, 160, 3) for frame in frames)
    assert not np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[1], frames[2])
    assert all(frame.std() > 5 for frame in frames)


def test_two_environments_render_at_the_same_time():
    one = advice.make("randomised-goal", render_mode="rgb_array", render_size=(64, 64))
    other = advice.make("randomised-circle", render_mode="rgb_array", render_size=(96, 96))
    one.reset(seed=0)
    other.reset(seed=0)
    alone = one.render()
    assert alone.std() > 5
    assert other.render().std() > 5
    np.testing.assert_array_equal(one.render(), alone)
    other.close()
    np.testing.assert_array_equal(one.render(), alone)
    one.close()


def test_without_render_mode_render_returns_none():
    env = advice.make("randomised-goal")
    env.reset(seed=0)
    assert env.render() is None


def test_without_opengl_the_error_says_what_to_install(monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")

    def no_library(name: str):
        raise ImportError(f"no library for {name}")

    monkeypatch.setattr("advice.envs.rendering.import_module", no_library)
    with pytest.raises(AdviceError, match=r"apt install libegl1.*no library for mujoco\.egl"):
        _gl_context(64, 64)


def test_without_a_display_other_environments_get_a_gl_library(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setattr("sys.platform", "linux")

    class Context:
        __module__ = "mujoco.osmesa"

        def __init__(self, width: int, height: int) -> None: ...
        def free(self) -> None: ...

    def only_osmesa(name: str):
        if name != "mujoco.osmesa":
            raise ImportError(f"no library for {name}")
        return SimpleNamespace(GLContext=Context)

    monkeypatch.setattr("advice.envs.rendering.import_module", only_osmesa)
    name_gl_library()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    assert isinstance(_gl_context(64, 64), Context)  # ours takes what is named, too


def test_without_a_display_human_mode_prints_a_message_and_continues(monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    env = advice.make("randomised-goal", render_mode="human")
    env.reset(seed=0)
    env.step((0, 0))
    env.close()
    assert capsys.readouterr().err.count("rgb_array") == 1
