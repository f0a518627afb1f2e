"""What thousands of nodes cost: steps are counted, not timed, and four times the nodes may not cost sixteen times as much."""

from __future__ import annotations

import pytest

from cantle.core.decide import Decider
from cantle.core.packing import fewest_runs, windows
from cantle.core.siting import targets_of
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    KindsDeclared,
    Launch,
    NodeLost,
    NodesJoined,
    PartitionAsked,
    ReleaseNode,
    StudyAdded,
    TaskEnded,
    TasksAdded,
)
from cantle.model.resources import Node, indexes
from cantle.model.study import PartitionWish, Step, Task
from counting import steps

FEW, MANY = 100, 400
LINEAR = 5.0
"""So much more at most four times the nodes may cost: the square would be sixteen times."""


def machines(n: int, cores: int = 1, ends_at: float = 0.0) -> list[Node]:
    return [Node(f"n{i}", cores, kind="cpu", machine=f"m{i}", ends_at=ends_at) for i in range(n)]


def with_tasks(n: int) -> State:
    state = State()
    state.apply(StudyAdded(0.0, "study", [Step("a"), Step("b", partition="calc")]))
    state.apply(TasksAdded(0.0, 0, [Task(f"a{i}", 0, ()) for i in range(n)]))
    return state


def decided(state: State, decider: Decider) -> list[object]:
    made: list[object] = []
    for decision in decider.decide(state):
        state.apply(decision)
        made.append(decision)
    return made


def grows_by(few: int, many: int) -> float:
    assert few > 0
    return many / few


def test_nodes_that_end_come_and_go_as_cheaply_as_others() -> None:
    def cost(n: int) -> int:
        state = with_tasks(0)

        def come_and_go() -> None:
            state.apply(NodesJoined(1.0, machines(n, ends_at=3600.0)))
            for index in range(n):
                state.apply(NodeLost(3600.0, index))

        return steps(come_and_go)

    assert grows_by(cost(FEW), cost(MANY)) < LINEAR


def test_each_of_many_nodes_leaves_at_its_time_whichever_of_them_came_or_went_first() -> None:
    state = with_tasks(0)
    ends = [900.0, 300.0, 600.0, 300.0, 1200.0]
    for i, at in enumerate(ends):
        state.apply(NodesJoined(float(i), [Node(f"n{i}", 1, machine=f"m{i}", ends_at=at)]))
    lifetimes = state.lifetimes
    assert lifetimes is not None
    assert lifetimes.longest_s == max(lifetimes.lives_s.values()) and len(lifetimes.steps) == 4 + 1
    for gone in (4, 1, 0):
        state.apply(NodeLost(10.0, gone))
        left = sorted(lifetimes.leaves.values())
        assert [at for at, _ in lifetimes.steps] == left
        for at in (0.0, *left, 5000.0):
            expected = [index for index, leaves in lifetimes.leaves.items() if leaves < at - 1e-6]
            assert indexes(lifetimes.leave_before(at)) == sorted(expected)
        assert lifetimes.longest_s == max(lifetimes.lives_s.values())
    state.apply(NodeLost(11.0, 2))
    state.apply(NodeLost(12.0, 3))
    assert lifetimes.steps == [] and lifetimes.longest_s == 0.0


def test_many_nodes_that_idle_at_the_end_are_given_back_at_so_much_each() -> None:
    def cost(n: int) -> int:
        state, decider = with_tasks(n), Decider()
        state.apply(KindsDeclared(0.0, [Kind("cpu", 1, most=n)]))
        state.apply(NodesJoined(1.0, machines(n)))
        decided(state, decider)
        for task in range(n):
            state.apply(TaskEnded(600.0, task, 1, "done"))
        given_back: list[object] = []
        found = steps(lambda: given_back.extend(decided(state, decider)))
        assert sum(isinstance(decision, ReleaseNode) for decision in given_back) == n
        return found

    assert grows_by(cost(FEW), cost(MANY)) < LINEAR


def test_what_a_launch_costs_on_several_machines_does_not_rise_with_what_waits_behind_it() -> None:
    """Who has no inputs goes first wherever there is room: nobody behind it is looked at."""

    def cost(waiting: int) -> float:
        state, decider = with_tasks(waiting), Decider(orders=False)
        state.apply(NodesJoined(1.0, machines(2, cores=4)))
        made: list[object] = []
        found = steps(lambda: made.extend(decided(state, decider)))
        assert sum(isinstance(decision, Launch) for decision in made) == 8
        return found / 8

    assert cost(100) < 1.5 * cost(9)


@pytest.mark.parametrize("layout", ["compact", "spread", "contiguous"])
def test_where_a_wide_partition_is_to_be_is_found_at_so_much_a_node(layout: str) -> None:
    def cost(n: int) -> int:
        state, decider = with_tasks(2 * n), Decider(lines=False)
        state.apply(NodesJoined(1.0, machines(n, cores=2)))
        decided(state, decider)
        state.apply(PartitionAsked(2.0, PartitionWish("calc", n // 2, layout=layout)))  # type: ignore[arg-type]
        decided(state, decider)
        for task in range(n // 2):
            state.apply(TaskEnded(3.0, task, 1, "done"))
            decided(state, decider)
        partition = state.partitions.all[0]
        assert partition.nodes(), "it has begun to gather"
        return steps(lambda: targets_of(state, partition))

    assert grows_by(cost(FEW), cost(MANY)) < LINEAR


def test_a_wide_task_finds_its_nodes_among_many_short_runs_at_so_much_a_run() -> None:
    def cost(n: int) -> int:
        nodes = sum(1 << 2 * index for index in range(n))
        assert fewest_runs(nodes, n) == list(range(0, 2 * n, 2))
        return steps(lambda: fewest_runs(nodes, n))

    assert grows_by(cost(FEW), cost(MANY)) < LINEAR


def test_runs_are_chosen_as_ever_the_smallest_that_holds_all_else_the_largest_first() -> None:
    nodes = sum(1 << index for index in (0, 1, 3, 4, 5, 7, 9, 10))
    assert fewest_runs(nodes, 1) == [7]
    assert fewest_runs(nodes, 2) == [0, 1]
    assert fewest_runs(nodes, 3) == [3, 4, 5]
    assert fewest_runs(nodes, 4) == [3, 4, 5, 7]
    assert fewest_runs(nodes, 7) == [0, 1, 3, 4, 5, 9, 10]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_windows_begin_where_so_many_nodes_follow_each_other(n: int) -> None:
    nodes = 0b1110111111011111111
    expected = [i for i in range(nodes.bit_length()) if all(nodes >> i + k & 1 for k in range(n))]
    assert indexes(windows(nodes, n)) == expected
