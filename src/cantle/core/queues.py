"""Which tasks are ready, and in what order would each kind of them go?

Ready tasks queue by shape: what they need, and how urgent the user says they are. A scheduling pass looks at the head of
each queue, so that it costs by shapes and not by tasks. A task that leaves the phase READY by another way than its launch
stays in its queue until it comes to the head; `queued` tells which tasks stand in a queue, so that none does so twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from heapq import heapify, heappop, heappush
from math import inf
from typing import TypeAlias

import msgspec

from cantle.core.phases import Phase
from cantle.model.resources import Needs

_READY = Phase.READY

MOMENT_S = 0.0325
"""What stands in line is expected to have its turn within this time."""
KNOWN_AFTER = 8
"""So many tasks of a shape tell how long the next ones will take."""
LONGEST_LINE = 32
BREADTH = 0.5
"""A task on several cores is the harder to fit in the later it comes; so a part of its area counts as urgency.

Largest area first is best where all that is ready is one wave, the longest chain first where chains decide. Halfway between
them is within half a percent of the better one in both cases.
"""


Urgency: TypeAlias = tuple[float, float, float, int, int]
"""What queues are compared by, the least goes first."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What makes tasks interchangeable for the packing: what they need, how urgent they are, whose they are, and where.

    `widths`: a choice of numbers of nodes, ascending; empty: `needs.nodes` alone. `partition`: in which they run.
    """

    needs: Needs
    priority: float = 0.0
    study: int = 0
    widths: tuple[int, ...] = ()
    partition: str = ""


class ReadyQueue:
    """The ready tasks of one shape, most urgent first: by rank, then by number."""

    __slots__ = (
        "breadth",
        "done",
        "heap",
        "line_length",
        "longest_s",
        "mean_s",
        "phases",
        "queued",
        "shape",
        "short_lines",
        "slots",
        "told_s",
        "took_s",
    )

    def __init__(self, shape: Shape, phases: list[Phase], queued: bytearray) -> None:
        self.shape = shape
        self.breadth = BREADTH * (shape.needs.area - 1)
        """A task is more urgent than its rank by so many times its own estimate."""
        self.phases = phases
        self.queued = queued
        self.heap: list[tuple[float, int]] = []
        self.done = 0
        self.mean_s = 0.0
        """How long tasks of this shape took, the later ones weighing more; of `done` tasks."""
        self.line_length = 0
        """How many attempts may stand in line behind one of this shape: as many as are over in a moment."""
        self.longest_s = 0.0
        """How long the longest of them took that had no estimate."""
        self.slots = 0
        """How many attempts own room."""
        self.told_s = 0.0
        """What was estimated of the tasks that are done and had an estimate,"""
        self.took_s = 0.0
        """and how long these took."""
        self.short_lines: dict[int, None] = {}
        """Those of them behind which more could stand in line."""

    def push(self, task: int, rank: float) -> None:
        """The task has become ready."""
        if not self.queued[task]:
            self.queued[task] = 1
            heappush(self.heap, (-rank, task))

    def head(self) -> int | None:
        """The most urgent ready task, None when there is none."""
        heap = self.heap
        while heap:
            task = heap[0][1]
            if self.phases[task] == _READY:
                return task
            heappop(heap)
            self.queued[task] = 0
        return None

    def first(self, n: int) -> list[int]:
        """The n most urgent ready tasks, in order; fewer when many before them have left otherwise than by the head."""
        return list(self.in_order(n))

    def in_order(self, n: int) -> Iterator[int]:
        """The same one by one, for whoever may need few of them. Costs by how many are asked for; none may come or go."""
        heap = self.heap
        edge = [(heap[0], 0)] if heap else []
        for _ in range(2 * n + 16):
            if not edge:
                return
            (_, task), i = heappop(edge)
            if self.phases[task] == _READY:
                yield task
                n -= 1
                if not n:
                    return
            for child in (2 * i + 1, 2 * i + 2):
                if child < len(heap):
                    heappush(edge, (heap[child], child))

    def drop_head(self) -> None:
        """The head has been launched."""
        self.queued[heappop(self.heap)[1]] = 0

    def remove(self, tasks: Set[int]) -> None:
        """These tasks queue elsewhere from now on. Costs by the length of the queue."""
        self.heap = [entry for entry in self.heap if entry[1] not in tasks]
        heapify(self.heap)
        for task in tasks:
            self.queued[task] = 0

    def order_anew(self, urgency_of: Callable[[int], float]) -> None:
        """What urgency its tasks have has changed. Costs by the length of the queue."""
        self.heap = [(-urgency_of(task), task) for _, task in self.heap]
        heapify(self.heap)

    def took(self, seconds: float, told_s: float = 0.0) -> None:
        """A task of this shape is done, after so long; `told_s` was its estimate, 0 if it had none."""
        if told_s > 0:
            self.told_s += told_s
            self.took_s += seconds
        elif seconds > self.longest_s:
            self.longest_s = seconds
        self.done += 1
        mean_s = self.mean_s = self.mean_s + (seconds - self.mean_s) / min(self.done, 20)
        if self.done < KNOWN_AFTER or mean_s > MOMENT_S:
            self.line_length = 0
        else:
            self.line_length = max(1, min(LONGEST_LINE, int(MOMENT_S / max(mean_s, 1e-6))))

    def key(self, most: float = inf) -> Urgency:
        """What queues are compared by: the least goes first. Only after `head()` has found one.

        Among equally urgent tasks those go first of which some took long though nobody had said so: their long ones had
        better show while others are left to run beside them. On more than `most` cores in all one cannot run beside its
        like, and leaves the least idle when it comes first.
        """
        rank, task = self.heap[0]
        area = self.shape.needs.area
        tail = inf if area > most else self.longest_s if self.done >= KNOWN_AFTER else 0.0
        return (-self.shape.priority, rank, -tail, -area, task)

    def ready(self) -> list[int]:
        """All ready tasks, most urgent first. Costs by tasks: for people, not for passes."""
        return [task for _, task in sorted(self.heap) if self.phases[task] == _READY]
