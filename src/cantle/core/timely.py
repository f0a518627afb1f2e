"""Which tasks of a queue may start, when its head may not since the nodes with room leave too soon for it?

Short ones fill the time that is left. A queue may be long, and its short ones stand at its end: so all of it is looked through,
once in a while, and those that could still end in time are remembered in the order of their urgency. As time passes they only
become fewer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from math import inf

from cantle.core.lifetimes import needs_s
from cantle.core.packing import PlacesFor
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue
from cantle.core.state import State
from cantle.model.resources import Place, indexes

LOOKS = 32
"""So many tasks in vain end the search for this pass."""
AGAIN = 4
"""A queue is looked through anew after as many records as a part of its length."""


class _Short:
    """The tasks of a queue that could end in time, as they were when it was looked through."""

    __slots__ = ("again", "feasibility", "tasks")

    def __init__(self, tasks: list[int], again: int, feasibility: int) -> None:
        self.tasks = deque(tasks)
        self.again = again
        self.feasibility = feasibility


def others(
    plan: Plan, queue: ReadyQueue, places_for: PlacesFor
) -> Generator[tuple[int, tuple[Place, ...]], None, None]:
    """Tasks behind the head with places for each, most urgent first. Each must be launched before the next is asked for.

    Whoever wants no more of them closes it.
    """
    state, needs = plan.state, queue.shape.needs
    if places_for(plan.room, needs) is None:
        return
    tasks = _short(plan, queue).tasks
    in_vain: list[int] = []
    try:
        while tasks and len(in_vain) < LOOKS and plan.may_launch(queue):
            task = tasks.popleft()
            if state.phases[task] != Phase.READY:
                continue
            places = places_for(plan.room_for(task), needs)
            if places is not None:
                yield task, places
                continue
            in_vain.append(task)
            if places_for(plan.room, needs) is None:
                return
    finally:
        tasks.extendleft(reversed(in_vain))


def _short(plan: Plan, queue: ReadyQueue) -> _Short:
    state = plan.state
    key = ("short", queue.shape)
    known: _Short | None = plan.memory.get(key)
    if (
        known is not None
        and known.feasibility == state.feasibility_version
        and state.version < known.again
        and (known.tasks or state.running)
    ):
        return known
    longest_s = _longest_s(state)
    tasks = [task for task in queue.ready() if needs_s(state, task) <= longest_s or state.shunned.get(task)]
    known = _Short(tasks, state.version + 1 + len(queue.heap) // AGAIN, state.feasibility_version)
    plan.memory[key] = known
    return known


def _longest_s(state: State) -> float:
    """How long the node stays that stays longest."""
    lifetimes = state.lifetimes
    if lifetimes is None or any(index not in lifetimes.leaves for index in indexes(state.room.alive)):
        return inf
    return max(lifetimes.leaves.values(), default=state.now) - state.now
