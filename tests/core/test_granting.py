"""Slices in a run: elements are made, used, held and given back. The invariants are checked after each record."""

from __future__ import annotations

import math

import pytest
from test_partitions import Carved

from builders import CheckedState, Job, job, nodes, snapshot, study_records
from cantle.core.decide import Decider, why_never_as
from cantle.core.explain import explain
from cantle.core.phases import Phase
from cantle.core.standings import Standing
from cantle.model.records import (
    ClosePartition,
    ElementsAsked,
    Launch,
    NodeLost,
    OpenPartition,
    RequestPartition,
    StudyAdded,
    TasksAdded,
    TimePassed,
)
from cantle.model.resources import Needs, Node
from cantle.model.study import PartitionWish, Slice, Slicing, Step, Task
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld

THREADS = Slicing((Slice(400, 3), Slice(100, 2), Slice(50, 2), Slice(20, 1)), streams=400, max_active=6)


def wide(name: str, width: int, parents: str = "", **rest: object) -> Job:
    return job(name, parents, nodes=width, **rest)


def simulated(
    jobs: list[Job], slicing: Slicing, on: list[Node], seconds: float = 10.0, agent_s: float = 0.0
) -> CheckedState:
    state = CheckedState()
    for record in study_records(jobs, slicing=slicing):
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, on)], lambda t, _: Fate(jobs[t].estimate_s or seconds), agent_s=agent_s)
    run(state, world, NoLog(), Decider())
    return state


def test_a_task_on_several_nodes_runs_in_an_element_of_its_width_and_others_anywhere() -> None:
    story = Carved(wide("gang", 2), job("one"), on=nodes(4, 2), slicing=Slicing((Slice(2, 1),), max_active=1))
    story.settles()
    element = story.partition("w2.0.0.0")
    assert (element.standing, element.nodes(), element.element) == (Standing.ACTIVE, [0, 1], (0, 0, 0))
    assert story.launch_of("gang").partition == element.number
    assert story.launch_of("one").partition == -1
    assert story.places("one")[0][0] in (2, 3)


def test_the_example_of_four_hundred_nodes_makes_both_legal_combinations_and_a_seventh_copy_waits() -> None:
    jobs = [*(wide(f"a{i}", 400) for i in range(3)), *(wide(f"b{i}", 100) for i in range(8)), wide("c", 20)]
    story = Carved(*jobs, wide("d", 50), on=nodes(400, 6), slicing=THREADS)
    story.settles()
    copies = {p.element[:2] for p in story.state.partitions.living.values() if p.element is not None}
    assert len(copies) == 6
    widths = sorted(p.width for p in story.state.partitions.living.values())
    assert widths.count(400) == 3
    assert story.state.totals[Phase.READY] > 0
    for _ in range(20):
        for task in list(story.state.running):
            story.end(story.name(task))
        story.settles()
        active = {p.element[:2] for p in story.state.partitions.living.values() if p.element is not None}
        assert len(active) <= 6
    assert story.state.succeeded


def test_a_task_that_waits_for_an_element_is_told_what_is_in_its_way() -> None:
    story = Carved(*[wide(f"t{i}", 2) for i in range(3)], on=nodes(4, 1), slicing=Slicing((Slice(2, 1),), max_active=1))
    story.settles()
    waiting = next(i for i in range(3) if story.state.phases[i] == Phase.READY)
    told = " ".join(explain(story.state, waiting))
    assert "The study wants 3 x 2, at most 3; holds 2 x 2; all 2 elements of 2 are taken." in told
    before = snapshot(story.state)
    explain(story.state, waiting)
    assert snapshot(story.state) == before, "asking changes nothing"
    for task in list(story.state.running):
        story.end(story.name(task))
    story.settles()
    assert story.state.phases[waiting] != Phase.READY


def test_a_task_whose_element_has_its_cores_free_but_no_gpu_is_told_so() -> None:
    there = [Node(f"n{i}", 4, gpus=2) for i in range(2)]
    jobs = [job("other", gpus=2), job("first"), wide("both", 2, "first", gpus=1)]
    story = Carved(*jobs, on=there, slicing=Slicing((Slice(2, share=2),)))
    story.settles()
    story.end("first")
    story.settles()
    told = " ".join(explain(story.state, story.number_of["both"]))
    assert "holds nothing; no 2 nodes that follow each other have all that its tasks need free." in told
    story.end("other")
    story.settles()
    assert story.phase("both") == Phase.LAUNCHED


def test_nine_elements_of_fifty_nodes_come_from_both_copies() -> None:
    jobs = [wide(f"t{i}", 50) for i in range(9)]
    story = Carved(*jobs, on=nodes(400, 2), slicing=Slicing((Slice(50, 2),), max_active=2))
    story.settles()
    by_copy = [p.element[1] for p in story.state.partitions.all if p.element is not None]
    assert (by_copy.count(0), by_copy.count(1)) == (8, 1)
    assert len(story.state.running) == 9


def test_an_idle_holder_pulls_the_next_task_without_a_new_agent() -> None:
    jobs = [wide(f"t{i}", 2, estimate_s=5) for i in range(6)]
    state = simulated(jobs, Slicing((Slice(2, 1),), max_active=1), nodes(4))
    opened = [r for r in state.records if isinstance(r, OpenPartition)]
    assert len(opened) == 2
    assert state.now == 15.0


def test_elements_are_closed_when_nothing_is_left_that_could_use_them() -> None:
    state = simulated([wide("a", 2), job("b", "a", estimate_s=100)], Slicing((Slice(2, 1),)), nodes(2))
    closes = [r for r in state.records if isinstance(r, ClosePartition)]
    assert [(r.time, "nothing is left that could use it" in r.why) for r in closes] == [(10.0, True)]


def test_an_element_is_held_over_a_short_gap_and_given_back_over_a_long_one() -> None:
    def story(gap: float) -> list[ClosePartition]:
        jobs = [
            wide("a", 2),
            job("between", "a", estimate_s=gap),
            wide("b", 2, "between"),
            job("long", "b", estimate_s=9),
        ]
        state = simulated(jobs, Slicing((Slice(2, 1),)), nodes(3), agent_s=5.0)
        return [r for r in state.records if isinstance(r, ClosePartition)]

    assert len(story(2.0)) == 1
    long = story(200.0)
    assert len(long) == 2
    assert "fewer are expected to be used soon" in long[0].why


def test_two_widths_share_the_nodes_under_the_cap_and_all_of_it_ends() -> None:
    jobs = [wide(f"w{i}", 4) for i in range(3)] + [wide(f"n{i}", 2) for i in range(12)]
    state = simulated(jobs, Slicing((Slice(4, 1), Slice(2, 1)), max_active=1), nodes(4, 2))
    assert state.succeeded
    ran = {r.task for r in state.records if isinstance(r, Launch)}
    assert ran == set(range(15))


def test_the_wide_is_not_starved_by_a_narrow_stream_under_a_cap_of_one() -> None:
    jobs = [wide(f"n{i}", 1, estimate_s=1.0, widths=(1,)) for i in range(400)] + [wide("wide", 4, estimate_s=1.0)]
    state = simulated(jobs, Slicing((Slice(1, 1), Slice(4, 1)), max_active=1), nodes(4))
    (launch,) = [r for r in state.records if isinstance(r, Launch) and r.task == 400]
    assert launch.time < 100 + 1e-9
    assert state.succeeded


def test_a_lost_node_breaks_the_element_on_it_and_its_task_gets_another() -> None:
    story = Carved(wide("a", 2), wide("b", 2), on=nodes(5), slicing=Slicing((Slice(2, 1),), max_active=1))
    story.settles()
    (place, *_) = story.launch_of("a").on
    story.happens(NodeLost(story._next(), place.node, "gone"))
    story.settles()
    assert story.partition("w2.0.0.0").standing == Standing.FAILED
    story.end("b")
    story.settles()
    assert story.attempt("a") == 2
    assert story.phase("a") == Phase.LAUNCHED


def asks(story: Carved, name: str, want: str) -> None:
    story.happens(ElementsAsked(story._next(), name, want))
    story.settles()


def held_by(story: Carved, name: str) -> dict[int, int]:
    """How many elements of which width the request holds."""
    found: dict[int, int] = {}
    for partition in story.state.partitions.living.values():
        if partition.holder == name and partition.serves:
            found[partition.width] = found.get(partition.width, 0) + 1
    return found


def test_two_of_400_and_three_of_50_but_at_most_four() -> None:
    story = Carved(job("t"), on=nodes(400, 6), slicing=THREADS)
    asks(story, "mine", "2 x 400 + 3 x 50, at most 4")
    assert held_by(story, "mine") == {400: 2, 50: 2}


def test_a_request_is_met_in_part_and_from_several_copies_and_the_rest_comes_later() -> None:
    story = Carved(job("t"), on=nodes(400, 2), slicing=Slicing((Slice(50, 2),), max_active=2))
    asks(story, "mine", "9 x 50")
    copies = [p.element[1] for p in story.state.partitions.all if p.element is not None]
    assert (held_by(story, "mine"), copies.count(0), copies.count(1)) == ({50: 9}, 8, 1)
    asks(story, "yours", "9 x 50")
    assert held_by(story, "yours") == {50: 6}  # and one lacks the core on which a task runs
    asks(story, "mine", "")
    assert held_by(story, "mine") == {}
    assert held_by(story, "yours") == {50: 9}


MINE = PartitionWish("mine", elements="2 x 2")


@pytest.mark.parametrize("declared", [True, False])
def test_tasks_run_in_what_was_requested_under_the_name_of_their_partition(declared: bool) -> None:
    jobs = [job("first"), *(job(f"t{i}", "first", nodes=2, partition="mine") for i in range(3))]
    story = Carved(*jobs, partitions=(MINE,) if declared else (), slicing=Slicing((Slice(2, 1),)))
    story.await_nodes(5)
    if not declared:
        asks(story, "mine", "2 x 2")
    story.join(*nodes(5))
    story.settles()
    story.end("first")
    story.settles()
    assert sorted(story.state.running) == [1, 2]
    story.end("t0")
    story.settles()
    assert sorted(story.state.running) == [2, 3]
    assert {story.state.partitions.all[launch.partition].holder for launch in story.state.running.values()} == {"mine"}
    if not declared:
        asks(story, "mine", "")
    story.end("t1")
    story.end("t2")
    story.settles()
    assert story.state.succeeded
    assert not story.state.partitions.living


def test_who_waits_for_elements_by_name_is_told_how_many_are_there_and_who_gave_them_back() -> None:
    story = Carved(*(wide(f"t{i}", 2, partition="mine") for i in range(3)), slicing=Slicing((Slice(2, 1),)))
    asks(story, "mine", "1 x 2")
    asks(story, "mine", "")
    story.join(*nodes(4))
    story.settles()
    assert story.phase("t0") == Phase.READY
    told = " ".join(explain(story.state, story.number_of["t0"]))
    assert "somebody gave them back; ask for some again: cantle partition request DIR mine WANT." in told
    asks(story, "mine", "1 x 2")
    assert story.phase("t0") == Phase.LAUNCHED
    told = " ".join(explain(story.state, story.number_of["t1"]))
    assert "in elements under the name mine; there is 1 such element now, of which 1 is in use." in told


@pytest.mark.parametrize(
    ("needs", "slicing", "told"),
    [
        ({"nodes": 3}, Slicing((Slice(2, 1),)), "needs 3 nodes at once; the slices have elements of 2 nodes"),
        ({"nodes": 8}, Slicing((Slice(8, 1),)), "needs an element of 8 nodes; there are 4 nodes"),
        (
            {"nodes": 4},
            Slicing((Slice(4, 3, 9),)),
            "needs an element of 4 nodes with 9 cores on each, as the slice 3 x 4 / 9 says; none of the 4 nodes has so many",
        ),
        (
            {"nodes": 4},
            Slicing((Slice(4, 6),)),
            "needs an element of 4 nodes; each of the 6 copies that may be active has 1/6 of a node's cores, and none of the",
        ),
        (
            {"nodes": 2, "cores": 3},
            Slicing((Slice(2, 2),), max_active=2),
            "an element of 2 gets 2 (the node's cores divided by the 2 copies that may be active)",
        ),
        ({"nodes": 2, "cores": 3}, Slicing((Slice(2, 2, 2),)), "an element of 2 gets 2 (as the slice says)"),
    ],
)
def test_what_no_slice_can_hold_fails_at_once_with_the_arithmetic(
    needs: dict[str, int], slicing: Slicing, told: str
) -> None:
    story = Carved(job("t", **needs), on=nodes(4, 4), slicing=slicing)
    assert told in why_never_as(story.state, story.state.queue_of(0).shape)
    story.settles()
    assert story.phase("t") == Phase.FAILED


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        ({"nodes": 1}, "needs 1 node at once; its partition mine has elements of 2 nodes"),
        ({"nodes": 4}, "needs 4 nodes at once; its partition mine has elements of 2 nodes"),
        (
            {"nodes": 2, "cores": 3},
            "needs 3 cores of each node; an element of 2 gets 2 (the node's cores divided by the 2 copies that may be active)",
        ),
        ({"nodes": 2, "cores": 2}, ""),
    ],
)
def test_what_the_elements_that_are_its_partition_cannot_hold_fails_at_once(needs: dict[str, int], told: str) -> None:
    mine = PartitionWish("mine", elements="1 x 2")
    slicing = Slicing((Slice(2), Slice(4)))
    story = Carved(job("t", partition="mine", **needs), on=nodes(4, 4), partitions=(mine,), slicing=slicing)
    assert why_never_as(story.state, story.state.queue_of(0).shape) == told
    story.settles()
    assert story.phase("t") == (Phase.FAILED if told else Phase.LAUNCHED)


def test_where_only_some_nodes_have_the_cores_of_an_element_their_number_is_told() -> None:
    slicing = Slicing((Slice(2, 1, 4),))
    story = Carved(job("t", nodes=2), on=[*nodes(1, 4), Node("small", 1)], slicing=slicing)
    assert why_never_as(story.state, story.state.queue_of(0).shape) == (
        "needs an element of 2 nodes with 4 cores on each, as the slice 1 x 2 / 4 says; only 1 of the 2 nodes have so many"
    )


def test_a_moldable_task_takes_the_widest_elements_that_let_all_run_at_once() -> None:
    few = Carved(job("a", widths=(1, 2, 4)), on=nodes(8), slicing=Slicing((Slice(1), Slice(2), Slice(4)), max_active=1))
    few.settles()
    assert len(few.launch_of("a").on) == 4
    jobs = [job(f"t{i}", widths=(1, 2, 4)) for i in range(8)]
    many = Carved(*jobs, on=nodes(8), slicing=Slicing((Slice(1), Slice(2), Slice(4)), max_active=1))
    many.settles()
    assert [len(launch.on) for launch in many.state.running.values()] == [1] * 8


def test_a_decider_made_anew_goes_on_with_the_elements_that_there_are() -> None:
    jobs = [wide(f"t{i}", 2) for i in range(6)]
    story = Carved(*jobs, on=nodes(4), slicing=Slicing((Slice(2, 1),), max_active=1))
    story.settles()
    story.decider = Decider()
    story.end("t0")
    story.settles()
    assert len([r for r in story.records if isinstance(r, RequestPartition)]) == 2
    assert len(story.state.running) == 2


def test_a_resumed_run_makes_its_elements_anew() -> None:
    jobs = [wide(f"t{i}", 2) for i in range(3)]
    story = Carved(*jobs, on=nodes(4), slicing=Slicing((Slice(2, 1),), max_active=1))
    story.settles()
    story.end("t0")
    story.resume(on=nodes(4))
    story.settles()
    assert sorted(story.state.running) == [1, 2]
    assert story.decider.wakes_at == math.inf


def test_a_task_that_wants_nothing_beside_it_runs_in_no_element_that_has_a_part_of_its_nodes() -> None:
    shares = Slicing((Slice(2, 1, 1), Slice(2, 1, 2)), max_active=2)
    story = Carved(wide("part", 2, priority=1), wide("alone", 2, whole_nodes=True), on=nodes(4, 2), slicing=shares)
    story.settles()
    assert story.launch_of("part").partition >= 0
    story.end("part")
    while story.phases()["alone"] == "ready" and story.state.now < 60.0:
        story.settles()
        story.happens(TimePassed(story.state.now + 2.0))  # what idles is held for a while
    alone = story.state.partitions.all[story.launch_of("alone").partition]
    assert all(alone.room.capacity[index][0] == 0b11 for index in alone.nodes())
    only_parts = Carved(wide("alone", 2, whole_nodes=True), on=nodes(4, 2), slicing=Slicing((Slice(2, 2, 1),)))
    only_parts.settles()
    assert "in each element of 2 nodes there is one that is 1 of its node's 2 cores" in only_parts.cause("alone")


def test_no_element_is_made_of_nodes_that_leave_before_its_task_could_end() -> None:
    on = [Node("n0", 1, ends_at=50.0), Node("n1", 1, ends_at=50.0), Node("n2", 1), Node("n3", 1)]
    story = Carved(wide("gang", 2, walltime_s=100.0), on=on, slicing=Slicing((Slice(2, 1),)))
    story.settles()
    assert [place.node for place in story.launch_of("gang").on] == [2, 3]
    short = Carved(wide("gang", 2, walltime_s=100.0), on=on[:2], slicing=Slicing((Slice(2, 1),)))
    short.settles()
    assert short.state.partitions.all == [], "nothing is made that nobody could use"
    assert short.state.expired


def test_who_holds_elements_by_name_gets_none_when_no_task_is_left() -> None:
    story = Carved(job("t"), on=nodes(2), slicing=Slicing((Slice(1),)))
    asks(story, "mine", "1 x 1")
    assert held_by(story, "mine") == {1: 1}
    story.end("t")
    story.settles()
    assert not story.state.partitions.living
    made = sum(isinstance(record, RequestPartition) for record in story.records)
    assert made == 1 and story.state.finished


def test_elements_are_taken_up_anew_after_nodes_went_by_which_the_others_are_counted() -> None:
    """Explaining does so each time; a decider when it is made anew."""
    jobs = [wide(f"t{i}", 2) for i in range(3)]
    story = Carved(*jobs, on=nodes(5), slicing=Slicing((Slice(2),)))
    story.settles()
    second = story.partition("w2.0.0.1")
    assert second.nodes() == [2, 3] and second.running
    story.lose("n0")
    story.settles()
    waiting = next(task for task, phase in enumerate(story.state.phases) if phase == Phase.READY)
    assert "element" in " ".join(explain(story.state, waiting))
    story.decider = Decider()
    story.settles()
    assert second.serves, "something runs there"
    for name in ("t0", "t1", "t2"):
        if story.phase(name) == Phase.LAUNCHED:
            story.end(name)
    story.settles()
    assert second.standing == Standing.DONE and second.why == "the nodes are divided otherwise now"
    assert any(phase == Phase.LAUNCHED for phase in story.state.phases), "in an element of the nodes that are left"


def test_an_element_that_is_held_for_tasks_of_which_none_could_run_there_is_given_back_for_another_one() -> None:
    wish = PartitionWish("mine", elements="1 x 1")
    there = [Node("small", 3), Node("large", 3, memory_mib=8)]
    jobs = [job("plain", partition="mine"), job("big", "plain", memory_mib=5, partition="mine")]
    story = Carved(*jobs, on=there, slicing=Slicing((Slice(1),)), partitions=(wish,))
    story.settles()
    assert story.places("plain")[0][0] == 0
    story.end("plain")
    story.settles()
    assert story.places("big")[0][0] == 1
    assert "nothing that is ready for mine could run there" in [each.why for each in story.state.partitions.all]
    story.end("big")
    story.settles()
    assert story.state.finished


def test_a_study_for_whose_tasks_the_elements_are_too_small_leaves_them_to_another_one() -> None:
    pairs = Slicing((Slice(2, 1),), max_active=1)
    story = Carved(wide("big", 2, memory_mib=8), on=nodes(2, 1, memory_mib=4), slicing=pairs)
    story.await_nodes(4)  # with these it could run: so it is not refused
    step = Step("step", Needs(nodes=2))
    story.happens(StudyAdded(story._next(), "other", [step], tasks=1, slicing=pairs))
    story.happens(TasksAdded(story._next(), 1, [Task("small", 1)], 1))
    story.number_of["small"] = 1
    story.settles()
    assert story.phases() == {"big": "ready", "small": "launched"}
    assert [record.study for record in story.records if isinstance(record, RequestPartition)] == [1]
    story.end("small")
    story.join(*[Node(f"large{i}", 1, memory_mib=8) for i in range(4)])
    story.settles()
    story.happens(TimePassed(story.state.now + 60.0))  # the element of the small one was held for a while
    story.settles()
    assert story.phases() == {"big": "launched", "small": "done"}


@pytest.mark.parametrize(("copies", "at_once"), [(2, 1), (1, 2)])
def test_studies_that_are_sliced_alike_share_the_bound_and_who_is_sliced_otherwise_has_one_of_his_own(
    copies: int, at_once: int
) -> None:
    """H7: two copies over the two nodes, of which one is active at once."""
    story = Carved(wide("first", 2), on=nodes(2, 4), slicing=Slicing((Slice(2, 2, share=2),), max_active=1))
    other = Slicing((Slice(2, copies, share=2),), max_active=1)
    story.happens(StudyAdded(story._next(), "other", [Step("step", Needs(nodes=2))], tasks=1, slicing=other))
    story.happens(TasksAdded(story._next(), 1, [Task("second", 1)], 1))
    story.number_of["second"] = 1
    story.settles()
    assert [story.phase("first"), story.phase("second")].count(Phase.LAUNCHED) == at_once


def test_what_somebody_holds_by_name_stays_his_when_a_study_comes_that_declares_elements_by_another_name() -> None:
    pairs = Slicing((Slice(2, 1),), max_active=1)
    story = Carved(job("t"), on=nodes(6, 2), slicing=pairs)
    asks(story, "mine", "1 x 2")
    yours = PartitionWish("yours", elements="1 x 2")
    step = Step("step", Needs(nodes=2), partition="yours")
    story.happens(StudyAdded(story._next(), "other", [step], tasks=1, partitions=(yours,)))
    story.happens(TasksAdded(story._next(), 1, [Task("u", 1)], 1))
    story.number_of["u"] = 1
    story.settles()
    assert (held_by(story, "mine"), held_by(story, "yours")) == ({2: 1}, {2: 1})
    assert story.state.partitions.all[story.launch_of("u").partition].holder == "yours"
    asks(story, "mine", "")
    assert (held_by(story, "mine"), held_by(story, "yours")) == ({}, {2: 1})
