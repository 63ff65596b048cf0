"""All settings, as frozen dataclasses. A field's docstring is its help on the command line."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import asdict as to_dict
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from advice.types import SettingError, Terminal

KRule = Literal["inclusive-down", "printed", "released", "fixed"]
Far = Literal["endorse", "refuse", "fallback"]
LearnFrom = Literal["both", "executed", "proposed"]
Preset = Literal["default", "paper"]
Config = TypeVar("Config")
_type_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
_NAME = re.compile(r"\w[\w ./:+=,()-]*")

RETIRED_SETTINGS = {
    "AgentConfig": {"noise_shared"},
    "ShieldConfig": {"observation_power", "keep_learning"},
}
"""Settings of earlier versions, by class name. Saved settings may have them; they are ignored."""
EARLIER_SETTINGS: dict[str, dict[str, Any]] = {
    "AgentConfig": {"warmup_steps": 0},
    "ShieldConfig": {
        **{"arm": "fixed", "labels": "paper", "refit_episodes": 0},
        **{"hold": 0, "learn_from": "executed", "probe_violations": 0},
    },
}
"""What settings that saved files of earlier versions lack were in those versions."""
LIMITS: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("gamma", "tau", "threshold", "plateau_factor"), (0, 1)),
    **dict.fromkeys(("refit_episodes", "hold", "warmup_steps", "most_restarts"), (0, math.inf)),
    "probe_violations": (0, math.inf),
    **dict.fromkeys(("margin", "initial_temperature"), (1e-12, 1e12)),
    **dict.fromkeys(("learning_rate", "actor_learning_rate", "critic_learning_rate"), (0, 1e3)),
    "temperature_learning_rate": (0, 1e3),
    "noise_dt": (1e-12, 1e3),
    "updates_per_step": (0, 1000),
    "replay_capacity": ("batch_size", math.inf),
    "dropout": (0, 0.99),
    "held_out": (0, 0.9),
    "k": (1, "k_max"),
    "k_max": (1, 1000),
    "candidates_per_dimension": (2, 1000),
    "candidate_budget": (1, 2**16),
    "seed": (0, 2**32 - 1),
}
"""The least and the greatest value of a setting, or the names of the settings that hold them.
Without an entry, an integer is at least 1 and a float at least 0."""


class Checked:
    """Settings that raise SettingError for an invalid value, saying what was expected and found."""

    def __post_init__(self) -> None:
        for name, hint in _type_hints(type(self)).items():
            value, alternatives = getattr(self, name), get_args(hint)
            if type(None) in alternatives:
                if value is None:
                    continue
                hint = alternatives[0]
            if get_origin(hint) is Literal and value not in get_args(hint):
                choices = ", ".join(get_args(hint))
                raise SettingError(f"{name}: expected one of {choices}, found {value!r}")
            if not isinstance(hint, type):
                continue
            accepted = (int, float) if hint is float else hint
            if not isinstance(value, accepted) or isinstance(value, bool) != (hint is bool):
                raise SettingError(f"{name}: expected {hint.__name__}, found {value!r}")
            if hint not in (int, float):
                continue
            limits = LIMITS.get(name, (1 if hint is int else 0, math.inf))
            low, high = (getattr(self, x) if isinstance(x, str) else x for x in limits)
            if not low <= value <= high or value == math.inf:
                raise SettingError(f"{name}: expected {low} to {high}, found {value!r}")


@dataclass(frozen=True)
class AutoencoderConfig(Checked):
    """The shield's autoencoder and its fit."""

    latent_size: int = 2
    """Dimensions of the latent space."""
    hidden_size: int = 512
    """Width of the hidden layer of encoder and decoder."""
    margin: float = 3.0
    """Contrastive margin m."""
    contrastive_form: Literal["released", "printed"] = "released"
    """released: max(0, m-d)^2; printed: max(0, m-d^2)."""
    contrastive_weight: float = 1.0
    """Weight of the contrastive loss."""
    reconstruction_weight: float = 0.1
    """Weight of each of the two reconstruction losses."""
    dropout: float = 0.3
    """Dropout after the hidden layer."""
    l2: float = 1e-3
    """Weight decay added to the loss as l2 * sum(w^2) over the dense layers."""
    learning_rate: float = 0.01
    """NAdam's first learning rate."""
    min_learning_rate: float = 1e-6
    """The plateau schedule stops here."""
    plateau_factor: float = 0.2
    """The learning rate is multiplied by this on a plateau."""
    plateau_patience: int = 10
    """Epochs without improvement that make a plateau."""
    stop_patience: int = 20
    """Epochs without improvement that end the fit; the best weights are restored."""
    max_epochs: int = 500
    """The fit never takes more epochs than this."""
    fit_batch_size: int = 32
    """Pairs per gradient step of the fit."""
    held_out: float = 0.2
    """Share of the episodes kept out of the gradient, for early stopping and the audit."""


@dataclass(frozen=True)
class ShieldConfig(AutoencoderConfig):
    """The ADVICE shield. The preset ``paper`` is the paper to the letter."""

    construction_episodes: int = 1000
    """Unshielded episodes (E) after which the shield is fitted at the latest."""
    arm: Literal["early", "fixed"] = "early"
    """early: arm as soon as held-out episodes say that the shield tells actions apart; fixed: not
    before construction_episodes."""
    labels: Literal["hindsight", "paper"] = "hindsight"
    """hindsight: every step is labelled by what followed it; paper: Eq. 2, first steps and goals
    are safe, violations unsafe, the rest is not used."""
    refit_episodes: int = 50
    """Fit anew on all that was seen after this many episodes and 15 % more steps; 0: never."""
    probe_violations: int = 8
    """After this many violated episodes one goes unguarded: does the shield help? 0: never."""
    hold: int | None = None
    """Steps for which a replacement is held while safe; not given: from the data, at most 15."""
    learn_from: LearnFrom | None = None
    """The action of an intervention that the agent learns from; not given: both, SAC executed."""
    fit_steps: int = 3000
    """Gradient steps of each network of a hindsight fit."""
    k: int = 4
    """Safe neighbours (K) an action needs at first."""
    k_max: int = 5
    """Neighbours that vote (K_max)."""
    recent_window: int = 3
    """Episodes in the recent window (h_r)."""
    distant_window: int = 25
    """Episodes in the distant window (h_d)."""
    k_rule: KRule = "inclusive-down"
    """How K follows the recent violations; fixed leaves it alone."""
    fallback: Literal["proposed", "least-risk"] = "least-risk"
    """What is executed when no candidate is safe; a proposal only if no rule forbids it."""
    far: Far | None = None
    """What to do with a proposal far from all data: endorse it, refuse it (as if it were unsafe),
    or leave it to the fallback; not given: its neighbours decide, however far."""
    intervention_penalty: float = 0.0
    """If above 0, the agent also learns (s, rejected action, -penalty, s)."""
    candidates_per_dimension: int = 11
    """Values per action dimension of the candidate grid."""
    candidate_budget: int = 128
    """At most this many candidates; beyond it a low-discrepancy sample replaces the grid."""
    capacity_per_class: int = 20_000
    """Steps kept of episodes with and of those without a violation; when full, a fair sample."""
    unsafe_per_episode: int = 10
    """At most this many unsafe features from one episode, so that no episode dominates."""


PRESETS = {
    "default": ShieldConfig(),
    "paper": ShieldConfig(
        arm="fixed",
        labels="paper",
        refit_episodes=0,
        hold=0,
        learn_from="executed",
        fallback="proposed",
        candidate_budget=1024,
        capacity_per_class=50_000,
        margin=1.0,
        contrastive_weight=1.25,
        reconstruction_weight=1.0,
    ),
}
"""Named shield settings: the defaults, and the paper's to the letter."""


@dataclass(frozen=True)
class MultiplierConfig(Checked):
    """A Lagrangian multiplier, moved once per episode by rate * (cost - limit)."""

    initial: float = 0.1
    """The multiplier at first."""
    learning_rate: float = 0.01
    """How fast it follows the episodes' cost."""
    limit: float = 0.0
    """The cost per episode that is accepted."""
    maximum: float = 10.0
    """It never exceeds this."""


@dataclass(frozen=True)
class CSCConfig(Checked):
    """The conservative safety critic and its shield (csc)."""

    threshold: float = 0.2
    """An action may be executed up to this estimated probability of failure."""
    threshold_rule: Literal["fixed", "adaptive"] = "fixed"
    """adaptive: the threshold is (1 - gamma) (failure_limit - recent failures), at least 0."""
    failure_limit: float = 1.0
    """Share of failed episodes that the adaptive threshold accepts."""
    draws: int = 100
    """Noisy actions to try before the one with the lowest estimate is taken."""
    draw_noise: float = 0.2
    """Standard deviation of the draws around the policy's action (which spans -1 to 1)."""
    conservative_weight: float = 0.5
    """Weight of the term that raises the danger of actions that were not tried."""
    conservative_states: int = 8
    """States of each batch on which that term is estimated; all of them cost ten times as much."""
    conservative_actions: int = 10
    """Actions per state in that term, drawn near the policy's."""
    uniform_actions: bool = True
    """Take as many uniform actions besides, as CQL does."""
    gamma: float = 0.95
    """The safety critic's discount."""
    tau: float = 0.005
    """Share of the safety critic's weights that enters its target at each update."""
    learning_rate: float = 2e-4
    """Adam's step for the safety critic."""
    multiplier: MultiplierConfig = MultiplierConfig(initial=1.0, learning_rate=0.04)
    """The price of danger; an episode costs 1 if it failed, else 0."""


@dataclass(frozen=True)
class TD3Config(Checked):
    """What TD3 adds (td3). Standard deviations are of actions that span -1 to 1."""

    exploration_noise: float = 0.1
    """Standard deviation of the noise on executed actions."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions."""
    target_noise_limit: float = 0.5
    """That noise is cut off here."""
    policy_delay: int = 2
    """Critic updates per update of actor and targets."""


@dataclass(frozen=True)
class SACConfig(Checked):
    """What SAC adds (sac)."""

    initial_temperature: float = 0.2
    """The price of entropy at first; it then adapts."""
    temperature_learning_rate: float = 1e-3
    """Adam's step for the temperature's logarithm."""


@dataclass(frozen=True)
class AgentConfig(Checked):
    """The learner that every method shares."""

    hidden_size: int = 256
    """Width of the two hidden layers of actor and critic."""
    actor_learning_rate: float = 2e-3
    """Adam's step for the actor."""
    critic_learning_rate: float = 1e-3
    """Adam's step for the critic."""
    gamma: float = 0.95
    """Discount."""
    tau: float = 0.005
    """Share of the online weights that enters the targets at each update."""
    batch_size: int = 64
    """Transitions per update; learning starts when that many are stored."""
    replay_capacity: int = 200_000
    """Transitions kept for replay."""
    warmup_steps: int = 1000
    """Uniform actions, each held for 5 steps, before the first update; the paper has none."""
    most_restarts: int = 3
    """How often a policy that soon gives the same extreme action everywhere may start anew, with
    another warm-up; the paper has none."""
    updates_per_step: int = 1
    """Gradient updates after each environment step."""
    bootstrap_through_terminal: bool = False
    """Bootstrap through goal and crash too, as the authors' release does."""
    noise_theta: float = 0.15
    """Ornstein-Uhlenbeck pull towards zero."""
    noise_sigma: float = 0.2
    """Ornstein-Uhlenbeck strength."""
    noise_dt: float = 0.01
    """Ornstein-Uhlenbeck time step."""
    noise_reset: bool = True
    """Reset the noise at each episode; the authors' release never does."""
    lagrangian: MultiplierConfig = MultiplierConfig()
    """The price of cost in ddpg-lag."""
    rcpo: MultiplierConfig = MultiplierConfig(initial=0.0, learning_rate=1e-3)
    """The price of cost in rcpo."""
    csc: CSCConfig = CSCConfig()
    td3: TD3Config = TD3Config()
    sac: SACConfig = SACConfig()


@dataclass(frozen=True)
class TabularConfig(Checked):
    """The tabular shield; candidates, cap per episode and penalty are the ADVICE shield's."""

    within: bool = False
    """Match what lies within 0.1 of a stored pair in every number, not equal rounded numbers."""


@dataclass(frozen=True)
class EnvConfig(Checked):
    """What may be set about a task."""

    max_episode_steps: int | None = None
    """Time limit in steps; the task's own if not given."""
    observe_velocity: bool = False
    """Add the car's velocity to the observation (the built-in tasks)."""
    terminal: Terminal | None = None
    """What a termination means where the task does not say the opposite: failure or success."""
    options: dict[str, float] = field(default_factory=dict)
    """Numbers of the task's row to change, as name value pairs, such as arena 2.5 cubes 12;
    their names are in the documentation's page about the tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.options, dict):
            raise SettingError(f"options: expected names and numbers, found {self.options!r}")
        for name, value in self.options.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise SettingError(f"options.{name}: expected a number, found {value!r}")


@dataclass(frozen=True)
class TrainConfig(Checked):
    """One training run."""

    task: str = "randomised-goal"
    """A task of `advice tasks`, a registered Gymnasium id, or module:Class."""
    method: str = "advice"
    """A method of `advice methods`, or agent+shield such as ddpg+advice."""
    seed: int = 0
    """Seed of all random numbers."""
    episodes: int = 2000
    """Episodes to train."""
    stop_after_violations: int | None = None
    """Violation budget: end the run, saved and complete, after this many violations."""
    shield_from: str | None = None
    """Start with a fitted shield, armed at once: a run's folder or a shield file."""
    study: str = ""
    """The study this run belongs to. A label alone: a report compares the runs of one study."""
    shield: ShieldConfig = field(default_factory=ShieldConfig)
    tabular: TabularConfig = TabularConfig()
    agent: AgentConfig = field(default_factory=AgentConfig)
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        for name in ("task", "method", "study"):  # parts of a path, printed and drawn
            value = getattr(self, name)
            named = isinstance(value, str) and len(value) <= 100 and _NAME.fullmatch(value)
            if not named and (name, value) != ("study", ""):
                raise SettingError(
                    f"{name}: expected a name of at most 100 letters, digits and . _ - / : + = , "
                    f"( ) that begins with a letter or digit, found {value!r:.120}"
                )
        super().__post_init__()


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a config by its dotted name."""
    found: dict[str, Any] = {}
    for name, value in (config if isinstance(config, dict) else to_dict(config)).items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.") if inner else {prefix + name: value}
    return found


def from_dict(kind: type[Config], values: dict[str, Any]) -> Config:
    """The config that ``to_dict`` described, also in an earlier version.

    Raises SettingError for an unknown key.
    """
    hints = _type_hints(kind)
    retired = RETIRED_SETTINGS.get(kind.__name__, ())
    kept = {name: value for name, value in values.items() if name not in retired}
    parts = EARLIER_SETTINGS.get(kind.__name__, {}) | kept
    if unknown := sorted(set(parts) - set(hints)):
        raise SettingError(f"{kind.__name__} has no setting {', '.join(map(repr, unknown))}")
    for name, value in parts.items():
        if is_dataclass(hints[name]):
            if not isinstance(value, dict):
                raise SettingError(f"{kind.__name__}.{name}: expected settings, found {value!r}")
            parts[name] = from_dict(hints[name], value)
    return kind(**parts)
