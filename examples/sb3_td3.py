"""Stable-Baselines3 behind a shield: one line more than without (needs the sb3 extra).

python examples/sb3_td3.py --timesteps 200000
"""

from dataclasses import dataclass, replace

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
    fit_epochs: int = 500
    envs: int = 2
    max_violations: int | None = None
    out: str = "td3"
    seed: int = 0


def main(args: Args) -> None:
    env = make_vec_env("advice/RandomisedGoal-v0", n_envs=args.envs, seed=args.seed)
    noise = NormalActionNoise(np.zeros(2), np.full(2, 0.2))
    model = TD3("MlpPolicy", env, action_noise=noise, verbose=1, seed=args.seed)
    config = replace(  # the settings for lidars; advice.ShieldConfig() are the paper's
        advice.PRESETS["lidar"],
        construction_episodes=args.construction_episodes,
        max_epochs=args.fit_epochs,
    )
    shield(model, config, max_violations=args.max_violations)  # the one line more
    model.learn(args.timesteps)
    print(f"{model.watch.violations} violations, {model.watch.interventions} interventions")
    model.save(f"{args.out}.zip")
    model.shield.save(f"{args.out}.safetensors")

    # Later, or elsewhere: both files together give the same pair again.
    model = shield(TD3.load(f"{args.out}.zip", env=env), shield=f"{args.out}.safetensors")
    print(model.shield)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
