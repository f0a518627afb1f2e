"""What each built-in policy wants, alone and with others; and what a function of the user's is told and may wish."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import job
from tests.simulated.growing_rig import QUICK, elastic

from cantle.core.scaling.naming import is_built_in, opinion_of, require_known
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import Wish, snapshot, wishes_in
from cantle.errors import PluginError, RequestError
from cantle.model.kinds import Kind
from cantle.model.records import NodesWished, RequestNodes
from cantle.model.resources import Node

CPU = Kind("cpu", 1, most=10, starts_in_s=10.0)
MANY = [job(f"t{i}", estimate_s=20.0) for i in range(8)]


def by(*policies: str, **rest: Any) -> Scaling:
    return replace(QUICK, policies=policies, **rest)


def asked(found: Any) -> list[tuple[float, int]]:
    return [(record.time, record.count) for record in found.all_of(RequestNodes)]


def reasons(found: Any) -> list[str]:
    return [record.why for record in found.all_of(RequestNodes)]


def test_fixed_keeps_so_many_from_the_beginning_to_the_end() -> None:
    found = elastic(MANY, [CPU], 20.0, scaling=by("fixed:3"))
    assert asked(found) == [(0.0, 3)] and found.peak == 3 and not found.removals and found.done == 8


def test_fixed_speaks_of_one_kind_or_of_several() -> None:
    gpu = Kind("gpu", 1, gpus=1, most=4)
    found = elastic(MANY, [CPU, gpu], 20.0, scaling=by("fixed:cpu=2,gpu=1"))
    assert found.adds == {"cpu": 2, "gpu": 1}


def test_without_progress_for_so_long_what_is_missing_is_asked_for() -> None:
    """D8."""
    there = [Node("n0", 1)]
    found = elastic(MANY, [CPU], 100.0, there=there, scaling=by("no-progress:30s"))
    assert asked(found)[0][0] == 30.0 and found.done == 8


def test_as_long_as_there_is_progress_nothing_is_asked_for() -> None:
    """D8."""
    found = elastic(MANY, [CPU], 20.0, there=[Node("n0", 1)], scaling=by("no-progress:30s"))
    assert not found.adds and found.done == 8


def test_what_is_missing_is_asked_for_when_the_end_is_expected_too_late() -> None:
    """D8."""
    there = [Node("n0", 1)]
    late = elastic(MANY, [CPU], 20.0, there=there, scaling=by("eta:100s"))
    soon = elastic(MANY, [CPU], 20.0, there=there, scaling=by("eta:200s"))
    assert late.adds and not soon.adds
    assert reasons(late)[0].endswith("all should be over in 2.5 min, which is more than 100 s")
    nowhere = elastic(MANY, [CPU], 20.0, scaling=by("eta:100s"))
    assert reasons(nowhere)[0].endswith("nobody can tell when all is over, which is more than 100 s")


def test_tasks_but_no_nodes_brings_the_least_that_can_hold_them() -> None:
    """D7."""
    found = elastic(MANY, [CPU], 20.0, scaling=by("no-nodes"))
    assert asked(found) == [(0.0, 1)] and found.done == 8


def test_the_cheapest_run_takes_one_node_of_the_kind_that_costs_least() -> None:
    dear, cheap = Kind("dear", 8, cost=8.0), Kind("cheap", 1, cost=1.0)
    found = elastic(MANY, [dear, cheap], 20.0, scaling=by("cheapest"))
    assert found.adds == {"cheap": 1} and found.done == 8


def test_a_deadline_is_met_with_as_many_nodes_as_that_takes() -> None:
    jobs = [job(f"t{i}", estimate_s=20.0) for i in range(40)]
    found = elastic(jobs, [Kind("cpu", 1, starts_in_s=10.0)], 20.0, there=[Node("n0", 1)], scaling=by("finish-by:200s"))
    assert found.state.now <= 200.0 and 3 <= found.peak <= 8


def test_of_several_policies_the_largest_wish_is_met_and_nobody_takes_away_what_another_keeps() -> None:
    found = elastic(MANY, [CPU], 20.0, scaling=by("fixed:2", "demand"))
    assert sum(n for _, n in asked(found)) == 8 and found.there_at(29.0) == 8 and found.state.now == 30.0
    tail = elastic(
        [job("long"), *MANY], [CPU], lambda name: 200.0 if name == "long" else 20.0, scaling=by("fixed:2", "demand")
    )
    assert tail.there_at(100.0) == 2


def test_whatever_the_policies_say_a_run_goes_on() -> None:
    found = elastic([job("a"), job("g", gpus=1)], [CPU, Kind("gpu", 1, gpus=1)], 5.0, scaling=by("fixed:cpu=1"))
    assert found.adds == {"cpu": 1, "gpu": 1} and found.done == 2


def test_a_wish_is_met_and_holds_until_it_is_taken_back() -> None:
    events = [NodesWished(1.0, "cpu", 4, "me"), NodesWished(60.0, "cpu", None, "me")]
    jobs = [job("long", estimate_s=200.0), job("then", "long")]
    found = elastic(jobs, [CPU], 200.0, there=[Node("n0", 1)], scaling=by("no-nodes"), events=events)
    assert asked(found) == [(1.0, 4)] and found.there_at(59.0) == 5 and found.there_at(62.0) == 1


def test_a_wish_for_fewer_is_met_once_they_have_idled_whatever_the_cool_down() -> None:
    events = [NodesWished(1.0, "cpu", 4, "me"), NodesWished(60.0, "cpu", 2, "me"), NodesWished(64.0, "cpu", 3, "me")]
    jobs = [job("long", estimate_s=200.0), job("then", "long")]
    scaling = Scaling(("no-nodes",), idle_s=1.0, cool_down_s=600.0)
    found = elastic(jobs, [CPU], 200.0, there=[Node("n0", 1)], scaling=scaling, events=events)
    assert found.there_at(59.0) == 5 and found.there_at(61.5) == 3 and found.there_at(100.0) == 4


def test_a_wish_for_a_million_is_cut_and_that_is_said_once() -> None:
    events = [NodesWished(1.0, "cpu", 1_000_000, "f")]
    found = elastic([job("a")], [CPU], 20.0, there=[Node("n0", 1)], events=events)
    (request,) = found.all_of(RequestNodes)
    assert request.count == 10 and "of the 1,000,000 that were asked for; there may be 10 in all" in request.why


def test_names_of_policies_are_understood_or_refused_with_what_there_is() -> None:
    for text in ("demand", "fixed:3", "fixed:cpu=3,gpu=1", "eta:10min", "no-progress:90", "finish-by:2h", "mine:f"):
        require_known([text])
    assert not is_built_in("my.module:function") and is_built_in("fixed:3")
    for text, said in {
        "demnd": "there is no scaling policy 'demnd'; there are payoff, demand",
        "eta": "is no duration",
        "eta:soon": "is no duration",
        "fixed:many": "is no number of nodes",
        "fixed:" + "9" * 5000: "is no number of nodes",
        "demand:5": "takes no argument",
    }.items():
        with pytest.raises(RequestError, match=said):
            opinion_of(text)


def test_a_function_is_told_how_it_stands() -> None:
    """D3, D7."""
    found = elastic(MANY, [CPU], 20.0, scaling=by("fixed:3"))
    seen = snapshot(found.state, QUICK, 5.0)
    assert (seen.done_tasks, seen.ready_tasks, seen.running_tasks, seen.completion_s) == (8, 0, 0, 0.0)
    assert seen.kinds["cpu"].up == 3 and seen.kinds["cpu"].idle == 3 and seen.cores == seen.idle_cores == 3
    with pytest.raises(AttributeError):
        seen.now = 0.0  # type: ignore[misc]


def test_what_a_function_returns_is_understood_or_refused() -> None:
    kinds = {"cpu": CPU}
    assert wishes_in({"cpu": 3}, kinds) == [Wish("cpu", 3)] == wishes_in([Wish("cpu", 3)], kinds)
    assert wishes_in(None, kinds) == []
    returned: Any
    for returned, said in (
        (5, "it returned 5"),
        ({"gpu": 1}, "kind 'gpu'; there are cpu"),
        ({"cpu": -1}, "-1 nodes"),
        ({"cpu": 1.5}, "1.5 nodes"),
        ([Wish("cpu", 1, 7)], "no text"),  # type: ignore[arg-type]
    ):
        with pytest.raises(PluginError, match=said):
            wishes_in(returned, kinds)


@pytest.mark.parametrize("policy", ["demand", "payoff"])
def test_where_one_was_over_in_no_time_and_others_go_on_and_on_nodes_are_asked_for_all_the_same(policy: str) -> None:
    jobs = [job("first"), *(job(f"t{i}", "first") for i in range(8))]
    quickly = replace(CPU, most=4, starts_in_s=1.0)
    found = elastic(jobs, [quickly], lambda name: 0.1 if name == "first" else 100.0, scaling=by(policy))
    assert found.peak == 4 and found.there_at(10.0) == 4
    assert found.done == 9


def test_it_is_looked_again_when_one_that_runs_should_be_over_although_nothing_happens() -> None:
    jobs = [job("first"), *(job(f"t{i}", "first") for i in range(8))]
    slowly = replace(CPU, most=4, starts_in_s=60.0)
    found = elastic(jobs, [slowly], lambda name: 5.0 if name == "first" else 500.0, scaling=by("demand"))
    first, second = asked(found)[:2]
    assert first == (0.0, 1)
    assert 71.0 < second[0] < 90.0, "long before the first task of the wave ends, by which time something happens"


def test_the_room_that_is_left_on_the_last_new_node_is_used_before_another_one_is_asked_for() -> None:
    four = Kind("cpu", 4, memory_mib=4096, most=10, starts_in_s=10.0)
    jobs = [job(f"a{i}", estimate_s=500.0) for i in range(5)]
    jobs += [job(f"b{i}", memory_mib=512, estimate_s=500.0) for i in range(2)]
    jobs += [job("c", memory_mib=256, estimate_s=500.0)]
    found = elastic(jobs, [four], 500.0, scaling=by("demand"))
    assert (found.adds, found.peak, found.done) == ({"cpu": 2}, 2, 8)
    jobs += [job("d", memory_mib=128, estimate_s=500.0)]
    assert elastic(jobs, [four], 500.0, scaling=by("demand")).adds == {"cpu": 3}
