"""For which wide task is room kept, and what may start in the meantime?"""

from __future__ import annotations

import pytest

from builders import Story, job, node, nodes
from cantle.core.forecast import expected_s
from cantle.core.plan import Plan
from cantle.core.reserving import Kept, kept_before, kept_for
from cantle.model.records import Launch, TaskEnded, TimePassed
from cantle.model.resources import Place
from cantle.model.study import Limits


def kept(story: Story, name: str) -> Kept | None:
    """The room that would be kept now for that task, reckoned anew."""
    task = story.number_of[name]
    return kept_before(Plan(story.state), story.state.queue_of(task), task)


def ends_after(story: Story, name: str, seconds: float) -> None:
    """The task is done so long after its launch."""
    task = story.number_of[name]
    story.happens(TaskEnded(story.state.launched_at[task] + seconds, task, story.state.attempts[task], "done"))


def wide_behind_narrow(wide_s: float = 100.0, **needs: int) -> Story:
    """Two of four cores are busy for 10 and 20 s when a wide task and narrow ones are ready."""
    return Story(
        job("first", estimate_s=10.0, priority=2),
        job("second", estimate_s=20.0, priority=2),
        job("wide", estimate_s=wide_s, priority=1, **(needs or {"cores": 4})),
        job("short", estimate_s=15.0),
        job("long", estimate_s=50.0),
        on=nodes(4) if needs.get("nodes") else [node("n0", 4)],
    )


@pytest.mark.parametrize("needs", [{"cores": 4}, {"nodes": 4}])
def test_room_is_kept_for_a_wide_task_that_decides_the_end_and_short_ones_fill_it_until_then(
    needs: dict[str, int],
) -> None:
    story = wide_behind_narrow(**needs)
    assert story.launches() == ["second", "first", "short"]
    ends_after(story, "first", 10.0)
    assert story.launches() == []
    ends_after(story, "short", 15.0)
    assert story.launches() == []
    ends_after(story, "second", 20.0)
    assert story.launches() == ["wide"]


def test_no_room_is_kept_for_a_wide_task_that_much_other_work_outlasts() -> None:
    narrow = [job(f"t{i}", estimate_s=50.0) for i in range(40)]
    story = Story(
        job("first", estimate_s=10.0, priority=2),
        job("wide", cores=4, priority=1, estimate_s=10.0),
        *narrow,
        on=[node("n0", 4)],
    )
    assert story.launches() == ["first", "t0", "t1", "t2"]


def test_what_the_wide_task_does_not_need_long_ones_may_take() -> None:
    story = Story(
        job("first", cores=3, estimate_s=10.0, priority=2),
        job("wide", cores=4, estimate_s=100.0, priority=1),
        job("long0", estimate_s=50.0),
        job("long1", estimate_s=50.0),
        job("long2", estimate_s=50.0),
        on=[node("n0", 6)],
    )
    assert story.launches() == ["first", "long0", "long1"]


def test_nodes_are_kept_by_count_so_that_any_spare_node_may_be_used() -> None:
    story = Story(
        *[job(f"busy{i}", estimate_s=10.0, priority=2) for i in range(3)],
        job("wide", nodes=3, estimate_s=100.0, priority=1),
        *[job(f"long{i}", estimate_s=50.0) for i in range(3)],
        on=nodes(5),
    )
    assert story.launches() == ["busy0", "busy1", "busy2", "long0", "long1"]
    for name in ("busy0", "busy1", "busy2"):
        ends_after(story, name, 10.0)
    assert story.launches() == ["wide"]


def test_who_takes_the_last_spare_node_leaves_none_for_the_next() -> None:
    story = Story(
        *[job(f"busy{i}", estimate_s=10.0, priority=2) for i in range(3)],
        job("wide", nodes=4, estimate_s=100.0, priority=1),
        *[job(f"long{i}", estimate_s=50.0) for i in range(3)],
        on=nodes(5),
    )
    assert story.launches() == ["busy0", "busy1", "busy2", "long0"]


def test_an_unknown_duration_counts_as_one_that_ends_after_the_shadow() -> None:
    story = Story(
        job("first", estimate_s=10.0, priority=2),
        job("wide", cores=2, estimate_s=100.0, priority=1),
        job("unknown"),
        on=[node("n0", 2)],
    )
    assert expected_s(story.state, 2) != 0
    story.launches()
    assert story.phases()["unknown"] == "ready"


def test_where_nobody_can_foresee_when_the_wide_task_fits_a_single_study_keeps_no_room() -> None:
    story = Story(job("first", priority=2), job("wide", cores=2, priority=1), job("other"), on=[node("n0", 2)])
    assert story.launches() == ["first", "other"]


def test_a_task_that_outlives_its_estimate_moves_the_shadow_but_the_wide_one_keeps_its_place() -> None:
    story = wide_behind_narrow()
    story.launches()
    first = kept(story, "wide")
    ends_after(story, "first", 10.0)
    ends_after(story, "short", 15.0)
    assert story.launches() == []
    story.happens(TimePassed(60.0))
    later = kept(story, "wide")
    assert first is not None and later is not None
    assert later.shadow == 60.0 + (60.0 - story.state.launched_at[1]) / 4 > first.shadow
    assert story.launches() == []
    story.end("second")
    assert story.launches() == ["wide"]


def test_an_estimate_of_0_for_what_runs_does_not_make_the_shadow_pass_for_ever() -> None:
    story = Story(
        job("zero", estimate_s=1e-9, priority=2), job("wide", cores=2, estimate_s=9.0, priority=1), on=[node("n0", 2)]
    )
    story.launches()
    story.end("zero")
    assert story.launches() == ["wide"]


def test_when_the_wide_task_is_canceled_its_room_is_free_in_the_same_pass() -> None:
    story = wide_behind_narrow()
    story.launches()
    ends_after(story, "first", 10.0)
    assert story.launches() == []
    story.cancel("wide")
    assert story.launches() == ["long"]
    assert story.phases()["wide"] == "canceled"


def test_a_second_wide_task_does_not_drain_the_machine_as_well() -> None:
    story = Story(
        job("busy", cores=6, estimate_s=10.0, priority=3),
        job("wide", cores=8, estimate_s=100.0, priority=2),
        job("next", cores=7, estimate_s=100.0, priority=1),
        job("short", estimate_s=9.0),
        job("short2", estimate_s=9.0),
        on=[node("n0", 8)],
    )
    assert story.launches() == ["busy", "short", "short2"]


def test_when_a_node_is_lost_that_the_wide_task_needs_nothing_is_kept_any_more() -> None:
    story = Story(
        job("busy", estimate_s=10.0, priority=2),
        job("wide", nodes=3, estimate_s=100.0, priority=1),
        job("long", estimate_s=50.0),
        job("long2", estimate_s=50.0),
        on=nodes(3),
    )
    assert story.launches() == ["busy"]
    story.lose("n2")
    made = story.decides()
    assert story.phases()["wide"] == "failed"
    assert [story.name(d.task) for d in made if isinstance(d, Launch)] == ["long"]


def test_a_lost_node_that_others_can_replace_leaves_the_place_to_the_wide_task() -> None:
    story = Story(
        job("busy", estimate_s=10.0, priority=2),
        job("busy2", estimate_s=30.0, priority=2),
        job("wide", nodes=3, estimate_s=100.0, priority=1),
        job("long", estimate_s=50.0),
        job("long2", estimate_s=50.0),
        on=nodes(4),
    )
    assert story.launches() == ["busy2", "busy"]
    story.lose("n3")
    assert story.launches() == []
    ends_after(story, "busy", 10.0)
    assert story.launches() == []
    story.end("busy2")
    assert story.launches() == ["wide"]


def test_behind_a_long_head_the_next_short_ones_of_its_kind_are_found_in_the_order_of_their_urgency() -> None:
    story = Story(
        job("busy", cores=2, estimate_s=10.0, priority=2),
        job("wide", cores=4, estimate_s=100.0, priority=1),
        *[job(f"long{i}", estimate_s=50.0) for i in range(3)],
        *[job(f"short{i}", estimate_s=5.0 + i) for i in range(4)],
        on=[node("n0", 4)],
    )
    assert story.launches() == ["busy", "short3", "short2"]
    story.end("short3")
    assert story.launches() == ["short1"]
    for name in ("busy", "short2", "short1"):
        story.end(name)
    assert story.launches() == ["wide"]
    story.end("wide")
    assert story.launches() == ["long0", "long1", "long2", "short0"]


def test_whole_nodes_wait_for_all_of_a_node() -> None:
    story = Story(
        job("busy", estimate_s=10.0, priority=2),
        job("whole", cores=2, whole_nodes=True, estimate_s=100.0, priority=1),
        job("long", estimate_s=50.0),
        job("short", estimate_s=5.0),
        on=[node("n0", 3)],
    )
    assert story.launches() == ["busy", "short"]


def test_room_is_kept_on_the_kind_of_node_alone_that_the_wide_task_needs() -> None:
    story = Story(
        job("busy", kind="gpu", estimate_s=10.0, priority=2),
        job("wide", cores=2, kind="gpu", estimate_s=100.0, priority=1),
        job("long", estimate_s=50.0),
        job("long2", kind="gpu", estimate_s=50.0),
        on=[node("n0", 1), node("n1", 2, kind="gpu")],
    )
    assert story.launches() == ["busy", "long"]


def test_what_a_throttle_holds_back_gets_no_room_kept() -> None:
    story = Story(
        job("busy", estimate_s=10.0, priority=2),
        job("wide", cores=2, estimate_s=100.0, priority=1),
        on=[node("n0", 2)],
        limits=Limits(throttle=1),
    )
    assert story.launches() == ["busy"]
    assert kept_for(Plan(story.state, memory=story.decider._memory)) is None


def test_a_place_that_is_taken_twice_leaves_the_spare_count_right() -> None:
    story = Story(job("long", estimate_s=50.0), job("wide", nodes=2, cores=2), on=nodes(3, 4))
    room = Kept(1, 10.0, 0b111, 1, {2: 0b111})
    room.took(story.state, 0, (Place(0, "0"),))
    assert room.spare_cores == {2: 0b110, 1: 0b001}
    room.took(story.state, 0, (Place(0, "1"),))
    assert (room.nodes, room.spare_nodes) == (0b111, 1)
    room.took(story.state, 0, (Place(0, "2"),))
    assert (room.nodes, room.spare_nodes) == (0b110, 0)


def test_nothing_is_kept_where_everything_takes_one_core() -> None:
    story = Story(*[job(f"t{i}", estimate_s=5.0) for i in range(6)], on=[node("n0", 2)])
    assert story.launches() == ["t0", "t1"]
    assert not any("kept" in str(key) for key in story.decider._memory)


def test_a_whole_node_that_another_takes_is_no_longer_among_those_that_are_kept() -> None:
    story = Story(job("whole", whole_nodes=True, estimate_s=50.0), job("wide", nodes=2, cores=2), on=nodes(3, 4))
    room = Kept(1, 10.0, 0b111, 1, {2: 0b111})
    room.took(story.state, 0, (Place(1, "0-3"),))
    assert (room.nodes, room.spare_nodes) == (0b101, 0)
    assert room.places(Plan(story.state), 0, lambda seen, _: (Place(seen.alive, ""),)) == (Place(0b010, ""),)


def test_what_ends_before_the_shadow_takes_nothing_from_what_is_spare() -> None:
    story = Story(job("short", estimate_s=9.0), job("wide", nodes=3), on=nodes(3))
    room = Kept(1, 10.0, 0b111, 0, {0: 0b111})
    room.took(story.state, 0, (Place(0, "0"),))
    assert (room.nodes, room.spare_nodes, room.spare_cores) == (0b111, 0, {0: 0b111})


def test_for_another_task_room_is_reckoned_anew_even_while_the_old_one_is_fresh() -> None:
    story = Story(
        *[job(f"t{i}", estimate_s=10.0 + i) for i in range(2)],
        job("wide", cores=2),
        job("wider", cores=3),
        on=[node("n0", 3)],
    )
    plan = Plan(story.state)
    for name in ("wide", "wider"):
        kept = kept_before(plan, story.state.queue_of(story.number_of[name]), story.number_of[name])
        assert kept is not None and kept.task == story.number_of[name]
        kept.passes_left = 5


def test_room_is_kept_from_when_the_task_becomes_ready() -> None:
    story = Story(job("wide", cores=2, estimate_s=9.0), on=[node("n0", 3)])
    kept = kept_before(Plan(story.state), story.state.queue_of(0), 0, 77.0)
    assert kept is not None and (kept.shadow, kept.spare_cores) == (77.0, {1: 1})
