"""The default policy, in runs: it asks when it pays, early enough, and gives back what is not needed any more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import Job, job
from tests.simulated.growing_rig import Elastic, elastic

from cantle.core.scaling.settings import Scaling
from cantle.model.kinds import Kind
from cantle.model.records import (
    NodeDrainAsked,
    NodeResumeAsked,
    NodesJoined,
    ReleaseNode,
    RequestNodes,
    TimePassed,
    WithdrawRequest,
)
from cantle.model.resources import Node
from cantle.model.study import Limits, PartitionWish
from cantle.runtime.simulated_provider import SimulatedProvider

PAYOFF = Scaling(("payoff",), idle_s=1.0, notice_s=1.0, cool_down_s=0.0)


def ran(jobs: list[Job], kinds: list[Kind], seconds: float, scaling: Scaling = PAYOFF) -> Elastic:
    """The jobs take as long as they are estimated, and `seconds` if they are not."""
    told = {each.name: each.estimate_s or seconds for each in jobs}
    return elastic(jobs, kinds, lambda name: told[name], scaling=scaling)


def chain(n: int, estimate_s: float) -> list[Job]:
    return [job(f"t{i}", f"t{i - 1}" if i else "", estimate_s=estimate_s) for i in range(n)]


@pytest.mark.parametrize("estimate_s", [2.0, 0.0])
def test_o02_a_chain_asks_for_exactly_one_node(estimate_s: float) -> None:
    found = ran(chain(10, estimate_s), [Kind("cpu", 4, most=10, starts_in_s=1.0)], 2.0)
    assert (found.adds, found.peak, found.done) == ({"cpu": 1}, 1, 10)
    assert not [time for time in found.removals if time < found.state.ended_at[9]]


def test_a_wide_burst_asks_for_as_many_as_pay_and_all_at_once() -> None:
    jobs = [job(f"t{i}", estimate_s=600.0) for i in range(40)]
    found = ran(jobs, [Kind("cpu", 4, most=20, starts_in_s=30.0)], 600.0)
    assert found.adds == {"cpu": 10} and len(found.all_of(RequestNodes)) == 1
    assert max(found.state.ended_at) == 630.0


def test_no_more_are_asked_for_than_may_be_there() -> None:
    jobs = [job(f"t{i}", estimate_s=600.0) for i in range(40)]
    assert ran(jobs, [Kind("cpu", 4, most=3, starts_in_s=30.0)], 600.0).adds == {"cpu": 3}


def test_a_node_that_takes_ten_minutes_to_come_does_not_pay_for_a_short_rest() -> None:
    jobs = [job(f"t{i}", estimate_s=20.0) for i in range(40)]
    assert ran(jobs, [Kind("cpu", 4, most=20, starts_in_s=600.0)], 20.0).adds == {"cpu": 1}
    quick = ran(jobs, [Kind("cpu", 4, most=20, starts_in_s=0.5)], 20.0)
    assert quick.adds["cpu"] >= 5


def test_o06_in_the_tail_idle_nodes_leave_in_one_batch() -> None:
    jobs = [job(f"t{i}", estimate_s=100.0) for i in range(7)] + [job("long", estimate_s=150.0)]
    found = ran(jobs, [Kind("cpu", 1, most=8, starts_in_s=1.0)], 100.0)
    assert found.peak == 8 and found.there_at(102.5) == 1
    times = [record.time for record in found.all_of(ReleaseNode)]
    assert times.count(min(times)) == 7


def test_what_is_needed_later_is_asked_for_while_other_work_still_runs() -> None:
    jobs = [job("first", estimate_s=300.0), *(job(f"t{i}", "first", estimate_s=600.0) for i in range(16))]
    found = ran(jobs, [Kind("cpu", 4, most=4, starts_in_s=120.0)], 600.0)
    asked = [record.time for record in found.all_of(RequestNodes)]
    joined = [record.time for record in found.all_of(NodesJoined)]
    assert asked[0] == 0.0 and 280.0 <= asked[1] <= 300.0, "not before it is needed, and not when it is too late"
    assert joined[-1] <= 420.0 and max(found.state.ended_at) <= 1025.0


def test_nodes_that_are_needed_again_only_much_later_are_given_back_in_between_and_come_in_time() -> None:
    first = [job(f"a{i}", estimate_s=300.0) for i in range(16)]
    middle = Job("middle", tuple(each.name for each in first), estimate_s=2000.0)
    last = [job(f"b{i}", "middle", estimate_s=300.0) for i in range(16)]
    found = ran([*first, middle, *last], [Kind("cpu", 4, most=4, starts_in_s=60.0)], 300.0)
    assert found.adds == {"cpu": 7}, "four at first, three of them once more"
    assert found.there_at(1000.0) == 1 and max(found.state.ended_at) <= 2665.0


def test_nodes_that_are_needed_again_soon_are_kept() -> None:
    first = [job(f"a{i}", estimate_s=300.0) for i in range(16)]
    middle = Job("middle", tuple(each.name for each in first), estimate_s=40.0)
    last = [job(f"b{i}", "middle", estimate_s=300.0) for i in range(16)]
    found = ran([*first, middle, *last], [Kind("cpu", 4, most=4, starts_in_s=60.0)], 300.0)
    assert found.adds == {"cpu": 4} and not [time for time in found.removals if time < 690.0]


def test_gpu_tasks_get_a_gpu_kind_and_other_work_asks_for_none() -> None:
    """D4."""
    kinds = [Kind("gpu", 8, gpus=4, most=4, cost=5.0, starts_in_s=10.0), Kind("cpu", 4, most=4, starts_in_s=10.0)]
    work = [job(f"c{i}", estimate_s=200.0) for i in range(16)]
    assert ran(work, kinds, 200.0).adds == {"cpu": 4}
    mixed = ran([*work, *(job(f"g{i}", gpus=2, estimate_s=400.0) for i in range(4))], kinds, 200.0)
    assert mixed.adds["gpu"] == 2 and mixed.adds["cpu"] >= 2 and mixed.done == 20


def test_a_gang_gets_all_of_its_nodes_at_once() -> None:
    found = ran([job("gang", cores=4, nodes=3, estimate_s=100.0)], [Kind("cpu", 4, most=8, starts_in_s=10.0)], 100.0)
    assert [record.count for record in found.all_of(RequestNodes)] == [3] and found.done == 1


def test_a_partition_gets_its_nodes_although_its_tasks_need_only_one() -> None:
    jobs = [job(f"t{i}", partition="p", estimate_s=50.0) for i in range(4)]
    found = elastic(
        jobs,
        [Kind("cpu", 4, most=8, starts_in_s=10.0)],
        50.0,
        scaling=PAYOFF,
        partitions=(PartitionWish("p", width=3),),
    )
    assert found.peak == 3 and found.done == 4


def test_a_task_is_not_expected_on_a_node_that_ends_before_it() -> None:
    kinds = [
        Kind("brief", 4, most=4, lasts_s=100.0, starts_in_s=1.0),
        Kind("long", 4, most=4, cost=2.0, starts_in_s=1.0),
    ]
    found = ran([job("short", estimate_s=50.0), job("slow", estimate_s=300.0)], kinds, 300.0)
    assert found.done == 2 and found.adds["long"] == 1


def test_a_throttle_bounds_what_is_asked_for() -> None:
    jobs = [job(f"t{i}", estimate_s=100.0) for i in range(40)]
    kinds = [Kind("cpu", 1, most=40, starts_in_s=1.0)]
    found = elastic(jobs, kinds, 100.0, scaling=PAYOFF, limits=Limits(throttle=3))
    assert found.adds == {"cpu": 3} and found.done == 40


def test_each_request_says_what_it_brings() -> None:
    jobs = [job(f"t{i}", estimate_s=600.0) for i in range(8)]
    found = ran(jobs, [Kind("cpu", 4, most=2, starts_in_s=30.0)], 600.0)
    assert [record.why for record in found.all_of(RequestNodes)] == [
        "with 2 more nodes all can be over in 10.5 min, without them 8 tasks can never begin"
    ]


def test_what_one_node_brings_for_one_task_is_said_of_one() -> None:
    found = ran([job("t", estimate_s=600.0)], [Kind("cpu", 4, most=2, starts_in_s=30.0)], 600.0)
    assert [record.why for record in found.all_of(RequestNodes)] == [
        "with 1 more node all can be over in 10.5 min, without it 1 task can never begin"
    ]


def test_that_more_nodes_pay_is_said_with_both_ends() -> None:
    jobs = [job("first", estimate_s=100.0), *(job(f"t{i}", "first", estimate_s=600.0) for i in range(8))]
    found = ran(jobs, [Kind("cpu", 4, most=2, starts_in_s=30.0)], 600.0)
    assert found.all_of(RequestNodes)[1].why == "1 more node ends it in 10.5 min instead of 20.5 min"


def test_the_same_run_decides_the_same() -> None:
    jobs = [job(f"a{i}", estimate_s=30.0 + i) for i in range(30)] + [job(f"b{i}", f"a{i}") for i in range(30)]
    kinds = [Kind("cpu", 2, most=9, starts_in_s=20.0), Kind("fat", 8, most=3, cost=3.0, starts_in_s=40.0)]
    one, other = (ran(jobs, kinds, 25.0) for _ in range(2))
    assert one.records == other.records


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(1.0, 400.0), min_size=1, max_size=24),
    st.integers(0, 2**16),
    st.sampled_from([0.0, 5.0, 90.0]),
)
def test_every_run_ends_within_bounds_and_without_a_cycle(times: list[float], wiring: int, starts_s: float) -> None:
    jobs = []
    for i, seconds in enumerate(times):
        parents = [f"t{j}" for j in range(max(0, i - 3), i) if wiring >> (i + j) % 16 & 1]
        jobs.append(Job(f"t{i}", tuple(parents), estimate_s=seconds))
    found = ran(jobs, [Kind("cpu", 2, most=4, starts_in_s=starts_s)], 1.0)
    assert found.done == len(jobs) and found.peak <= 4
    assert found.adds["cpu"] <= 4 + len(jobs), "each time a node is asked for again something new has become ready"


def test_o03_a_node_that_is_late_is_not_withdrawn_for_a_new_one_which_would_wait_behind_it() -> None:
    """What is asked for anew stands at the end of the same queue, however soon it was promised."""
    provider = SimulatedProvider(starts_in=lambda _kind, _request: 4.0, refuses=lambda _kind, _request, _count: 1)
    kinds = [Kind("gpu", 4, gpus=1, most=3, starts_in_s=2.0, block=2)]
    jobs = [job("first", nodes=2), job("second", gpus=1)]
    found = elastic(jobs, kinds, 0.5, there=[Node("n0", 3)], scaling=PAYOFF, provider=provider)
    assert found.done == 2
    assert found.all_of(WithdrawRequest) == []


def test_of_two_that_decide_themselves_none_withdraws_what_the_other_asks_for() -> None:
    both = Scaling(("payoff:1", "payoff:20"), idle_s=1.0, notice_s=1.0, cool_down_s=0.0)
    jobs = [job(f"t{i}", estimate_s=60.0) for i in range(12)]
    kinds = [Kind("cpu", 1, most=12, starts_in_s=300.0)]
    eager = ran(jobs, kinds, 60.0, Scaling(("payoff:20",), idle_s=1.0, notice_s=1.0, cool_down_s=0.0))
    thrifty = ran(jobs, kinds, 60.0, Scaling(("payoff:1",), idle_s=1.0, notice_s=1.0, cool_down_s=0.0))
    found = ran(jobs, kinds, 60.0, both)
    assert thrifty.peak < eager.peak == found.peak
    assert found.all_of(WithdrawRequest) == []


def test_what_another_policy_has_just_asked_for_is_not_withdrawn() -> None:
    both = Scaling(("demand", "payoff"), idle_s=0.0, notice_s=1.0, cool_down_s=0.0)
    kinds = [Kind("gpu", 4, gpus=1, most=2, starts_in_s=5.0, block=2)]
    found = elastic([job("t0", cores=3), job("t1")], kinds, 20.0, there=[Node("n0", 3)], scaling=both)
    assert found.done == 2
    assert len(found.all_of(RequestNodes)) == 1


def test_while_nothing_happens_it_looks_ever_less_often() -> None:
    jobs = [job("short", estimate_s=1.0), job("waits", "short", estimate_s=1.0)]
    found = elastic(jobs, [Kind("cpu", 1, most=1)], lambda name: 7200.0 if "short" in name else 1.0, scaling=PAYOFF)
    assert found.done == 2
    assert len(found.all_of(TimePassed)) < 200, "not once a second for two hours"


def test_it_wakes_nobody_often_for_what_cannot_be_done() -> None:
    """What is ready has no room as long as somebody drains the only node there may be; he takes his time."""
    kind = Kind("cpu", 1, most=1, removes=False)
    there, later = [Node("n0", 1, kind="cpu")], 7200.0
    told = [NodeDrainAsked(0.0, "n0", "me"), NodeResumeAsked(later, "n0", "me")]
    found = elastic([job("t", estimate_s=1.0)], [kind], 1.0, there=there, scaling=PAYOFF, events=told)
    assert found.done == 1 and found.launched_at("t") == [later]
    assert len(found.all_of(TimePassed)) < 200


@pytest.mark.parametrize("policy", ["payoff", "demand"])
def test_a_node_that_is_needed_later_and_could_not_come_again_stays(policy: str) -> None:
    """There are more at first than may be there; one that goes leaves no room for another."""
    jobs = [
        *(job(f"t{i}") for i in range(4)),
        job("too wide", nodes=3),
        job("next", "t0"),
        job("pair", "next", nodes=2),
    ]
    jobs += [job(f"t{i}") for i in range(7, 12)]
    there = [Node(f"n{i}", 3, kind="cpu") for i in range(2)]
    scaling = Scaling((policy,), idle_s=0.0, cool_down_s=0.0, retry_s=1.0)
    took = {each.name: 0.5 if number % 2 else 5.0 for number, each in enumerate(jobs)}
    found = elastic(jobs, [Kind("cpu", 3, most=1)], took.__getitem__, there=there, scaling=scaling, kept=5 << 20)
    assert found.done == 11 and len(found.launched_at("pair")) == 1


@pytest.mark.parametrize("policy", ["payoff", "demand"])
def test_of_nodes_that_nobody_can_add_as_many_stay_as_something_needs_later(policy: str) -> None:
    jobs = [job("first", estimate_s=60.0), job("last", "first", gpus=1, estimate_s=1.0)]
    there = [Node("c", 1, kind="cpu"), *(Node(f"g{i}", 1, gpus=1, kind="gpu") for i in range(3))]
    kinds = [Kind("cpu", 1, most=4), Kind("gpu", 1, gpus=1, most=4, adds=False)]
    scaling = Scaling((policy,), idle_s=0.0, cool_down_s=0.0)
    found = elastic(jobs, kinds, lambda name: 60.0 if name == "first" else 1.0, there=there, scaling=scaling)
    assert found.done == 2 and found.there_at(30.0) == 2, "two of them go"
