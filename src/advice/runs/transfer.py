"""Start a run with what another one has learnt about safety."""

from __future__ import annotations

from pathlib import Path

from advice.agents.agent import Agent
from advice.runs.checkpoints import read_part
from advice.runs.records import RunFolder
from advice.shields.advice import Shield
from advice.shields.shield import NoShield, PostShield
from advice.types import AdviceError


def adopt_safety(source: str, agent: Agent, shield: PostShield) -> None:
    """Arm ``shield`` (or the agent's own safety critic) from a shield file or a run's folder."""
    path = Path(source)
    if path.is_file():
        if not isinstance(shield, Shield):
            raise AdviceError(f"{path} is an ADVICE shield; this method guards with another kind")
        shield.restore(*Shield.load(path).snapshot())
        return
    folder = RunFolder.find(path)
    if not isinstance(shield, NoShield):
        arrays, document = read_part(folder.checkpoint, "shield")
        if not document:
            raise AdviceError(f"{folder.path}: expected a run with a shield, found one without")
        shield.restore(arrays, document)
        if not shield.armed:
            raise AdviceError(f"{folder.path}: expected a fitted shield, found one still watching")
    elif not agent.adopt_safety(*read_part(folder.checkpoint, "agent")):
        raise AdviceError("this method has neither a shield nor a safety critic to transfer")
