"""Nodes that fail everything, start nothing, or come and go; and steps that must not be mistaken for such a node."""

from __future__ import annotations

import pytest
from test_partitions import Carved

from builders import Story, job, node, nodes
from cantle.core.explain import explain
from cantle.core.trouble import FLAP_S, MOST_FLAPS
from cantle.model.records import (
    Decision,
    DrainNode,
    Launch,
    NodeDrainAsked,
    NodeLost,
    NodeResumeAsked,
    Outcome,
    ResumeNode,
    TaskEnded,
)
from cantle.model.study import PartitionWish


class Fleet(Story):
    """Many alike tasks on some nodes; whoever runs on a bad node fails at once, elsewhere tasks take a minute."""

    def __init__(self, tasks: int, nodes_: int, retries: int = 0) -> None:
        super().__init__(*[job(f"t{i}", retries=retries) for i in range(tasks)], on=nodes(nodes_))
        self.drains: list[DrainNode] = []
        self.resumes: list[ResumeNode] = []

    def decides(self) -> list[Decision]:
        """One pass, its decisions about nodes kept."""
        made = super().decides()
        self.drains += [d for d in made if isinstance(d, DrainNode)]
        self.resumes += [d for d in made if isinstance(d, ResumeNode)]
        return made

    def on(self, index: int) -> int | None:
        """The task that runs on the node."""
        return next(iter(self.state.running_on.get(index, ())), None)

    def ends(
        self, index: int, outcome: Outcome, after_s: float = 0.1, detail: str = "", everywhere: bool = False
    ) -> None:
        """What runs there ends, so long after its launch."""
        task = self.on(index)
        assert task is not None
        at = max(self.state.now, self.state.launched_at[task] + after_s)
        attempt = self.state.attempts[task]
        self.happens(TaskEnded(at, task, attempt, outcome, 1, detail=detail, everywhere=everywhere))
        self.decides()

    def done(self, *indexes: int, times: int = 1) -> None:
        """What runs on these nodes succeeds."""
        for _ in range(times):
            for index in indexes:
                self.ends(index, "done")


def test_a_node_that_fails_what_succeeds_elsewhere_is_taken_out_and_the_rest_goes_on() -> None:
    story = Fleet(60, 4)
    story.decides()
    story.done(0, 1, 2, times=6)
    for _ in range(5):
        assert story.on(3) is not None
        story.ends(3, "failed")
    [drain] = story.drains
    assert (drain.node, drain.cause) == (3, "fails")
    assert drain.why.startswith("5 different tasks in a row failed there, the last of them t")
    assert drain.why.endswith("elsewhere 18 of the same steps succeeded, and 0 failed")
    assert story.on(3) is None, "nothing begins there any more"
    story.done(0, 1, 2)
    assert story.on(3) is None


def test_a_step_that_fails_everywhere_takes_out_no_node() -> None:
    story = Fleet(200, 3)
    story.decides()
    while any(story.on(index) is not None for index in range(3)):
        for index in range(3):
            if story.on(index) is not None:
                story.ends(index, "failed")
    assert story.drains == []
    assert set(story.phases().values()) == {"failed"}


def test_a_step_half_of_whose_tasks_fail_takes_out_no_node_for_a_few_failures_in_a_row() -> None:
    story = Fleet(200, 3)
    story.decides()
    for _ in range(10):
        for index in (0, 1):
            story.ends(index, "failed")
            story.ends(index, "done")
    for _ in range(9):
        story.ends(2, "failed")
    assert story.drains == []
    for _ in range(12):
        if story.on(2) is not None:
            story.ends(2, "failed")
    assert [drain.node for drain in story.drains] == [2], "but so many in a row are no coincidence"


def test_one_success_shows_that_a_node_can_do_it() -> None:
    story = Fleet(100, 2)
    story.decides()
    story.done(0, times=20)
    for _ in range(3):
        for _ in range(4):
            story.ends(1, "failed")
        story.ends(1, "done")
    assert story.drains == []


def test_one_task_that_fails_again_and_again_on_a_node_says_nothing_about_the_node() -> None:
    story = Story(
        job("bad", retries=10, priority=-1),
        *[job(f"t{i}") for i in range(20)],
        on=[node("n0"), node("n1", cores=2)],
    )
    story.decides()
    for _ in range(10):
        for task in list(story.state.running):
            if story.name(task) != "bad":
                story.end(story.name(task))
                story.decides()
    for _ in range(8):
        story.decides()
        story.end("bad", "failed")
    assert not any(isinstance(record, DrainNode) for record in story.records)


def test_a_node_that_eats_everything_in_a_moment_waits_until_it_is_known_how_others_do() -> None:
    story = Fleet(100, 3)
    story.decides()
    for _ in range(5):
        story.ends(2, "failed", 0.01)
    [drain] = story.drains
    assert (drain.node, drain.cause) == (2, "suspect")
    assert story.phases()["t99"] == "ready", "the others are left for better nodes"
    story.ends(0, "done", 60.0)
    assert [(drain.node, drain.cause) for drain in story.drains] == [(2, "suspect"), (2, "fails")]
    story.done(0, 1, times=3)
    assert story.on(2) is None and story.resumes == []


def test_a_node_that_waits_is_used_again_when_the_same_fails_elsewhere_as_well() -> None:
    story = Fleet(100, 3)
    story.decides()
    for _ in range(5):
        story.ends(2, "failed", 0.01)
    story.ends(0, "failed", 60.0)
    assert [(again.node, again.why) for again in story.resumes] == [(2, "what failed there fails elsewhere as well")]
    assert story.on(2) is not None


def test_a_node_does_not_wait_for_word_of_others_when_the_same_has_failed_there_already() -> None:
    story = Fleet(100, 3)
    story.decides()
    story.ends(1, "failed")
    for _ in range(6):
        story.ends(0, "failed")
    assert story.on(2) is not None, "one of them runs there for longer than it took to fail"
    assert story.drains == []


def test_without_a_word_of_how_others_do_no_node_is_taken_out_for_failures_that_took_a_while() -> None:
    story = Fleet(100, 3)
    story.decides()
    for _ in range(40):
        story.ends(2, "failed", 5.0)
    assert story.drains == []


def test_the_last_node_is_never_taken_out() -> None:
    story = Fleet(60, 2)
    story.decides()
    story.done(0, times=20)
    story.happens(NodeDrainAsked(story.state.now, "n0", "me"))
    for _ in range(20):
        story.ends(1, "failed")
    assert story.drains == []


def test_where_only_a_node_that_was_taken_out_could_do_what_is_left_it_serves_again() -> None:
    story = Story(
        *[job(f"t{i}") for i in range(60)],
        job("gpu", gpus=1, priority=-1),
        on=[node("n0"), node("n1"), node("g", gpus=1)],
    )
    story.decides()
    for _ in range(40):
        for task, launch in list(story.state.running.items()):
            if story.state.tasks[task].name.startswith("t"):
                story.end(story.name(task), "failed" if launch.on[0].node == 2 else "done")
                story.decides()
    drains = [record for record in story.records if isinstance(record, DrainNode)]
    assert [drain.node for drain in drains] == [2]
    assert story.phases()["gpu"] == "launched"
    assert [record.node for record in story.records if isinstance(record, ResumeNode)] == [2]


def test_what_could_not_be_started_on_a_node_is_tried_elsewhere_and_not_charged() -> None:
    story = Story(job("a"), job("b"), on=nodes(3))
    story.decides()
    assert story.launch_of("a").on[0].node == 0
    story.end("a", "unstartable", detail="no such shell")
    assert "a" in story.launches()
    assert story.launch_of("a").on[0].node == 2, "not where it could not be started"
    assert not story.state.faults
    story.end("a")
    assert story.phases()["a"] == "done"


def test_while_no_other_node_is_free_a_task_that_could_not_be_started_waits_and_says_why() -> None:
    story = Story(job("a", priority=1), job("b"), on=nodes(2))
    story.decides()
    story.end("a", "unstartable")
    assert story.launches() == []
    assert explain(story.state, 0)[:2] == ["a is ready.", "It could not be started on n0, and is tried elsewhere."]
    story.end("b")
    assert story.launches() == ["a"]


def test_a_task_that_failed_on_a_node_is_tried_again_on_another_when_the_like_of_it_succeed() -> None:
    story = Fleet(60, 3, retries=1)
    story.decides()
    story.done(0, 1, times=3)
    while not story.drains:
        story.ends(2, "failed")
    while any(story.on(index) is not None for index in (0, 1)):
        story.done(*(index for index in (0, 1) if story.on(index) is not None))
    assert set(story.phases().values()) == {"done"}
    assert set(story.state.faults.values()) == {1}, (
        "each of those that failed there was charged once, and done elsewhere"
    )


def test_while_no_other_node_is_free_a_task_that_failed_waits_and_says_why() -> None:
    story = Story(*[job(name, retries=1) for name in "abc"], on=nodes(2))
    story.decides()
    story.end("b")
    story.decides()
    story.end("a", "failed")
    assert story.launches() == []
    assert explain(story.state, 0)[:2] == ["a is ready.", "It failed on n0, and is tried elsewhere."]
    story.end("c")
    assert story.launches() == ["a"]


def test_a_task_that_failed_on_a_node_is_tried_on_another_also_before_anything_like_it_has_succeeded() -> None:
    story = Story(job("a", retries=2), on=nodes(2))
    where = []
    for _ in range(3):
        assert story.launches() == ["a"]
        where.append(story.launch_of("a").on[0].node)
        story.end("a", "failed")
    assert where[:2] in ([0, 1], [1, 0]) and story.phases()["a"] == "failed"


@pytest.mark.parametrize("first", ["partition", "failure"])
def test_a_task_may_go_back_when_a_partition_has_the_other_nodes(first: str) -> None:
    story = Carved(job("a"), on=[node("n0"), node("n1", kind="p"), node("n2", kind="p")])
    assert story.launches() == ["a"] and story.launch_of("a").on[0].node == 0
    if first == "failure":
        story.end("a", "unstartable", detail="no such shell")
        assert story.state.shunned
    story.ask(PartitionWish("p", 2, kind="p"))
    story.settles()
    if first == "partition":
        story.end("a", "unstartable", detail="no such shell")
        assert story.cause("a") == "no such shell", "nobody else could try it"
    else:
        assert story.launch_of("a").on[0].node == 0 and not story.state.shunned


@pytest.mark.parametrize("lost", [False, True])
def test_what_can_be_started_nowhere_fails_after_three_nodes_and_never_hangs(lost: bool) -> None:
    story = Story(job("a"), on=nodes(4))
    if lost:
        story.lose("n3")
        story.lose("n2")
    for _ in range(2 if lost else 3):
        assert story.launches() == ["a"]
        story.end("a", "unstartable", detail="no such shell")
    assert story.phases()["a"] == "failed"
    assert story.cause("a") == "no such shell"


def test_a_node_that_a_task_shuns_is_tried_again_when_no_other_is_left() -> None:
    story = Story(job("a", priority=1), job("b"), on=nodes(2))
    story.decides()
    story.end("a", "unstartable")
    assert story.launches() == []
    story.lose("n1")
    assert "a" in story.launches()


def test_what_could_be_started_on_no_node_whatever_is_charged_at_once() -> None:
    story = Fleet(3, 3)
    story.decides()
    story.ends(0, "unstartable", detail="its command could not be made", everywhere=True)
    assert sorted(story.phases().values()) == ["failed", "launched", "launched"]


def test_a_node_that_starts_nothing_is_taken_out_after_three_tasks() -> None:
    story = Fleet(60, 3)
    story.decides()
    story.done(0, 1, times=10)
    for _ in range(3):
        story.ends(2, "unstartable", 0.0)
    assert [(drain.node, drain.cause) for drain in story.drains] == [(2, "fails")]
    assert "could not be started there" in story.drains[0].why
    assert "failed" not in story.phases().values(), "all of its tasks went elsewhere"


def test_a_node_that_comes_and_goes_is_not_used_any_more_after_a_few_times_until_somebody_says_so() -> None:
    story = Story(*[job(f"t{i}") for i in range(20)], on=[node("n0"), node("flaky")])
    for _ in range(MOST_FLAPS):
        story.decides()
        story.lose("flaky")
        story.join(node("flaky"))
    made = story.decides()
    assert [d.cause for d in made if isinstance(d, DrainNode)] == ["flaps"]
    assert not [d for d in made if isinstance(d, Launch) and d.on[0].node]
    story.happens(NodeResumeAsked(story.state.now, "flaky"))
    assert [d for d in story.decides() if isinstance(d, Launch)]


def test_a_node_that_stayed_for_long_before_it_went_does_not_flap() -> None:
    story = Story(job("t"), on=[node("n0"), node("n1")])
    for _ in range(MOST_FLAPS + 2):
        index = max(story.state.room.nodes)
        story.happens(NodeLost(story.state.now + FLAP_S + 1, index, "gone"))
        story.join(node("n1"))
    assert not [d for d in story.decides() if isinstance(d, DrainNode)]


def test_nothing_is_booked_where_nothing_fails_or_only_one_node_is() -> None:
    story = Story(job("a", retries=3), on=[node()])
    for _ in range(3):
        assert story.launches() == ["a"]
        story.end("a", "failed")
    assert story.state.trouble is None
    many = Fleet(20, 4)
    many.decides()
    many.done(0, 1, 2, 3, times=3)
    assert many.state.trouble is None


def test_o25_a_task_that_takes_its_nodes_down_with_it_is_stopped_after_three_and_the_rest_completes() -> None:
    story = Story(job("killer", priority=1), *[job(f"t{i}") for i in range(3)], on=nodes(6))
    for _ in range(3):
        story.decides()
        story.lose(f"n{story.launch_of('killer').on[0].node}")
    assert story.phases()["killer"] == "failed"
    assert story.cause("killer") == "3 nodes were lost while it ran on them"
    for i in range(3):
        story.end(f"t{i}")
    assert story.state.finished


def test_o25_a_gang_is_charged_with_one_loss_however_many_of_its_nodes_go_at_once() -> None:
    story = Story(job("gang", nodes=3), on=nodes(9))
    for generation in range(3):
        assert story.launches() == ["gang"]
        for place in story.launch_of("gang").on:
            story.happens(NodeLost(story.state.now + 0.1, place.node, "gone"))
        assert story.state.losses == {0: generation + 1}
    assert story.phases()["gang"] == "failed"


def test_o08_after_a_gang_lost_one_node_it_waits_for_one_and_keeps_using_those_that_are_left() -> None:
    story = Story(job("gang", nodes=3), on=nodes(3))
    story.decides()
    story.lose("n1")
    story.await_nodes(1)
    assert story.launches() == []
    assert explain(story.state, 0)[1].endswith("but 1 node more on the way may change that.")
    story.join(node("n3"))
    assert story.launches() == ["gang"]
    assert [place.node for place in story.launch_of("gang").on] == [0, 2, 3]


def test_o24_after_the_loss_of_a_node_that_nobody_replaces_a_gang_fails_at_once_and_the_rest_goes_on() -> None:
    story = Story(job("gang", nodes=3), job("other", priority=1), on=nodes(3))
    assert story.launches() == ["other"]
    story.lose("n2")
    story.decides()
    assert story.phases() == {"gang": "failed", "other": "launched"}
    assert story.cause("gang") == (
        "needs 1 core on each of 3 nodes; only 2 nodes of 2 could hold a share of it; "
        "1 of the 3 nodes that were there was lost: n2, 2 s after the run began (gone)"
    )
