"""What is a study to the state, and what does it bring: steps, whose tasks queue by shape, and tasks?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cantle.core.fates import give_up, recount
from cantle.core.observed import Observed
from cantle.core.phases import Cause, Phase
from cantle.core.queues import ReadyQueue, Shape
from cantle.core.ranks import b_levels
from cantle.core.spans import Spans
from cantle.errors import CantleBug
from cantle.model import records as r
from cantle.model.study import Limits, Step

if TYPE_CHECKING:
    from cantle.core.state import State

ELEMENTS_OF = "elements of study {}"
"""Where the tasks of a sliced study run that take several nodes."""


class StudyState:
    """One study of the run. `tasks` and `step_numbers` are which of the run's are its own; `grows`: it may get more of them."""

    __slots__ = (
        "added",
        "digest",
        "failing",
        "grows",
        "in_progress",
        "limits",
        "over",
        "slots",
        "step_numbers",
        "tasks",
    )

    def __init__(self, added: r.StudyAdded) -> None:
        self.added = added
        self.tasks = Spans()
        self.step_numbers = Spans()
        self.grows = added.grows
        self.limits: Limits = added.limits
        self.digest = added.digest
        self.in_progress = 0
        self.failing = ""
        """With fail-fast, and once something failed: why nothing of it is begun any more."""
        self.slots = 0
        """How many cores its attempts own."""
        self.over = False

    @property
    def known(self) -> int:
        """How many tasks it has so far."""
        return self.tasks.known

    @property
    def whole(self) -> bool:
        """Whether all of its tasks are known."""
        return not self.grows and self.tasks.known >= self.added.tasks


def _study_added(state: State, record: r.StudyAdded) -> None:
    study = len(state.studies)
    state.living[study] = StudyState(record)
    state.studies.append(state.living[study])
    state.promised += record.tasks
    state.growing += record.grows
    add_steps(state, record.steps, study)


def add_steps(state: State, steps: list[Step], study: int) -> None:
    """Number further steps of the study, and let their tasks queue with those of the same shape."""
    extra = state.studies[study].added.priority
    state.studies[study].step_numbers.add(len(state.steps), len(steps))
    if study not in state.observed and any(step.widths for step in steps):
        state.observed[study] = Observed()
    for step in steps:
        shape = Shape(step.needs, step.priority + extra, study, step.widths, step.partition)
        number = state._shapes.get(shape)
        if number is None:
            number = state._shapes[shape] = _new_queue(state, shape)
            state.homes.setdefault(home_of(state, shape), []).append(number)
        state.steps.append(step)
        state.study_of_step.append(study)
        state.shape_of_step.append(number)
        state.counts.append([0] * len(Phase))


def _new_queue(state: State, shape: Shape) -> int:
    queue = ReadyQueue(shape, state.phases, state.queued)
    if state._free_queues:
        number = state._free_queues.pop()
        state.queues[number] = queue
    else:
        number = len(state.queues)
        state.queues.append(queue)
    return number


def home_of(state: State, shape: Shape) -> str:
    """Where tasks of this shape run, as the keys of `State.homes` say it."""
    return ELEMENTS_OF.format(shape.study) if state.is_sliced(shape) else shape.partition


def _tasks_added(state: State, record: r.TasksAdded) -> None:
    """Raises CantleBug when they are not numbered on from those that are known."""
    first = record.first
    if first != len(state.tasks):
        raise CantleBug(f"tasks were added from number {first}, but {len(state.tasks)} are known")
    tasks = record.tasks
    study = state.studies[record.study]
    if study.known and first != study.tasks.stop and not study.grows:
        raise CantleBug(f"tasks of study {study.added.name} were added after those of another study")
    study.tasks.add(first, len(tasks))
    if study.grows:
        state.promised += len(tasks)
    state.tasks.extend(tasks)
    n = len(tasks)
    state.phases.extend([Phase.WAITING] * n)
    state.attempts.extend([0] * n)
    state.blockers.extend([0] * n)
    state.children.extend([None] * n)
    state.queued.extend(bytes(n))
    state.ran_on.frombytes(b"\xff" * (4 * n))
    for times in (state.pids, state.launched_at, state.ended_at):
        times.frombytes(bytes(8 * n))
    state.ranks.extend(b_levels(tasks, first))
    state.totals[Phase.WAITING] += n
    children = state.children
    for number, task in enumerate(tasks, first):
        state.counts[task.step][Phase.WAITING] += 1
        for parents in (task.parents, task.after):
            for parent in parents:
                found = children[parent]
                if found is None:
                    found = children[parent] = []
                found.append(number)
    recount(state, range(first, first + n))
    if study.failing and not state.stopping:
        for number in range(first, first + n):
            give_up(state, number, Cause.SKIP, study.failing)
    state.feasibility_version += 1
    state.version += 1


RULES: dict[type, Callable[[State, Any], None]] = {
    r.StudyAdded: _study_added,
    r.TasksAdded: _tasks_added,
}
