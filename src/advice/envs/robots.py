"""The car, part by part: a box on two driven wheels and a ball caster.

Sizes, density, damping and motors are those of Safety Gymnasium's car, so that it drives the same.
The front bumper points along -y of the body; positive controls drive that way.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

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
    # From the left end to the right one: this order also rounds as the original does.
    ends = sorted((0.005 * side, 0.055 * side))
    axle = (ends[0], 0.0, 0.0, ends[1], 0.0, 0.0)
    size = (WHEEL_RADIUS, 0.0, 0.0)
    _add_geom(wheel, name, mujoco.mjtGeom.mjGEOM_CYLINDER, size, DARK, fromto=axle)
    # An actuator is a motor unless told otherwise: the control is the torque.
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
    """The free-rolling ball under the nose."""
    caster = car.add_body(name="rear", pos=(0.0, -0.1, -0.05))
    _damp(caster.add_joint(name="rear", type=mujoco.mjtJoint.mjJNT_BALL))
    _add_geom(caster, "rear", mujoco.mjtGeom.mjGEOM_SPHERE, (WHEEL_RADIUS, 0.0, 0.0), DARK)


def _damp(joint: Any) -> None:
    """Linear damping: later MuJoCo releases take a polynomial, earlier ones a number."""
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
