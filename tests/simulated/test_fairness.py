"""Do a flood, a study of gangs and a study of bursts live well together on one allocation of 64 slots?

A has many more tasks than the machine holds. B has ten rounds of a gang on half of the machine for 10 s and 96 tasks of 5 s;
alone it takes 206 s. C sends 16 tasks of 2 s every 30 s. Nobody tells how long anything takes.
"""

from __future__ import annotations

from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.model.records import StudyAdded, TasksAdded
from cantle.model.resources import Needs, Node
from cantle.model.study import Step, Task
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld

SLOTS = 64
BURSTS = 8


class Told:
    """What became of B and C, seconds; and how much of the machine was used while B was there."""

    def __init__(self, tasks_of_a: int, seconds_of_a: float) -> None:
        state = self.state = State()
        took: list[float] = []

        def enter(number: int, name: str, *steps: Step) -> int:
            state.apply(StudyAdded(0.0, name, list(steps)))
            assert len(state.studies) == number + 1
            return len(state.steps) - len(steps)

        step = enter(0, "A", Step("flood"))
        state.apply(TasksAdded(0.0, 0, [Task(f"a{i}", step) for i in range(tasks_of_a)], 0))
        took += [seconds_of_a] * tasks_of_a

        step = enter(1, "B", Step("gang", Needs(1, SLOTS // 2)), Step("after"))
        rows: list[Task] = []
        parents: tuple[int, ...] = ()
        for turn_of_b in range(10):
            gang = tasks_of_a + len(rows)
            rows.append(Task(f"gang{turn_of_b}", step, parents))
            parents = tuple(range(gang + 1, gang + 97))
            rows += [Task(f"b{task}", step + 1, (gang,)) for task in parents]
            took += [10.0] + [5.0] * 96
        state.apply(TasksAdded(0.0, tasks_of_a, rows, 1))
        of_b = range(tasks_of_a, len(state.tasks))

        step = enter(2, "C", Step("burst"))
        world = SimulatedWorld(
            state, [(0.0, [Node(f"n{i}", 1) for i in range(SLOTS)])], lambda task, _attempt: Fate(took[task])
        )
        bursts = {}
        first = len(state.tasks)
        for burst in range(BURSTS):
            at = 7.0 + 30.0 * burst
            world.put(TasksAdded(at, first, [Task(f"c{burst}.{i}", step) for i in range(16)], 2))
            bursts[at] = range(first, first + 16)
            first += 16
            took += [2.0] * 16

        decider = Decider(lines=False)
        while not all(state.phases[task] == Phase.DONE for task in of_b) or state.now < 30.0 * BURSTS + 20.0:
            turn(state, world, NoLog(), decider, world.wait())

        self.span_of_b = max(state.ended_at[task] for task in of_b)
        self.bursts_of_c = [max(state.ended_at[task] for task in tasks) - at for at, tasks in bursts.items()]
        busy = 0.0
        for task, begun in enumerate(state.launched_at):
            if state.attempts[task] and begun < self.span_of_b:
                end = self.span_of_b if task in state.running else min(state.ended_at[task], self.span_of_b)
                busy += (end - begun) * state.step_of(task).needs.area
        self.used = busy / SLOTS / self.span_of_b


def test_a_flood_of_short_tasks_costs_the_others_little_and_the_machine_nothing() -> None:
    told = Told(25_000, 1.0)
    assert told.span_of_b <= 262 * 1.1
    assert max(told.bursts_of_c) <= 3.0
    assert told.used >= 0.999


def test_a_flood_of_tasks_of_10_seconds_costs_the_others_little_and_the_machine_one_percent() -> None:
    told = Told(3_000, 10.0)
    assert told.span_of_b <= 273 * 1.1
    assert sum(told.bursts_of_c) / BURSTS <= 5.0
    assert told.used >= 0.985


def test_a_flood_of_tasks_of_a_minute_does_not_starve_the_gangs() -> None:
    told = Told(600, 60.0)
    assert told.span_of_b <= 344 * 1.1
    assert told.used >= 0.97
