"""What cannot run any more since nodes were lost says so: how many there were, which went, when and why."""

from __future__ import annotations

import pytest

from builders import Story, job, node, nodes
from cantle.core.explain import explain
from cantle.model.kinds import Kind
from cantle.model.records import DrainNode, KindsDeclared, NodeLost, ReleaseNode
from cantle.model.study import PartitionWish, Slice, Slicing

SILENT = "it has given no sign of life for 20 s"


def test_a_step_that_is_too_wide_since_a_node_was_lost_says_which_when_and_why() -> None:
    story = Story(job("wide", nodes=4), job("narrow", nodes=3), on=nodes(4))
    story.happens(NodeLost(story.state.started_at + 185, 2, f"n2: {SILENT}"))
    story.decides()
    assert story.phases() == {"wide": "failed", "narrow": "launched"}
    assert story.cause("wide") == (
        "needs 1 core on each of 4 nodes; only 3 nodes of 3 could hold a share of it; 1 of the 4 nodes that were there was "
        f"lost: n2, 3.08 min after the run began ({SILENT})"
    )
    assert story.cause("wide") in explain(story.state, story.number_of["wide"], story.state.now)[0]


def test_what_could_not_have_run_with_them_either_says_nothing_of_them() -> None:
    story = Story(job("huge", nodes=5), on=nodes(4))
    story.lose("n2")
    story.decides()
    assert story.phase("huge").name == "FAILED" and "lost" not in story.cause("huge")


def test_one_that_came_again_was_not_lost() -> None:
    story = Story(job("wide", nodes=2), on=nodes(2))
    story.await_nodes(1)
    story.lose("n0")
    story.join(node("n0"))
    story.lose("n1")
    story.decides()
    assert "1 of the 2 nodes that were there was lost: n1" in story.cause("wide")


def test_the_only_one_and_those_of_many_are_told() -> None:
    story = Story(job("any"), on=nodes(1))
    story.lose("n0", "n0: its runner is gone")
    story.decides()
    assert "the only node that was there was lost: n0, " in story.cause("any")
    assert story.cause("any").endswith("after the run began (its runner is gone)")
    many = Story(job("wide", nodes=8), on=nodes(8))
    for index in range(5):
        many.lose(f"n{index}")
    many.decides()
    assert "5 of the 8 nodes that were there were lost: n0, " in many.cause("wide")
    assert many.cause("wide").endswith("; and 2 more")


def test_a_partition_and_an_element_that_can_not_be_made_any_more_say_so_too() -> None:
    story = Story(job("a", partition="gang"), on=nodes(2), partitions=(PartitionWish("gang", 2, 1),))
    story.lose("n1")
    story.decides()
    assert "1 of the 2 nodes that were there was lost: n1" in story.cause("a")
    sliced = Story(job("b", nodes=2), on=nodes(2), slicing=Slicing((Slice(2, 1),), max_active=1))
    sliced.lose("n1")
    sliced.decides()
    assert "1 of the 2 nodes that were there was lost: n1" in sliced.cause("b")


@pytest.mark.parametrize("back", [True, False])
def test_beside_kinds_that_cannot_help_lost_nodes_are_told_and_those_given_back_are_not(back: bool) -> None:
    story = Story(job("keep"), job("wide", nodes=2, cores=4), on=nodes(2, 4))
    story.happens(KindsDeclared(story.state.now, (Kind("small", 1, most=1),)))
    if back:
        story.state.apply(DrainNode(story.state.now, 1, "not needed", "retires"))
        story.state.apply(ReleaseNode(story.state.now, 1, "not needed"))
    story.lose("n1")
    story.decides()
    assert story.phase("wide").name == "FAILED"
    assert ("1 of the 2 nodes that were there was lost: n1" in story.cause("wide")) != back


def test_nodes_of_an_earlier_conductor_are_none_of_this_ones() -> None:
    story = Story(job("wide", nodes=2), on=nodes(2))
    story.lose("n0")
    story.resume(on=[node("n7")])
    story.decides()
    assert story.phase("wide").name == "FAILED" and "lost" not in story.cause("wide")
