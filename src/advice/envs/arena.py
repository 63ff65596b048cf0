"""Floor, objects, light and cameras around the car: one ``MjModel`` per task, compiled once.

Every object is a mocap body, so that a reset moves things instead of compiling them again.
"""

from __future__ import annotations

from typing import Any

import mujoco

from advice.envs.robots import CONTACT_DIMENSIONS, add_car
from advice.envs.tasks import TaskSpec

PHYSICS_STEPS = 10
TIMESTEP = 0.004
COLOURS = {
    "goal": (0.16, 0.74, 0.34, 0.45),
    "circle": (0.16, 0.74, 0.34, 0.22),
    "right button": (0.16, 0.74, 0.34, 1.0),
    "buttons": (0.96, 0.60, 0.12, 1.0),
    "cubes": (0.46, 0.24, 0.72, 1.0),
    "pillars": (0.24, 0.42, 0.80, 1.0),
    "hazards": (0.20, 0.45, 0.95, 0.40),
}
_CYLINDER = mujoco.mjtGeom.mjGEOM_CYLINDER
_FLAT = 0.005  # half-height of things painted on the floor, m
_GOAL_HALF_HEIGHT, _PILLAR_HALF_HEIGHT = 0.01, 0.2


def build_model(task: TaskSpec) -> Any:
    """The compiled model: floor, car, objects, and the cameras top and chase."""
    spec = mujoco.MjSpec()
    spec.modelname = task.name
    spec.option.timestep = TIMESTEP
    # Newton's last iteration is nearly free here, and lets every MuJoCo release give the same path.
    spec.option.tolerance = 1e-14
    _add_floor_and_light(spec)
    car = add_car(spec)
    _add_objects(spec, task)
    _add_cameras(spec, car, task)
    return spec.compile()


def _add_objects(spec: Any, task: TaskSpec) -> None:
    if task.target == "goal":
        _add(spec, "goal", 1, _CYLINDER, (task.goal_radius, _GOAL_HALF_HEIGHT, 0.0), solid=False)
    if task.target == "circle":
        _add(spec, "circle", 1, _CYLINDER, (task.circle_radius, _FLAT, 0.0), solid=False)
    ball, box = mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_BOX
    _add(spec, "buttons", task.buttons, ball, (task.button_radius,) * 3)
    _add(spec, "cubes", task.cubes, box, (task.cube_half_edge,) * 3)
    _add(spec, "pillars", task.pillars, _CYLINDER, (task.pillar_radius, _PILLAR_HALF_HEIGHT, 0.0))
    _add(spec, "hazards", task.hazards, _CYLINDER, (task.hazard_radius, _FLAT, 0.0), solid=False)


def _add(
    spec: Any, kind: str, count: int, shape: Any, size: tuple[float, ...], solid: bool = True
) -> None:
    """``count`` mocap bodies kind0, kind1, ... that stand on the floor; only solid ones collide."""
    tall = size[0] if shape == mujoco.mjtGeom.mjGEOM_SPHERE else size[1]
    for i in range(count):
        body = spec.worldbody.add_body(name=f"{kind}{i}", mocap=True, pos=(0.0, 0.0, tall))
        body.add_geom(
            name=f"{kind}{i}",
            type=shape,
            size=size,
            rgba=COLOURS[kind],
            condim=CONTACT_DIMENSIONS,
            contype=int(solid),
            conaffinity=int(solid),
        )


def _add_floor_and_light(spec: Any) -> None:
    spec.worldbody.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=(8.0, 8.0, 0.1),  # as drawn; a plane holds the car up without end
        condim=CONTACT_DIMENSIONS,
        rgba=(0.80, 0.82, 0.86, 1.0),
    )
    # High up and without a cone, so that it shines everywhere alike.
    sun = spec.worldbody.add_light(pos=(-7.0, -5.0, 18.0), dir=(0.35, 0.25, -0.9))
    sun.cutoff, sun.exponent = 80.0, 0.0
    sun.diffuse, sun.specular = (0.45,) * 3, (0.1,) * 3
    spec.visual.headlight.ambient = (0.45, 0.45, 0.45)
    spec.visual.headlight.diffuse = (0.30, 0.30, 0.30)
    spec.visual.headlight.specular = (0.05, 0.05, 0.05)
    # Multisampling and fine meshes cost tens of milliseconds without a GPU.
    spec.visual.quality.offsamples = 0
    spec.visual.quality.numslices, spec.visual.quality.numstacks = 32, 8
    spec.visual.quality.numquads = 1


def _add_cameras(spec: Any, car: Any, task: TaskSpec) -> None:
    shown = task.arena + 0.3
    height = 3.0 * shown
    spec.worldbody.add_camera(name="top", pos=(0.0, 0.0, height), fovy=36.87)  # 2 atan(1 / 3)
    # Behind the car and above it, looking over its nose.
    car.add_camera(name="chase", pos=(0.0, 0.95, 0.65), xyaxes=(-1.0, 0.0, 0.0, 0.0, -0.5, 0.866))
