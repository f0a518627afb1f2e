"""Is it told in words why a request is not heeded?"""

from __future__ import annotations

import pytest

from builders import Story, job, nodes
from cantle.model.records import (
    CancelAsked,
    ElementsAsked,
    Event,
    LimitsChanged,
    NodesWished,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionFailed,
    PartitionResizeAsked,
    StopAsked,
)
from cantle.model.study import Limits, PartitionWish
from cantle.runtime.conducting import concerns
from cantle.runtime.unheeded import unheeded


def story_with(*partitions: tuple[int, str]) -> Story:
    """One study, and partitions by study and name."""
    story = Story(job("a"), on=nodes(4))
    for study, name in partitions:
        story.happens(PartitionAsked(story._next(), PartitionWish(name), study, "me"))
    return story


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (
            PartitionCancelAsked(0.0, "was", "me@here", 0),
            "by me@here to cancel the partition 'was' is ignored: it is over",
        ),
        (
            PartitionDrainAsked(0.0, "none", "me", 0),
            "to drain the partition 'none' is ignored: there is none of that name",
        ),
        (PartitionResizeAsked(0.0, "none", 2), "a request to resize the partition 'none' is ignored: there is none"),
        (
            PartitionAsked(0.0, PartitionWish("is"), 0),
            "to make the partition 'is' is ignored: there is one of that name",
        ),
        (PartitionAsked(0.0, PartitionWish("new", 0)), "make the partition 'new' is ignored: no partition has 0 nodes"),
        (
            NodesWished(0.0, "gpu", 2, "me"),
            "by me to have 2 nodes of kind gpu is ignored: no kind of node is called 'gpu'; no kinds",
        ),
        (NodesWished(0.0, "gpu", 1), "to have 1 node of kind gpu is ignored"),
        (NodesWished(0.0, "gpu", None), "to have any number of nodes of kind gpu is ignored"),
        (CancelAsked(0.0, [7]), "to cancel task 7 is ignored: there is no such task"),
        (
            CancelAsked(0.0, list(range(8))),
            "to cancel tasks 0, 1, 2, 3, 4 and 3 more is ignored: there is no such task",
        ),
        (CancelAsked(0.0, None, "", 4), "is ignored: there is no study 5"),
        (LimitsChanged(0.0, Limits(), 4), "to change the limits is ignored: there is no study 5"),
        (
            ElementsAsked(0.0, "x", "2 x 4"),
            "to hold 2 x 4 under the name 'x' is ignored: it cannot be read, or nothing",
        ),
        (ElementsAsked(0.0, "x", "", "", 9), "to give elements back under the name 'x' is ignored"),
    ],
)
def test_what_is_not_heeded_is_told_in_words(wish: Event, told: str) -> None:
    story = story_with((0, "was"), (0, "is"))
    story.happens(PartitionFailed(story._next(), 0, "its agent went away"))
    assert not concerns(wish, story.state)
    sentence = unheeded(wish, story.state)
    assert told in sentence
    assert "Asked(" not in sentence and "time=" not in sentence


@pytest.mark.parametrize("wish", [StopAsked(0.0, "enough"), ElementsAsked(0.0, "x", "2 x 4")])
def test_what_cannot_be_asked_of_one_of_several_studies_is_told_with_what_can(wish: Event) -> None:
    assert "pilot" in unheeded(wish, story_with().state, of_one_study=True)


def test_who_asks_a_pilot_for_what_several_studies_have_is_sent_to_the_study() -> None:
    state = story_with((0, "same"), (1, "same")).state
    wish = PartitionCancelAsked(0.0, "same")
    assert not concerns(wish, state)
    assert "several studies have one of that name; ask in the study's directory" in unheeded(wish, state)
