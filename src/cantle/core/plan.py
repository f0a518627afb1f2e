"""What does a policy see, and what may it propose?

A policy is a function of a plan that yields decisions: `Policy = Callable[[Plan], Iterator[Decision]]`. Whoever turns the
loop applies each decision as soon as it is yielded, so after a `yield` the plan shows the world with that decision made:
the room is taken, the task has left its queue. A policy reads and yields; it changes nothing itself. That spares each
pass a copy of the nodes and queues, and a pass that finds nothing to do costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Any, TypeAlias

from cantle.core.queues import ReadyQueue
from cantle.core.room import Room
from cantle.core.state import State
from cantle.model.records import Decision, Launch
from cantle.model.resources import Place

if TYPE_CHECKING:
    from cantle.core.partitions import Partition


class Plan:
    """One scheduling pass: the ready tasks by shape, the room that is left, and what may be done.

    It speaks of one room: the run's, or that of `partition`. `queues` are the numbers of those whose tasks run there.
    `memory` is what policies want to know again in the next pass; it may be lost at any time, and is then made anew.
    """

    def __init__(
        self,
        state: State,
        partition: Partition | None = None,
        queues: list[int] | None = None,
        memory: dict[object, Any] | None = None,
    ) -> None:
        self.state = state
        self.memory: dict[object, Any] = {} if memory is None else memory
        self.partition = partition
        self.room: Room = state.room if partition is None else partition.room
        self.queues = state.homes[""] if queues is None else queues

    def by_urgency(self) -> Iterator[ReadyQueue]:
        """The queues that have a ready head, the most urgent head first.

        A queue comes again, at its new place, as long as its head changes between two steps of the iteration; a queue
        whose head is still the same was passed over and does not come again.
        """
        heads = []
        most = self.cores() / 2
        queues = self.state.queues
        for number in self.queues:
            queue = queues[number]
            if queue.heap and queue.head() is not None:
                heads.append((queue.key(most), number))
        heapify(heads)
        while heads:
            key, number = heads[0]
            queue = queues[number]
            yield queue
            if queue.head() is not None and (new := queue.key(most)) != key:
                heapreplace(heads, (new, number))
            else:
                heappop(heads)

    def cores(self) -> int:
        """How many cores there are in this room, on nodes that are alive."""
        return self.room.cores

    def may_launch(self, queue: ReadyQueue) -> bool:
        """Whether the queue's study is below its throttle."""
        study = self.state.studies[queue.shape.study]
        throttle = study.limits.throttle
        return not throttle or study.in_progress < throttle

    def room_for(self, task: int, expected: float | None = None) -> Room:
        """The room as far as the task may start there: without nodes that end before it could, or where it could not begin.

        `expected`: how long it would take, seconds, where that hangs on how many nodes it gets.
        """
        if not self.state.choosy:
            return self.room
        from cantle.core.lifetimes import barred_for

        barred = barred_for(self.state, task, expected)
        return self.room.within(~barred) if barred & self.room.alive else self.room

    def launch(
        self, task: int, on: tuple[Place, ...], why: str = "", behind: int | None = None, if_done: int = 0
    ) -> Launch:
        """The decision to start the task's next attempt on these places; with `behind` when that task gives way."""
        state = self.state
        where = -1 if self.partition is None else self.partition.number
        restart = task in state.restart_next
        return Launch(state.now, task, state.attempts[task] + 1, on, restart, why, behind, where, if_done)


Policy: TypeAlias = Callable[[Plan], Iterator[Decision]]
