"""Partitions that host an engine: it leaves a node before the node leaves, and the node of its head stays."""

from __future__ import annotations

import pytest
from test_partitions import Carved

from builders import job, nodes
from cantle.core.phases import Phase
from cantle.core.standings import Standing
from cantle.model.records import (
    ClosePartition,
    NodeDrainAsked,
    NodeLost,
    NodeResumeAsked,
    PartitionFailed,
    PartitionStarted,
    PartitionTold,
    RetireWorkers,
    ShrinkPartition,
    WorkersRetired,
)
from cantle.model.study import PartitionWish

CALC = PartitionWish("calc", width=3, engine="dask")


def hosting(*more: str, on: int = 4) -> Carved:
    """Three nodes with an engine, a task on one of them."""
    story = Carved(*(job(name, partition="calc") for name in ("x", *more)), on=nodes(on), partitions=(CALC,))
    story.settles()
    return story


def retired(story: Carved, *indexes: int) -> None:
    story.happens(WorkersRetired(story._next(), 0, indexes))


def test_what_it_hosts_leaves_a_node_before_its_slots_do() -> None:
    story = hosting()
    assert story.nodes_of("calc") == [0, 1, 2]
    story.resize("calc", 2)
    (decision,) = story.decides()
    assert isinstance(decision, RetireWorkers)
    assert decision.leaving == (2,)
    assert story.nodes_of("calc") == [0, 1, 2]
    assert story.decides() == []
    retired(story, 2)
    (decision,) = story.decides()
    assert isinstance(decision, ShrinkPartition)
    assert story.nodes_of("calc") == [0, 1]
    assert story.partition("calc").retiring == {}


def test_nothing_begins_on_a_node_that_is_to_leave() -> None:
    story = hosting("b", "c")  # one fills a node
    story.resize("calc", 2)
    story.decides()
    (leaving,) = story.partition("calc").retiring
    on_it = next(name for name in ("x", "b", "c") if story.places(name)[0][0] == leaving)
    story.end(on_it, "failed")
    assert story.decides() == []
    assert story.partition("calc").room.free_cores[leaving] == 0
    retired(story, leaving)
    assert [type(each) for each in story.decides()] == [ShrinkPartition]


def test_the_node_of_the_head_stays_however_narrow_it_becomes_and_however_idle_it_is() -> None:
    story = hosting("b", "c")
    on_head = next(name for name in ("x", "b", "c") if story.places(name)[0][0] == 0)
    story.end(on_head)  # the only idle one
    story.resize("calc", 1)
    (decision,) = story.decides()
    assert isinstance(decision, RetireWorkers)
    assert set(decision.leaving) == {1, 2}


def test_while_it_drains_it_keeps_all_its_nodes_for_what_still_runs() -> None:
    story = hosting()
    story.drain("calc")
    assert story.decides() == []
    assert story.nodes_of("calc") == [0, 1, 2]
    story.end("x")
    assert [type(each) for each in story.decides()] == [ClosePartition]


def test_made_wider_while_a_node_leaves_it_grows_when_that_has_left() -> None:
    story = hosting()
    story.resize("calc", 2)
    story.decides()
    story.resize("calc", 4)
    assert story.decides() == []
    retired(story, 2)
    story.settles()
    assert len(story.nodes_of("calc")) == 4


def test_nothing_begins_on_a_leaving_node_that_was_drained_and_is_used_again() -> None:
    story = hosting()
    story.resize("calc", 2)
    story.decides()
    room = story.partition("calc").room
    story.happens(NodeDrainAsked(story._next(), "n2", "me"))
    story.happens(NodeResumeAsked(story._next(), "n2", "me"))
    assert room.free_cores[2] == 0, "what it hosts has not left it"
    story.happens(NodeDrainAsked(story._next(), "n1", "me"))
    assert room.free_cores[1] == 0
    story.happens(NodeResumeAsked(story._next(), "n1", "me"))
    assert room.free_cores[1] != 0
    retired(story, 2)
    story.settles()
    assert story.nodes_of("calc") == [0, 1]


def test_a_leaving_node_that_is_lost_leaves_nothing_to_wait_for() -> None:
    story = hosting()
    story.resize("calc", 2)
    story.decides()
    story.happens(NodeLost(story._next(), 2, "gone"))
    assert story.decides() == []
    assert story.partition("calc").retiring == {}
    retired(story, 2)
    assert story.nodes_of("calc") == [0, 1]


def test_a_run_that_is_resumed_while_a_node_is_to_leave_has_nothing_left_of_that() -> None:
    story = hosting()
    partition = story.partition("calc")
    story.resize("calc", 2)
    story.decides()
    assert partition.retiring == {2: False}
    story.resume(on=nodes(4))
    assert (partition.nodes(), partition.retiring) == ([], {})


def test_where_the_engine_answers_and_what_it_has_met_with_is_known() -> None:
    story = Carved(job("x", partition="calc"), on=nodes(3), partitions=(CALC,))
    story.decides()
    env = (("DASK_SCHEDULER_ADDRESS", "tls://here:1"),)
    story.happens(PartitionStarted(story._next(), 0, "tls://here:1", env))
    partition = story.partition("calc")
    assert (partition.address, partition.env) == ("tls://here:1", env)
    story.happens(PartitionTold(story._next(), 0, "a worker died"))
    assert partition.why == "a worker died"


@pytest.mark.parametrize("times", [3])
def test_an_engine_that_fails_again_and_again_fails_the_tasks_that_need_it_and_nothing_else(times: int) -> None:
    story = Carved(job("x", partition="calc"), job("other"), on=nodes(4), partitions=(CALC,))
    for number in range(times):
        story.decides()
        assert story.partition("calc").standing == Standing.STARTING
        story.happens(PartitionFailed(story._next(), number, "its head died: no module named dask"))
    story.decides()
    assert story.phase("x") == Phase.FAILED
    assert story.phase("other") == Phase.LAUNCHED
