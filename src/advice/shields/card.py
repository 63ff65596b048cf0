"""The shield card: what someone must know before relying on a shield, in one page of Markdown."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advice.files import write_atomically

if TYPE_CHECKING:
    from advice.shields.shield import Shield

Rows = list[tuple[str, object]]
_LABELLED = {
    "hindsight": "every step by what followed it, or as the caller said",
    "paper": "first steps and goals safe, violations unsafe (Eq. 2), or as the caller said",
}
_COUNTED = ("guarded", "forbidden", "allowed", "far", "risk", "fallback")
_END = """
## Intended use

- Guards the actions of a learning or trained agent in the task above: it replaces proposals that \
its neighbours in the recorded data call unsafe.
- It is no substitute for limits of the machine itself, such as an emergency stop.

## Known limits

- Vetoed actions are never executed, so nothing shows whether they would have done harm.
- A bound holds for the agent and the shield that were evaluated, and for episodes like those.
- A violation in a state in which no candidate is safe is not prevented; see the share above.
- The shield knows what was recorded. Where the task changes, watch the drift alarm.
"""


class Card(str):
    """The card's text."""

    def write(self, shield_file: Path) -> Path:
        """Write the card beside a shield's file, and say in it whose card it is."""
        mark = f"<!-- card of {shield_file.name} -->\n"
        path = shield_file.with_name("card.md")
        if path.exists() and not path.read_bytes().startswith(mark.encode()):
            path = shield_file.with_name(f"{shield_file.stem}.card.md")
        write_atomically(path, [(mark + self).encode()])
        return path


def make_card(shield: Shield) -> Card:
    """The card of a shield as it is now."""
    if shield.compacted is not None:
        return Card(
            f"{shield.compacted['card'].rstrip()}\n\n## Compact\n\n"
            f"- {len(shield._fitted().neighbours)} points and {shield.compacted['weights']} "
            "weights; made from the shield above, whose figures these are. It cannot be fitted or "
            "audited.\n"
        )
    from advice import __version__

    config, memory, own = shield.config, shield._memory, f"Python {platform.python_version()}"
    name = shield.task or "a task without a name"
    about: Rows = [
        ("task", shield.task or "unknown"),
        ("observations", shield.observation_space),
        ("actions", shield.action_space),
        ("state", f"armed, K = {shield.k} of {config.k_max}" if shield.armed else "not fitted"),
        ("versions", f"advice {__version__}, NumPy {np.__version__}, {own}"),
    ]
    data: Rows = [
        ("episodes", memory.episode),
        ("steps", memory.seen),
        ("of them violations", memory.violations),
        ("labelled", _LABELLED[config.labels]),
    ]
    text = f"# Shield card: {name}\n" + _table("Shield", about) + _table("Data", data)
    return Card(text + (_of_fitted(shield) if shield.armed else "") + _END)


def _of_fitted(shield: Shield) -> str:
    """What only a fitted shield can say: audit, bounds, and what overrules its votes."""
    measured = "not measured; `advice eval RUN --episodes 300 --certify` measures it"
    if (shown := shield.certificate) is not None:
        measured = (
            f"at most {shown.bound:.1%} with 95 % confidence (Clopper-Pearson; "
            f"{shown.violations} of {shown.episodes} episodes, frozen agent and shield)"
        )
    promise = shield.calibrated or "not calibrated; `shield.calibrate()` does so"
    bounds: Rows = [
        ("violation probability per episode", measured),
        ("dangerous actions that pass", promise),
    ]
    fallback = "a function of your own" if shield.fallback else shield.config.fallback
    overruled: Rows = [("where no action is safe", fallback), ("far from all data", _far(shield))]
    overruled += [("rule", rule) for rule in shield.rules]
    used = ", ".join(f"{name} {shield.used[name]}" for name in _COUNTED if shield.used[name])
    overruled.append(("proposals decided so far", used or "none"))
    text = f"\n## Audit, on held-out episodes\n\n```\n{shield.audit()}\n```\n"
    return text + _table("Bounds", bounds) + _table("Beside the votes", overruled)


def _far(shield: Shield) -> str:
    """What is done far from all data, and what counts as far."""
    far = shield._far
    if shield.config.far is None or far is None:
        return "not checked"
    if np.isinf(far.threshold[0]):
        return (
            f"{shield.config.far}; never: 19 held-out episodes are needed, found {far.episodes[0]}"
        )
    return (
        f"{shield.config.far}; distance above {far.threshold[0]:.3g}, in at most 5 % of episodes "
        f"like the {far.episodes[0]} held-out ones"
    )


def _table(name: str, rows: Rows) -> str:
    lines = [f"| {key} | {str(value).replace('|', '/')} |\n" for key, value in rows]
    return f"\n## {name}\n\n| | |\n| --- | --- |\n{''.join(lines)}"
