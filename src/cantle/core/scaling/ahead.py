"""What will still wait when new nodes could be there, if none were asked for?

A walk over estimates: what runs ends when it should, what that unblocks or leaves room for begins on the same node, else on an
unused one; nodes on their way come when they are expected. Where nobody knows how long a task takes, it is taken to go on.
A walk takes a bounded number of steps; beyond them, it goes on as it went.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

import msgspec

from cantle.core.forecast import expected_end, expected_s
from cantle.core.phases import Phase
from cantle.core.room import shortage
from cantle.core.scaling.idle import unused
from cantle.core.scaling.overdue import Overdue
from cantle.core.state import State
from cantle.model.resources import Needs, Node, indexes

MOST_STEPS = 1000
"""So many beginnings and ends a walk looks at."""
NAMED = 64
"""Of each queue so many tasks are taken one by one; those behind them are taken to be like them on average."""
AGAIN_S = 1.0
"""So long after a look at least it is looked again whether something takes longer than those before it."""
MOST_TRIES = 16
"""On so many nodes with room it is tried to place a task that has become ready."""


class Free:
    """What is free of a node, or of one that is alike."""

    __slots__ = ("cores", "gpus", "memory_mib", "named", "node")

    def __init__(self, node: Node, cores: int, gpus: int, memory_mib: int, named: dict[str, int]) -> None:
        self.node = node
        self.cores = cores
        self.gpus = gpus
        self.memory_mib = memory_mib
        self.named = named

    @staticmethod
    def all_of(node: Node) -> Free:
        """An empty node."""
        return Free(node, node.cores, node.gpus, node.memory_mib, dict(node.named))

    def fits(self, needs: Needs) -> int:
        """How many shares of that fit."""
        if needs.whole_nodes:
            return int(self.cores == self.node.cores and not shortage(self.node, needs))
        if shortage(self.node, needs):
            return 0
        found = self.cores // max(1, needs.cores)
        if needs.gpus:
            found = min(found, self.gpus // needs.gpus)
        if needs.memory_mib:
            found = min(found, self.memory_mib // needs.memory_mib)
        for name, n in needs.named:
            found = min(found, self.named.get(name, 0) // n)
        return found

    def take(self, needs: Needs, times: int = 1) -> None:
        """So many shares of that are not free any more; given back with times below 0."""
        self.cores -= times * (self.node.cores if needs.whole_nodes else needs.cores)
        self.gpus -= times * (self.node.gpus if needs.whole_nodes else needs.gpus)
        self.memory_mib -= times * needs.memory_mib
        for name, n in needs.named:
            self.named[name] = self.named.get(name, 0) - times * n


class Moment(msgspec.Struct):
    """How it stands at one time: how many tasks wait by queue, and what is free of which node."""

    at: float
    waiting: dict[int, int]
    free: list[Free]


class Ahead:
    """One walk, from now to the last of the times that were asked for."""

    def __init__(self, state: State, times: Sequence[float]) -> None:
        """`times` ascend and are not before now."""
        self.state = state
        self.until = times[-1]
        self.moments: list[Moment] = []
        self.used = 0
        """The nodes, as bits, that are unused now and will not be by the end of the walk."""
        self.steps = 0
        self.again_at = inf
        """When the next attempt that something waits for comes into sight."""
        self.expected_s = Overdue(state).expected_s
        """How long an attempt of the task should take."""
        self._unused = unused(state)
        self._free: dict[int, Free] = {}
        self._blockers: dict[int, int] = {}
        self._in_progress = [study.in_progress for study in state.studies]
        self._count: dict[int, int] = {}
        self._known: dict[int, deque[int]] = {}
        self._usual: dict[int, float] = {}
        self._roomy: dict[int, None] = {}
        self._begun: dict[int, int] = {}
        self._events: list[tuple[float, int, int, int, int]] = []
        """Time, a serial number, the node, the queue (below 0: the node comes), the task."""
        self._serial = 0
        self._take_stock()
        self._walk(times)

    def some_waiting(self, number: int, n: int) -> list[int]:
        """Some of the queue's tasks that still wait at the end of the walk, the most urgent first."""
        known = self._known.get(number, ())
        return [known[i] for i in range(min(n, len(known)))]

    def _take_stock(self) -> None:
        state = self.state
        room = state.room
        for index in indexes(room.alive):
            if index in state.drained:
                continue
            free = Free(
                room.nodes[index],
                room.free_cores[index].bit_count(),
                room.free_gpus[index].bit_count(),
                room.free_memory[index],
                dict(room.free_named[index]),
            )
            self._free[index] = free
            if free.cores:
                self._roomy[index] = None
        for number, queue in enumerate(state.queues):
            if queue.heap and queue.head() is not None and not (queue.shape.partition or state.is_sliced(queue.shape)):
                self._count[number] = min(len(queue.heap), state.totals[Phase.READY])
                known = queue.first(min(len(queue.heap), NAMED))
                self._known[number] = deque(known)
                self._usual[number] = sum(map(self.expected_s, known)) / len(known) if known else inf
        self._order = sorted(self._count, key=lambda number: state.queues[number].key())
        for task, launch in state.running.items():
            if state.stands_in_line(task):
                continue
            end = expected_end(state.now, state.launched_at[task], expected_s(state, task))
            number = state.shape_of_step[state.tasks[task].step]
            if self._count.get(number) and not state.tasks[task].estimate_s:
                # If it still runs by then, those that wait will take longer as well.
                self.again_at = min(self.again_at, max(end, state.now + AGAIN_S))
            if end > self.until:
                if state.children[task]:
                    self.again_at = min(self.again_at, end - (self.until - state.now))
            else:
                for place in launch.on[1:]:
                    self._events.append((end, self._next(), place.node, number, -1))
                self._events.append((end, self._next(), launch.on[0].node if launch.on else -1, number, task))
        ledger = state.scaling
        for request in () if ledger is None else ledger.open.values():
            kind = ledger.kinds.get(request.kind) if ledger is not None else None
            for _ in range(request.coming if kind is not None else 0):
                assert kind is not None
                index = -2 - self._serial
                self._free[index] = Free.all_of(kind.node(kind.name))
                at = max(request.expected_at, state.now)
                self._events.append((at, self._next(), index, -1, -1))
        self._coming = {event[2] for event in self._events if event[3] < 0}
        heapify(self._events)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _walk(self, times: Sequence[float]) -> None:
        now = self.state.now
        events = self._events
        for at in times:
            while events and events[0][0] <= at and self.steps < MOST_STEPS:
                now, _, index, number, task = heappop(events)
                self.steps += 1
                if number < 0:
                    self._coming.discard(index)
                elif index in self._free:
                    self._free[index].take(self.state.queues[number].shape.needs, -1)
                unblocked = self._over(task, number) if task >= 0 else []
                self._fill(index, now)
                for other in unblocked:
                    self._place_elsewhere(other, now)
            self.moments.append(self._moment(at, now))

    def _moment(self, at: float, reached: float) -> Moment:
        waiting = {number: n for number, n in self._count.items() if n > 0}
        started = self.state.now
        if self.steps >= MOST_STEPS and reached > started:
            for number in list(waiting):
                rate = self._begun.get(number, 0) / (reached - started)
                waiting[number] = max(0, int(waiting[number] - rate * max(0.0, at - reached)))
        free = []
        for index, found in self._free.items():
            if index in self._coming:
                found = Free.all_of(found.node)  # it comes later: that counts as well
            elif found.cores <= 0:
                continue
            free.append(Free(found.node, found.cores, found.gpus, found.memory_mib, dict(found.named)))
        return Moment(at, waiting, free)

    def _over(self, task: int, number: int) -> list[int]:
        """A task is done: the queues of which tasks have become ready by that, one for each."""
        state = self.state
        self._in_progress[state.queues[number].shape.study] -= 1
        found = []
        for child in state.children[task] or ():
            left = self._blockers.get(child, state.blockers[child]) - 1
            self._blockers[child] = left
            if left or state.phases[child] != Phase.WAITING:
                continue
            queue = state.shape_of_step[state.tasks[child].step]
            shape = state.queues[queue].shape
            if shape.partition or state.is_sliced(shape):
                continue
            if queue not in self._count:
                self._count[queue] = 0
                self._known[queue] = deque()
                self._order.append(queue)
            self._count[queue] += 1
            self._known[queue].append(child)
            found.append(queue)
        return found

    def _fill(self, index: int, now: float) -> None:
        """Begin on the node what fits, the queues in their order."""
        free = self._free.get(index)
        if free is None:
            return
        for number in self._order:
            while self._count[number] and self.steps < MOST_STEPS and self._begin(number, index, now):
                pass
            if free.cores <= 0:
                self._roomy.pop(index, None)
                return
        self._roomy[index] = None

    def _place_elsewhere(self, number: int, now: float) -> None:
        if not self._count[number]:
            return
        for index in list(self._roomy)[:MOST_TRIES]:
            if self._begin(number, index, now):
                return

    def _begin(self, number: int, index: int, now: float) -> bool:
        state = self.state
        queue = state.queues[number]
        needs = queue.shape.needs
        study = queue.shape.study
        throttle = state.studies[study].limits.throttle
        if needs.nodes > 1 or (throttle and self._in_progress[study] >= throttle):
            return False
        free = self._free[index]
        if not free.fits(needs):
            return False
        self.steps += 1
        free.take(needs)
        self._count[number] -= 1
        self._begun[number] = self._begun.get(number, 0) + 1
        self._in_progress[study] += 1
        known = self._known[number]
        task = known.popleft() if known else -1
        seconds = self.expected_s(task) if task >= 0 else self._usual.get(number, inf)
        if index >= 0 and self._unused >> index & 1:
            self.used |= 1 << index
        if now + seconds <= self.until:
            heappush(self._events, (now + seconds, self._next(), index, number, task))
        return True
