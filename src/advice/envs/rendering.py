"""Frames of the arena, fast without a GPU: no shadows, no reflections, no multisampling.

``mujoco.Renderer`` takes as long, but it chooses its OpenGL library when mujoco is imported, and on
a machine without a display it chooses one that fails unless MUJOCO_GL is set.
"""

from __future__ import annotations

import math
import os
import sys
import weakref
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np

from advice.types import AdviceError, Array

_RING_RADIUS, _RING_HEIGHT, _RING_GAP = 0.24, 0.18, 0.05
_LINE_COLOUR, _LINE_HALF_WIDTH, _LINE_HALF_LENGTH = (0.70, 0.73, 0.79, 1.0), 0.008, 8
_MAX_GEOMS = 2000
_BOX = mujoco.mjtGeom.mjGEOM_BOX  # spheres have many faces and would double the time of a frame
_UPRIGHT = np.eye(3).ravel()


class RenderingError(AdviceError, RuntimeError):
    """This machine has no OpenGL library to render with."""


def _has_display() -> bool:
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(display) or not sys.platform.startswith("linux")


def _gl_context(width: int, height: int) -> Any:
    """MuJoCo's own choice if MUJOCO_GL is set or there is a display; otherwise EGL or OSMesa."""
    chosen = os.environ.get("MUJOCO_GL") or _has_display()
    reasons = []
    for backend in ("mujoco",) if chosen else ("mujoco.egl", "mujoco.osmesa"):
        try:
            return import_module(backend).GLContext(width, height)
        except Exception as error:  # PyOpenGL raises many types for a missing library
            reasons.append(f"{backend}: {error}")
    raise RenderingError(
        "cannot render without a display: expected an EGL or OSMesa library (Debian: apt install "
        f"libegl1 libgl1-mesa-dri, or libosmesa6), found {'; '.join(reasons)}"
    )


class Renderer:
    """Renders one environment's frames off-screen."""

    def __init__(self, model: Any, camera: str, size: tuple[int, int]) -> None:
        height, width = size
        self._model = model
        self._gl = _gl_context(width, height)
        self._gl.make_current()
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._free = weakref.finalize(self, _free, self._gl, self._context)
        self._free.atexit = False  # the driver cleans up when the process ends
        self._scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = False
        self._options, self._nothing = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._area = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), dtype=np.uint8)

    def draw(self, data: Any, rings: list[tuple[Array, tuple[float, ...]]]) -> Array:
        """One RGB frame (height, width, 3) uint8; ``rings``: lidar readings and their colours."""
        self._gl.make_current()
        mujoco.mj_camlight(self._model, data)  # moves the cameras with the bodies
        mujoco.mjv_updateScene(
            self._model,
            data,
            self._options,
            self._nothing,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        self._draw_floor_lines()
        car = data.body("agent")
        for level, (readings, colour) in enumerate(rings):
            self._draw_ring(car.xpos, car.xmat.reshape(3, 3), level, readings, colour)
        mujoco.mjr_render(self._area, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._area, self._context)
        return self._pixels[::-1].copy()  # OpenGL's first row is the lowest

    def _draw_floor_lines(self) -> None:
        """A line every metre; a texture would take longer than the rest of the frame."""
        long, wide, flat = float(_LINE_HALF_LENGTH), _LINE_HALF_WIDTH, 0.001
        for at in range(-_LINE_HALF_LENGTH, _LINE_HALF_LENGTH + 1):
            self._add((wide, long, flat), (at, 0.0, flat), _LINE_COLOUR)
            self._add((long, wide, flat), (0.0, at, flat), _LINE_COLOUR)

    def _draw_ring(
        self, car_pos: Array, car_mat: Array, level: int, readings: Array, colour: tuple[float, ...]
    ) -> None:
        """One dot per bin around the car, larger and more opaque the nearer the object."""
        radius = _RING_RADIUS + _RING_GAP * level
        for i, reading in enumerate(readings.tolist()):
            angle = 2.0 * math.pi * (i + 0.5) / len(readings)
            offset = (radius * math.cos(angle), radius * math.sin(angle), _RING_HEIGHT)
            size = 0.009 + 0.008 * reading
            place = car_pos + car_mat @ np.array(offset)
            self._add((size, size, size), place, (*colour[:3], 0.15 + 0.85 * reading))

    def _add(self, size: Any, place: Any, colour: tuple[float, ...]) -> None:
        """Add a box to the scene only."""
        scene = self._scene
        if scene.ngeom < scene.maxgeom:
            rgba = np.array(colour, dtype=np.float32)
            mujoco.mjv_initGeom(
                scene.geoms[scene.ngeom], _BOX, np.array(size), np.array(place), _UPRIGHT, rgba
            )
            scene.ngeom += 1

    def close(self) -> None:
        """Free the OpenGL context; garbage collection does it too."""
        self._free()


def _free(gl: Any, context: Any) -> None:
    gl.make_current()  # or another renderer's context would lose its buffers
    context.free()
    gl.free()


def open_window(model: Any, data: Any) -> Any:
    """MuJoCo's interactive viewer, which shows ``data`` at each ``sync()``.

    Without a display, where the viewer would end the process, an object that does nothing.
    """
    if not _has_display():
        print("no display, so no window; render_mode='rgb_array' gives frames", file=sys.stderr)
        return SimpleNamespace(sync=lambda: None, close=lambda: None)
    return import_module("mujoco.viewer").launch_passive(model, data)
