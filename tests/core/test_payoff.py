"""What the default policy reckons with: bulks, plays, and the best of the trials."""

from __future__ import annotations

import pytest
from tests.builders import Job, job, study_records

from cantle.core.scaling.naming import check
from cantle.core.scaling.remaining import BULKS, Overview
from cantle.core.scaling.trials import Trials
from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.kinds import Kind
from cantle.model.records import KindsDeclared, Launch, NodeLost, NodesJoined, StudyAdded, TaskEnded, TasksAdded
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import Step, Task

CPU = Kind("cpu", 4, most=16, starts_in_s=60.0)


def state_of(jobs: list[Job], *kinds: Kind) -> State:
    state = State()
    state.apply(KindsDeclared(0.0, list(kinds)))
    for record in study_records(jobs):
        state.apply(record)
    return state


def two_levels(width: int) -> State:
    """So many tasks of 30 s, each followed by one of 50 s."""
    state = State()
    state.apply(KindsDeclared(0.0, [CPU]))
    state.apply(StudyAdded(0.0, "wide", [Step("a", Needs()), Step("b", Needs())]))
    first = [Task(f"a{i}", 0, (), 30.0) for i in range(width)]
    state.apply(TasksAdded(0.0, 0, [*first, *(Task(f"b{i}", 1, (i,), 50.0) for i in range(width))]))
    return state


def trials_of(state: State, worth: float = 3.0) -> Trials:
    return Trials(state, Overview().remaining(state), worth)


def test_where_few_tasks_are_left_each_is_a_bulk_of_its_own() -> None:
    remaining = Overview().remaining(two_levels(100))
    assert len(remaining.count) == 200 and set(remaining.count) == {1}


def test_many_tasks_are_few_bulks_and_none_is_lost() -> None:
    remaining = Overview().remaining(two_levels(20_000))
    assert len(remaining.count) <= BULKS and remaining.tasks == 40_000
    assert (
        sum(count * seconds for count, seconds in zip(remaining.count, remaining.seconds, strict=True)) == 20_000 * 80.0
    )


def test_where_one_step_is_wide_a_narrow_one_is_still_seen_exactly() -> None:
    state = State()
    state.apply(KindsDeclared(0.0, [CPU]))
    state.apply(StudyAdded(0.0, "s", [Step("few", Needs()), Step("many", Needs())]))
    few = [Task(f"f{i}", 0, (), 10.0) for i in range(6)]
    state.apply(TasksAdded(0.0, 0, [*few, *(Task(f"m{i}", 1, (i % 6,), 10.0) for i in range(9000))]))
    remaining = Overview().remaining(state)
    assert remaining.count[:6] == [1] * 6 and max(remaining.count) > 1


@pytest.mark.parametrize("nodes, end", [(1, 60 + 4 * 80.0), (2, 60 + 2 * 80.0), (4, 60 + 80.0), (16, 60 + 80.0)])
def test_a_play_ends_when_the_run_would(nodes: int, end: float) -> None:
    trials = trials_of(two_levels(16))
    choice = trials.play({"cpu": nodes})
    used = min(nodes, 4)
    assert choice.outlook.end == end
    assert choice.outlook.cost == used * end, "each node from the request on until nothing is left for it"


def test_nodes_that_would_never_be_used_cost_nothing() -> None:
    trials = trials_of(two_levels(16))
    assert trials.play({"cpu": 16}).price == trials.play({"cpu": 4}).price


def test_what_no_node_can_hold_is_told_as_undone() -> None:
    trials = trials_of(state_of([job("big", cores=8), job("small", estimate_s=5.0)], CPU))
    assert trials.play({"cpu": 2}).outlook.undone == 1


@pytest.mark.parametrize("nodes, end", [(2, 60 + 4 * 100.0), (3, 60 + 4 * 100.0), (4, 60 + 2 * 100.0), (8, 60 + 100.0)])
def test_tasks_on_several_nodes_begin_when_all_of_these_are_free(nodes: int, end: float) -> None:
    jobs = [job(f"g{i}", nodes=2, cores=4, estimate_s=100.0) for i in range(4)]
    outlook = trials_of(state_of(jobs, CPU)).play({"cpu": nodes}).outlook
    assert (outlook.end, outlook.undone) == (end, 0)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_node_that_would_go_stays_until_what_runs_there_is_over(wanted: int) -> None:
    state = state_of([job("long", estimate_s=100.0), job("short", estimate_s=30.0)], CPU)
    state.apply(NodesJoined(0.0, [Node(f"n{i}", 4, kind="cpu") for i in range(2)]))
    for task in range(2):
        state.apply(Launch(0.0, task, 1, (Place(task, "0"),)))
    outlook = trials_of(state).play({"cpu": wanted}).outlook
    assert (outlook.end, outlook.cost) == (100.0, 100.0 + 30.0)


def test_the_more_time_is_worth_the_more_nodes_are_best() -> None:
    jobs = [job(f"t{i}", estimate_s=40.0) for i in range(64)]
    wanted = [trials_of(state_of(jobs, CPU), worth).best().wanted["cpu"] for worth in (0.2, 1.0, 3.0, 30.0)]
    assert wanted == sorted(wanted) and wanted[0] < 4 and wanted[-1] == 16


def test_of_kinds_that_serve_alike_the_cheaper_one_is_best() -> None:
    dear = Kind("dear", 4, most=16, starts_in_s=60.0, cost=3.0)
    jobs = [job(f"t{i}", estimate_s=600.0) for i in range(8)]
    assert trials_of(state_of(jobs, dear, CPU)).best().wanted == {"dear": 0, "cpu": 2}


def test_two_kinds_are_wanted_where_two_are_needed() -> None:
    gpu = Kind("gpu", 8, gpus=2, most=4, starts_in_s=60.0, cost=5.0)
    jobs = [job("g", gpus=1, estimate_s=100.0), *(job(f"t{i}", estimate_s=600.0) for i in range(8))]
    assert trials_of(state_of(jobs, CPU, gpu)).best().wanted == {"cpu": 2, "gpu": 1}


def test_a_look_costs_by_bulks_and_not_by_tasks() -> None:
    """A hundred times the tasks cost twenty times the steps at most, and the number of plays grows with a logarithm."""
    few, many = trials_of(two_levels(500)), trials_of(two_levels(50_000))
    few.best()
    many.best()
    assert many.steps < 20 * few.steps


def test_among_many_nodes_only_a_few_numbers_are_tried() -> None:
    kind = Kind("cpu", 4, most=10_000, starts_in_s=60.0)
    jobs = [job(f"t{i}", cores=4, estimate_s=600.0) for i in range(1000)]
    trials = trials_of(state_of(jobs, kind))
    trials.best()
    assert len(trials._played) < 60


@pytest.mark.parametrize("text", ["payoff:much", "payoff:-1", "payoff:"])
def test_what_is_no_worth_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match="payoff:3 means"):
        check(text)


def test_what_runs_again_since_its_result_is_gone_is_counted_again() -> None:
    state = state_of([job("makes"), job("other"), job("takes", "makes other")], CPU)
    state.apply(NodesJoined(0.0, [Node("n0", 1, machine="m0"), Node("n1", 1, machine="m1")]))
    for task in (0, 1):
        state.apply(Launch(0.0, task, 1, (Place(task, "0"),)))
    state.apply(TaskEnded(1.0, 0, 1, "done", kept=5))
    overview = Overview()
    assert overview.remaining(state).unfinished == 2
    state.apply(NodeLost(2.0, 0))
    state.apply(NodesJoined(2.0, [Node("n2", 1)]))
    state.apply(Launch(2.0, 0, 2, (Place(2, "0"),)))
    remaining = overview.remaining(state)
    assert (remaining.unfinished, remaining.tasks, len(remaining.running)) == (3, 1, 2)
