"""Frames of the arena, fast without a GPU: no shadows, no reflections, no multisampling.

``mujoco.Renderer`` takes as long, but it chooses its OpenGL library when mujoco is imported, and on
a machine without a display it chooses one that fails unless MUJOCO_GL is set.
"""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np

from advice.types import AdviceError, Array

_LINE_COLOUR = (0.70, 0.73, 0.79, 1.0)


class RenderingError(AdviceError, RuntimeError):
    """This machine has no OpenGL library to render with."""


def _has_display() -> bool:
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(display) or not sys.platform.startswith("linux")


def _gl_context(width: int, height: int) -> Any:
    """The library that MUJOCO_GL names; without it MuJoCo's choice, or EGL or OSMesa if there is no
    display."""
    named, reasons = os.environ.get("MUJOCO_GL", "").lower(), []
    backends = ("mujoco",) if named or _has_display() else ("mujoco.egl", "mujoco.osmesa")
    for backend in (f"mujoco.{named}",) if named in ("egl", "osmesa") else backends:
        try:
            return import_module(backend).GLContext(width, height)
        except Exception as error:  # PyOpenGL raises many types for a missing library
            reasons.append(f"{backend}: {error}")
    raise RenderingError(
        "cannot render without a display: expected an EGL or OSMesa library (Debian: apt install "
        f"libegl1 libgl1-mesa-dri, or libosmesa6), found {'; '.join(reasons)}"
    )


def name_gl_library() -> None:
    """Set MUJOCO_GL if there is no display: Gymnasium's environments would take GLFW and fail."""
    if not (os.environ.get("MUJOCO_GL") or _has_display()):
        with suppress(RenderingError):
            context = _gl_context(16, 16)
            os.environ["MUJOCO_GL"] = type(context).__module__.split(".")[1]
            context.free()


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
        self.close = weakref.finalize(self, _free, self._gl, self._context)
        """Free the OpenGL context; garbage collection does it too."""
        self.close.atexit = False  # the driver cleans up when the process ends
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = False
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._area = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), dtype=np.uint8)

    def draw(self, data: Any, rings: list[tuple[Array, tuple[float, ...]]]) -> Array:
        """One RGB frame (height, width, 3) uint8; ``rings``: lidar readings and their colours."""
        self._gl.make_current()
        mujoco.mj_camlight(self._model, data)  # moves the cameras with the bodies
        options, nothing = mujoco.MjvOption(), mujoco.MjvPerturb()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            self._model, data, options, nothing, self._camera, everything, self._scene
        )
        # A line every metre; a texture would take longer than the rest of the frame.
        for at in range(-8, 9):
            self._add((0.008, 8.0, 0.001), (at, 0.0, 0.001), _LINE_COLOUR)
            self._add((8.0, 0.008, 0.001), (0.0, at, 0.001), _LINE_COLOUR)
        for level, (readings, colour) in enumerate(rings):
            self._draw_ring(data.body("agent"), 0.24 + 0.05 * level, readings, colour)
        mujoco.mjr_render(self._area, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._area, self._context)
        return self._pixels[::-1].copy()  # OpenGL's first row is the lowest

    def _draw_ring(
        self, car: Any, radius: float, readings: Array, colour: tuple[float, ...]
    ) -> None:
        """One dot per bin around the car, larger and more opaque the nearer the object."""
        for i, reading in enumerate(readings.tolist()):
            angle = 2.0 * np.pi * (i + 0.5) / len(readings)
            offset = (radius * np.cos(angle), radius * np.sin(angle), 0.18)
            place = car.xpos + car.xmat.reshape(3, 3) @ np.array(offset)
            self._add((0.009 + 0.008 * reading,) * 3, place, (*colour[:3], 0.15 + 0.85 * reading))

    def _add(self, size: Any, place: Any, colour: tuple[float, ...]) -> None:
        """Add a box to the scene only; spheres have many faces and would double a frame's time."""
        scene = self._scene
        if scene.ngeom < scene.maxgeom:
            box, rgba = mujoco.mjtGeom.mjGEOM_BOX, np.array(colour, dtype=np.float32)
            upright = np.eye(3).ravel()
            geom = scene.geoms[scene.ngeom]
            mujoco.mjv_initGeom(geom, box, np.array(size), np.array(place), upright, rgba)
            scene.ngeom += 1


def _free(gl: Any, context: Any) -> None:
    gl.make_current()  # or another renderer's context would lose its buffers
    context.free()
    gl.free()


def open_window(model: Any, data: Any) -> Any:
    """MuJoCo's interactive viewer, which shows ``data`` at each ``sync()``.

    Without a display, where the viewer would end the process, an object that does nothing.
    """
    if _has_display():
        return import_module("mujoco.viewer").launch_passive(model, data)
    print("no display, so no window; render_mode='rgb_array' gives frames", file=sys.stderr)
    return SimpleNamespace(sync=lambda: None, close=lambda: None)
