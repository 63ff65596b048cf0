"""The car and the arena as one ``MjModel`` per task, compiled once, and where things are placed.

Objects are mocap bodies, so that a reset moves them and nothing is compiled again. Sizes, density,
damping and motors of the car are those of Safety Gymnasium's car, so that it drives the same. Its
front bumper points along -y of the body; positive controls drive that way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

from advice.envs.tasks import TaskSpec
from advice.types import AdviceError, Array

PHYSICS_STEPS = 10
COLOURS = {
    "goal": (0.16, 0.74, 0.34, 0.45),
    "circle": (0.16, 0.74, 0.34, 0.22),
    "right button": (0.16, 0.74, 0.34, 1.0),
    "buttons": (0.96, 0.60, 0.12, 1.0),
    "cubes": (0.46, 0.24, 0.72, 1.0),
    "pillars": (0.24, 0.42, 0.80, 1.0),
    "hazards": (0.20, 0.45, 0.95, 0.40),
}
SOLID = ("buttons", "cubes", "pillars")
"""Kinds of objects that the car collides with."""
RIDE_HEIGHT = 0.1
"""Height of the chassis when the wheels just touch the floor, m."""
CAR_LENGTH = 0.335
"""From the back bumper's end to the front bumper's, m."""
_CAR_AND_FLOOR = """
<mujoco>
  <!-- One more Newton iteration costs little, and all MuJoCo releases then give the same path. -->
  <option timestep="0.004" tolerance="1e-14"/>
  <visual>
    <headlight ambient="0.45 0.45 0.45" diffuse="0.3 0.3 0.3" specular="0.05 0.05 0.05"/>
    <!-- Multisampling and fine meshes cost tens of milliseconds without a GPU. -->
    <quality offsamples="0" numslices="32" numstacks="8" numquads="1"/>
  </visual>
  <default>
    <geom condim="6"/>
    <default class="car">
      <geom type="box" density="5" rgba="0.16 0.17 0.22 1"/>
      <joint damping="0.001"/>
      <motor ctrlrange="-1 1" forcerange="-0.02 0.02"/>
    </default>
  </default>
  <worldbody>
    <!-- High up and without a cone, so that all places are equally bright. -->
    <light pos="-7 -5 18" dir="0.35 0.25 -0.9" cutoff="80" exponent="0"
           diffuse="0.45 0.45 0.45" specular="0.1 0.1 0.1"/>
    <geom name="floor" type="plane" size="8 8 0.1" rgba="0.8 0.82 0.86 1"/>
    <body name="agent" pos="0 0 0.1" childclass="car">
      <freejoint name="agent"/>
      <geom name="agent" size="0.1 0.1 0.05" rgba="0.8 0.1 0.16 1"/>
      <geom name="back_bumper" pos="0 0.15 0" size="0.1 0.01 0.05"/>
      <geom name="back_connector" pos="0 0.125 0" size="0.01 0.025 0.03"/>
      <geom name="front_bumper" pos="0 -0.165 0" size="0.05 0.01 0.05"/>
      <geom name="front_connector" pos="0 -0.13 0.04" size="0.05 0.03 0.01"/>
      <camera name="chase" pos="0 0.95 0.65" xyaxes="-1 0 0 0 -0.5 0.866"/>
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" axis="1 0 0"/>
        <geom name="left" type="cylinder" fromto="-0.055 0 0 -0.005 0 0" size="0.05"/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" axis="1 0 0"/>
        <geom name="right" type="cylinder" fromto="0.005 0 0 0.055 0 0" size="0.05"/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball"/>
        <geom name="rear" type="sphere" size="0.05"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor class="car" name="left" joint="left"/>
    <motor class="car" name="right" joint="right"/>
  </actuator>
</mujoco>
"""


def camera_height(farthest: float) -> float:
    """From here the camera top, with fovy = 2 atan(1 / 3), shows that far to each side and 0.3 m
    around it."""
    return 3.0 * (farthest + 0.3)


def build_model(task: TaskSpec) -> Any:
    """The compiled model: floor, car, objects, and the cameras top and chase."""
    spec = mujoco.MjSpec.from_string(_CAR_AND_FLOOR)
    spec.modelname = task.name
    spec.worldbody.add_camera(name="top", pos=(0.0, 0.0, camera_height(task.arena)), fovy=36.87)
    cylinder, flat = mujoco.mjtGeom.mjGEOM_CYLINDER, 0.005  # half-height of discs on the floor, m
    ball, box = mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_BOX
    for kind, shape, size in (
        ("goal", cylinder, (task.goal_radius, 0.01, 0.0)),
        ("circle", cylinder, (task.circle_radius, flat, 0.0)),
        ("buttons", ball, (task.button_radius,) * 3),
        ("cubes", box, (task.cube_half_edge,) * 3),
        ("pillars", cylinder, (task.pillar_radius, 0.2, 0.0)),
        ("hazards", cylinder, (task.hazard_radius, flat, 0.0)),
    ):
        collides = int(kind in SOLID)
        look = {"type": shape, "size": size, "rgba": COLOURS[kind]}
        for name in (f"{kind}{i}" for i in range(task.count(kind))):
            body = spec.worldbody.add_body(name=name, mocap=True, pos=(0.0, 0.0, size[1]))
            body.add_geom(name=name, contype=collides, conaffinity=collides, **look)
    model = spec.compile()
    model.actuator_gainprm[:, 0] *= task.motor_gain
    if (task.car_mass, task.motor_force, task.friction) != (1.0, 1.0, 1.0):
        bodies = [model.body(name).id for name in ("agent", "left", "right", "rear")]
        model.body_mass[bodies] *= task.car_mass
        model.body_inertia[bodies] *= task.car_mass
        model.actuator_forcerange *= task.motor_force
        model.geom_friction[:, 0] *= task.friction
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


DRAWS_PER_SPOT = 32
LAYOUTS = 100


class Spot(NamedTuple):
    """An object to place: a disc that no other disc may overlap."""

    keepout: float
    fixed: tuple[float, float] | None = None  # a given position, not a random one
    ring: tuple[float, float] | None = None  # limits of the distance from the origin

    def limits(self, arena: float) -> tuple[float, float]:
        """Of the distance from the origin in a ring, else of both coordinates."""
        return self.ring or (self.keepout - arena, arena - self.keepout)


class PlacementError(AdviceError):
    """The objects do not fit into the arena."""


def place(spots: Sequence[Spot], arena: float, rng: np.random.Generator) -> Array:
    """Positions (n, 2) for ``spots`` in the square from -arena to +arena, by rejection.

    Random discs are inside the square; the centre of a ring spot is in its ring. No random disc
    overlaps another, random or fixed; fixed positions are not checked.
    """
    limits = [spot.limits(arena) for spot in spots if spot.fixed is None]
    possible = all(low <= high for low, high in limits)
    for _ in range(LAYOUTS if possible else 0):
        places = _attempt(spots, arena, rng)
        if places is not None:
            return np.array(places, dtype=np.float64).reshape(-1, 2)
    keepouts = ", ".join(sorted({f"{spot.keepout:g}" for spot in spots}))
    raise PlacementError(
        f"no layout found for {len(spots)} objects with keep-outs {keepouts} m in an arena of "
        f"+-{arena:g} m: none found in {LAYOUTS} attempts; "
        "use fewer or smaller objects, or a larger arena"
    )


def _attempt(
    spots: Sequence[Spot], arena: float, rng: np.random.Generator
) -> list[tuple[float, float]] | None:
    """Place one spot after the other; None if one finds no free position."""
    taken = {i: spot.fixed for i, spot in enumerate(spots) if spot.fixed is not None}
    for i, spot in enumerate(spots):
        if spot.fixed is not None:
            continue
        for x, y in _candidates(spot, arena, rng).tolist():
            if all(
                math.hypot(x - other_x, y - other_y) >= spot.keepout + spots[other].keepout
                for other, (other_x, other_y) in taken.items()
            ):
                taken[i] = x, y
                break
        else:
            return None
    return [taken[i] for i in range(len(spots))]


def _candidates(spot: Spot, arena: float, rng: np.random.Generator) -> Array:
    """Random positions to try, (n, 2)."""
    low, high = spot.limits(arena)
    if spot.ring is None:
        return rng.uniform(low, high, size=(DRAWS_PER_SPOT, 2))
    # Uniform over the ring's area: the squared radius is uniform.
    radius = np.sqrt(rng.uniform(low**2, high**2, size=DRAWS_PER_SPOT))
    angle = rng.uniform(0.0, 2.0 * math.pi, size=DRAWS_PER_SPOT)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)


def as_places(value: Any, count: int, kind: str) -> Array:
    """``count`` rows x, y, yaw from rows of two or three finite numbers."""
    try:
        places = np.atleast_2d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        places = np.empty(0)
    if places.shape not in ((count, 2), (count, 3)) or not np.isfinite(places).all():
        raise ValueError(
            f"layout {kind}: expected {count} rows of finite x, y and optionally yaw, "
            f"found {value!r}"
        )
    return np.column_stack((places, np.zeros((count, 3 - places.shape[1]))))
