"""What changes of studies that are known already? They are over, read anew, bounded anew, canceled, or given a new chance.

Few runs have such records, so these rules are loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, nextafter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cantle.core.fates import enqueue, give_up, move, revive
from cantle.core.phases import ACTIVE, FINAL, UNSTARTED, UNSUCCESSFUL, Cause, Phase
from cantle.core.queues import ReadyQueue
from cantle.core.studies import add_steps, home_of
from cantle.errors import CantleBug
from cantle.model import records as r
from cantle.model.study import Task

if TYPE_CHECKING:
    from cantle.core.state import State


def _steps_added(state: State, record: r.StepsAdded) -> None:
    add_steps(state, record.steps, record.study)
    state.version += 1


def _study_closed(state: State, record: r.StudyClosed) -> None:
    study = state.studies[record.study]
    if study.grows:
        study.grows = False
        state.growing -= 1
        state.version += 1


def _study_over(state: State, record: r.StudyOver) -> None:
    study = state.studies[record.study]
    if not all(state.phases[task] in FINAL for task in study.tasks):
        raise CantleBug(f"study {study.added.name} is called over, but not all of its tasks are")
    study.over = True
    state.living.pop(record.study, None)
    if study.grows:
        study.grows = False
        state.growing -= 1
    state.promised -= max(0, study.added.tasks - study.known)
    blank: dict[int, Task] = {}
    for number in study.tasks:
        step = state.tasks[number].step
        row = blank.get(step)
        if row is None:
            row = blank[step] = Task("", step)
        state.tasks[number] = row
        state.children[number] = None
        state.ranks[number] = 0.0
        for known in (
            state.ended,
            state.cause_of,
            state.faults,
            state.restarts,
            state.losses,
            state.shunned,
            state.ordered,
        ):
            known.pop(number, None)
        state.restart_next.discard(number)
        if state.keeping is not None:
            state.keeping.forget(number)
    state.observed.pop(record.study, None)
    for shape in [shape for shape in state._shapes if shape.study == record.study]:
        number = state._shapes.pop(shape)
        state.homes[home_of(state, shape)].remove(number)
        state.queues[number] = ReadyQueue(shape, state.phases, state.queued)
        state.short_shapes.pop(number, None)
        state._free_queues.append(number)
    state.version += 1


def _study_changed(state: State, record: r.StudyChanged) -> None:
    state.studies[record.study].digest = record.digest
    first_step = len(state.steps)
    add_steps(state, record.steps, record.study)
    leaving: dict[int, set[int]] = {}
    for number in record.rows:
        if state.queued[number]:
            leaving.setdefault(state.shape_of_step[state.tasks[number].step], set()).add(number)
    for shape, numbers in leaving.items():
        state.queues[shape].remove(numbers)
    for number, row in record.rows.items():
        _describe_anew(state, number, structs.replace(row, step=row.step + first_step))
    again: dict[int, None] = {}
    stack = list(record.tasks)
    while stack:
        task = stack.pop()
        if task not in again:
            again[task] = None
            stack.extend(state.children[task] or ())
    for task in again:
        if state.phases[task] == Phase.DONE:
            move(state, task, Cause.REDO)
    revive(state, [task for task in again if state.phases[task] not in ACTIVE])
    state.feasibility_version += 1
    state.version += 1


def _revived(state: State, record: r.Revived) -> None:
    again: dict[int, None] = {}
    stack = list(record.tasks)
    while stack:
        task = stack.pop()
        if task not in again and state.phases[task] in UNSUCCESSFUL:
            again[task] = None
            stack.extend(t for t in state.children[task] or () if state.phases[t] == Phase.SKIPPED)
    revive(state, list(again))
    state.feasibility_version += 1
    state.version += 1


def _order_tasks(state: State, record: r.OrderTasks) -> None:
    """The first gets the highest of their ranks, and so on; where some are equal, slightly less for each further one."""
    state.ordered = {}
    state.why_ordered = record.why
    last = inf
    for task, urgency in zip(record.tasks, sorted(map(state.urgency_of, record.tasks), reverse=True), strict=True):
        last = state.ordered[task] = min(urgency, nextafter(last, -inf))
    for queue in state.queues:
        queue.order_anew(state.urgency_of)
    state.version += 1


def _describe_anew(state: State, number: int, row: Task) -> None:
    """The task, which stands in no queue, is another one from now on."""
    before = state.tasks[number]
    if (before.parents, before.after) != (row.parents, row.after):
        for parent in (*before.parents, *before.after):
            (state.children[parent] or []).remove(number)
        for parent in (*row.parents, *row.after):
            found = state.children[parent]
            if found is None:
                found = state.children[parent] = []
            found.append(number)
    phase = state.phases[number]
    state.counts[before.step][phase] -= 1
    state.counts[row.step][phase] += 1
    state.tasks[number] = row
    if phase == Phase.READY:
        enqueue(state, number)


def _limits_changed(state: State, record: r.LimitsChanged) -> None:
    state.studies[record.study].limits = record.limits
    state.version += 1


def _cancel_asked(state: State, record: r.CancelAsked) -> None:
    concerned: Iterable[int] = range(len(state.tasks)) if record.tasks is None else record.tasks
    if record.tasks is None and record.study is not None:
        concerned = state.studies[record.study].tasks
    for task in concerned:
        phase = state.phases[task]
        if phase in UNSTARTED:
            give_up(state, task, Cause.CANCEL, f"canceled{f' by {record.by}' if record.by else ''}")
        elif phase in ACTIVE and state.being_stopped.get(task) != "canceled":
            state.to_stop[task] = "canceled"
    state.version += 1


RULES: dict[type, Callable[[State, Any], None]] = {
    r.StepsAdded: _steps_added,
    r.StudyClosed: _study_closed,
    r.StudyOver: _study_over,
    r.StudyChanged: _study_changed,
    r.Revived: _revived,
    r.LimitsChanged: _limits_changed,
    r.OrderTasks: _order_tasks,
    r.CancelAsked: _cancel_asked,
}
