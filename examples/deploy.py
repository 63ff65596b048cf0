"""Guard a controller from a saved shield, at a fixed rate. NumPy and SciPy are all it needs.

python examples/deploy.py shield.safetensors --hz 50 --seconds 10
"""

import argparse
import time

import numpy as np

from advice.shields.shield import Shield


class Robot:
    """A placeholder: replace what it senses and where its commands go."""

    def __init__(self, shield: Shield, seed: int) -> None:
        self._space, self._rng = shield.observation_space, np.random.default_rng(seed)

    def sense(self) -> np.ndarray:
        low, high = np.clip(self._space.low, -3, 3), np.clip(self._space.high, -3, 3)
        return self._rng.uniform(low, high).reshape(self._space.shape).astype(self._space.dtype)

    def act(self, action: np.ndarray) -> None:
        """Send the command."""


def controller(shield: Shield, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A placeholder that returns any action of the shield's action space."""
    space = shield.action_space
    if space.kind == "discrete":
        return np.int64(rng.integers(space.start, space.start + space.n))
    low, high = np.clip(space.low, -3, 3), np.clip(space.high, -3, 3)
    return rng.uniform(low, high).reshape(space.shape).astype(space.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shield", help="a file written by shield.save or env.save")
    parser.add_argument("--hz", type=float, default=50.0, help="control cycles per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    shield = Shield.load(args.shield)
    print(shield)
    robot, rng = Robot(shield, args.seed), np.random.default_rng(args.seed)
    period, cycles = 1 / args.hz, round(args.hz * args.seconds)
    latencies, late, interventions, no_safe_action = [], 0, 0, 0
    due = time.perf_counter()
    for _ in range(cycles):
        obs = robot.sense()
        proposed = controller(shield, obs, rng)
        began = time.perf_counter()
        verdict = shield.guard(obs, proposed)
        latencies.append(1e3 * (time.perf_counter() - began))
        robot.act(verdict.action)
        interventions += verdict.intervened
        no_safe_action += verdict.no_safe_action
        due += period
        spare = due - time.perf_counter()
        if spare > 0:
            time.sleep(spare)
        else:  # late: the next period starts now
            late, due = late + 1, time.perf_counter()
    middle, tail = np.quantile(latencies, [0.5, 0.99])
    print(f"{cycles} cycles at {args.hz:g} Hz, {late} late")
    print(
        f"guard latency: median {middle:.3f} ms, 99 % {tail:.3f} ms, worst {max(latencies):.3f} ms"
    )
    print(f"{interventions} interventions, no safe action in {no_safe_action} cycles")


if __name__ == "__main__":
    main()
