"""What a step says about safety, read from whatever an environment offers; rollouts of steps."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from advice.types import SettingError, Terminal

VIOLATION_COST = 0.2
"""The cost of a violation in an environment that reports violations but no cost."""
VIOLATION_KEYS = {"violation", "constraint_violation", "out_of_bounds", "out_of_road"}
VIOLATION_KEYS |= {"crashed", "crash", "collision", "fatal_collision"}
"""Keys of ``info`` that report a violation, besides ``cost`` and other truth values ``crash*``."""
_COUNTER = re.compile(r"crash(es|.*(count|counts|counter|number|num|total))$", re.IGNORECASE)
"""A number under such a key is taken for a count and says nothing; a bool is no count."""
SUCCESS_KEYS = {"success", "is_success", "arrive_dest", "env_complete"}
"""Keys of ``info`` that report a success."""
WHAT_TO_GIVE = (  # where nothing says what a violation is
    'set info["violation"] or info["cost"] in the environment; give terminal="failure" '
    "(train: --env.terminal failure, check-env: --terminal failure) if its terminations are "
    "failures; or give outcome=..., a function that labels each step"
)


class Signals(NamedTuple):
    """The safety-relevant facts of one step."""

    violation: bool
    cost: float
    success: bool
    source: str = ""  # what reports violations: a key of info or a rule; empty if nothing does
    unexplained: bool = False  # it terminated, and nothing says if as a failure or a success

    @property
    def unsafe(self) -> bool:
        """True if it violated, or cost anything."""
        return self.violation or self.cost > 0


class KnownEnds(NamedTuple):
    """How the episodes of a well-known environment end; its ``info`` says nothing about it."""

    terminated: Terminal | None  # what a termination means, unless the reward tells
    reason: str
    failure_reward: float = -math.inf  # a last step with at most this reward is a failure
    success_reward: float = math.inf  # a last step with at least this reward is a success

    def meaning(self, reward: float, terminated: bool) -> Terminal | None:
        """What the end of an episode means; a truncated one only by its reward."""
        if reward <= self.failure_reward:
            return "failure"
        if reward >= self.success_reward:
            return "success"
        return self.terminated if terminated else None


_FALL = KnownEnds("failure", "termination is a fall")
_GOAL = KnownEnds("success", "termination is the goal")
_LANDER = KnownEnds(None, "a last reward of -100 is a crash, of 100 a landing", -99.9, 99.9)
_WALKER = KnownEnds("success", "a last reward of -100 is a fall", -99.9)

KNOWN_ENDS = {
    **dict.fromkeys(("Hopper", "Walker2d", "Ant", "Humanoid", "CartPole"), _FALL),
    **dict.fromkeys(("InvertedPendulum", "InvertedDoublePendulum"), _FALL),
    **dict.fromkeys(("Acrobot", "MountainCar", "MountainCarContinuous"), _GOAL),
    **dict.fromkeys(("LunarLander", "LunarLanderContinuous"), _LANDER),
    **dict.fromkeys(("BipedalWalker", "BipedalWalkerHardcore"), _WALKER),
    "CarRacing": KnownEnds("success", "a last reward of -100 is leaving the field", -99.9),
    "FrozenLake": KnownEnds("failure", "termination without a reward is a hole", -math.inf, 0.5),
}
"""Gymnasium's own environments by id without version; used only where ``info`` says nothing."""


@dataclass(frozen=True)
class SignalRules:
    """How to read the steps of one environment."""

    terminal: Terminal | None = None
    """What a termination means where ``info`` does not say the opposite; None: not known."""
    known: KnownEnds | None = None
    """The environment's row in :data:`KNOWN_ENDS`; ``terminal`` takes its place."""

    def __post_init__(self) -> None:
        check_terminal(self.terminal)

    @classmethod
    def of(cls, env: Any, terminal: Terminal | None = None) -> SignalRules:
        """The rules for ``env``: an environment, or a string such as ``str(env)`` gives.

        A row that reads rewards is not used if a wrapper changes rewards.
        """
        names = describe(env)
        found = re.search(r"<(\w+)-v\d+>", names)
        known = KNOWN_ENDS.get(found[1]) if found else None
        if known and known[2:] != (-math.inf, math.inf) and "Reward" in names:
            known = None
        return cls(terminal, known)

    @property
    def failures(self) -> str:
        """How a failure is known without a word in ``info``; empty if it is not."""
        if self.terminal is not None:
            return 'terminal="failure"' if self.terminal == "failure" else ""
        known = self.known
        if known and (known.terminated == "failure" or known.failure_reward > -math.inf):
            return known.reason
        return ""


def check_terminal(terminal: Any) -> None:
    """Raise SettingError unless it is None, "failure" or "success"."""
    if terminal is not None and terminal not in get_args(Terminal):
        raise SettingError(f'terminal: expected None, "failure" or "success", found {terminal!r}')


def describe(env: Any) -> str:
    """``str(env)`` with the id of the environment, and the base classes of its wrappers."""
    names = [str(env)]
    spec = getattr(getattr(env, "unwrapped", env), "spec", None)
    if spec is not None:
        names.append(f"<{spec.id}>")
    while "env" in getattr(env, "__dict__", ()):
        names += [base.__name__ for base in type(env).__mro__]
        env = env.env
    return " ".join(names)


def named(description: str) -> str:
    """The innermost name of a description, "CartPole-v1" of "<TimeLimit<CartPole-v1>>"; or ""."""
    found = re.findall("<([^<>]+)>", description)
    return str(found[-1]).removesuffix(" instance") if found and " object" not in found[-1] else ""


def normalize_step(step: tuple[Any, ...]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """(obs, reward[, cost], terminated, truncated, info) with the cost, if there, in ``info``."""
    if len(step) == 5:
        return step
    if len(step) != 6:
        raise ValueError(f"step: expected five or six values, found {len(step)}")
    obs, reward, cost, terminated, truncated, info = step
    return obs, reward, terminated, truncated, {**info, "cost": cost}


NO_RULES = SignalRules()


def read_signals(
    info: Mapping[str, Any],
    terminated: bool,
    truncated: bool = False,
    reward: float = 0.0,
    rules: SignalRules = NO_RULES,
) -> Signals:
    """What a step says about safety.

    ``info`` comes first, then ``rules``. A termination that neither explains is no success: the
    step is inconclusive and ``unexplained``. A value of None counts as absent.

    Raises ValueError if a key that must be a truth value is none, or if the cost is no finite
    number.
    """
    violated: bool | None = None
    success: bool | None = None
    source = ""
    for key, value in info.items():
        known = key in SUCCESS_KEYS or key in VIOLATION_KEYS
        if value is None or not (known or str(key).startswith("crash")):
            continue
        number = _number(value)
        if _COUNTER.match(str(key)) and not known and not isinstance(number, bool):
            continue
        if number not in (0, 1):
            if known:
                raise ValueError(f'info["{key}"]: expected a truth value, found {value!r}')
            continue
        if key in SUCCESS_KEYS:
            success = bool(number or success)
        else:
            source = key if number or not source else source
            violated = bool(number or violated)
    cost = None if info.get("cost") is None else _finite_cost(info["cost"])
    if cost is not None and violated is None:
        violated, source = cost > 0, "cost"
    end = None
    if rules.terminal is not None:
        end = rules.terminal if terminated else None
    elif rules.known is not None and violated is None and success is None:
        end = rules.known.meaning(reward, terminated) if terminated or truncated else None
    violation = bool(violated) or (end == "failure" and not success)
    reached = bool(success) or (end == "success" and not violation)
    if cost is None:
        cost = VIOLATION_COST if violation else 0.0
    said_neither = violated is not None and success is not None
    explained = violation or reached or cost > 0 or said_neither
    unexplained = bool(terminated) and not explained
    return Signals(violation, cost, reached, source or rules.failures, unexplained)


def _number(value: Any) -> float | None:
    """A number, or the one of an array of one; None for anything else."""
    item = value.item() if getattr(value, "size", None) == 1 else value
    return item if isinstance(item, int | float) else None


def _finite_cost(value: Any) -> float:
    number = _number(value)
    if number is None or not math.isfinite(number):
        raise ValueError(f'info["cost"]: expected a finite number, found {value!r}')
    return float(number)


class Step(NamedTuple):
    """One step of an environment."""

    obs: Any  # after the step
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    signals: Signals

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


def rollout(
    env: Any,
    obs: Any,
    choose: Callable[[Any], Any],
    max_steps: int | None = None,
    rules: SignalRules = NO_RULES,
) -> Iterator[Step]:
    """Execute ``choose(obs)`` until the episode ends, or for ``max_steps`` steps.

    ``obs`` is the present observation. The environment is stepped when the next item is asked
    for, so a caller may look at it in between.
    """
    for _ in itertools.count() if max_steps is None else range(max_steps):
        obs, reward, terminated, truncated, info = normalize_step(env.step(choose(obs)))
        signals = read_signals(info, terminated, truncated, float(reward), rules)
        step = Step(obs, float(reward), bool(terminated), bool(truncated), info, signals)
        yield step
        if step.ended:
            return
