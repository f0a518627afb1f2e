"""Why is a core idle now, and why does ready work wait? From the same data as the decisions.

`explain` answers for one task and for people; this answers for the whole run at one moment, and cheaply, since whoever
measures a run asks after each of its records.
"""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

from cantle.core.partitions import key_of
from cantle.core.queues import ReadyQueue, Urgency
from cantle.core.room import Room
from cantle.core.state import State
from cantle.model.resources import Needs


class Reason(Enum):
    """Why something does not run."""

    CORES = "the cores are busy"
    NODES = "it waits for several nodes at once"
    ROOM = "no single node has enough room"
    THROTTLE = "the throttle allows no more at once"
    PARTITION = "it waits for its partition"
    HELD = "partitions hold cores that it could use"
    WIDER = "it waits for more nodes than the least"
    STARTING = "it fits, and is not started yet"
    PARENTS = "nothing is ready"
    LAST = "nothing is left to be started"
    STOPPING = "the run is being stopped"


class Idle(NamedTuple):
    """Why cores are idle: for the sake of which task's end, or start. `task` is -1 when no task is to be named."""

    reason: Reason
    task: int


class IdleWatch:
    """Answers for one state, again and again. It has to be told what is launched."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._running: list[tuple[float, int]] = []
        """What runs, and some that did, as a heap: the most hangs on the first."""

    def launched(self, task: int) -> None:
        """An attempt of the task was, or is about to be, launched."""
        heappush(self._running, (-self._state.ranks[task], task))

    def why(self) -> Idle:
        """Why the cores that are free now are not used. Ask only while some are."""
        state = self._state
        if state.stopping:
            return Idle(Reason.STOPPING, -1)
        urgent: tuple[Urgency, Idle] | None = None
        for queue in state.queues:
            if not queue.heap or (head := queue.head()) is None:
                continue
            key = queue.key()
            if urgent is None or key < urgent[0]:
                urgent = key, Idle(why_waits(state, queue), head)
        if urgent is not None:
            return urgent[1]
        waiting = len(state.tasks) < state.promised or any(state.totals[:2])
        return Idle(Reason.PARENTS if waiting else Reason.LAST, self._most_hangs_on())

    def _most_hangs_on(self) -> int:
        """The running task with the longest work hanging on it, -1 when none runs."""
        heap = self._running
        running = self._state.running
        while heap and heap[0][1] not in running:
            heappop(heap)
        return heap[0][1] if heap else -1


def why_waits(state: State, queue: ReadyQueue) -> Reason:
    """Why the head of a queue, which has one, does not run."""
    shape = queue.shape
    needs = shape.needs
    study = state.studies[shape.study]
    throttle = study.limits.throttle
    if throttle and study.in_progress >= throttle:
        return Reason.THROTTLE
    partitions = state.partitions
    slicing = study.added.slicing
    if shape.partition:
        partition = partitions.by_name.get(key_of(state, shape.study, shape.partition))
        fits = partition is not None and partition.serves and _fits(partition.room, needs)
        return Reason.STARTING if fits else Reason.PARTITION
    if slicing is not None and slicing.slices and (shape.widths or needs.nodes > 1):
        return Reason.PARTITION
    if _fits(state.room, needs):
        return Reason.WIDER if shape.widths else Reason.STARTING
    if any(not partition.room.full for partition in partitions.living.values()):
        return Reason.HELD
    if needs.nodes > 1:
        return Reason.NODES
    return Reason.CORES if state.room.full else Reason.ROOM


def _fits(room: Room, needs: Needs) -> bool:
    return room.fitting(needs).bit_count() >= needs.nodes
