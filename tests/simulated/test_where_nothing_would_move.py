"""Runs that once went round in circles, or stood still: what is in a partition stays there, and files come to elements."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from tests.simulated.growing_rig import QUICK, elastic

from builders import CheckedState, job, node, step_of, study_records
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.model.kinds import Kind
from cantle.model.records import (
    Decision,
    DrainNode,
    KindsDeclared,
    Launch,
    MoveResults,
    Refuse,
    RequestNodes,
    ResumeNode,
    StepsAdded,
    StopAsked,
    TasksAdded,
    TimePassed,
)
from cantle.model.resources import Node
from cantle.model.study import PartitionWish, Slice, Slicing, Task
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.runtime.simulated_provider import SimulatedProvider

GPU = Kind("gpu", 4, gpus=1, most=1)
CPU = Kind("cpu", 4, most=4)
WITH_GPU = Node("g", 4, 1, kind="gpu")


def test_a_node_with_gpus_is_not_taken_from_under_a_partition_that_waits_to_begin() -> None:
    """It was drained and used again without end in one single turn: others could serve the task, had it been free to go."""
    cpus = [Node(f"c{i}", 4, kind="cpu") for i in range(2)]
    found = elastic(
        [job("a", partition="p")],
        [CPU, GPU],
        1.0,
        there=[WITH_GPU, *cpus],
        partitions=(PartitionWish("p", 3),),
        scaling=replace(QUICK, idle_s=0.0),
    )
    assert found.done == 1
    assert not found.all_of(DrainNode) and not found.all_of(ResumeNode)


def test_a_scaler_that_would_drain_without_end_what_alone_can_serve_is_heard_once() -> None:
    def drains(plan: Plan) -> Iterator[Decision]:
        for index in plan.state.partitions.living and [0]:
            yield DrainNode(plan.state.now, index, "for no reason", "retires")

    state = CheckedState()
    for record in study_records([job("a", partition="p")], partitions=(PartitionWish("p", 2),)):
        state.apply(record)
    there = [Node(f"c{i}", 4, kind="cpu") for i in range(3)]
    world = SimulatedWorld(
        state, [(0.0, there)], lambda _task, _attempt: Fate(1.0), agent_s=1.0, provider=SimulatedProvider()
    )
    world.put(KindsDeclared(0.0, [CPU]))
    decider = Decider()
    decider.scaling, decider.scalers = replace(QUICK, policies=("drains",)), {"drains": drains}
    for _ in range(50):
        if not state.finished:
            turn(state, world, NoLog(), decider, world.wait())
    assert state.finished and state.totals[Phase.DONE] == 1
    assert sum(type(record) is DrainNode for record in state.records) <= 3


def test_files_are_brought_to_all_nodes_of_an_element_in_which_their_task_can_run() -> None:
    """It stood still: the file lay on one node of two, and a task that could take one node or two runs in an element of two."""
    jobs = [job("maker", local=("x",)), job("taker", "maker", widths=(1, 2))]
    machines = [node(f"n{i}", 2, machine=f"m{i}") for i in range(5)]
    found = elastic(jobs, [], 1.0, there=machines, slicing=Slicing((Slice(2), Slice(3))), kept=100)
    assert found.done == 2
    [moved] = found.all_of(MoveResults)
    assert (moved.tasks, moved.node, moved.to) == ([0], 0, 1)
    assert [place.node for place in found.all_of(Launch)[-1].on] == [0, 1]


def test_files_that_two_made_are_brought_to_the_element_that_lacks_least_of_them() -> None:
    jobs = [
        job("small", local=("x",)),
        job("large", local=("x",), cores=2),
        job("taker", "small large", nodes=2),
    ]
    machines = [node("n0", 1, machine="m0"), *(node(f"n{i}", 2, machine=f"m{i}") for i in range(1, 4))]
    found = elastic(jobs, [], lambda name: 1.0, there=machines, slicing=Slicing((Slice(2),)), kept=100)
    assert found.done == 3
    ends = {place.node for place in found.all_of(Launch)[-1].on}
    assert ends == {2, 3} or ends == {0, 1}
    assert {moved.to for moved in found.all_of(MoveResults)} <= ends


def test_who_shares_out_elements_does_not_ask_to_be_woken_when_the_run_is_stopped() -> None:
    """A microsecond after another, until what ran had ended: elements had changed hands in turn."""
    state = CheckedState()
    slicing = Slicing((Slice(2),))
    first = study_records([job("a", nodes=2), job("b", nodes=2), job("c", nodes=2)], slicing=slicing)
    for record in first:
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, [node(f"n{i}") for i in range(2)])], lambda *_: Fate(100.0), grace_s=60.0)
    world.put(StopAsked(5.0, "enough"))
    decider = Decider()
    while not state.finished:
        turn(state, world, NoLog(), decider, world.wait())
        assert state.finished or decider.wakes_at > state.now
    assert sum(type(record) is TimePassed for record in state.records) < 5


def test_of_the_elements_that_a_study_declares_those_are_made_that_what_is_ready_can_use() -> None:
    """It wants one of two widths, the wide one first, and all that is ready takes the other: they idled for ever."""
    wish = PartitionWish("p", elements="1 x 2 + 1 x 1, at most 1")
    slicing = Slicing((Slice(2), Slice(1)), max_active=1)
    jobs = [job("outside"), job("narrow", partition="p"), job("wide", "narrow", nodes=2, partition="p")]
    found = elastic(jobs, [], 1.0, there=[node(f"n{i}", 4) for i in range(2)], partitions=(wish,), slicing=slicing)
    assert found.done == 3
    assert [len(record.on) for record in found.all_of(Launch) if record.partition >= 0] == [1, 2]


def test_what_no_node_could_hold_is_refused_also_where_nodes_of_a_kind_have_come_to_their_end() -> None:
    """It waited for ever, as if nodes like the first ones might still come."""
    chain = [job("a"), job("b", "a"), job("c", "b"), job("d", "c")]
    with_gpu = step_of(job("gpu", gpus=1))
    later = [StepsAdded(16.0, 0, [with_gpu]), TasksAdded(16.0, 4, [Task("gpu", 1)])]
    fixed = replace(QUICK, policies=("fixed:1",))
    found = elastic(chain, [Kind("cpu", 1, most=1, lasts_s=10.0, removes=False)], 5.0, scaling=fixed, events=later)
    assert found.done == 4
    assert [(record.time, record.task) for record in found.all_of(Refuse)] == [(16.0, 4)]


def test_nodes_that_stand_apart_complete_no_element_in_which_a_task_might_run_one_day() -> None:
    """It waited for ever: counted with them the last three nodes were an element, which nobody would ever make."""
    there = [
        *(node(f"small{i}", 1) for i in range(2)),
        node("aside", 1, apart=True),
        *(node(f"n{i}", 4) for i in range(3)),
    ]
    found = elastic([job("wide", cores=4, nodes=3)], [], 1.0, there=there, slicing=Slicing((Slice(3),)))
    [why] = found.refusals
    assert why.startswith("needs 4 cores") and "in each element of 3 nodes there is one that" in why


def test_no_nodes_are_asked_for_again_and_again_for_what_is_kept_for_another_run() -> None:
    """A first node ended, so what fits nowhere is kept for when the run is resumed; its partition does not ask for nodes."""
    ending, staying = Node("small", 2, ends_at=10.0), Node("large", 4)
    for partition in (PartitionWish("p", 2, cores=3), PartitionWish("p", 3, cores=3)):
        found = elastic(
            [
                job("first", partition="p"),
                job("never", "first", partition="p", whole_nodes=True, walltime_s=20.0),
                job("long"),
            ],
            [Kind("cpu", 3, most=3, lasts_s=15.0)],
            lambda name: 200.0 if name == "long" else 1.0,
            there=[staying, Node("other", 4), ending],
            partitions=(partition,),
            losses=[(5.0, 1)],
        )
        assert found.state.phases[1] == Phase.READY, "it is kept"
        assert found.done == 2
        late = [record for record in found.all_of(RequestNodes) if record.time > 30.0]
        assert not late
