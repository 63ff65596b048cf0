"""DDPG in one file, CleanRL style; all environments share one shield (needs PyTorch).

python examples/cleanrl_ddpg.py --total-timesteps 200000
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn

import advice
from advice.integrations.vector import ShieldedVectorEnv


@dataclass
class Args:
    env_id: str = "advice/RandomisedGoal-v0"  # with actions from -1 to 1
    total_timesteps: int = 200_000
    num_envs: int = 2
    construction_episodes: int = 500  # the shield is armed after them at the latest
    fit_steps: int = 3000
    learning_starts: int = 1000
    seed: int = 0


def network(inputs: int, outputs: int) -> nn.Module:
    layers = nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(256, outputs))


def main(args: Args) -> None:
    rng, _ = np.random.default_rng(args.seed), torch.manual_seed(args.seed)
    make_envs, same_step = [lambda: gym.make(args.env_id)] * args.num_envs, "SameStep"
    envs = gym.vector.SyncVectorEnv(make_envs, autoreset_mode=same_step)
    n, m = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    actor, actor_t = (nn.Sequential(network(n, m), nn.Tanh()) for _ in range(2))
    critic, critic_t = network(n + m, 1), network(n + m, 1)
    actor_t.load_state_dict(actor.state_dict()), critic_t.load_state_dict(critic.state_dict())
    actor_opt, critic_opt = (torch.optim.Adam(x.parameters(), 1e-3) for x in (actor, critic))

    def rate_actions(obs, actions):  # the critic's ratings, for the shield
        pairs = np.concatenate([np.repeat(obs[None], len(actions), 0), actions], 1)
        return critic(torch.as_tensor(pairs, dtype=torch.float32)).detach().numpy()[:, 0]

    settings = {"construction_episodes": args.construction_episodes, "fit_steps": args.fit_steps}
    config = advice.ShieldConfig(**settings)
    envs = ShieldedVectorEnv(envs, config=config, rate_actions=rate_actions, seed=args.seed)
    buffer = np.zeros((args.total_timesteps + args.num_envs, n + m + 2 + n), np.float32)
    obs, _ = envs.reset(seed=args.seed)
    for stored in range(0, args.total_timesteps, args.num_envs):
        actions = actor(torch.as_tensor(obs, dtype=torch.float32)).detach().numpy()
        actions = np.clip(actions + rng.normal(0, 0.2, actions.shape), -1, 1).astype(np.float32)
        after, rewards, terminated, truncated, infos = envs.step(actions)
        led_to = after.copy()
        for i in np.flatnonzero(terminated | truncated):
            led_to[i] = infos["final_obs"][i]  # and not the start of the next episode
        executed = infos["shield"]["executed"]  # what the environments received
        buffer[stored : stored + args.num_envs] = np.c_[obs, executed, rewards, terminated, led_to]
        obs = after
        if stored >= args.learning_starts:
            batch = torch.as_tensor(buffer[rng.integers(stored, size=64)])
            s, a, r, done, s2 = batch.split([n, m, 1, 1, n], 1)
            with torch.no_grad():
                target = r + 0.95 * (1 - done) * critic_t(torch.cat([s2, actor_t(s2)], 1))
            loss = nn.functional.mse_loss(critic(torch.cat([s, a], 1)), target)
            critic_opt.zero_grad(), loss.backward(), critic_opt.step()
            loss = -critic(torch.cat([s, actor(s)], 1)).mean()
            actor_opt.zero_grad(), loss.backward(), actor_opt.step()
            for net, slow in ((actor, actor_t), (critic, critic_t)):
                for p, q in zip(net.parameters(), slow.parameters(), strict=True):
                    q.data.lerp_(p.data, 0.005)
    print(f"{envs.session.episodes} episodes, {envs.violations} violations; {envs.shield}")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
