"""Stable-Baselines3 with a shield: one additional line (needs the sb3 extra).

python examples/sb3_td3.py --timesteps 200000
"""

from dataclasses import dataclass

import numpy as np
import tyro
from stable_baselines3 import TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

import advice
from advice.integrations.sb3 import shield


@dataclass
class Args:
    timesteps: int = 200_000
    construction_episodes: int = 500
    """The shield is armed after this many episodes at the latest."""
    envs: int = 2
    max_violations: int | None = None
    out: str = "td3"
    seed: int = 0


def main(args: Args) -> None:
    env = make_vec_env("advice/RandomisedGoal-v0", n_envs=args.envs, seed=args.seed)
    noise = NormalActionNoise(np.zeros(2), np.full(2, 0.2))
    model = TD3("MlpPolicy", env, action_noise=noise, verbose=1, seed=args.seed)
    config = advice.ShieldConfig(construction_episodes=args.construction_episodes)
    shield(model, config, max_violations=args.max_violations)  # the additional line
    model.learn(args.timesteps)
    print(f"{model.session.violations} violations, {model.session.interventions} interventions")
    model.save(f"{args.out}.zip")
    model.shield.save(f"{args.out}.safetensors")

    # Later, or on another machine: the two files restore the model and its shield.
    model = shield(TD3.load(f"{args.out}.zip", env=env), shield=f"{args.out}.safetensors")
    print(model.shield)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
