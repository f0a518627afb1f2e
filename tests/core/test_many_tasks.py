"""What thousands of tasks and studies cost: steps are counted, not timed."""

from __future__ import annotations

from typing import Any

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.records import NodesJoined, StudyAdded, StudyChanged, StudyOver, TaskEnded, TasksAdded
from cantle.model.resources import Needs, Node
from cantle.model.study import Step, Task
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
