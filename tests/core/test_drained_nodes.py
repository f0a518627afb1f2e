"""Nodes that somebody drains and uses again."""

from __future__ import annotations

from builders import Story, job, node, nodes
from cantle.core.explain import explain
from cantle.model.records import (
    Launch,
    NodeDrainAsked,
    NodeResumeAsked,
    PartitionAsked,
    PartitionStarted,
)
from cantle.model.study import PartitionWish


def drain(story: Story, name: str) -> None:
    story.happens(NodeDrainAsked(story.state.now, name, "ann"))


def use(story: Story, name: str) -> None:
    story.happens(NodeResumeAsked(story.state.now, name))


def test_on_a_drained_node_what_runs_may_end_and_nothing_begins_until_it_is_used_again() -> None:
    story = Story(*[job(f"t{i}") for i in range(5)], on=[node("n0", 2)])
    assert story.launches() == ["t0", "t1"]
    drain(story, "n0")
    story.end("t0")
    assert story.launches() == []
    assert not story.state.to_stop
    story.end("t1")
    assert story.launches() == []
    assert not story.state.finished, "somebody may say that it is to be used again"
    assert "All nodes are drained: n0: drained by ann." in explain(story.state, 2)
    use(story, "n0")
    assert story.launches() == ["t2", "t3"]


def test_whole_nodes_and_gpus_come_back_as_they_were() -> None:
    story = Story(job("a", gpus=1), job("all", whole_nodes=True), on=[node("n0", 3, gpus=2)])
    drain(story, "n0")
    assert story.launches() == []
    use(story, "n0")
    assert story.launches() == ["a"]
    drain(story, "n0")
    story.end("a")
    use(story, "n0")
    assert story.launches() == ["all"]
    assert story.launch_of("all").on[0].gpus == "0-1"


def test_a_node_that_went_away_drained_is_drained_when_it_comes_back() -> None:
    story = Story(job("t"), on=[node("n0")])
    drain(story, "n0")
    story.await_nodes(1)
    story.lose("n0")
    story.join(node("n0"))
    assert story.launches() == []
    use(story, "n0")
    assert story.launches() == ["t"]


def test_what_still_ran_on_a_drained_node_when_it_went_is_not_charged() -> None:
    story = Story(job("t"), on=nodes(2))
    story.launches()
    drain(story, "n0")
    story.lose("n0", "taken away for maintenance")
    assert not story.state.losses
    assert story.launches() == ["t"]
    assert story.launch_of("t").on[0].node == 1


def test_a_resumed_run_has_nodes_of_its_own_and_none_of_them_is_drained() -> None:
    story = Story(job("t"), on=[node("n0")])
    drain(story, "n0")
    story.resume(on=[node("n0")])
    assert story.launches() == ["t"]


def test_a_partition_begins_nothing_on_a_drained_node_and_gives_all_of_it_back_when_it_ends() -> None:
    story = Story(
        *[job(f"p{i}", partition="p") for i in range(4)],
        job("after", "p0 p1 p2 p3", nodes=2),
        partitions=(PartitionWish("p", 2),),
        on=nodes(2),
    )
    story.decides()
    story.happens(PartitionStarted(2.0, 0))
    assert story.launches() == ["p0", "p1"]
    drain(story, "n1")
    for name in ("p1", "p0", "p2", "p3"):
        story.end(name)
        launched = [d for d in story.decides() if isinstance(d, Launch)]
        assert all(place.node == 0 for launch in launched for place in launch.on)
    from cantle.model.records import PartitionEnded

    story.happens(PartitionEnded(story.state.now, 0))
    assert story.launches() == []
    use(story, "n1")
    assert story.launches() == ["after"]


def test_a_partition_that_waits_for_nodes_sets_its_eyes_on_none_that_is_drained() -> None:
    story = Story(
        job("busy", priority=1), job("t", "busy", partition="p"), partitions=(PartitionWish("p", 1),), on=nodes(2)
    )
    drain(story, "n0")
    assert story.launches() == ["busy"]
    assert story.launch_of("busy").on[0].node == 1
    story.happens(PartitionAsked(story.state.now, PartitionWish("q", 1), by="ann"))
    story.decides()
    story.end("busy")
    story.decides()
    assert story.state.partitions.all[0].nodes() == [1]
