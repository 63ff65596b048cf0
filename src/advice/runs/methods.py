"""What a run is made of: its task, and its method, which is an agent plus a shield.

A method is a row of a table, or a name such as ``sac+advice``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advice.agents.agent import Agent
from advice.agents.csc import CSC
from advice.agents.ddpg import DDPG, RCPO, DDPGLagrangian
from advice.agents.td3_sac import SAC, TD3
from advice.config import TrainConfig
from advice.envs.make import make_from_name, refuse_foreign_code
from advice.runs.checkpoints import read_part
from advice.runs.records import RunFolder
from advice.shields.base import NoShield, PostShield
from advice.shields.safety_critic import SafetyCriticShield
from advice.shields.shield import Shield
from advice.shields.tabular import TabularShield
from advice.types import AdviceError, SettingError, suggest


class Method(NamedTuple):
    """One row: which agent proposes, which shield guards, and a description."""

    agent: str
    shield: str
    about: str


METHODS = {
    "ddpg": Method("ddpg", "none", "plain DDPG: no protection, the baseline"),
    "ddpg-lag": Method("ddpg-lag", "none", "DDPG with a cost critic, weighed by a multiplier"),
    "rcpo": Method("rcpo", "none", "DDPG on the reward minus a multiplier times the cost"),
    "tabular": Method("ddpg", "tabular", "DDPG with a table of unsafe actions as its shield"),
    "csc": Method("csc", "csc", "DDPG with a safety critic that replaces unsafe actions"),
    "advice": Method("ddpg", "advice", "DDPG with the ADVICE shield"),
}
AGENTS: dict[str, type[Agent]] = {
    **{"ddpg": DDPG, "ddpg-lag": DDPGLagrangian, "rcpo": RCPO, "csc": CSC, "td3": TD3, "sac": SAC}
}
SHIELDS: dict[str, Callable[[Any, Any, TrainConfig, Any], PostShield]] = {
    "none": lambda obs, act, config, agent: NoShield(),
    "tabular": lambda obs, act, config, agent: TabularShield(
        obs, act, config.tabular, config.shield
    ),
    "csc": lambda obs, act, config, agent: SafetyCriticShield(agent),
    "advice": lambda obs, act, config, agent: Shield(obs, act, config.shield, config.seed),
}


def find_method(name: str) -> Method:
    """The row called ``name``, or the one that ``agent+shield`` describes.

    An agent alone has no shield. The shield csc belongs to the agent csc, which has its critic.
    """
    if name in METHODS:
        return METHODS[name]
    agent, plus, shield = name.partition("+")
    shield = shield if plus else "none"
    if agent in AGENTS and shield in SHIELDS and (shield != "csc" or agent == "csc"):
        return Method(agent, shield, f"{agent} with shield {shield}")
    known = [*METHODS, *(f"{agent}+{shield}" for agent in AGENTS for shield in SHIELDS)]
    raise AdviceError(
        f"unknown method {name!r}{suggest(name, known)} (expected one of {', '.join(METHODS)}, or "
        f"agent+shield with agents {', '.join(AGENTS)} and shields {', '.join(SHIELDS)})"
    )


def check_arming(config: TrainConfig) -> None:
    """Raise SettingError if training ends before the shield is armed."""
    shielded = find_method(config.method).shield == "advice" and not config.shield_from
    due = config.shield.construction_episodes
    if shielded and config.shield.arm == "fixed" and due >= config.episodes:
        raise SettingError(
            f"episodes: expected more than the {due} construction episodes, found "
            f"{config.episodes}: the shield would never guard; give fewer with "
            "--shield.construction-episodes, or more --episodes"
        )


def build(
    config: TrainConfig, observation_space: Any, action_space: Any
) -> tuple[Agent, PostShield]:
    """A new agent and a new shield, as ``config.method`` names them."""
    method = find_method(config.method)
    agent = AGENTS[method.agent](observation_space, action_space, config.agent, config.seed)
    return agent, SHIELDS[method.shield](observation_space, action_space, config, agent)


def make_environment(config: TrainConfig, **kwargs: Any) -> Any:
    """The task of a run, with the run's settings for it."""
    own = {name: getattr(config.env, name) for name in ("max_episode_steps", "observe_velocity")}
    given = {name: value for name, value in own.items() if value not in (None, False)}
    return make_from_name(config.task, **{**config.env.options, **kwargs, **given})


def environment_of(folder: RunFolder, **kwargs: Any) -> Any:
    """The task that a run's folder names; SettingError if that would run code it may not."""
    config = folder.read_config()
    if not folder.trust_task:
        refuse_foreign_code(config.task)
    return make_environment(config, **kwargs)


def episode_seed(seed: int, episode: int) -> int:
    """The seed that resets an episode: the same start for every method of the same run seed."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def adopt_safety(source: str, shield: PostShield) -> None:
    """Arm a new shield with what another run has learnt: a shield file or a run's folder."""
    path = Path(source)
    try:
        if path.is_dir() and not (run := RunFolder.find(path)).state_file.exists():
            path = run.shield_file if run.shield_file.exists() else path  # kept without checkpoint
        if path.is_file():
            if not isinstance(shield, Shield):
                raise AdviceError("a file is an ADVICE shield; this method has another kind")
            arrays, document = Shield.load(path).snapshot()
        else:
            if type(shield) is NoShield:
                raise AdviceError("this method has no shield")
            arrays, document = read_part(RunFolder.find(path).checkpoint, "shield")
            if not arrays:
                raise AdviceError("that run has no shield")
        if isinstance(shield, Shield) and shield.config.k_rule == "fixed":
            document = {**document, "k": shield.config.k}
        shield.restore(arrays, document)
        if isinstance(shield, Shield):
            shield.begin_another_use()
    except KeyError as error:
        raise AdviceError(
            f"{path}: expected a shield of the kind that this method has; it lacks {error}"
        ) from None
    except (AdviceError, ValueError) as error:
        raise AdviceError(f"no shield can be taken from {path}: {error}") from error
    if not shield.armed:
        raise AdviceError(f"{path}: expected a fitted shield, found an unarmed one")
