from __future__ import annotations

import pytest

from advice.envs.signals import Signals
from advice.shields.memory import EpisodeLabels
from advice.types import Outcome


@pytest.mark.parametrize(
    ("first", "violation", "cost", "success", "expected"),
    [
        (True, False, 0.0, False, Outcome.SAFE),
        (False, False, 0.0, True, Outcome.SAFE),
        (False, False, 0.0, False, Outcome.INCONCLUSIVE),
        (False, True, 0.2, False, Outcome.UNSAFE),
        (True, True, 0.0, False, Outcome.UNSAFE),
        (True, False, 0.2, False, Outcome.UNSAFE),
        (False, False, 0.2, True, Outcome.UNSAFE),
    ],
)
def test_label_follows_the_rule(first, violation, cost, success, expected):
    episode = EpisodeLabels("paper", unsafe_limit=10)
    if not first:
        episode.next(Signals(False, 0.0, False))
    assert episode.next(Signals(violation, cost, success)) is expected


UNSAFE, NOTHING, GOAL = (
    Signals(False, 0.2, False),
    Signals(False, 0.0, False),
    Signals(False, 0, True),
)


def labelled(labels: str, signals: list[Signals], unsafe_limit: int = 10) -> list[Outcome | None]:
    episode = EpisodeLabels(labels, unsafe_limit)
    return [episode.next(each) for each in signals]


def test_only_the_first_unsafe_steps_of_an_episode_count_with_the_papers_labels():
    found = labelled("paper", [UNSAFE] * 5 + [GOAL], 3)
    assert found == [Outcome.UNSAFE] * 3 + [Outcome.INCONCLUSIVE] * 2 + [Outcome.SAFE]
    assert labelled("paper", [NOTHING, NOTHING]) == [Outcome.SAFE, Outcome.INCONCLUSIVE]
    assert labelled("paper", [UNSAFE], 0) == [Outcome.INCONCLUSIVE]


SAFE_STEP, UNSAFE_STEP, OPEN = Outcome.SAFE, Outcome.UNSAFE, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        # a violation that ends the episode
        ([NOTHING, NOTHING, Signals(True, 0.2, False)], [OPEN, OPEN, UNSAFE_STEP]),
        # a cost over three steps: its onset is unsafe, the step that leads out is safe
        (
            [NOTHING, UNSAFE, UNSAFE, UNSAFE, NOTHING, NOTHING],
            [OPEN, UNSAFE_STEP, None, None, SAFE_STEP, OPEN],
        ),
        # a cost of one step
        ([NOTHING, UNSAFE, NOTHING], [OPEN, UNSAFE_STEP, SAFE_STEP]),
        # several violations in one episode, the last until its end
        (
            [UNSAFE, UNSAFE, NOTHING, NOTHING, UNSAFE, NOTHING, UNSAFE, UNSAFE],
            [UNSAFE_STEP, None, SAFE_STEP, OPEN, UNSAFE_STEP, SAFE_STEP, UNSAFE_STEP, None],
        ),
        # nothing happens until the time limit; the first step is not safe by itself
        ([NOTHING, NOTHING, NOTHING], [OPEN, OPEN, OPEN]),
        # the goal is safe, but not at the price of a violation
        ([NOTHING, GOAL], [OPEN, SAFE_STEP]),
        ([NOTHING, Signals(True, 0.0, True)], [OPEN, UNSAFE_STEP]),
        # a goal that does not end the episode, while a violation lasts: out of it
        ([UNSAFE, GOAL, NOTHING], [UNSAFE_STEP, SAFE_STEP, OPEN]),
    ],
)
def test_hindsight_marks_where_violations_begin_and_end(signals, expected):
    assert labelled("hindsight", signals) == expected


def test_hindsight_has_no_limit_of_unsafe_steps():
    found = labelled("hindsight", [UNSAFE, NOTHING] * 4, unsafe_limit=1)
    assert found == [UNSAFE_STEP, SAFE_STEP] * 4
