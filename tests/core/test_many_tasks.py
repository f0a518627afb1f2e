"""What thousands of tasks and studies cost: steps are counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.records import (
    DrainNode,
    Launch,
    NodesJoined,
    PartitionAsked,
    RefusePartition,
    StudyAdded,
    StudyChanged,
    StudyOver,
    TaskEnded,
    TasksAdded,
    TaskStarted,
    TimePassed,
)
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import PartitionWish, Step, Task
from counting import steps

FEW, MANY = 100, 400
LINEAR = 5.0
"""So much more at most four times as many may cost: the square would be sixteen times."""


def decided(state: State, decider: Decider) -> list[Any]:
    made = []
    for decision in decider.decide(state):
        state.apply(decision)
        made.append(decision)
    return made


def test_a_study_of_which_every_task_reads_differently_now_is_taken_in_at_so_much_a_task() -> None:
    def cost(n: int) -> int:
        state = State()
        state.apply(StudyAdded(0.0, "study", [Step("first"), Step("step")]))
        tasks = [Task(f"t{i}", 1, (0,) if i % 2 else ()) for i in range(n)]
        state.apply(TasksAdded(0.0, 0, [Task("first", 0), *tasks]))
        wider = [Step("first"), Step("step", Needs(cores=2))]
        found = steps(lambda: state.apply(StudyChanged(1.0, "new", [], wider, dict(enumerate(tasks, 1)))))
        assert state.queue_of(1).ready() == list(range(1, n + 1, 2)), "those that are ready queue as they are now"
        assert state.step_of(1).needs.cores == 2
        return found

    assert cost(MANY) / cost(FEW) < LINEAR


def test_a_pass_costs_the_same_however_many_studies_are_over() -> None:
    def cost(n: int) -> int:
        state, decider = State(), Decider()
        state.apply(NodesJoined(0.0, [Node("n0", 2, machine="m0")]))
        for number in range(n):
            state.apply(StudyAdded(1.0, f"s{number}", [Step("step")], tasks=1))
            state.apply(TasksAdded(1.0, number, [Task("t", number)], number))
            decided(state, decider)
            state.apply(TaskEnded(2.0, number, 1, "done"))
            state.apply(StudyOver(2.0, number))
        for more in range(2):
            state.apply(StudyAdded(3.0, f"last{more}", [Step("step")], tasks=2))
            state.apply(TasksAdded(3.0, n + 2 * more, [Task(f"t{i}", n + more) for i in range(2)], n + more))
        decided(state, decider)
        first = min(state.running)
        state.apply(TaskEnded(4.0, first, 1, "done"))
        return steps(lambda: decided(state, decider))

    assert cost(MANY) < 1.2 * cost(FEW)


@pytest.mark.parametrize("others", [0, 1])
def test_a_call_that_is_handed_in_costs_a_pass_the_same_however_many_came_before(others: int) -> None:
    """They take several cores each, and the next one has no room: then it is looked how much is left to do."""

    def cost(n: int) -> int:
        state, decider = State(), Decider()
        wide = Step("wide", Needs(cores=3))
        state.apply(StudyAdded(0.0, "calls", [wide], grows=True))
        state.apply(TasksAdded(0.0, 0, [Task(f"t{i}", 0) for i in range(n)]))
        for other in range(1, others + 1):
            state.apply(StudyAdded(0.0, "other", [wide], tasks=2))
            state.apply(TasksAdded(0.0, n, [Task("first", other), Task("then", other, (n,))], other))
        state.apply(NodesJoined(0.0, [Node("n0", 4, machine="m0")]))
        decided(state, decider)
        assert len(state.running) == 1
        for _ in range(2):  # all are taken in with the first of these
            state.apply(TasksAdded(1.0, len(state.tasks), [Task("one more", 0)], 0))
            found = steps(lambda: decided(state, decider))
        return found

    assert cost(MANY) < 1.2 * cost(FEW)


def test_the_last_partition_of_a_name_is_found_at_once_while_it_lives_however_many_came_after_it() -> None:
    def cost(n: int) -> int:
        state = State()
        state.apply(StudyAdded(0.0, "study", [Step("step")]))
        for name in ("mine", *(f"other{i}" for i in range(n))):
            state.apply(PartitionAsked(1.0, PartitionWish(name, 1), 0))
        of = state.partitions
        assert of.last_of(0, "mine") is of.all[0] and of.last_of(0, "nobody's") is None
        return steps(lambda: of.last_of(0, "mine"))

    assert cost(MANY) == cost(FEW)


def test_of_partitions_with_one_name_the_last_is_told_of_also_when_it_is_over() -> None:
    state = State()
    state.apply(StudyAdded(0.0, "study", [Step("step")]))
    for number in range(2):
        state.apply(PartitionAsked(1.0, PartitionWish("mine", 1), 0))
        state.apply(RefusePartition(2.0, number, "too wide"))
    assert state.partitions.last_of(0, "mine") is state.partitions.all[1]
    assert state.partitions.last_of(1, "mine") is None


def test_a_node_that_is_suspected_costs_a_pass_the_same_however_many_tasks_there_are() -> None:
    """All that is known of the step was done there, and elsewhere the first one still runs."""

    def cost(n: int) -> int:
        state, decider = State(), Decider(lines=False)
        state.apply(StudyAdded(0.0, "study", [Step("step")]))
        state.apply(TasksAdded(0.0, 0, [Task(f"t{i}", 0) for i in range(n + 20)]))
        state.apply(NodesJoined(0.0, [Node("n0", 1, machine="m"), Node("n1", 2, machine="m")]))
        here, there = (Place(0, "0"),), (Place(1, "0"),)
        state.apply(Launch(1.0, n, 1, there))
        state.apply(TaskStarted(1.0, n, 1, 7))
        for task in range(n + 5):
            if task != n:
                state.apply(Launch(2.0, task, 1, here))
                state.apply(TaskEnded(2.5, task, 1, "done" if task < n else "failed", 1))
        state.apply(Launch(3.0, n + 5, 1, here))
        state.apply(TaskEnded(3.5, n + 5, 1, "failed", 1))
        assert [each.cause for each in decided(state, decider) if isinstance(each, DrainNode)] == ["suspect"]
        for _ in range(2):
            state.apply(TimePassed(state.now + 1.0))
            found = steps(lambda: decided(state, decider))
        assert 0 in state.drained
        state.apply(TaskEnded(9.0, n, 1, "done"))
        assert [each.cause for each in decided(state, decider) if isinstance(each, DrainNode)] == ["fails"]
        return found

    assert cost(MANY) < 1.2 * cost(FEW)
