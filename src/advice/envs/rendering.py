"""Pictures of the arena, fast without a GPU: no shadows, no reflections, no multisampling."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from typing import Any

import numpy as np

from advice.types import Array


def choose_backend() -> None:
    """Without a display, tell MuJoCo to draw off-screen; must run before MuJoCo is imported."""
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if "MUJOCO_GL" in os.environ or has_display or not sys.platform.startswith("linux"):
        return
    for backend, library in (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8")):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        os.environ["MUJOCO_GL"] = backend
        return


choose_backend()
import mujoco  # noqa: E402

_RING_RADIUS, _RING_HEIGHT, _RING_GAP = 0.24, 0.18, 0.05


class Painter:
    """Draws one environment's frames off-screen."""

    def __init__(self, model: Any, camera: str, size: tuple[int, int]) -> None:
        height, width = size
        try:
            self._renderer = mujoco.Renderer(model, height, width)
        except Exception as error:
            raise RuntimeError(
                "cannot render off-screen: expected an EGL or OSMesa library (Debian: apt install "
                f"libegl1 libgl1-mesa-dri, or libosmesa6) or a display, found: {error}"
            ) from error
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = False
        self._camera = camera

    def draw(self, data: Any, rings: list[tuple[Array, tuple[float, ...]]]) -> Array:
        """One RGB frame (height, width, 3) uint8; ``rings`` are lidar readings and their colours."""
        self._renderer.update_scene(data, camera=self._camera)
        car_pos, car_mat = data.body("agent").xpos, data.body("agent").xmat.reshape(3, 3)
        for level, (readings, colour) in enumerate(rings):
            self._draw_ring(car_pos, car_mat, level, readings, colour)
        frame: Array = self._renderer.render()
        return frame

    def _draw_ring(
        self, car_pos: Array, car_mat: Array, level: int, readings: Array, colour: tuple[float, ...]
    ) -> None:
        """One dot per bin around the car, larger and more solid the nearer something is."""
        scene = self._renderer.scene
        radius = _RING_RADIUS + _RING_GAP * level
        for i, reading in enumerate(readings):
            if scene.ngeom >= scene.maxgeom:
                return
            angle = 2.0 * math.pi * (i + 0.5) / len(readings)
            offset = np.array((radius * math.cos(angle), radius * math.sin(angle), _RING_HEIGHT))
            mujoco.mjv_initGeom(
                scene.geoms[scene.ngeom],
                mujoco.mjtGeom.mjGEOM_SPHERE,
                np.full(3, 0.012 + 0.010 * float(reading)),
                car_pos + car_mat @ offset,
                np.eye(3).ravel(),
                np.array((*colour[:3], 0.15 + 0.85 * float(reading)), dtype=np.float32),
            )
            scene.ngeom += 1

    def close(self) -> None:
        """Free the drawing context."""
        self._renderer.close()
