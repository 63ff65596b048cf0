"""Start a run with what another one has learnt about safety."""

from __future__ import annotations

from pathlib import Path

from advice.agents.agent import Agent
from advice.runs.checkpoints import read_part
from advice.runs.records import RunFolder
from advice.shields.base import NoShield, PostShield
from advice.shields.shield import Shield
from advice.types import AdviceError


def adopt_safety(source: str, agent: Agent, shield: PostShield) -> None:
    """Arm ``shield`` (or the agent's own safety critic) from a shield file or a run's folder."""
    path = Path(source)
    try:
        if path.is_file():
            if not isinstance(shield, Shield):
                raise AdviceError("a file is an ADVICE shield; this method has another kind")
            arrays, document = Shield.load(path).snapshot()
        else:
            folder = RunFolder.find(path)
            if isinstance(shield, NoShield):
                _adopt_critic(folder, agent)
                return
            arrays, document = read_part(folder.checkpoint, "shield")
        if isinstance(shield, Shield) and shield.config.k_rule == "fixed":
            document = {**document, "k": shield.config.k}
        shield.restore(arrays, document)
    except KeyError as error:
        raise AdviceError(
            f"{path}: expected a shield of the kind that this method has; it lacks {error}"
        ) from None
    except (AdviceError, ValueError) as error:
        raise AdviceError(f"no shield can be taken from {path}: {error}") from error
    if not shield.armed:
        raise AdviceError(f"{path}: expected a fitted shield, found one still watching")


def _adopt_critic(folder: RunFolder, agent: Agent) -> None:
    arrays, _ = read_part(folder.checkpoint, "agent")
    if not agent.adopt_safety(arrays):
        raise AdviceError("one of the two methods has neither a shield nor a safety critic")
