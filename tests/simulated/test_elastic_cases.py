"""What went wrong with the scalers of others does not go wrong here: cases O01 to O09, O22 and O23, by their numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.builders import Job, job, node
from tests.simulated.growing_rig import QUICK, elastic

from cantle.core.scaling.settings import Scaling
from cantle.model.kinds import Kind
from cantle.model.records import (
    DrainNode,
    NodeDrainAsked,
    ReleaseNode,
    RequestNodes,
    StopAsked,
    TimePassed,
    WithdrawRequest,
)
from cantle.model.resources import Node
from cantle.model.study import Limits, PartitionWish, Slice, Slicing
from cantle.runtime.simulated_provider import SimulatedProvider


def chain(n: int, estimate_s: float = 0.0) -> list[Job]:
    return [job(f"t{i}", f"t{i - 1}" if i else "", estimate_s=estimate_s) for i in range(n)]


def test_o01_no_node_is_asked_for_what_those_that_are_there_can_hold() -> None:
    jobs = [job(f"t{i}", estimate_s=1.0) for i in range(4)]
    found = elastic(jobs, [Kind("cpu", 4)], 1.0, there=[node("n0", 4)])
    assert not found.adds and found.done == 4


@pytest.mark.parametrize("policy", ["demand", "payoff"])
def test_o01_nor_is_one_for_each_that_comes_one_by_one_where_there_is_room_for_it(policy: str) -> None:
    """Each is foreseen: there is one more every half second, and a node could be there before it begins."""
    ticks = [job(f"tick{i}", f"tick{i - 1}" if i else "", estimate_s=0.5) for i in range(10)]
    ones = [job(f"t{i}", f"tick{i}", estimate_s=1.0) for i in range(10)]
    found = elastic(
        [*ticks, *ones],
        [Kind("cpu", 1, starts_in_s=0.6)],
        lambda name: 0.5 if name.startswith("tick") else 1.0,
        there=[node("n0", 4)],
        scaling=replace(QUICK, policies=(policy,)),
    )
    assert not found.adds and found.done == 20 and found.state.now == 6.0


def test_o02_a_chain_asks_for_exactly_one_node_and_keeps_it() -> None:
    jobs = chain(10, estimate_s=2.0)
    found = elastic(jobs, [Kind("cpu", 4, most=10, starts_in_s=1.0)], 2.0)
    assert (found.adds, found.peak, found.done) == ({"cpu": 1}, 1, 10) and not found.removals[:-1]


def test_o02_also_where_nobody_knows_how_long_tasks_take() -> None:
    found = elastic(chain(10), [Kind("cpu", 4, most=10, starts_in_s=1.0)], 2.0)
    assert (found.adds, found.peak, found.done) == ({"cpu": 1}, 1, 10)


def test_o03_a_kind_that_cannot_help_is_never_asked() -> None:
    jobs = [job(f"t{i}", cores=4) for i in range(3)]
    found = elastic(jobs, [Kind("small", 1), Kind("big", 4)], 5.0)
    assert found.adds == {"big": 3} and found.done == 3


def test_o03_where_no_kind_can_help_it_is_said_once_for_each_task_and_nobody_is_asked() -> None:
    found = elastic([job("t", cores=4)], [Kind("small", 1)], 5.0, there=[node("n0", 1)])
    assert not found.adds and len(found.refusals) == 1 and "needs 4 cores" in found.refusals[0]


def test_o04_nodes_that_end_before_the_walltime_are_not_asked_for() -> None:
    found = elastic([job("t", walltime_s=60.0)], [Kind("brief", 4, lasts_s=10.0)], 5.0)
    assert not found.adds and "60 s" in found.refusals[0] and "lasts 10 s" in found.refusals[0]


def test_o05_nodes_that_start_or_have_just_come_are_not_idle() -> None:
    jobs = [job(f"t{i}") for i in range(6)]
    found = elastic(jobs, [Kind("cpu", 1, most=3, starts_in_s=3.0)], 5.0)
    assert found.adds == {"cpu": 3} and found.done == 6
    assert not [time for time in found.removals if time < 13.0]


def test_o06_in_the_tail_all_idle_nodes_leave_at_once() -> None:
    jobs = [job(f"t{i}") for i in range(7)] + [job("long")]
    slow = replace(QUICK, idle_s=1000.0, cool_down_s=1000.0)
    kinds = [Kind("cpu", 1, most=8)]
    found = elastic(jobs, kinds, lambda name: 15.0 if name == "long" else 1.0, scaling=slow)
    assert found.peak == 8 and found.there_at(1.5) == 1 and found.state.now == 15.0
    assert len([time for time in found.removals if time == 1.0]) == 7


def test_o07_a_node_that_a_gang_waits_for_is_not_idle() -> None:
    kinds = [Kind("cpu", 1, most=2, starts_in_s=4.0)]
    found = elastic([job("gang", nodes=2)], kinds, 5.0, there=[Node("n0", 1, kind="cpu")])
    assert found.adds == {"cpu": 1} and found.launched_at("gang") == [4.0]
    assert not [time for time in found.removals if time < 9.0]


def test_o07_survivors_are_not_kept_for_ever() -> None:
    provider = SimulatedProvider(refuses=lambda _kind, _request, count: count)
    there = [Node("n0", 4, kind="cpu"), Node("n1", 1)]
    jobs = [job("gang", cores=4, nodes=2), job("long"), job("then", "long")]
    found = elastic(jobs, [Kind("cpu", 4)], 1000.0, there=there, provider=provider)
    assert found.removals == [150.0] and "2 nodes" in found.refusals[0]


def test_o08_for_a_gang_that_lost_a_node_only_that_one_is_asked_for() -> None:
    kinds = [Kind("cpu", 1, most=10, starts_in_s=6.0)]
    there = [Node(f"n{i}", 1, kind="cpu") for i in range(3)]
    found = elastic([job("gang", nodes=3, retries=1)], kinds, 10.0, there=there, losses=[(3.0, 1)])
    assert found.adds == {"cpu": 1} and found.launched_at("gang") == [0.0, 9.0] and found.done == 1


def test_o09_what_needs_named_things_finds_them_on_all_nodes_and_none_goes_meanwhile() -> None:
    there = [Node(f"n{i}", 1, named=(("x", 1),), kind="cpu") for i in range(4)]
    jobs = [job(f"t{i}", named=(("x", 1),)) for i in range(4)] + [job("last", "t0", named=(("x", 1),))]
    found = elastic(jobs, [Kind("cpu", 1, named=(("x", 1),), most=4)], 3.0, there=there)
    assert not found.adds and found.state.now == 6.0 and min(found.removals) >= 3.0


@pytest.mark.parametrize("estimate_s", [3.0, 0.0])
def test_o22_nodes_that_last_eight_seconds_are_replaced_as_long_as_work_is_left(estimate_s: float) -> None:
    jobs = [job(f"t{i}", estimate_s=estimate_s) for i in range(20)]
    found = elastic(jobs, [Kind("cpu", 1, most=2, lasts_s=8.0, starts_in_s=1.0)], 3.0)
    assert found.done == 20 and not found.state.losses and not found.state.faults
    assert found.adds == {"cpu": 10}, "two tasks on each"
    assert found.peak == 2


@pytest.mark.parametrize("policy", ["demand", "payoff", "fixed:1", "no-nodes", "cheapest"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2])
def test_o23_a_node_that_ends_before_what_is_left_could_goes_early_for_one_that_lasts(
    policy: str, most: int, nodes: int
) -> None:
    jobs = [job("short", walltime_s=2.0, nodes=nodes), job("long", "short", walltime_s=8.0, nodes=nodes)]
    found = elastic(
        jobs,
        [Kind("cpu", 1, most=most * nodes, lasts_s=10.0, starts_in_s=1.0)],
        lambda name: 8.0 if name == "long" else 2.0,
        scaling=replace(QUICK, policies=(policy.replace("1", str(nodes)),)),
    )
    [launched] = found.launched_at("long")
    assert found.done == 2 and launched <= 3.0 + nodes, "and not after the end of the first at 11 s"
    assert found.adds == {"cpu": 2 * nodes} and min(found.removals) <= launched


def test_work_that_will_be_ready_before_a_node_could_serve_it_asks_for_it_now() -> None:
    jobs = [job("first", estimate_s=100.0)] + [job(f"t{i}", "first", estimate_s=300.0) for i in range(4)]
    kinds = [Kind("cpu", 1, starts_in_s=60.0)]
    found = elastic(jobs, kinds, lambda name: 100.0 if name == "first" else 300.0)
    joined = [time for time, _ in found.there()[:4]]
    assert joined[0] == 60.0 and found.launched_at("t3")[0] <= 163.0  # it waits for a place near its inputs


def test_what_is_over_before_a_node_could_come_asks_for_none() -> None:
    jobs = [job(f"t{i}", estimate_s=1.0) for i in range(50)]
    found = elastic(jobs, [Kind("cpu", 1, starts_in_s=60.0)], 1.0, there=[node("n0", 1)])
    assert not found.adds and found.done == 50


def test_gpu_tasks_find_a_gpu_kind_and_cpu_tasks_never_ask_for_one() -> None:
    """D4."""
    kinds = [Kind("gpu", 8, gpus=4, most=2), Kind("cpu", 2, most=2)]
    jobs = [job(f"c{i}", cores=2) for i in range(8)] + [job(f"g{i}", gpus=2) for i in range(4)]
    found = elastic(jobs, kinds, 10.0)
    assert found.adds == {"cpu": 2, "gpu": 2} and found.done == 12


def test_cpu_work_does_not_hold_gpu_nodes_when_others_can_serve_it() -> None:
    """D4."""
    kinds = [Kind("gpu", 2, gpus=1, most=2, cost=5.0), Kind("cpu", 2, most=2)]
    there = [Node("g0", 2, 1, kind="gpu"), Node("c0", 2, kind="cpu")]
    jobs = [job("g", gpus=1, priority=1.0)] + [job(f"c{i}", cores=2) for i in range(12)]
    found = elastic(jobs, kinds, 10.0, there=there)
    assert found.all_of(ReleaseNode)[0].node == 0 and found.all_of(ReleaseNode)[0].time <= 20.0
    assert found.done == 13 and "gpu" not in found.adds
    alone = elastic(jobs, [kinds[0]], 10.0, there=there[:1])
    assert not [record for record in alone.all_of(DrainNode) if record.cause == "retires"] and alone.done == 13


def test_a_throttle_bounds_what_is_asked_for() -> None:

    found = elastic([job(f"t{i}") for i in range(20)], [Kind("cpu", 1)], 5.0, limits=Limits(throttle=3))
    assert found.adds == {"cpu": 3} and found.done == 20


def test_nodes_that_are_drained_by_somebody_are_replaced_and_given_back_when_they_are_empty() -> None:

    jobs = [job(f"t{i}") for i in range(4)]
    there = [Node("n0", 1, kind="cpu")]
    events = [NodeDrainAsked(5.0, "n0", "me")]
    found = elastic(jobs, [Kind("cpu", 1, most=2)], 10.0, there=there, events=events)
    assert found.all_of(ReleaseNode)[0].node == 0 and found.done == 4
    assert not found.all_of(DrainNode)


def test_what_a_provider_refuses_is_asked_for_again_each_time_later_until_it_is_hopeless() -> None:
    provider = SimulatedProvider(refuses=lambda _kind, _request, count: count)
    found = elastic([job("t")], [Kind("cpu", 1)], 5.0, scaling=Scaling(("demand",), retry_s=10.0), provider=provider)
    times = [record.time for record in found.all_of(RequestNodes)]
    assert times == [0.0, 10.0, 30.0, 70.0, 150.0]
    assert "5 requests for nodes of kind cpu brought none: the simulation refuses it" in found.refusals[0]


def test_what_the_run_cannot_go_on_without_is_not_withdrawn_because_no_policy_wants_it() -> None:
    """The nodes that are there could hold the task, but not for as long as it is known to take."""
    kinds = [Kind("small", 1, most=2), Kind("gpu", 4, gpus=1, most=4, starts_in_s=30.0, lasts_s=100.0)]
    scaling = Scaling(("fixed:2",), idle_s=1.0, notice_s=1.0, cool_down_s=0.0)
    there = [Node("old", 4, ends_at=50.0)]
    found = elastic([job("needs-more", cores=4, estimate_s=60.0)], kinds, 60.0, there=there, scaling=scaling)
    assert found.done == 1
    assert found.adds["gpu"] == 1
    assert found.all_of(WithdrawRequest) == []


def test_a_run_that_is_being_stopped_is_not_woken_for_what_nobody_asks_any_more() -> None:
    stop = StopAsked(5.0, "enough")
    jobs = [job("long"), job("wide", nodes=2)]
    for policy in ("payoff", "no-progress:3s", "finish-by:6s"):
        scaling = replace(QUICK, policies=(policy,))
        found = elastic(jobs, [Kind("cpu", 4, most=1)], 100.0, scaling=scaling, there=[node("n0", 1)], events=[stop])
        assert len([record for record in found.all_of(TimePassed) if record.time > 5.0]) <= 1, policy


def test_what_runs_in_a_partition_that_nobody_makes_asks_for_no_node_and_is_refused_at_the_end() -> None:
    found = elastic([job("t", partition="p")], [Kind("cpu", 4, most=1)], 1.0)
    assert not found.adds
    [why] = found.refusals
    assert "which nobody has declared or asked for" in why


def test_what_needs_a_width_that_no_slice_has_is_refused_although_more_nodes_could_come() -> None:
    slicing = Slicing((Slice(2),))
    jobs = [job("three", nodes=3), job("two", nodes=2), job("either", widths=(1, 2))]
    found = elastic(jobs, [Kind("cpu", 4, most=4)], 1.0, slicing=slicing)
    assert found.refusals == ["needs 3 nodes at once; the slices have elements of 2 nodes"]
    assert found.done == 2 and found.adds == {"cpu": 4}


def test_an_element_asks_for_nodes_of_a_kind_whose_share_is_large_enough() -> None:
    slicing = Slicing((Slice(2, copies=2),))
    kinds = [Kind("small", 2, most=4), Kind("large", 8, most=4, cost=3.0)]
    found = elastic([job("two", nodes=2, cores=2)], kinds, 1.0, slicing=slicing)
    assert found.adds == {"large": 2} and found.done == 1


def test_what_no_node_of_a_partition_could_hold_is_refused_although_more_could_come() -> None:
    wishes = (PartitionWish("p", 2), PartitionWish("q", 2))
    jobs = [job("wide", nodes=3, partition="p"), job("narrow", partition="p"), job("gpu", gpus=1, partition="q")]
    found = elastic(jobs, [Kind("cpu", 4, most=4)], 1.0, partitions=wishes)
    assert sorted(found.refusals, reverse=True) == [
        "needs 1 core, 1 GPU; each node of its partition q has 0 of 1 GPUs",
        "needs 1 core on each of 3 nodes; its partition p has 2 nodes",
    ]
    assert found.done == 1 and found.adds == {"cpu": 2}


def test_what_runs_longer_in_its_partition_than_any_node_lasts_is_refused() -> None:
    jobs = [job("long", walltime_s=100.0, partition="p"), job("short", walltime_s=10.0, partition="p")]
    found = elastic(jobs, [Kind("cpu", 4, most=4, lasts_s=50.0)], 1.0, partitions=(PartitionWish("p", 1),))
    [why] = found.refusals
    assert why.startswith("its partition p wants 1 node") and why.endswith("for the 100 s that it needs")
    assert found.done == 1


def test_what_should_take_longer_than_any_node_lasts_asks_for_no_node() -> None:
    jobs = [job("long", estimate_s=100.0), job("short", estimate_s=10.0)]
    for policy in ("demand", "eta:1s", "no-progress:1s", "payoff"):
        found = elastic(jobs, [Kind("cpu", 1, most=4, lasts_s=50.0)], 10.0, scaling=replace(QUICK, policies=(policy,)))
        assert found.done == 1 and found.state.expired and found.adds["cpu"] <= 2, policy


def test_what_nobody_makes_a_partition_for_keeps_no_run_on_nodes_that_come_and_go_for_ever() -> None:
    jobs = [job("gpu", gpus=1), job("t", partition="p")]
    there = [Node("first", 1, ends_at=5.0)]
    fixed = replace(QUICK, policies=("fixed:2",))
    found = elastic(jobs, [Kind("cpu", 1, most=2, lasts_s=50.0)], 1.0, there=there, scaling=fixed)
    assert found.state.stopping.startswith("the allocation is over")
    assert found.state.now <= 50.0


def test_a_node_that_an_element_lacks_is_not_withdrawn_because_no_policy_wants_it() -> None:
    scaling = replace(QUICK, policies=("fixed:0",))
    there = [Node("n0", 1)]
    slicing = Slicing((Slice(2, share=2),))
    kinds = [Kind("cpu", 3, starts_in_s=4.0)]
    found = elastic([job("two", nodes=2)], kinds, 1.0, there=there, scaling=scaling, slicing=slicing)
    assert found.done == 1 and found.adds["cpu"] <= 3
    assert not found.all_of(WithdrawRequest)


def test_a_node_that_cannot_hold_what_is_ready_makes_way_for_another_one_of_its_kind() -> None:
    """It is of another build than the others, as nodes of one batch partition may be."""
    there = [Node("n0", 1, kind="cpu"), Node("n1", 3, kind="cpu")]
    jobs = [job("two", cores=3, nodes=2)]
    for policy in ("payoff", "demand", "fixed:2", "no-nodes", "cheapest"):
        scaling = replace(QUICK, policies=(policy,))
        found = elastic(jobs, [Kind("cpu", 3, most=2)], 1.0, there=there, scaling=scaling)
        assert found.done == 1 and found.adds == {"cpu": 1}, policy
        assert found.all_of(ReleaseNode)[0].node == 0


def test_a_node_is_asked_for_where_enough_are_there_but_no_two_that_follow_each_other_could_be_an_element() -> None:
    """The first two would be one, of which the first is too small, and the third is left over."""
    there = [Node("n0", 1), Node("n1", 4), Node("n2", 4)]
    for policy in ("demand", "fixed:0", "cheapest"):
        scaling = replace(QUICK, policies=(policy,))
        slicing = Slicing((Slice(2),))
        jobs = [job("t", nodes=2, cores=2)]
        found = elastic(jobs, [Kind("cpu", 4, most=4)], 1.0, there=there, scaling=scaling, slicing=slicing)
        assert found.done == 1 and found.adds == {"cpu": 1} and found.state.now == 1.0, policy


def test_a_node_is_asked_for_where_enough_are_there_for_a_partition_but_not_next_to_each_other() -> None:
    there = [Node("n0", 4), Node("n1", 1), Node("n2", 4)]
    wish = PartitionWish("p", 2, cores=2, layout="contiguous")
    for policy in ("demand", "fixed:0", "cheapest"):
        scaling = replace(QUICK, policies=(policy,))
        jobs = [job("t", cores=2, partition="p")]
        found = elastic(jobs, [Kind("cpu", 4, most=4)], 1.0, there=there, scaling=scaling, partitions=(wish,))
        assert found.done == 1 and found.adds == {"cpu": 1} and found.state.now == 1.0, policy


def test_as_many_nodes_are_asked_for_as_a_whole_element_takes_and_none_where_there_may_be_no_more() -> None:
    there = [Node("n0", 1), *(Node(f"n{i}", 4) for i in (1, 2, 3))]
    slicing = Slicing((Slice(4),))
    scaling = replace(QUICK, policies=("demand",))
    jobs = [job("t", nodes=4, cores=2)]
    for most, adds in ((5, {"cpu": 4}), (3, {})):
        found = elastic(jobs, [Kind("cpu", 4, most=most)], 1.0, there=there, scaling=scaling, slicing=slicing)
        assert found.adds == adds and found.done == bool(adds) and len(found.refusals) == (not adds), most


def test_a_node_that_is_gone_counts_for_no_partition_and_for_no_element_that_could_yet_be() -> None:
    kinds = [Kind("cpu", 4, adds=False)]
    there, losses = [Node("n0", 4), Node("n1", 4)], [(0.5, 1)]
    jobs = [job("first"), job("t", "first", partition="p")]
    found = elastic(jobs, kinds, 1.0, there=there, losses=losses, partitions=(PartitionWish("p", 2),))
    assert found.done == 1 and found.state.now == 1.0
    [why] = found.refusals
    assert why.startswith(
        "its partition p wants 2 nodes and all of each; there is 1 node that could be in it; 1 of the 2"
    )
    jobs = [job("first"), job("t", "first", nodes=2)]
    found = elastic(jobs, kinds, 1.0, there=there, losses=losses, slicing=Slicing((Slice(2),)))
    assert found.done == 1 and found.state.now == 1.0
    [why] = found.refusals
    assert why.startswith(
        "needs an element of 2 nodes; there is 1 node; 1 of the 2 nodes that were there was lost: n1, "
    )


def test_what_only_fewer_nodes_can_hold_is_refused_where_the_others_of_the_kind_cannot_be_given_back() -> None:
    there = [Node("n0", 1, kind="cpu"), Node("n1", 3, kind="cpu")]
    for policy in ("payoff", "demand", "cheapest"):
        scaling = replace(QUICK, policies=(policy,))
        kinds = [Kind("cpu", 3, most=2, removes=False)]
        found = elastic([job("two", cores=3, nodes=2)], kinds, 1.0, there=there, scaling=scaling)
        [why] = found.refusals
        assert why.endswith("at most 1 node that could hold a share of it may be there at once"), policy
