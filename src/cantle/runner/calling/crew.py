"""Which function workers are on this node, who of them is busy, and who ends?

Of each place in use one worker is busy; those whose place is free wait for a while for the next call of their kind: on the same
cores, with the same environment. The calls that stand in line at each are told of in `line.py`.
"""

from __future__ import annotations

import os
import select
import time

from cantle.model.records import Outcome
from cantle.runner.family import Attempt, Family, Place
from cantle.runner.messages import Define, Forget, Key, Setup, Start
from cantle.runner.spawn import NotStarted

from .hiring import Kind, Worker, hire, kind_of
from .keeping import Keeping
from .lasting import Lasting
from .line import Lines
from .store import Store

FIRST_KEY = 1 << 48
"""Workers are attempts of the family like any other, with numbers that no task has."""
_MOST_STILLBORN = 3
"""So many workers are begun before a call counts as one that cannot be started; then each costs one call."""
_IDLE_S = 60.0
"""So long a worker without calls is kept,"""
_LEAST_IDLE = 8
"""so many of them, or twice the cores of the node if that is more."""


class Crew:
    """The function workers of a node."""

    def __init__(self, setup: Setup, family: Family, keeper: Keeping, poll: select.poll) -> None:
        self._setup = setup
        self._family = family
        self._keeper = keeper
        self._poll = poll
        self.store = Store(setup.directory, os.path.dirname(setup.packed))  # noqa: PTH120
        self._lines = Lines(keeper, self.store, self._is_up, self._set_free)
        self._lasting = Lasting(self._lines, keeper, family, setup.grace_s)
        self._busy: dict[Place, Worker] = {}
        self._idle: dict[Kind, list[tuple[float, Worker]]] = {}
        self._by_poke: dict[int, Worker] = {}
        self._by_attempt: dict[Key, Worker] = {}
        self._serial = FIRST_KEY
        self._closing = False
        self._most_idle = max(_LEAST_IDLE, 2 * len(setup.core_ids))
        self._stillborn: dict[Kind, int] = {}
        """How many workers of a kind died one after the other before they were ready."""
        self._fresh: dict[Key, Worker] = {}
        """Workers for which there is something new."""
        family.in_workers = self._worker_of

    # What the keeper says

    def define(self, message: Define) -> None:
        """A function that calls may name."""
        self._lines.bodies[message.digest] = message.body

    def forget(self, message: Forget) -> None:
        """Remove these results."""
        for key in message.keys:
            self.store.forget(key)

    def place_of(self, key: Key) -> Place | None:
        """Where this call stands in line or runs; None for unknown ones."""
        worker = self._lines.where.get(key)
        return None if worker is None else worker.place

    def joins(self, start: Start, place: Place) -> bool:
        """Let the call stand in line at the worker that has this place, if it is of its kind. Whether it does."""
        worker = self._busy.get(place)
        if worker is None or worker.kind != kind_of(start) or worker.attempt.outcome:
            return False
        self._add(worker, start)
        return True

    def begin(self, start: Start, place: Place) -> None:
        """The place is free: call there. Raises NotStarted when no worker can be started."""
        kind = kind_of(start)
        worker = self._take_idle(kind) or self._new_worker(kind)
        worker.place = place
        self._busy[place] = worker
        self._add(worker, start)

    def end(self, key: Key, outcome: Outcome, detail: str, grace_s: float) -> bool:
        """End this call, or let it never begin. Whether it was here."""
        worker = self._lines.where.get(key)
        if worker is None:
            return False
        self._lines.hold_back(worker)
        if self._lines.where.get(key) is not worker:  # it was just over
            self._lines.feed(worker)
            return True
        if worker.sent and worker.sent[0].key == key:
            self._keeper.end(worker.attempt, outcome, detail, grace_s)
        else:
            for start in worker.waiting:
                if start.key == key:
                    worker.waiting.remove(start)
                    break
            self._lines.never_began(worker, key, outcome, detail)
            self._lines.feed(worker)
        return True

    def flush(self) -> None:
        """Send ahead what has come since the last time."""
        while self._fresh:
            self._lines.feed(self._fresh.popitem()[1])

    def hears(self, fd: int) -> None:
        """A worker has poked."""
        worker = self._by_poke.get(fd)
        if worker is not None:
            try:
                os.read(fd, 8)
            except BlockingIOError:
                pass
            self._lines.hear(worker)

    def next_due(self) -> float:
        """When `tick` wants to be called (monotonic)."""
        first = float("inf")
        for worker in self._busy.values():
            if worker.sent and worker.ready:
                first = min(first, self._lasting.due(worker))
        for idle in self._idle.values():
            if idle:
                first = min(first, idle[0][0] + _IDLE_S)
        return first

    def tick(self, now: float) -> None:
        """Do what is due: hear what nobody poked for, bound calls in time and memory, end workers that idle."""
        for worker in list(self._busy.values()):
            if worker.sent and worker.ready and now >= self._lasting.due(worker):
                self._lines.hear(worker)
                if worker.sent:
                    self._lasting.look_at(worker, time.monotonic())
        for kind, idle in list(self._idle.items()):
            while idle and now >= idle[0][0] + _IDLE_S:
                self._keeper.end(idle.pop(0)[1].attempt, "interrupted", "idle", self._setup.grace_s)
            if not idle:
                del self._idle[kind]

    def base_over(self, number: int) -> None:
        """No more calls of that base will come: its workers end."""
        for kind in [kind for kind in self._idle if kind[0] == number]:
            for _, worker in self._idle.pop(kind):
                self._keeper.end(worker.attempt, "interrupted", "its study is over", self._setup.grace_s)

    def has(self, attempt: Attempt) -> bool:
        """Whether this is one of its workers."""
        return attempt.key in self._by_attempt

    def gone(self, attempt: Attempt) -> None:
        """A worker, and all that it started, has ended: so has the call that it was at; the others go on elsewhere."""
        worker = self._by_attempt.pop(attempt.key)
        self._lines.take_back(worker)
        self._lines.hear(worker, last=True)
        self._poll.unregister(worker.poke)
        del self._by_poke[worker.poke]
        for each in (worker.socket, worker.theirs):
            each.close()
        os.close(worker.poke)
        place = worker.place
        if place is None:
            idle = self._idle.get(worker.kind, [])
            idle[:] = [entry for entry in idle if entry[1] is not worker]
        else:
            del self._busy[place]
            if worker.sent:
                self._lines.died(worker, worker.sent.popleft(), place)
            elif worker.waiting and not worker.ready and not self._closing:
                self._stillborn[worker.kind] = self._stillborn.get(worker.kind, 0) + 1
                if self._stillborn[worker.kind] >= _MOST_STILLBORN:
                    self._lines.died(worker, worker.waiting.popleft(), place)
        if attempt.output.writer is not None:
            attempt.output.writer.close()
            attempt.output.writer.owner.give(attempt.output.writer)
        if place is None:
            return
        left = [*worker.sent, *worker.waiting]
        for start in left:
            self._lines.where.pop(start.key, None)
        if self._closing:
            return
        self._go_on(place, left)

    def close(self) -> None:
        """Nothing begins any more; what waits needs no end."""
        self._closing = True
        for worker in self._busy.values():
            self._lines.hold_back(worker)
            for start in worker.waiting:
                self._lines.where.pop(start.key, None)
            worker.waiting.clear()

    def leave(self) -> None:
        """All workers have ended: what they kept goes."""
        self.store.close()

    # Who is busy

    def _add(self, worker: Worker, start: Start) -> None:
        self._lines.add(worker, start)
        self._fresh[worker.attempt.key] = worker

    def _is_up(self, worker: Worker) -> None:
        self._stillborn.pop(worker.kind, None)

    def _set_free(self, worker: Worker) -> None:
        place = worker.place
        assert place is not None
        worker.place = None
        del self._busy[place]
        self._idle.setdefault(worker.kind, []).append((time.monotonic(), worker))
        self._keeper.places.free(place)
        if sum(map(len, self._idle.values())) > self._most_idle:
            self._end_oldest()

    def _end_oldest(self) -> None:
        """End the worker that has idled longest: calls of too many kinds have been here."""
        kind = min((kind for kind, idle in self._idle.items() if idle), key=lambda kind: self._idle[kind][0][0])
        worker = self._idle[kind].pop(0)[1]
        self._keeper.end(worker.attempt, "interrupted", "idle", self._setup.grace_s)

    def _take_idle(self, kind: Kind) -> Worker | None:
        idle = self._idle.get(kind)
        while idle:
            worker = idle.pop()[1]
            if worker.attempt.status is None and not worker.attempt.outcome:
                return worker
        return None

    def _new_worker(self, kind: Kind) -> Worker:
        self._serial += 1
        worker = hire(kind, self._serial, self._keeper.spawner(kind[0]), self.store)
        self._family.add(worker.attempt)
        self._by_poke[worker.poke] = worker
        self._by_attempt[worker.attempt.key] = worker
        self._poll.register(worker.poke, select.POLLIN)
        return worker

    def _go_on(self, place: Place, left: list[Start]) -> None:
        """Who stood in line at a worker that has ended goes on with another one."""
        while left:
            try:
                self.begin(left[0], place)
            except NotStarted as error:
                self._keeper.reports.never_began(left[0].key, "unstartable", str(error))
                self._keeper.places.let_go(left.pop(0).key, place)
                continue
            for start in left[1:]:
                self.joins(start, place)
            return
        self._keeper.places.free(place)

    def _worker_of(self, key: Key) -> Attempt | None:
        """The worker at which this call is, as an attempt of the family."""
        worker = self._lines.where.get(key)
        return None if worker is None else worker.attempt
