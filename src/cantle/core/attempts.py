"""What does it mean that an attempt is launched, heard of, stopped or over: who has its places, before and after?

What its end means for its task stands in `fates.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cantle.core.fates import judge, move
from cantle.core.phases import Cause, Phase
from cantle.core.queues import ReadyQueue
from cantle.model import records as r

if TYPE_CHECKING:
    from cantle.core.state import State


class Line:
    """Places that pass from one attempt to the next without being given back: who owns them, and who stands in line."""

    __slots__ = ("owner", "waiting")

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.waiting: deque[int] = deque()


def _launch(state: State, record: r.Launch) -> None:
    task = record.task
    step = state.tasks[task].step
    queue = state.queues[state.shape_of_step[step]]
    ahead_of_time = record.if_done and state.phases[task] == Phase.WAITING
    move(state, task, Cause.LINE_UP if ahead_of_time else Cause.LAUNCH)
    if queue.heap and queue.heap[0][1] == task:
        queue.drop_head()
    state.attempts[task] = record.attempt
    state.launched_at[task] = record.time
    state.running[task] = record
    if record.on:
        state.ran_on[task] = record.on[0].node
    if record.partition >= 0:
        state.partitions.all[record.partition].enter(task, record.time)
    ahead = None if record.behind is None else state.running.get(record.behind)
    if ahead is None or ahead.on != record.on:
        needs = queue.shape.needs
        room = state.room if record.partition < 0 else state.partitions.all[record.partition].room
        for place in record.on:
            room.take(place, needs)
        queue.slots += 1
        state.studies[queue.shape.study].slots += needs.cores * len(record.on)
        if needs.nodes == 1 and not queue.shape.widths and not state.steps[step].streams:
            queue.short_lines[task] = None
    else:
        _stand_in_line(state, task, ahead.task, queue)
    for place in record.on:
        found = state.running_on.get(place.node)
        if found is None:
            found = state.running_on[place.node] = {}
        found[task] = None
    state.studies[state.study_of_step[step]].in_progress += 1
    state.restart_next.discard(task)
    state.version += 1


def _task_started(state: State, record: r.TaskStarted) -> None:
    launch = state.running.get(record.task)
    if launch is not None and launch.attempt == record.attempt and state.phases[record.task] == Phase.LAUNCHED:
        move(state, record.task, Cause.START)
        state.pids[record.task] = record.pid
        state.launched_at[record.task] = record.time
        _dissolve_line(state, record.task)


def _task_hindered(state: State, record: r.TaskHindered) -> None:
    launch = state.running.get(record.task)
    if launch is not None and launch.attempt == record.attempt:
        if record.why:
            state.hindered[record.task] = record.why
        else:
            state.hindered.pop(record.task, None)


def _task_ended(state: State, record: r.TaskEnded) -> None:
    task = record.task
    launch = state.running.get(task)
    if launch is not None and launch.attempt == record.attempt:
        if record.started:
            state.launched_at[task] = record.started
            state.pids[task] = record.pid
        # Who stood in line may have moved up without having begun; then nobody has told of a start.
        begun = launch.behind is None or bool(record.started) or state.phases[task] == Phase.RUNNING
        leave(state, task)
        if state.launched_at[task] <= record.time < state.now:  # a clock was set back: both are to be of the same
            state.ended_at[task] = record.time
        excused = record.outcome != "done" and _concerns_its_node(state, record, launch, begun)
        if state.trouble is not None and record.outcome == "done":
            state.trouble.went_well(launch)
        if launch.partition >= 0 and record.outcome == "done":
            state.partitions.failures.pop(state.partitions.all[launch.partition].key, None)
        if state.observed and record.outcome == "done":
            _observe(state, task, len(launch.on))
        if (record.kept or state.keeping is not None) and record.outcome == "done":
            from cantle.core.keeping import made

            made(state, record, launch)
        judge(state, task, record, excused)
        state.version += 1


def _concerns_its_node(state: State, ended: r.TaskEnded, launch: r.Launch, begun: bool) -> bool:
    """What the unsuccessful end of an attempt tells of its node. Whether the task is excused for that."""
    if ended.outcome in ("failed", "unstartable") and len(state.room.nodes) > 1:
        from cantle.core.trouble import ended_badly

        return ended_badly(state, launch, ended)
    if state.lifetimes is not None and ended.outcome == "interrupted":
        from cantle.core.nodes import cut_off

        cut_off(state, ended.task, launch, begun)
    return False


def _stop(state: State, record: r.Stop) -> None:
    launch = state.running.get(record.task)
    if launch is not None and launch.attempt == record.attempt:
        state.to_stop.pop(record.task, None)
        state.being_stopped[record.task] = record.outcome


def leave(state: State, task: int) -> None:
    """The attempt is over, whatever that means for the task: its places are free, or the next in line has them."""
    launch = state.running.pop(task)
    if state.hindered:
        state.hindered.pop(task, None)
    step = state.tasks[task].step
    queue = state.queues[state.shape_of_step[step]]
    line = state.lines.pop(task, None)
    if line is None:
        _give_back(state, task, launch, queue)
    elif line.owner != task:
        line.waiting.remove(task)
    else:
        queue.short_lines.pop(task, None)
        if line.waiting:
            line.owner = line.waiting.popleft()
            if len(line.waiting) <= queue.line_length // 2:
                queue.short_lines[line.owner] = None
        else:
            _give_back(state, task, launch, queue)
    for place in launch.on:
        found = state.running_on.get(place.node)
        if found is not None:
            found.pop(task, None)
            if not found and state.scaling is not None:
                state.scaling.worked_at[place.node] = state.now
    if launch.partition >= 0:
        _leave_partition(state, task, launch.partition)
    state.studies[state.study_of_step[step]].in_progress -= 1
    state.ended_at[task] = state.now
    if launch.restart:
        state.restart_next.add(task)  # what ended by nobody's fault is tried again as it was


def _give_back(state: State, task: int, launch: r.Launch, queue: ReadyQueue) -> None:
    room = state.room if launch.partition < 0 else state.partitions.all[launch.partition].room
    for place in launch.on:
        room.give(place, queue.shape.needs)
    queue.slots -= 1
    state.studies[queue.shape.study].slots -= queue.shape.needs.cores * len(launch.on)
    queue.short_lines.pop(task, None)


def _stand_in_line(state: State, task: int, behind: int, queue: ReadyQueue) -> None:
    line = state.lines.get(behind)
    if line is None:
        line = state.lines[behind] = Line(behind)
    line.waiting.append(task)
    state.lines[task] = line
    if len(line.waiting) >= queue.line_length:
        queue.short_lines.pop(line.owner, None)


def _dissolve_line(state: State, owner: int) -> None:
    """It was told by itself that the owner has started: so it is not over in a moment, and nobody shall wait behind it."""
    state.queue_of(owner).short_lines.pop(owner, None)
    line = state.lines.get(owner)
    if line is not None and line.owner == owner and line.waiting:
        for task in line.waiting:
            if task not in state.being_stopped:
                state.to_stop.setdefault(task, "interrupted")
        state.version += 1


def _observe(state: State, task: int, width: int) -> None:
    row = state.tasks[task]
    step = state.steps[row.step]
    seen = state.observed.get(state.study_of_step[row.step])
    if seen is not None and step.widths and width:  # unknown where a journal had a gap
        seen.took(step, row, width, state.ended_at[task] - state.launched_at[task])


def _leave_partition(state: State, task: int, number: int) -> None:
    partition = state.partitions.all[number]
    partition.running.pop(task, None)
    if partition.over and partition.element is None:
        state.feasibility_version += 1  # what comes back to its queue was not looked at when the partition ended
    if not partition.running:
        from cantle.core.partitions import let_go

        partition.idle_since = state.now
        let_go(state, partition)


RULES: dict[type, Callable[[State, Any], None]] = {
    r.Launch: _launch,
    r.TaskStarted: _task_started,
    r.TaskHindered: _task_hindered,
    r.TaskEnded: _task_ended,
    r.Stop: _stop,
}
