"""The environment of all tasks: a car, something to reach, and obstacles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import mujoco
import numpy as np

from advice.envs.model import (
    CAR_LENGTH,
    COLOURS,
    PHYSICS_STEPS,
    RIDE_HEIGHT,
    SOLID,
    Spot,
    as_places,
    build_model,
    place,
)
from advice.envs.rendering import Renderer, open_window
from advice.envs.sensors import lidars
from advice.envs.tasks import TaskSpec, resolve
from advice.types import Array, SettingError, as_float_vector, suggest

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_VELOCITY_BOUND = np.array([2.0, 2.0, 20.0], dtype=np.float32)
_CAMERAS = ("top", "chase")


class NavigationEnv(gymnasium.Env[Array, Array]):
    """A task of the table as a Gymnasium environment.

    Actions are the two wheels' motors in [-1, 1]; values beyond are clipped. The observation is one
    pseudo-lidar per kind of object and, on request, the car's velocity (forward, left, yaw rate).
    ``info`` always holds ``cost``, ``violation`` and ``success``.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 25}  # noqa: RUF012

    def __init__(
        self,
        task: str = "randomised-goal",
        *,
        render_mode: str | None = None,
        camera: str = "top",
        render_size: tuple[int, int] = (480, 480),
        draw_lidar: bool = False,
        observe_velocity: bool = False,
        **numbers: Any,
    ) -> None:
        modes = [None, *self.metadata["render_modes"]]
        if render_mode not in modes:
            raise SettingError(f"render_mode: expected one of {modes}, found {render_mode!r}")
        if camera not in _CAMERAS:
            raise SettingError(f"camera: expected one of {_CAMERAS}, found {camera!r}")
        self.task: TaskSpec = resolve(task, numbers)
        if self.task.target == "button" and not self.task.buttons:
            raise SettingError(f"{self.task.name}: expected at least one button, found 0")
        self.render_mode = render_mode
        self._camera, self._render_size, self._draw_lidar = camera, render_size, draw_lidar
        self._renderer: Renderer | None = None
        self._viewer: Any = None
        self._observe_velocity = observe_velocity
        kinds, bins = len(self.task.observed), self.task.lidar_bins
        self._lidar_settings = kinds, bins, self.task.lidar_range
        low, high = np.zeros(kinds * bins, np.float32), np.ones(kinds * bins, np.float32)
        if observe_velocity:
            low, high = np.append(low, -_VELOCITY_BOUND), np.append(high, _VELOCITY_BOUND)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), dtype=np.float32)
        self._build()
        self._placed: dict[str, Array] = {}  # kind -> (n, 3): x, y, yaw at the start
        self._right_button = self._steps = self._noise_seed = 0
        self._observation = np.zeros_like(low)

    def _build(self) -> None:
        """Compile the model, resolve names to ids once, and keep views of MuJoCo's arrays."""
        self.model = build_model(self.task)
        self.data = mujoco.MjData(self.model)
        car = self.model.body("agent").id
        self._car_pos, self._car_mat = self.data.xpos[car], self.data.xmat[car].reshape(3, 3)
        self._car_qpos, self._car_qvel = self.data.qpos[:7], self.data.qvel[:6]
        self._warnings = self.data.warning
        kinds = ("goal", *SOLID, "hazards")
        names = {kind: [f"{kind}{i}" for i in range(self.task.count(kind))] for kind in kinds}
        self._mocap = {
            kind: [int(self.model.body(name).mocapid[0]) for name in named]
            for kind, named in names.items()
            if named
        }
        self._counts = {"car": 1} | {kind: len(ids) for kind, ids in self._mocap.items()}
        self._solid = {self.model.geom(name).id for kind in SOLID for name in names[kind]}
        self._button_geoms = [self.model.geom(name).id for name in names["buttons"]]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode; ``options={"layout": ...}`` sets positions; see :attr:`start`."""
        super().reset(seed=seed)
        unknown = sorted(set(options or {}) - {"layout"})
        if unknown:
            raise ValueError(
                f"reset options: expected 'layout', found {', '.join(map(repr, unknown))}"
            )
        self._draw_layout((options or {}).get("layout") or {})
        mujoco.mj_resetData(self.model, self.data)
        self._apply_layout()
        self._steps = 0
        if self.task.lidar_noise:
            self._noise_seed = int(self.np_random.integers(2**31))
        self._observe()
        if self.render_mode == "human":
            self.render()
        return self._observation.copy(), {"cost": 0.0, "violation": False, "success": False}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Ten physics steps with one action."""
        control = as_float_vector(action, 2, "action")
        if not self._placed:
            raise gymnasium.error.ResetNeeded("expected reset() before the first step()")
        task, distance_before = self.task, self._target_distance()
        self.data.ctrl[:] = [min(max(x, -1.0), 1.0) for x in control.tolist()]
        mujoco.mj_step(self.model, self.data, PHYSICS_STEPS)
        self._steps += 1
        info = {"cost": 0.0, "violation": False, "success": False}
        if self._warnings.number.any():
            # The simulation diverged and MuJoCo has reset it: end the episode.
            return self._observation.copy(), 0.0, False, True, {**info, "unstable": True}
        self._observe()

        touched = set(self.data.contact.geom.ravel().tolist())
        violation = not touched.isdisjoint(self._harmful)
        truncated = self._steps >= task.max_episode_steps
        distance = self._target_distance()
        reward, circle = distance_before - distance, task.target == "circle"
        if circle:
            reward = self._circling()
            success = truncated and distance <= task.circle_radius + CAR_LENGTH
        elif task.target == "button":
            success = self._right_geom in touched
        else:
            success = distance <= task.goal_radius
        success = success and not violation
        if violation:
            reward += task.violation_reward
        elif success and not circle:
            reward += task.success_reward
        terminated = violation or (success and not circle)
        cost = task.cost if violation or self._in_hazard() else 0.0
        if self.render_mode == "human":
            self.render()
        info = {"cost": cost, "violation": violation, "success": success}
        return self._observation.copy(), reward, terminated, truncated, info

    def render(self) -> Any:
        """A frame (height, width, 3) in mode ``rgb_array``; a window in mode ``human``."""
        if self.render_mode == "rgb_array":
            if self._renderer is None:
                self._renderer = Renderer(self.model, self._camera, self._render_size)
            return self._renderer.draw(self.data, self._rings() if self._draw_lidar else [])
        if self.render_mode == "human":
            if self._viewer is None:
                self._viewer = open_window(self.model, self.data)
            self._viewer.sync()
        return None

    def close(self) -> None:
        """Close the window and free the rendering context."""
        for shown in (self._renderer, self._viewer):
            if shown is not None:
                shown.close()
        self._renderer = self._viewer = None

    def get_state(self) -> dict[str, Any]:
        """Everything that later steps depend on: arrays and JSON values."""
        physics = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, physics, _STATE)
        return {
            "task": self.task.name,
            "physics": physics,
            **{f"layout/{kind}": places.copy() for kind, places in self._placed.items()},
            "right_button": self._right_button,
            "steps": self._steps,
            "noise_seed": self._noise_seed,
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the exact state that :meth:`get_state` returned."""
        physics = np.asarray(state["physics"], dtype=np.float64)
        size = mujoco.mj_stateSize(self.model, _STATE)
        if state["task"] != self.task.name or physics.shape != (size,):
            raise ValueError(
                f"state: expected {self.task.name} with {size} numbers, "
                f"found {state['task']} with {physics.shape}"
            )
        self.np_random.bit_generator.state = state["generator"]
        self._placed = {
            name.removeprefix("layout/"): np.array(places, dtype=np.float64)
            for name, places in state.items()
            if name.startswith("layout/")
        }
        self._right_button, self._steps = int(state["right_button"]), int(state["steps"])
        self._noise_seed = int(state.get("noise_seed", 0))
        mujoco.mj_resetData(self.model, self.data)
        if self._placed:  # else from before the first reset
            self._apply_layout()
            mujoco.mj_setState(self.model, self.data, physics, _STATE)
            self._observe()

    @property
    def start(self) -> dict[str, Any]:
        """The initial positions as JSON values; ``reset`` takes them as ``layout``."""
        places: dict[str, Any] = {kind: xyw.tolist() for kind, xyw in self._placed.items()}
        return {**places, "right_button": self._right_button} if self.task.buttons else places

    @property
    def layout(self) -> dict[str, Array]:
        """Positions (n, 2) by kind: goal or circle, buttons, cubes, pillars, hazards.

        In the button task ``goal`` is the right button; the circle's centre is the origin.
        """
        places = {kind: xyw[:, :2].copy() for kind, xyw in self._placed.items() if kind != "car"}
        if self.task.target == "circle":
            places["circle"] = np.zeros((1, 2))
        if self.task.target == "button":
            places["goal"] = places["buttons"][self._right_button : self._right_button + 1].copy()
        return places

    @property
    def car_pose(self) -> tuple[float, float, float]:
        """The car's x, y and heading: the direction of its front bumper, in radians."""
        nose = -self._car_mat[:2, 1]
        return float(self._car_pos[0]), float(self._car_pos[1]), math.atan2(nose[1], nose[0])

    def _draw_layout(self, given: Mapping[str, Any]) -> None:
        """Place car and objects: as ``given``, else as the task says, else at random."""
        task, buttons = self.task, self.task.buttons
        known = [*self._counts, "right_button"] if buttons else list(self._counts)
        for name in given:
            if name not in known:
                hint = suggest(name, known) or f"; expected some of {', '.join(known)}"
                raise ValueError(f"layout has no {name!r}{hint}")
        spots, yaws = [], []
        for kind, count in self._counts.items():
            placed, ring = np.empty((0, 3)), None
            if kind in given:
                placed = as_places(given[kind], count, kind)
            elif kind == "cubes" and task.cube_columns > 0:
                columns, rows = task.cube_columns, task.cube_rows
                cubes = [(x, y, 0.0) for x in (-columns, columns) for y in (-rows, 0.0, rows)]
                placed = np.array(cubes[:count])
            if kind == "cubes" and task.cube_band > 0:
                half = task.cube_band / 2
                ring = task.circle_radius - half, task.circle_radius + half
            keepout = getattr(task, f"{kind.removesuffix('s')}_keepout")
            missing = count - len(placed)
            spots += [Spot(keepout, (x, y)) for x, y, _ in placed.tolist()]
            spots += [Spot(keepout, ring=ring)] * missing
            yaws += [placed[:, 2], self.np_random.uniform(-math.pi, math.pi, missing)]
        places = np.column_stack((place(spots, task.arena, self.np_random), np.concatenate(yaws)))
        right_button = 0
        if buttons:
            drawn = self.np_random.integers(buttons)
            right_button = int(given.get("right_button", drawn))
            if not 0 <= right_button < buttons:
                raise ValueError(f"right_button: expected 0 to {buttons - 1}, found {right_button}")
        ends = np.cumsum(list(self._counts.values()))[:-1]
        self._placed = dict(zip(self._counts, np.split(places, ends), strict=True))
        self._right_button = right_button

    def _apply_layout(self) -> None:
        """Move the bodies to their positions; nothing is compiled again."""
        for kind, ids in self._mocap.items():
            xyw = self._placed[kind]
            half = xyw[:, 2] / 2.0
            self.data.mocap_pos[ids, :2] = xyw[:, :2]
            self.data.mocap_quat[ids, 0], self.data.mocap_quat[ids, 3] = np.cos(half), np.sin(half)
        x, y, heading = self._placed["car"][0]
        half = (heading + math.pi / 2.0) / 2.0  # the front is along -y of the body
        self._car_qpos[:] = (x, y, RIDE_HEIGHT, math.cos(half), 0.0, 0.0, math.sin(half))
        self._right_geom = -1
        for i, geom in enumerate(self._button_geoms):
            right = i == self._right_button and self.task.target == "button"
            self._right_geom = geom if right else self._right_geom
            self.model.geom_rgba[geom] = COLOURS["right button" if right else "buttons"]
        self._harmful = self._solid - {self._right_geom}
        layout = self.layout
        layout["target"] = layout["circle" if self.task.target == "circle" else "goal"]
        ((self._target_x, self._target_y),) = layout["target"].tolist()
        self._hazards = layout["hazards"].tolist() if self.task.hazards else []
        # For the lidars: x, y, and the first bin of the lidar of that kind.
        self._seen = [
            (x, y, i * self.task.lidar_bins)
            for i, kind in enumerate(self.task.observed)
            if kind in layout
            for x, y in layout[kind].tolist()
        ]

    def _observe(self) -> None:
        """Update poses, contacts and the observation; the solver's warm start does not change."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_collision(self.model, self.data)
        seen = lidars(self._car_pos, self._car_mat, self._seen, *self._lidar_settings)
        if self.task.lidar_noise:  # by the step, so that a restored state is seen the same
            noise = np.random.default_rng([self._noise_seed, self._steps]).normal(size=len(seen))
            seen = np.clip(seen + self.task.lidar_noise * noise, 0.0, 1.0).tolist()
        if self._observe_velocity:
            linear, mat = self._car_qvel[:3], self._car_mat
            velocity = (-mat[:, 1] @ linear, mat[:, 0] @ linear, self._car_qvel[5])
            seen += np.clip(velocity, -_VELOCITY_BOUND, _VELOCITY_BOUND).tolist()
        self._observation = np.array(seen, dtype=np.float32)

    def _target_distance(self) -> float:
        x, y = self._car_qpos[:2].tolist()
        return math.hypot(self._target_x - x, self._target_y - y)

    def _circling(self) -> float:
        """Speed along the circle, less with distance from it: (-u y + v x) / r / (1 + |r - R|).

        With ``inward_reward`` it is the speed towards the circle where no success is possible.
        """
        x, y = self._car_qpos[:2].tolist()
        u, v = self._car_qvel[:2].tolist()
        radius, task = math.hypot(x, y), self.task
        if task.inward_reward and radius > task.circle_radius + CAR_LENGTH:
            return -task.inward_reward * (u * x + v * y) / radius
        speed = (-u * y + v * x) / radius if radius > 0.0 else 0.0
        return speed / (1.0 + abs(radius - task.circle_radius))

    def _in_hazard(self) -> bool:
        x, y = self._car_qpos[:2].tolist()
        radius = self.task.hazard_radius
        return any(math.hypot(x - hx, y - hy) <= radius for hx, hy in self._hazards)

    def _rings(self) -> list[tuple[Array, tuple[float, ...]]]:
        """Each lidar's readings with the colour of what it sees."""
        target = "right button" if self.task.target == "button" else self.task.target
        colours = [COLOURS[target if kind == "target" else kind] for kind in self.task.observed]
        bins = self.task.lidar_bins
        return [(self._observation[i * bins : (i + 1) * bins], c) for i, c in enumerate(colours)]
