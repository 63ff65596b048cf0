"""Start a run with what another one has learnt about safety."""

from __future__ import annotations

from pathlib import Path

from advice.runs.checkpoints import read_part
from advice.runs.records import RunFolder
from advice.shields.base import NoShield, PostShield
from advice.shields.shield import Shield
from advice.types import AdviceError


def adopt_safety(source: str, shield: PostShield) -> None:
    """Arm ``shield`` from a shield file or a run's folder."""
    path = Path(source)
    try:
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
    except KeyError as error:
        raise AdviceError(
            f"{path}: expected a shield of the kind that this method has; it lacks {error}"
        ) from None
    except (AdviceError, ValueError) as error:
        raise AdviceError(f"no shield can be taken from {path}: {error}") from error
    if not shield.armed:
        raise AdviceError(f"{path}: expected a fitted shield, found an unarmed one")
