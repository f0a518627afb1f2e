"""Nodes whose end is known: what starts there, when they are emptied, and when the run ends for now."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from builders import Story, job, node, nodes
from cantle.core.explain import explain
from cantle.core.packing import find_places
from cantle.core.plan import Plan
from cantle.core.reserving import kept_before
from cantle.model.kinds import Kind
from cantle.model.records import (
    DrainNode,
    DrainTimeSet,
    EndRun,
    KindsDeclared,
    Launch,
    NodeLost,
    Stop,
    StudyAdded,
    TaskEnded,
    TasksAdded,
    TimePassed,
)
from cantle.model.resources import Place
from cantle.model.study import Limits, PartitionWish, Step, Task
from cantle.runtime.conducting import exit_code


def time(story: Story, at: float) -> None:
    story.happens(TimePassed(at))


def ended(story: Story) -> EndRun | None:
    """One pass: the run's end, if that is all that is decided; None when nothing is."""
    made = story.decides()
    if not made:
        return None
    assert len(made) == 1 and isinstance(made[0], EndRun), made
    return made[0]


def test_o23_a_task_starts_only_where_its_walltime_ends_before_the_node_does_and_short_ones_fill_the_rest() -> None:
    story = Story(
        job("long", walltime_s=80.0, estimate_s=60.0),
        job("later", walltime_s=80.0, estimate_s=60.0),
        job("short", walltime_s=20.0),
        on=[node(ends_at=100.0)],
    )
    assert story.launches() == ["long"]
    time(story, 30.0)
    story.end("long")
    assert story.launches() == ["short"], "it is 31 s, and all is to be empty at 90.1 s"
    assert story.phases()["later"] == "ready"


def test_o23_among_many_alike_the_short_ones_are_found_however_far_behind_they_stand() -> None:
    story = Story(
        *[job(f"long{i}", estimate_s=200.0) for i in range(500)],
        *[job(f"short{i}", estimate_s=20.0) for i in range(3)],
        on=[node(cores=2, ends_at=100.0)],
    )
    assert story.launches() == ["short0", "short1"]
    story.end("short0")
    assert story.launches() == ["short2"]


def test_an_estimate_gets_a_margin_where_the_node_lives_long_enough_for_one() -> None:
    story = Story(job("first", priority=1), job("task", estimate_s=60.0), on=[node(ends_at=101.0)])
    assert story.launches() == ["first"]
    story.happens(TaskEnded(20.0, 0, 1, "done"))
    assert ended(story) is not None, "71 s are left, 72 s wanted"
    story = Story(job("first", priority=1), job("task", estimate_s=59.0), on=[node(ends_at=101.0)])
    story.launches()
    story.happens(TaskEnded(20.0, 0, 1, "done"))
    assert story.launches() == ["task"]


def test_what_a_node_never_lives_for_with_the_margin_starts_when_it_fits_without() -> None:
    story = Story(job("task", estimate_s=85.0), on=[node(ends_at=101.0)])
    assert story.launches() == ["task"], "90 s are there, and 102 s never are"


def test_where_nobody_knows_how_long_a_task_takes_it_may_start_until_the_node_leaves() -> None:
    story = Story(job("unknown"), job("second"), on=[node(ends_at=101.0)])
    time(story, 80.0)
    assert story.launches() == ["unknown"]


def test_what_others_of_its_kind_took_counts_when_nobody_said_how_long_it_takes() -> None:
    story = Story(job("first", priority=1), job("second"), on=[node(ends_at=101.0)])
    assert story.launches() == ["first"]
    story.happens(TaskEnded(61.0, 0, 1, "done"))
    story.state.queue_of(1).took(60.0)
    assert ended(story) is not None
    assert story.phases()["second"] == "ready", "some 60 s are expected, and 30 s are left"


def test_a_gang_starts_only_on_nodes_that_all_last_long_enough() -> None:
    story = Story(
        job("gang", nodes=2, walltime_s=50.0),
        job("single", walltime_s=10.0),
        on=[node("n0", ends_at=40.0), node("n1", ends_at=400.0), node("n2", ends_at=400.0)],
    )
    assert story.launches() == ["gang", "single"]
    assert [place.node for place in story.launch_of("gang").on] == [1, 2]
    assert story.launch_of("single").on[0].node == 0


def test_a_task_waits_for_a_node_that_lives_long_enough_and_runs_there() -> None:
    story = Story(job("task", walltime_s=60.0), on=[node("n0", ends_at=50.0)])
    story.await_nodes(1)
    assert story.launches() == []
    story.join(node("n1", ends_at=200.0))
    assert story.launches() == ["task"]
    assert story.launch_of("task").on[0].node == 1


def test_o04_a_task_that_fits_in_no_nodes_time_does_not_fail_and_the_run_ends_in_order() -> None:
    story = Story(job("task", walltime_s=60.0), job("other", walltime_s=10.0), on=[node("n0", ends_at=31.0)])
    assert story.launches() == ["other"]
    story.end("other")
    made = ended(story)
    assert made is not None
    assert made.why == "the allocation is over for what is left: task needs 60 s, and n0, the last to go, has 26 s"
    assert story.state.finished and story.phases()["task"] == "ready"
    assert exit_code(story.state) == 4


def test_o04_where_nothing_could_be_begun_the_exit_status_says_that_resuming_on_the_like_is_no_use() -> None:
    story = Story(job("task", walltime_s=60.0), on=[node("n0", ends_at=31.0)])
    assert ended(story) is not None
    assert exit_code(story.state) == 3
    story.resume(on=[node("n0", ends_at=story.state.now + 300.0)])
    assert story.launches() == ["task"]


def test_explain_names_the_time_that_a_task_needs_and_the_time_that_is_left() -> None:
    story = Story(job("task", walltime_s=480.0), job("other", priority=1), on=[node("n3", cores=2, ends_at=330.0)])
    assert story.launches() == ["other"]
    assert explain(story.state, 0) == [
        "task is ready.",
        "It needs 8 min; n3, which has room, has 4.94 min left before it has to be empty.",
    ]


def test_what_took_longer_than_nodes_last_that_could_be_asked_for_is_named_when_that_ends_the_run() -> None:
    brief = Kind("brief", 1, lasts_s=100.0)
    story = Story(job("task"), on=[replace(brief.node("n0"), ends_at=101.0)])
    story.happens(KindsDeclared(1.0, [brief]))
    story.decider.scaler = lambda _plan: iter(())
    assert story.launches() == ["task"]
    story.start("task")
    time(story, 91.5)
    story.decides()
    story.end("task", "interrupted")
    made = ended(story)
    assert made is not None
    assert made.why == (
        "the allocation is over for what is left: task needs 95 s, and a node of kind brief may work for 90 s, "
        "as it lasts 100 s"
    )


def test_a_node_is_emptied_before_its_end_and_that_is_nobodys_fault() -> None:
    story = Story(job("task", retries=0), job("next", "task"), on=[node("n0", ends_at=101.0)])
    assert story.launches() == ["task"]
    story.start("task")
    assert story.decider.wakes_at == pytest.approx(91.0)
    time(story, 91.0)
    drain, stop = story.decides()
    assert isinstance(drain, DrainNode) and (drain.node, drain.cause) == (0, "ends")
    assert drain.why == "its allocation ends, 10 s later"
    assert isinstance(stop, Stop) and stop.outcome == "interrupted"
    assert stop.why == "n0: its allocation ends, 10 s later"
    story.end("task", "interrupted")
    made = ended(story)
    assert made is not None and made.why == "the allocation is over"
    assert story.phases() == {"task": "ready", "next": "waiting"}
    assert not story.state.losses and not story.state.faults
    assert story.state.finished and exit_code(story.state) == 4
    assert story.decider.wakes_at == float("inf")


def test_the_user_says_how_long_before_its_end_a_node_is_emptied() -> None:
    story = Story(job("task"))
    story.happens(DrainTimeSet(0.0, 300.0))
    story.join(node(ends_at=1000.0))
    story.launches()
    assert story.decider.wakes_at == pytest.approx(700.0)


def test_a_gang_is_ended_with_the_first_of_its_nodes() -> None:
    story = Story(job("gang", nodes=2), on=[node("n0", ends_at=101.0), node("n1", ends_at=1001.0)])
    assert story.launches() == ["gang"]
    time(story, 91.0)
    assert [type(made) for made in story.decides()] == [DrainNode, Stop]


@pytest.mark.parametrize(("at", "counted"), [(85.0, False), (120.0, False), (40.0, True)])
def test_a_node_that_vanishes_about_when_its_allocation_ends_costs_its_tasks_nothing(at: float, counted: bool) -> None:
    story = Story(job("task"), on=[node("n0", ends_at=101.0)])
    story.launches()
    story.happens(NodeLost(at, 0, "gone"))
    assert bool(story.state.losses) == counted
    assert story.phases()["task"] == "ready"
    if not counted:
        assert ended(story) is not None
        assert story.phases()["task"] == "ready", "where nodes ended, nothing is called impossible"


def test_o25_ends_of_nodes_never_make_a_task_the_one_that_takes_its_nodes_down() -> None:
    story = Story(job("task", estimate_s=0.0))
    for generation in range(5):
        story.await_nodes(1)
        story.join(node(f"n{generation}", ends_at=story.state.now + 1000.0 * 3**generation))
        assert story.launches() == ["task"]
        story.start("task")
        story.happens(NodeLost(story.state.room.nodes[generation].ends_at, generation, "its allocation has ended"))
    assert story.phases()["task"] == "ready"


def cut_off_before_the_node_ends(story: Story) -> None:
    """The task begins on a node that ends at 101 s, is interrupted for that, and another such node comes."""
    story.launches()
    story.start("task")
    time(story, 91.0)
    story.decides()
    story.end("task", "interrupted")
    story.await_nodes(1)
    story.join(node("n1", ends_at=story.state.now + 100.0))


def test_what_was_cut_off_by_its_nodes_end_is_given_more_time_the_next_time_or_none() -> None:
    story = Story(job("task"), on=[node("n0", ends_at=101.0)])
    cut_off_before_the_node_ends(story)
    made = ended(story)
    assert made is not None, "it ran for 89 s without getting done, and the next node has 90 s as well"
    story.resume(on=[node("n2", ends_at=story.state.now + 1000.0)])
    assert story.launches() == ["task"]


def test_a_task_that_can_restart_goes_on_from_where_it_was_when_its_node_ended() -> None:
    story = Story(job("task", restartable=True), on=[node("n0", ends_at=101.0)])
    cut_off_before_the_node_ends(story)
    assert story.launches() == ["task"]
    assert story.launch_of("task").restart
    assert not story.state.restarts, "its bound of restarts is for timeouts"


def test_room_is_kept_for_a_wide_task_only_where_it_would_end_in_time() -> None:
    def story(ends_at: float) -> Story:
        told = Story(
            job("busy", estimate_s=20.0, priority=2, cores=2),
            job("wide", cores=4, estimate_s=100.0, priority=1),
            job("long", cores=2, estimate_s=50.0),
            on=[node("n0", 4, ends_at=ends_at)],
        )
        told.decides()
        return told

    enough, too_short = story(2000.0), story(130.0)
    assert enough.phases()["long"] == "ready", "the wide one decides the end, and fits when the first is over"
    kept = kept_before(Plan(too_short.state), too_short.state.queue_of(1), 1)
    assert kept is None
    assert too_short.phases()["long"] == "launched"


def test_a_moldable_task_starts_as_wide_as_it_has_to_be_to_end_before_the_nodes_do() -> None:
    def story(ends_at: float) -> Story:
        jobs = [job(f"m{i}", widths=(1, 2, 4), estimate_s=100.0) for i in range(4)]
        return Story(*jobs, on=nodes(4, ends_at=ends_at))

    roomy, tight = story(2000.0), story(90.0)
    assert roomy.launches() == ["m0", "m1", "m2", "m3"]
    launched = tight.launches()
    assert launched
    assert all(len(tight.launch_of(name).on) > 1 for name in launched), "on one node it takes 100 s, and 80 s are left"


def test_tasks_in_a_partition_start_only_when_its_nodes_last_long_enough() -> None:
    story = Story(
        job("long", partition="p", walltime_s=200.0, estimate_s=3.0),
        job("short", partition="p", walltime_s=20.0),
        partitions=(PartitionWish("p", 1),),
        on=[node("n0", ends_at=100.0)],
    )
    from cantle.model.records import PartitionStarted

    story.decides()
    story.happens(PartitionStarted(2.0, 0))
    assert story.launches() == ["short"]
    story.end("short")
    made = ended(story)
    assert made is not None and "long needs 3.33 min" in made.why


def test_a_partition_is_made_of_nodes_that_last_long_enough_for_what_runs_in_it() -> None:
    story = Story(
        job("long", partition="p", walltime_s=200.0),
        partitions=(PartitionWish("p", 1),),
        on=[node("n0", ends_at=100.0), node("n1", ends_at=1000.0)],
    )
    story.decides()
    assert story.state.partitions.all[0].nodes() == [1]


def test_nothing_is_asked_of_time_where_no_node_has_an_end() -> None:
    story = Story(job("task"), on=nodes(2))
    assert story.launches() == ["task"]
    assert story.state.lifetimes is None and not story.state.choosy
    plan = Plan(story.state)
    assert plan.room_for(0) is story.state.room
    assert find_places(plan.room, story.state.steps[0].needs) is not None


def test_how_long_an_attempt_had_before_its_node_ended_is_remembered() -> None:
    story = Story(job("task"), on=[node("n0", ends_at=101.0)])
    story.launches()
    story.happens(NodeLost(101.0, 0, "its allocation has ended"))
    assert story.state.lifetimes is not None
    assert story.state.lifetimes.cut == {0: 100.0}


@pytest.mark.parametrize("alone", [True, False])
def test_whoever_the_throttle_held_back_has_his_turn_when_another_one_ends(alone: bool) -> None:
    """O23, with a bound on how many run: the short ones behind it are not forgotten."""
    jobs = [job("long", estimate_s=500.0), *(job(f"short{i}", estimate_s=20.0) for i in range(40))]
    story = Story(*jobs, on=[node(cores=8, ends_at=200.0)], limits=Limits(throttle=2))
    if not alone:
        story.happens(StudyAdded(story.state.now, "other", [Step("step")], tasks=1))
        story.happens(TasksAdded(story.state.now, 41, [Task("t", 1, estimate_s=900.0)], 1))
        story.number_of["t"] = 41
    assert story.launches() == ["short0", "short1"]
    story.end("short0")
    assert story.launches() == ["short2"]
    story.end("short1")
    assert story.launches() == ["short3"]


@pytest.mark.parametrize("lost", [True, False])
def test_who_stood_in_line_on_a_node_that_ends_begins_from_the_beginning_elsewhere(lost: bool) -> None:
    """Its restart command is for those that have run: who had the place before has, and this one never did."""
    story = Story(job("first", restartable=True), job("second", restartable=True), on=[node(ends_at=100.0)])
    time(story, 60.0)
    place = (Place(0, "0", ""),)
    story.happens(Launch(60.0, 0, 1, place))
    story.happens(Launch(60.0, 1, 1, place, behind=0))
    if lost:
        story.start("first")
        story.happens(DrainNode(90.0, 0, "its allocation ends", "ends"))
        story.happens(NodeLost(100.0, 0, "gone"))
    else:
        story.happens(DrainNode(90.0, 0, "its allocation ends", "ends"))
        story.happens(TaskEnded(91.0, 0, 1, "interrupted", started=60.0, pid=7))
        story.happens(TaskEnded(91.0, 1, 1, "interrupted"))
        story.happens(NodeLost(100.0, 0, "gone"))
    assert story.state.restart_next == {0}
    assert story.state.lifetimes is not None and not story.state.lifetimes.cut
