"""A node that somebody wants to be given back goes as soon as it is empty, sooner than any policy would let it go. (D1)"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.builders import Story, job
from tests.simulated.growing_rig import QUICK, elastic

from cantle.core.scaling.settings import Scaling
from cantle.model.kinds import Kind
from cantle.model.records import (
    KindsDeclared,
    Launch,
    MoveResults,
    NodeDrainAsked,
    NodeLost,
    NodeResumeAsked,
    NodesJoined,
    ReleaseNode,
    RequestNodes,
)
from cantle.model.resources import Node

CPU = Kind("cpu", 1, most=2, starts_in_s=1.0)
SLOW = Scaling(("fixed:2",), idle_s=1000.0, stays_s=1000.0, cool_down_s=0.0)
FOUR = [job(f"t{i}", estimate_s=10.0) for i in range(4)]


def goes(at: float, name: str = "cpu-1") -> NodeDrainAsked:
    return NodeDrainAsked(at, name, "ada", goes=True)


def test_it_goes_when_its_task_has_ended_without_any_idle_time() -> None:
    found = elastic(FOUR, [CPU], 10.0, scaling=SLOW, events=[goes(5.0)])
    released = found.all_of(ReleaseNode)[0]
    assert (released.time, released.node, released.why) == (11.0, 0, "it is taken away by ada, and empty")
    assert found.done == 4


def test_one_that_is_only_drained_stays_until_it_has_idled() -> None:
    found = elastic(
        FOUR, [CPU], 10.0, scaling=replace(SLOW, idle_s=5.0, stays_s=0.0), events=[NodeDrainAsked(5.0, "cpu-1")]
    )
    assert found.all_of(ReleaseNode)[0].time == 16.0


def test_another_one_comes_in_its_stead_when_the_policy_wants_that_and_is_used_though_its_name_was_sent_away() -> None:
    found = elastic(FOUR, [CPU], 10.0, scaling=SLOW, events=[goes(5.0)])
    assert [(record.time, record.count) for record in found.all_of(RequestNodes)] == [(0.0, 2), (11.0, 1)]
    assert {launch.on[0].node for launch in found.all_of(Launch)} == {0, 1, 2}


@pytest.mark.parametrize("policy", ["demand", "payoff", "fixed:2"])
def test_no_policy_takes_it_back_into_use(policy: str) -> None:
    found = elastic(FOUR, [CPU], 10.0, scaling=replace(QUICK, policies=(policy,)), events=[goes(5.0)])
    assert [launch.time for launch in found.all_of(Launch) if launch.on[0].node == 0] == [1.0]
    assert found.all_of(ReleaseNode)[0].node == 0 and found.done == 4


def test_who_says_so_in_time_may_use_it_again() -> None:
    found = elastic(FOUR, [CPU], 10.0, scaling=SLOW, events=[goes(5.0), NodeResumeAsked(6.0, "cpu-1", "ada")])
    assert not found.all_of(ReleaseNode) and found.peak == 2 and found.done == 4


def test_what_lives_there_alone_and_is_needed_is_moved_first() -> None:
    """O11."""
    jobs = [job("made", estimate_s=2.0), job("other", estimate_s=60.0), job("taken", "made other", estimate_s=1.0)]
    seconds = {"made": 2.0, "other": 60.0, "taken": 1.0}
    found = elastic(jobs, [CPU], seconds.__getitem__, scaling=SLOW, events=[goes(1.5, "cpu-2")], kept=1000)
    [moved] = found.all_of(MoveResults)
    released = found.all_of(ReleaseNode)[0]
    assert moved.node == 1 == released.node and moved.time <= released.time < 61.0
    assert found.done == 3
    assert len([launch for launch in found.all_of(Launch) if launch.task == 0]) == 1, "it was made once"


def test_one_of_no_kind_is_drained_and_stays() -> None:
    found = elastic(
        FOUR, [replace(CPU, most=1)], 10.0, there=[Node("mine", 1)], scaling=QUICK, events=[goes(5.0, "mine")]
    )
    assert not [record for record in found.all_of(ReleaseNode) if record.node == 0]
    assert [launch.time for launch in found.all_of(Launch) if launch.on[0].node == 0] == [0.0]
    assert found.done == 4


def test_the_only_node_is_used_again_when_what_is_ready_could_run_nowhere_else() -> None:
    jobs = [job("made", estimate_s=2.0), job("taken", "made", estimate_s=1.0)]
    only = replace(CPU, most=1)
    found = elastic(jobs, [only], 2.0, scaling=replace(SLOW, policies=("demand",)), events=[goes(1.5)], kept=1000)
    assert found.done == 2 and found.adds == {"cpu": 1}


def test_a_later_node_of_the_same_name_is_used_after_a_removal_and_not_after_a_drain() -> None:
    for goes_too in (True, False):
        story = Story(job("a"), on=[])
        story.decider.scaler = lambda _plan: iter(())
        story.happens(KindsDeclared(1.0, [CPU]))
        story.happens(RequestNodes(1.0, "cpu", 2, "work"))
        story.happens(NodesJoined(2.0, [Node("c1", 1, kind="cpu")], 0))
        story.happens(NodeDrainAsked(3.0, "c1", "ada", goes=goes_too))
        story.happens(ReleaseNode(3.0, 0, "it is empty"))
        story.happens(NodeLost(4.0, 0, "given back"))
        story.happens(NodesJoined(5.0, [Node("c1", 1, kind="cpu")], 0))
        assert (1 in story.state.drained) == (not goes_too)
