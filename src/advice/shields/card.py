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
            f"audited.\n{_table('Bounds now', _bounds(shield))}"
            f"{_table('Beside the votes now', _overruled(shield))}"
        )
    from advice import __version__

    config, memory, own = shield.config, shield._memory, f"Python {platform.python_version()}"
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
    text = f"# Shield card: {shield.task or 'a task without a name'}\n{_table('Shield', about)}"
    if not shield.armed:
        return Card(text + _table("Data", data) + _END)
    safe, audit = shield._fitted().points.safe, shield.audit()
    data.append(("steps that vote", f"{safe.sum()} safe, {(~safe).sum()} unsafe"))
    now, evidence = audit.at_k[max(audit.k, 1) - 1], audit.evidence
    audited: Rows = [
        ("episodes held out", audit.held_out_episodes),
        ("balanced accuracy", _share(audit.balanced_accuracy)),
        ("unsafe steps that pass (false safe)", now.false_safe),
        ("safe steps that are refused (false unsafe)", now.false_unsafe),
        ("states near danger in which the action decides", _share(evidence.action_matters)),
        ("states near danger in which no action is safe", _share(evidence.no_safe_action)),
        ("held-out steps far from the fitted ones", audit.far),
    ]
    text += _table("Data", data) + _table("Audit, on held-out episodes", audited)
    text += _table("Bounds", _bounds(shield)) + _table("Beside the votes", _overruled(shield))
    if audit.warnings:
        text += "\n## Warnings\n\n" + "".join(f"- {warning}\n" for warning in audit.warnings)
    return Card(text + _END)


def _table(name: str, rows: Rows) -> str:
    lines = [f"| {key} | {str(value).replace('|', '/')} |\n" for key, value in rows]
    return f"\n## {name}\n\n| | |\n| --- | --- |\n{''.join(lines)}"


def _share(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.1%}"


def _bounds(shield: Shield) -> Rows:
    measured = "not measured; `advice eval RUN --episodes 300 --certify` measures it"
    if (shown := shield.certificate) is not None:
        measured = (
            f"at most {shown.bound:.1%} with 95 % confidence (Clopper-Pearson; "
            f"{shown.violations} of {shown.episodes} episodes, frozen agent and shield)"
        )
    how = "" if shield.compacted else "; `shield.calibrate()` does so"
    promise = str(shield.calibrated or f"not calibrated{how}")
    if shield.calibrated and shield.rules:
        promise += "; by the votes alone, which rules overrule"
    return [
        ("violation probability per episode", measured),
        ("dangerous actions that pass", promise),
    ]


def _overruled(shield: Shield) -> Rows:
    used, far, fallback, checked = shield.used, shield._far, shield.config.fallback, "not checked"
    own = f"a function of your own, used {used['fallback']} times"
    if not shield.fallback:
        own = f"{fallback} (and {own})" if used["fallback"] else fallback
    if shield.config.far is not None and far is not None:
        count, guarded = far.episodes[0], used["guarded"]
        how = f"never: 19 held-out episodes are needed, found {count}"
        if np.isfinite(far.threshold[0]):
            how = f"distance above {far.threshold[0]:.3g}, in at most 5 % of episodes like the "
            how += f"{count} held-out ones"
        rate = f"{used['far']} of {guarded} guarded proposals ({used['far'] / max(1, guarded):.1%})"
        checked = f"{shield.config.far}; {how}; so far {rate}"
    rows: Rows = [("where no action is safe", own), ("far from all data", checked)]
    if shield.rules:
        times = f"forbidden {used['forbidden']}, allowed {used['allowed']} times"
        rows += [*(("rule", rule) for rule in shield.rules), ("rules applied", times)]
    return rows
