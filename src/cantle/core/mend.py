"""What must have happened between the records of a damaged journal, for those that are left to make sense?

A record proves things: who is launched had parents that were done, and room; whose end is told had been launched. Who is
launched ahead of time, behind the one parent that it still waits for, proves of that one only that it had not ended without
success; that it was done is proved by whoever has begun after it. Where a
state does not know what the next record proves, records are made up that say no more than that. Where even the proof leaves
open how a task ended, the made-up record is the one that costs only time: the attempt counts as interrupted, the task as to
be run again. So a damaged journal never loses a task, and a result that is still in it is never computed again.

Records of nodes, studies and tasks cannot be made up: without them the others name things that nobody knows.

Partitions are numbered by the order in which they were asked for, so that after a gap nobody can tell which one a number
means. But none outlives its conductor: from the gap until the run is resumed, what is told of partitions is passed over, and
attempts count as running outside. Nodes are numbered likewise: an attempt for which the one of its number has no room counts as
running on places that nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from msgspec import structs

from cantle.core.partitions import RULES as PARTITION_RULES
from cantle.core.phases import ACTIVE, FINAL, OVER, UNSUCCESSFUL, Phase
from cantle.core.state import State
from cantle.core.strangers import changes_nothing, stranger_in
from cantle.errors import JournalError
from cantle.model.records import (
    AnyRecord,
    Launch,
    LimitsChanged,
    PartitionFailed,
    Refuse,
    ResumeNode,
    Revived,
    RunResumed,
    StudyChanged,
    StudyOver,
    TaskEnded,
    TaskStarted,
)
from cantle.model.resources import Place, list_to_mask

MISSING = "its records are missing from the journal"


class Mender:
    """Reads on where records are missing. Tell it of each `gap` before the first record behind it."""

    def __init__(self) -> None:
        self._knows_partitions = True
        self._began = False

    def gap(self) -> None:
        """Records are missing here."""
        self._began = self._knows_partitions = False

    def mended(self, state: State, record: AnyRecord) -> Iterator[AnyRecord]:
        """What to apply for this record, each before the next is asked for.

        Raises JournalError when the record names a node, a study or a task that the journal does not tell of.
        """
        if isinstance(record, RunResumed):
            self._knows_partitions = True
        elif not self._knows_partitions:
            if not self._began:
                self._began = True
                yield from _without_partitions(state, record.time)
            if type(record) in PARTITION_RULES:
                return
            if isinstance(record, Launch) and record.partition >= 0:
                record = structs.replace(record, partition=-1)
        yield from fill_gaps(state, record)
        if isinstance(record, Launch):
            record = _where_it_can_be(state, record)
        if not changes_nothing(state, record):
            yield record


def _without_partitions(state: State, time: float) -> Iterator[AnyRecord]:
    """What makes all slots free that partitions have. What runs there may go on: its end will tell."""
    for partition in list(state.partitions.living.values()):
        for task in list(partition.running):
            yield _interrupted(state, task, time)
        yield PartitionFailed(time, partition.number, MISSING)


def fill_gaps(state: State, record: AnyRecord) -> list[AnyRecord]:
    """The records to apply before this one, none where nothing is missing. Changes nothing itself.

    Raises JournalError when the record names a node, a study or a task that the journal does not tell of.
    """
    if stranger := stranger_in(state, record):
        raise JournalError(f"the journal tells of {stranger}, but not what it is: that part of it is damaged")
    if isinstance(record, Launch):
        return _before_launch(state, record)
    if isinstance(record, TaskStarted | TaskEnded):
        waits = state.blockers[record.task] > 0
        if waits and not _had_begun(record):
            return []  # it may have stood in line behind one of which this tells nothing
        if _proves_a_launch(state, record):
            launch = Launch(record.time, record.task, record.attempt, (), why=MISSING)
            return [*_before_launch(state, launch), launch]
        if waits and record.task in state.running and record.attempt == state.attempts[record.task]:
            return _filled(state, record.time, record.task, _proven(state, record.task))
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


def _had_begun(record: TaskStarted | TaskEnded) -> bool:
    """Whether this tells of an attempt that had a process: then all that it waited for was done."""
    if isinstance(record, TaskStarted):
        return True
    return bool(record.started) or record.outcome in ("done", "failed", "timeout", "memory")


def _before_launch(state: State, launch: Launch) -> list[AnyRecord]:
    """What makes the task ready, or waiting for one alone, and the places that it gets free."""
    task = launch.task
    ahead = launch.behind if launch.if_done else None
    in_progress = set[int]() if ahead is None else _in_progress(state, ahead)
    proven = done, over = _proven(state, task, ahead, in_progress)
    ending = [t for t in (task, *over, *_in_the_way(state, launch)) if t in state.running and t not in done]
    used = [place.node for place in launch.on if place.node in state.drained]
    again = [ResumeNode(launch.time, node, MISSING) for node in used]
    return [*again, *_filled(state, launch.time, task, proven, ending, in_progress)]


def _filled(
    state: State,
    time: float,
    task: int,
    proven: tuple[set[int], set[int]],
    ending: Sequence[int] = (),
    in_progress: Set[int] = frozenset(),
) -> list[AnyRecord]:
    """What lets these be done and those be over before the task is launched, or has begun.

    First the attempts that cannot have gone on end, then tasks that cannot have failed get their chance again, then, in the
    order of their numbers, which is one in which they can have run, those end that the task waited for.
    """
    done, over = proven
    filled: list[AnyRecord] = [_interrupted(state, t, time) for t in dict.fromkeys(ending)]
    if state.phases[task] == Phase.DONE:
        filled.append(StudyChanged(time, state.study_of(task).added.digest, [task]))
    above = _above(state, over | in_progress)
    again = {task, *done, *over, *in_progress}
    again |= {t for t in above if state.phases[t] == Phase.CANCELED or t in ending}
    if ending or any(state.phases[t] in UNSUCCESSFUL for t in again):
        filled.append(Revived(time, sorted(again)))

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


def _proven(
    state: State, task: int, ahead: int | None = None, in_progress: Set[int] = frozenset()
) -> tuple[set[int], set[int]]:
    """Of the tasks that it stands on, those not known to be so: which must have been done, and which at least over.

    Of the one `ahead`, behind which it was launched, nothing is proven, nor of those `in_progress` above that; but where one
    of these had to be over, it can only have been done.
    """
    done: set[int] = set()
    over: set[int] = set()
    stack = [task]
    while stack:
        row = state.tasks[stack.pop()]
        for parent in (*row.parents, *(p for p in row.after if p in in_progress)):
            if parent != ahead and state.phases[parent] != Phase.DONE and parent not in done:
                done.add(parent)
                stack.append(parent)
        for parent in row.after:
            if state.phases[parent] not in OVER:
                over.add(parent)
    return done, over - done


def _in_progress(state: State, task: int) -> set[int]:
    """The task and those that it needs, near and far, and that are not known to be done: none had ended without success."""
    found = {task} if state.phases[task] != Phase.DONE else set()
    stack = list(found)
    while stack:
        for parent in state.tasks[stack.pop()].parents:
            if parent not in found and state.phases[parent] != Phase.DONE:
                found.add(parent)
                stack.append(parent)
    return found


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


def _where_it_can_be(state: State, launch: Launch) -> Launch:
    """The same, or on places that nobody knows: where nodes are missing, others bear their numbers, and may have no room."""
    needs = state.step_of(launch.task).needs
    room = state.room if launch.partition < 0 else state.partitions.all[launch.partition].room
    ahead = None if launch.behind is None else state.running.get(launch.behind)
    if ahead is not None and ahead.on == launch.on:
        return launch
    for place in launch.on:
        named = room.free_named[place.node]
        if (
            list_to_mask(place.cores) & ~room.free_cores[place.node]
            or list_to_mask(place.gpus) & ~room.free_gpus[place.node]
            or room.free_memory[place.node] < needs.memory_mib
            or any(named.get(name, 0) < n for name, n in needs.named)
        ):
            return structs.replace(launch, on=(), partition=-1)
    return launch


def _in_the_way(state: State, launch: Launch) -> list[int]:
    """The tasks whose cores or GPUs the launched one gets, and, where countable things would not do, further ones."""
    needs = state.step_of(launch.task).needs
    found: dict[int, None] = {}
    room = state.room if launch.partition < 0 else state.partitions.all[launch.partition].room
    ahead = None if launch.behind is None else state.running.get(launch.behind)
    if ahead is not None and ahead.on == launch.on:
        return []
    for place in launch.on:
        if not room.alive >> place.node & 1:
            raise JournalError(
                f"the journal tells of node {place.node}, but not what it is: that part of it is damaged"
            )
        here = sorted(state.running_on.get(place.node, ()), key=lambda t: (state.launched_at[t], t))
        in_the_way = [t for t in here if any(_overlap(place, other) for other in state.running[t].on)]
        memory = room.free_memory[place.node]
        named = dict(room.free_named[place.node])
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
