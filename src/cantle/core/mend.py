"""What must have happened between the records of a damaged journal, for those that are left to make sense?

A record proves things: who is launched had parents that were done, and room; whose end is told had been launched. Where a
state does not know what the next record proves, records are made up that say no more than that. Where even the proof leaves
open how a task ended, the made-up record is the one that costs only time: the attempt counts as interrupted, the task as to
be run again. So a damaged journal never loses a task, and a result that is still in it is never computed again.

Records of nodes, studies and tasks cannot be made up: without them the others name things that nobody knows.
"""

from __future__ import annotations

from msgspec import structs

from cantle.core.phases import ACTIVE, FINAL, OVER, UNSUCCESSFUL, Phase
from cantle.core.state import State
from cantle.errors import JournalError
from cantle.model.records import (
    AnyRecord,
    Launch,
    LimitsChanged,
    Refuse,
    Revived,
    StudyChanged,
    StudyOver,
    TaskEnded,
    TaskStarted,
)
from cantle.model.resources import Place, list_to_mask

MISSING = "its records are missing from the journal"


def fill_gaps(state: State, record: AnyRecord) -> list[AnyRecord]:
    """The records to apply before this one, none where nothing is missing. Changes nothing itself.

    Raises JournalError when the record names a node or a task that the journal does not tell of.
    """
    if isinstance(record, Launch | TaskStarted | TaskEnded | Refuse) and record.task >= len(state.tasks):
        raise JournalError(f"the journal tells of task {record.task}, but not what it is: that part of it is damaged")
    if isinstance(record, Launch):
        return _before_launch(state, record)
    if isinstance(record, TaskStarted | TaskEnded) and _proves_a_launch(state, record):
        launch = Launch(record.time, record.task, record.attempt, (), why=MISSING)
        return [*_before_launch(state, launch), launch]
    if isinstance(record, Refuse) and state.phases[record.task] in ACTIVE:
        return [_interrupted(state, record.task, record.time)]
    if isinstance(record, StudyOver):
        return _before_over(state, record)
    return []


def _before_over(state: State, record: StudyOver) -> list[AnyRecord]:
    """What makes all tasks of the study over; nothing proves how they ended, and nobody asks any more."""
    left = [task for task in state.studies[record.study].tasks if state.phases[task] not in FINAL]
    ending = [_interrupted(state, task, record.time) for task in left if task in state.running]
    return [*ending, *(Refuse(record.time, task, MISSING) for task in left)]


def _proves_a_launch(state: State, record: TaskStarted | TaskEnded) -> bool:
    """Whether the attempt began without the state's knowing, or has ended in the state by a made-up record alone."""
    task = record.task
    phase = state.phases[task]
    if phase == Phase.DONE:
        return False
    if phase in UNSUCCESSFUL and not (isinstance(record, TaskEnded) and record.outcome == "done"):
        return False
    if record.attempt > state.attempts[task]:
        return True
    ended = state.ended.get(task)
    made_up = ended is not None and ended.attempt == record.attempt and ended.detail == MISSING
    return made_up and record.attempt == state.attempts[task] and task not in state.running


def _before_launch(state: State, launch: Launch) -> list[AnyRecord]:
    """What makes the task ready, and the places that it gets free.

    First the attempts that cannot have gone on end, then tasks that cannot have failed get their chance again, then, in the
    order of their numbers, which is one in which they can have run, those end that the task waited for.
    """
    time = launch.time
    task = launch.task
    done, over = _proven(state, task)
    filled: list[AnyRecord] = []

    ending = {t: None for t in (task, *over, *_in_the_way(state, launch)) if t in state.running and t not in done}
    filled += [_interrupted(state, t, time) for t in ending]

    if state.phases[task] == Phase.DONE:
        filled.append(StudyChanged(time, state.study_of(task).added.digest, [task]))
    canceled = {t for t in ending if _asked_to_cancel(state, t)}
    canceled |= {t for t in _above(state, over) if state.phases[t] == Phase.CANCELED}
    if canceled or any(state.phases[t] in UNSUCCESSFUL for t in (task, *done, *over)):
        spared = canceled & {task, *over, *_above(state, over)}
        filled.append(Revived(time, sorted({task, *done, *over, *spared})))

    study = state.study_of_step[state.tasks[task].step]
    limits = state.studies[study].limits
    careful = bool(over) and limits.fail_fast  # what is taken for failed without proof shall not end all the rest
    if careful:
        filled.append(LimitsChanged(time, structs.replace(limits, fail_fast=False), study))
    for t in sorted({*done, *over}):
        if t in over:
            filled.append(Refuse(time, t, MISSING))
        elif t in state.running:
            filled.append(TaskEnded(time, t, state.attempts[t], "done", detail=MISSING))
        else:
            attempt = max(1, state.attempts[t])
            filled.append(Launch(time, t, attempt, (), why=MISSING))
            filled.append(TaskEnded(time, t, attempt, "done", detail=MISSING))
    if careful:
        filled.append(LimitsChanged(time, limits, study))
    return filled


def _proven(state: State, task: int) -> tuple[set[int], set[int]]:
    """Of the tasks that it stands on, those not known to be so: which must have been done, and which at least over."""
    done: set[int] = set()
    over: set[int] = set()
    stack = [task]
    while stack:
        row = state.tasks[stack.pop()]
        for parent in row.parents:
            if state.phases[parent] != Phase.DONE and parent not in done:
                done.add(parent)
                stack.append(parent)
        for parent in row.after:
            if state.phases[parent] not in OVER:
                over.add(parent)
    return done, over - done


def _above(state: State, tasks: set[int]) -> set[int]:
    """All that the tasks stand on, near and far, and that is not done: had one of these been canceled, so had they."""
    found: set[int] = set()
    stack = list(tasks)
    while stack:
        row = state.tasks[stack.pop()]
        for parent in (*row.parents, *row.after):
            if parent not in found and state.phases[parent] != Phase.DONE:
                found.add(parent)
                stack.append(parent)
    return found


def _in_the_way(state: State, launch: Launch) -> list[int]:
    """The tasks whose cores or GPUs the launched one gets, and, where countable things would not do, further ones."""
    needs = state.step_of(launch.task).needs
    found: dict[int, None] = {}
    ahead = None if launch.behind is None else state.running.get(launch.behind)
    if ahead is not None and ahead.on == launch.on:
        return []
    for place in launch.on:
        if not state.room.alive >> place.node & 1:
            raise JournalError(
                f"the journal tells of node {place.node}, but not what it is: that part of it is damaged"
            )
        here = sorted(state.running_on.get(place.node, ()), key=lambda t: (state.launched_at[t], t))
        in_the_way = [t for t in here if any(_overlap(place, other) for other in state.running[t].on)]
        memory = state.room.free_memory[place.node]
        named = dict(state.room.free_named[place.node])
        for t in in_the_way + [t for t in here if t not in in_the_way]:
            enough = memory >= needs.memory_mib and all(named.get(name, 0) >= n for name, n in needs.named)
            if t not in in_the_way and enough:
                break
            theirs = state.step_of(t).needs
            memory += theirs.memory_mib
            for name, n in theirs.named:
                named[name] = named.get(name, 0) + n
            found[t] = None
    return list(found)


def _overlap(one: Place, other: Place) -> bool:
    return one.node == other.node and bool(
        list_to_mask(one.cores) & list_to_mask(other.cores) or list_to_mask(one.gpus) & list_to_mask(other.gpus)
    )


def _interrupted(state: State, task: int, time: float) -> TaskEnded:
    return TaskEnded(time, task, state.attempts[task], "interrupted", detail=MISSING)


def _asked_to_cancel(state: State, task: int) -> bool:
    return "canceled" in (state.to_stop.get(task), state.being_stopped.get(task))
