"""Your own loop and your own agent: wrap the environment, learn from proposals too.

python examples/plain_loop.py --episodes 1500
"""

from dataclasses import dataclass

import tyro

import advice
from advice.agents.ddpg import DDPG  # any agent will do
from advice.config import AgentConfig
from advice.types import BudgetSpentError, Transition


@dataclass
class Args:
    task: str = "randomised-goal"
    episodes: int = 1500
    construction_episodes: int = 500
    """The shield is armed after this many episodes at the latest."""
    max_steps: int = 400
    max_violations: int | None = None
    """Stop for good after this many episodes with a violation."""
    save: str = "shield.safetensors"
    fit_steps: int = 3000
    """Gradient steps of each network of a fit."""
    seed: int = 0


def main(args: Args) -> None:
    config = advice.ShieldConfig(
        construction_episodes=args.construction_episodes, fit_steps=args.fit_steps
    )
    env = advice.ShieldedEnv(
        advice.make(args.task, max_episode_steps=args.max_steps),
        config=config,
        max_violations=args.max_violations,
        save_path=args.save,
        seed=args.seed,
    )
    agent = DDPG(env.observation_space, env.action_space, AgentConfig(), args.seed)
    env.rate_actions = agent.rate_actions  # the critic chooses among the safe actions
    try:
        for episode in range(1, args.episodes + 1):
            obs, _ = env.reset(seed=args.seed if episode == 1 else None)
            agent.start_episode()
            ended = False
            while not ended:
                proposed = agent.act(obs)
                after, reward, terminated, truncated, info = env.step(proposed)
                result = reward, info["cost"], after, terminated
                agent.observe(Transition(obs, info["shield"]["executed"], *result))
                if info["shield"]["intervened"]:  # the proposal led to the same result
                    agent.observe(Transition(obs, proposed, *result))
                agent.learn()
                obs, ended = after, terminated or truncated
            if episode % 10 == 0 or episode == args.episodes:
                state = f"armed, K={env.shield.k}" if env.shield.armed else "unarmed"
                print(
                    f"episode {episode}: {env.violations} violations, "
                    f"{env.interventions} interventions, shield {state}"
                )
    except BudgetSpentError as error:
        print(error)
    env.close()  # writes the shield to args.save


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
