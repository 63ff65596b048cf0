"""The shield card: what someone must know before relying on a shield, in one page of Markdown."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advice.files import write_atomically

if TYPE_CHECKING:
    from advice.shields.audit import Audit
    from advice.shields.shield import Shield

Rows = list[tuple[str, str]]
LIMITS = (
    "Vetoed actions are never executed, so nothing shows whether they would have done harm.",
    "A bound holds for the agent and the shield that were evaluated, and for episodes like those.",
    "A violation in a state in which no candidate is safe is not prevented; see the share above.",
    "The shield knows what was recorded. Where the task changes, watch the drift alarm.",
)


@dataclass(frozen=True)
class Card:
    """Sections of named values; prints as Markdown."""

    title: str
    sections: dict[str, Rows]
    text: str = ""
    """The whole card where it is known as text alone."""

    def __str__(self) -> str:
        if self.text:
            return self.text
        lines = [f"# {self.title}"]
        for name, rows in self.sections.items():
            lines += ["", f"## {name}", ""]
            if all(key == "" for key, _ in rows):
                lines += [f"- {value}" for _, value in rows]
            else:
                lines += ["| | |", "| --- | --- |"]
                lines += [f"| {key} | {value.replace('|', '/')} |" for key, value in rows]
        return "\n".join(lines) + "\n"

    def write(self, shield_file: Path) -> Path:
        """Write the card beside a shield's file, and say in it whose card it is."""
        mark = f"<!-- card of {shield_file.name} -->\n"
        path = shield_file.with_name("card.md")
        if path.exists() and not path.read_bytes().startswith(mark.encode()):
            path = shield_file.with_name(f"{shield_file.stem}.card.md")
        write_atomically(path, [(mark + str(self)).encode()])
        return path


def make_card(shield: Shield) -> Card:
    """The card of a shield as it is now."""
    title = f"Shield card: {shield.task or 'a task without a name'}"
    if shield.compacted is not None:
        points = len(shield._fitted().neighbours)
        note = (
            f"\n## Compact\n\n- {points} points and {shield.compacted['weights']} weights; made "
            "from the shield above, whose figures these are. It cannot be fitted or audited.\n"
        )
        return Card(title, {}, shield.compacted["card"].rstrip() + "\n" + note)
    sections = {"Shield": _about(shield), "Data": _data(shield)}
    if shield.armed:
        audit = shield.audit()
        sections["Audit, on held-out episodes"] = _audit(audit)
        sections["Bounds"] = _bounds(shield)
        sections["Beside the votes"] = _overruled(shield)
        if audit.warnings:
            sections["Warnings"] = [("", warning) for warning in audit.warnings]
    sections["Intended use"] = [
        (
            "",
            "Guards the actions of a learning or trained agent in the task above: it replaces "
            "proposals that its neighbours in the recorded data call unsafe.",
        ),
        ("", "It is no substitute for limits of the machine itself, such as an emergency stop."),
    ]
    sections["Known limits"] = [("", limit) for limit in LIMITS]
    return Card(title, sections)


def _about(shield: Shield) -> Rows:
    from advice import __version__

    state = f"armed, K = {shield.k} of {shield.config.k_max}" if shield.armed else "not fitted"
    return [
        ("task", shield.task or "unknown"),
        ("observations", str(shield.observation_space)),
        ("actions", str(shield.action_space)),
        ("state", state),
        (
            "versions",
            f"advice {__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
        ),
    ]


def _data(shield: Shield) -> Rows:
    memory, labels = shield._memory, shield.config.labels
    how = {
        "hindsight": "every step by what followed it, or as the caller said",
        "paper": "first steps and goals safe, violations unsafe (Eq. 2), or as the caller said",
    }
    rows = [
        ("episodes", f"{memory.episode}"),
        ("steps", f"{memory.seen}"),
        ("of them violations", f"{memory.violations}"),
        ("labelled", how[labels]),
    ]
    if shield.armed:
        points = shield._fitted().points
        safe = int(points.safe.sum())
        rows.append(("steps that vote", f"{safe} safe, {len(points.safe) - safe} unsafe"))
    return rows


def _audit(audit: Audit) -> Rows:
    now, evidence = audit.at_k[max(audit.k, 1) - 1], audit.evidence
    return [
        ("episodes held out", f"{audit.held_out_episodes}"),
        ("balanced accuracy", _share(audit.balanced_accuracy)),
        ("unsafe steps that pass (false safe)", f"{now.false_safe}".strip()),
        ("safe steps that are refused (false unsafe)", f"{now.false_unsafe}".strip()),
        ("states near danger in which the action decides", _share(evidence.action_matters)),
        ("states near danger in which no action is safe", _share(evidence.no_safe_action)),
        ("held-out steps far from the fitted ones", f"{audit.far}".strip()),
    ]


def _share(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.1%}"


def _bounds(shield: Shield) -> Rows:
    certificate, calibrated = shield.certificate, shield.calibrated
    measured = "not measured; `advice eval RUN --episodes 300 --certify` measures it"
    if certificate is not None:
        measured = (
            f"at most {certificate.bound:.1%} with 95 % confidence (Clopper-Pearson; "
            f"{certificate.violations} of {certificate.episodes} episodes, frozen agent and shield)"
        )
    promise = "not calibrated; `shield.calibrate()` does so"
    return [
        ("violation probability per episode", measured),
        ("dangerous actions that pass", promise if calibrated is None else str(calibrated)),
    ]


def _overruled(shield: Shield) -> Rows:
    used, far, mode = shield.used, shield._far, shield.config.far
    own = f"a function of your own, used {used['fallback']} times"
    rows = [
        (
            "where no action is safe",
            own
            if shield.fallback
            else f"{shield.config.fallback}"
            + (
                f" (and a function of your own {used['fallback']} times)"
                if used["fallback"]
                else ""
            ),
        ),
    ]
    if mode is None or far is None:
        rows.append(("far from all data", "not checked"))
    else:
        guarded = max(1, used["guarded"])
        threshold = float(far.threshold[0])
        how = (
            f"distance above {threshold:.3g}, in at most 5 % of episodes like the "
            f"{far.episodes[0]} held-out ones"
            if np.isfinite(threshold)
            else f"never: 19 held-out episodes are needed, found {far.episodes[0]}"
        )
        rate = f"{used['far']} of {used['guarded']} guarded proposals ({used['far'] / guarded:.1%})"
        rows.append(("far from all data", f"{mode}; {how}; so far {rate}"))
    rows += [("rule", str(rule)) for rule in shield.rules]
    if len(shield.rules):
        rows.append(
            ("rules applied", f"forbidden {used['forbidden']}, allowed {used['allowed']} times")
        )
    return rows
