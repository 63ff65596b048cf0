"""The car and the arena as one ``MjModel`` per task, compiled once.

Objects are mocap bodies, so that a reset moves them and nothing is compiled again. Sizes, density,
damping and motors of the car are those of Safety Gymnasium's car, so that it drives the same. Its
front bumper points along -y of the body; positive controls drive that way.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

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
_FLAT = 0.005  # half-height of discs on the floor, m
_GOAL_HALF_HEIGHT, _PILLAR_HALF_HEIGHT = 0.01, 0.2
RIDE_HEIGHT = 0.1
"""Height of the chassis when the wheels just touch the floor, m."""
DENSITY = 5.0
CONTACT_DIMENSIONS = 6
WHEEL_RADIUS = 0.05
JOINT_DAMPING = 0.001
MOTOR_FORCE = 0.02
RED = (0.80, 0.10, 0.16, 1.0)
DARK = (0.16, 0.17, 0.22, 1.0)

_CHASSIS = (
    # name, centre, half-sizes, colour
    ("agent", (0.0, 0.0, 0.0), (0.1, 0.1, 0.05), RED),
    ("back_bumper", (0.0, 0.15, 0.0), (0.1, 0.01, 0.05), DARK),
    ("back_connector", (0.0, 0.125, 0.0), (0.01, 0.025, 0.03), DARK),
    ("front_bumper", (0.0, -0.165, 0.0), (0.05, 0.01, 0.05), DARK),
    ("front_connector", (0.0, -0.13, 0.04), (0.05, 0.03, 0.01), DARK),
)
CAR_LENGTH = 0.335
"""From the back bumper's end to the front bumper's, m."""


def build_model(task: TaskSpec) -> Any:
    """The compiled model: floor, car, objects, and the cameras top and chase."""
    spec = mujoco.MjSpec()
    spec.modelname = task.name
    spec.option.timestep = TIMESTEP
    # One more Newton iteration costs little, and all MuJoCo releases then give the same path.
    spec.option.tolerance = 1e-14
    _add_floor_and_light(spec)
    car = add_car(spec)
    _add_objects(spec, task)
    _add_cameras(spec, car, task)
    model = spec.compile()
    if (task.car_mass, task.motor_force, task.friction) != (1.0, 1.0, 1.0):
        _vary(model, task)
    return model


def _vary(model: Any, task: TaskSpec) -> None:
    """Another mass, motor force and friction than the usual ones."""
    bodies = [model.body(name).id for name in ("agent", "left", "right", "rear")]
    model.body_mass[bodies] *= task.car_mass
    model.body_inertia[bodies] *= task.car_mass
    model.actuator_forcerange *= task.motor_force
    model.geom_friction[:, 0] *= task.friction
    mujoco.mj_setConst(model, mujoco.MjData(model))


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
    """``count`` mocap bodies kind0, kind1, ... on the floor; only solid ones collide."""
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
        size=(8.0, 8.0, 0.1),  # as drawn; a plane's collisions are unbounded
        condim=CONTACT_DIMENSIONS,
        rgba=(0.80, 0.82, 0.86, 1.0),
    )
    # High up and without a cone, so that all places are equally bright.
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
    height = 3.0 * (task.arena + 0.3)  # shows 0.3 m around the arena at fovy = 2 atan(1 / 3)
    spec.worldbody.add_camera(name="top", pos=(0.0, 0.0, height), fovy=36.87)
    # Behind and above the car, looking ahead.
    car.add_camera(name="chase", pos=(0.0, 0.95, 0.65), xyaxes=(-1.0, 0.0, 0.0, 0.0, -0.5, 0.866))


def add_car(spec: Any) -> Any:
    """Add the car to an ``MjSpec``; joints agent (free), left, right (hinges) and rear (ball)."""
    car = spec.worldbody.add_body(name="agent", pos=(0.0, 0.0, RIDE_HEIGHT))
    car.add_freejoint(name="agent")
    for name, centre, half_sizes, colour in _CHASSIS:
        _add_geom(car, name, mujoco.mjtGeom.mjGEOM_BOX, half_sizes, colour, pos=centre)
    for name, side in (("left", -1.0), ("right", 1.0)):
        _add_wheel(spec, car, name, side)
    _add_caster(car)
    return car


def _add_wheel(spec: Any, car: Any, name: str, side: float) -> None:
    """A wheel on a hinge along x, with the motor that turns it."""
    wheel = car.add_body(name=name, pos=(0.1 * side, 0.1, -0.05))
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    _damp(wheel.add_joint(name=name, type=hinge, axis=(1.0, 0.0, 0.0)))
    # From the left end to the right one, so that it rounds as the original does.
    ends = sorted((0.005 * side, 0.055 * side))
    axle = (ends[0], 0.0, 0.0, ends[1], 0.0, 0.0)
    size = (WHEEL_RADIUS, 0.0, 0.0)
    _add_geom(wheel, name, mujoco.mjtGeom.mjGEOM_CYLINDER, size, DARK, fromto=axle)
    # An actuator is a motor by default: the control is the torque.
    spec.add_actuator(
        name=name,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        target=name,
        ctrllimited=True,
        ctrlrange=(-1.0, 1.0),
        forcelimited=True,
        forcerange=(-MOTOR_FORCE, MOTOR_FORCE),
    )


def _add_caster(car: Any) -> None:
    """The ball caster under the front."""
    caster = car.add_body(name="rear", pos=(0.0, -0.1, -0.05))
    _damp(caster.add_joint(name="rear", type=mujoco.mjtJoint.mjJNT_BALL))
    _add_geom(caster, "rear", mujoco.mjtGeom.mjGEOM_SPHERE, (WHEEL_RADIUS, 0.0, 0.0), DARK)


def _damp(joint: Any) -> None:
    """Linear damping: new MuJoCo releases take a polynomial, older ones a number."""
    linear_only = np.isscalar(joint.damping)
    joint.damping = JOINT_DAMPING if linear_only else (JOINT_DAMPING, 0.0, 0.0)


def _add_geom(
    body: Any,
    name: str,
    shape: Any,
    size: tuple[float, ...],
    colour: tuple[float, ...],
    **place: Any,
) -> None:
    body.add_geom(
        name=name,
        type=shape,
        size=size,
        rgba=colour,
        density=DENSITY,
        condim=CONTACT_DIMENSIONS,
        **place,
    )
