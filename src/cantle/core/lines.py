"""Who is launched ahead of time, to stand in line behind a task that is over in a moment?

A task of a millisecond ends sooner than a message about it is answered; without a line its cores would idle half of the time.
The next of its kind that is ready stands behind it, or, where nothing is ready, the task that waits for nothing but it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.queues import LONGEST_LINE, MOMENT_S, ReadyQueue
from cantle.core.state import State
from cantle.model.records import Decision
from cantle.model.resources import Place

_NEWEST = 16
"""A pass looks for successors behind so many of a shape's attempts, those whose place changed hands last."""


def let_short_tasks_stand_in_line(plan: Plan) -> Iterator[Decision]:
    """Behind tasks that are over in a moment, launch the next of their kind ahead of time.

    What stands in line is bound to its place, so lines are as long as a moment, and only tasks that nothing else is
    more urgent than stand in them. Of the ready tasks, half at most are bound like that.
    """
    state = plan.state
    if not any(state.queues[shape].short_lines for shape in state.short_shapes):
        return
    queue = _whose_turn_it_is(plan)
    if queue is None or not queue.short_lines or not (length := queue.line_length):
        return
    length = min(length, len(queue.heap) // (2 * queue.slots))
    if not length:
        return  # with thousands of places, looking at each would cost more than all else
    for owner, standing in _shorter_than(length, queue, state):
        if owner in state.being_stopped:
            continue
        on = state.running[owner].on
        if state.drained and any(place.node in state.drained for place in on):
            continue
        while standing < length:
            task = queue.head()
            if task is None or state.tasks[task].estimate_s > MOMENT_S or not plan.may_launch(queue):
                return
            if state.step_of(task).streams:  # its processes have parts of the place each, and no line of their own
                return
            if state.choosy and _is_barred(state, task, on):
                break
            yield plan.launch(task, on, "in line for a short task's place", owner)
            standing += 1


def _whose_turn_it_is(plan: Plan) -> ReadyQueue | None:
    """The queue with the most urgent head; where several studies have something ready, of the one that has least.

    A place with a line goes from hand to hand: otherwise the others would have no turn before all of that kind are done.
    """
    state = plan.state
    if len(state.studies) < 2:
        return next(plan.by_urgency(), None)
    from cantle.core.sharing import Shares

    shares: Shares = plan.memory.get("shares") or Shares()
    most = plan.cores() / 2
    heads = [queue for number in plan.queues if (queue := state.queues[number]).heap and queue.head() is not None]
    return min(heads, key=lambda queue: (shares.key(state, queue.shape.study), queue.key(most)), default=None)


def _shorter_than(length: int, queue: ReadyQueue, state: State) -> list[tuple[int, int]]:
    """The owners behind which fewer stand, and how many; those first whose place changed hands last.

    So many full lines in a row mean that the older ones are full as well: to look at thousands of them for each task that ends
    would cost more than all else.
    """
    found: list[tuple[int, int]] = []
    full = 0
    for owner in reversed(queue.short_lines):
        line = state.lines.get(owner)
        standing = len(line.waiting) if line is not None else 0
        if standing < length:
            found.append((owner, standing))
            full = 0
        elif (full := full + 1) == _NEWEST:
            break
    return found


def let_successors_stand_in_line(plan: Plan) -> Iterator[Decision]:
    """Where no task is ready: behind short tasks, launch those that wait for them alone, and so on down the chain.

    Nobody else could use the place, and who waits for a task cannot begin sooner than when it is done; so these lines are
    as long as a moment allows.
    """
    state = plan.state
    for shape in list(state.short_shapes):
        queue = state.queues[shape]
        if queue.shape.partition or queue.shape.widths:
            continue  # a partition may be about to close or to shrink, and a width is chosen when its time has come
        length = queue.line_length
        for owner in tuple(islice(reversed(queue.short_lines), _NEWEST)):
            if state.blockers[owner] > 0:
                continue  # it inherited its place from one that did not succeed, and is about to come back with all behind it
            line = state.lines.get(owner)
            standing = len(line.waiting) if line is not None else 0
            last = line.waiting[-1] if line is not None and line.waiting else owner
            while standing < length and (task := _successor(state, queue, last)) is not None:
                if not plan.may_launch(queue):
                    return
                on = state.running[owner].on
                if state.choosy and _is_barred(state, task, on):
                    break
                yield plan.launch(task, on, "the only one that it waits for is short", last, state.attempts[last])
                last = task
                standing += 1


def _successor(state: State, queue: ReadyQueue, task: int) -> int | None:
    """The most urgent of the same shape that waits for this task alone, if it has few children and is not being ended.

    Those of a task with many are ready together, and one message serves them all.
    """
    children = state.children[task]
    if not children or len(children) > LONGEST_LINE or task in state.being_stopped or task in state.to_stop:
        return None
    if state.blockers[task] > 0 and not state.awaits_its_turn(task):
        return None
    found = None
    for child in children:
        if (
            state.blockers[child] == 1
            and state.phases[child] == Phase.WAITING
            and task in state.tasks[child].parents
            and state.queue_of(child) is queue
            and not state.step_of(child).streams
            and state.tasks[child].estimate_s <= MOMENT_S
            and (found is None or state.ranks[child] > state.ranks[found])
            and not _could_not_be_started(state, child)
        ):
            found = child
    return found


def _is_barred(state: State, task: int, on: tuple[Place, ...]) -> bool:
    """Whether it may not start there, since the node leaves too soon, or nothing more may begin on it."""
    from cantle.core.lifetimes import barred_for

    barred = barred_for(state, task)
    return any(barred >> place.node & 1 or place.node in state.drained for place in on)


def _could_not_be_started(state: State, task: int) -> bool:
    """Whether its last attempt was: then it is tried again only when that is its fault, so not before it is ready."""
    ended = state.ended.get(task)
    return ended is not None and ended.outcome == "unstartable"
