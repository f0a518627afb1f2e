"""How does a study get from its directory into the run, and nobody has to wait for it?

It is read by a thread of its own. Then its tasks enter some at a time, a turn of the loop between them, and one study after
the other, since the tasks of a study follow each other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from cantle.core.state import State
from cantle.errors import CantleError, RequestError
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.door import Visitor
from cantle.runtime.pilot.entering import Entry, Reopen
from cantle.runtime.pilot.errands import Errands
from cantle.runtime.pilot.house import House, WriteDown
from cantle.runtime.pilot.jobs import job_name
from cantle.runtime.pilot.letters import Letter
from cantle.runtime.pilot.messages import Job, Refused, Taken
from cantle.runtime.pilot.splitting import SplitLog
from cantle.store.journal import Journal
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock

Asker: TypeAlias = Visitor | Letter
MOST_WEIGHT = 1e6
MOST_PRIORITY = 100.0
"""Twice as much for each step: what is far beyond makes no difference, but a number that no longer is one."""


class Entrance:
    """The studies on their way in, each with the visitor who brought it and waits to hear what becomes of it."""

    def __init__(
        self,
        pilot: Path,
        state: State,
        log: SplitLog,
        house: House,
        inbox: SelectInbox,
        errands: Errands,
        write_down: WriteDown,
        reopen: Reopen,
        note: Callable[[str], None],
    ) -> None:
        self._pilot = pilot
        self._state = state
        self._log = log
        self._house = house
        self._inbox = inbox
        self._errands = errands
        self._write_down = write_down
        self._reopen = reopen
        self._note = note
        self._reading: dict[Entry, Asker] = {}
        self._queue: deque[tuple[Entry, Asker | None]] = deque()

    def __len__(self) -> int:
        return len(self._reading) + len(self._queue)

    def take(self, layout: Layout, visitor: Asker) -> None:
        """The study that waits in this directory shall come in."""
        try:
            sent = submission.get(layout)
            if sent is None and isinstance(visitor, Letter):
                raise RequestError(
                    f"{layout.directory} is not seen on host {os.uname().nodename}, where the pilot is: with -o name a "
                    "directory that both hosts see"
                )
            if sent is None or sent.number >= 0 or Path(sent.pilot) != self._pilot:
                raise RequestError(f"{layout.directory} holds no study that waits for this pilot")
            if not (0 < sent.weight <= MOST_WEIGHT and abs(sent.priority) <= MOST_PRIORITY):
                raise RequestError(
                    f"weight {sent.weight:g} or priority {sent.priority:g} is beyond what can be compared"
                )
            lock = ConductorLock(layout.lock, sent.name)
            lock.acquire()
        except CantleError as problem:
            visitor.answer(Refused(str(problem)))
            return
        entry = Entry(layout, lock, sent)
        self._reading[entry] = visitor
        self._errands.send(f"read-{sent.name}", lambda: entry.read(self._reopen), self._has_been_read)

    def go_on(self, entry: Entry) -> None:
        """The rest of a study shall come in that an earlier pilot did not live to take in whole."""
        entry.rest = entry.tasks(self._state, self._inbox.now)
        self._queue.append((entry, None))

    def step(self) -> None:
        """Let the next tasks in. Once a turn."""
        if not self._queue:
            return
        entry, visitor = self._queue[0]
        try:
            if entry.number < 0:
                self._admit(entry)
        except CantleError as problem:
            self._queue.popleft()
            self._refuse(entry, visitor, str(problem))
            return
        record = next(entry.rest, None)
        if record is not None:
            self._write_down(record)
        else:
            self._queue.popleft()
            self._is_in(entry, visitor)
        if self._queue:
            self._inbox.wake()

    def jobs(self) -> Iterator[Job]:
        """Those that have no number yet."""
        for entry in (*self._reading, *(entry for entry, _ in self._queue if entry.number < 0)):
            sent = entry.submission
            yield Job(
                job=sent.name,
                state="reading",
                directory=str(entry.layout.directory),
                tasks=sent.tasks,
                priority=sent.priority,
                weight=sent.weight,
                since=sent.sent,
            )

    def close(self, why: str) -> None:
        """Nobody comes in any more; who is half in, is in."""
        for entry, visitor in (*self._reading.items(), *self._queue):
            if entry.number < 0:
                self._refuse(entry, visitor, why)
            elif visitor is not None:
                visitor.answer(Taken(job_name(entry.submission.name, entry.number)))
        self._reading.clear()
        self._queue.clear()

    def _has_been_read(self, entry: Entry) -> None:
        visitor = self._reading.pop(entry, None)
        if visitor is None:
            return  # refused meanwhile
        if entry.problem:
            self._refuse(entry, visitor, entry.problem)
        else:
            self._queue.append((entry, visitor))
            self._inbox.wake()

    def _refuse(self, entry: Entry, visitor: Asker | None, why: str) -> None:
        self._note(f"{entry.submission.name} in {entry.layout.directory} was not taken in: {why}")
        entry.lock.release()
        if visitor is not None:
            visitor.answer(Refused(why))

    def _admit(self, entry: Entry) -> None:
        """The study is one of ours from now on. Raises CantleError when its directory cannot be written."""
        number = len(self._state.studies)
        journal = Journal.open_new(entry.layout.journal)
        try:
            submission.put(entry.layout, replace(entry.submission, number=number))
        except CantleError:
            journal.close()
            raise
        entry.number = number
        self._log.open(number, journal)
        self._write_down(entry.added(self._inbox.now()))
        self._house.move_in(entry, journal)
        entry.rest = entry.tasks(self._state, self._inbox.now)

    def _is_in(self, entry: Entry, visitor: Asker | None) -> None:
        name = job_name(entry.submission.name, entry.number)
        tenant = self._house.tenants.get(entry.number)
        if tenant is not None:
            self._note(f"{name} has come in: {tenant.study.known:,} tasks, in {entry.layout.directory}")
            if not tenant.left:
                self._house.move_out(tenant)
        if visitor is not None:
            visitor.answer(Taken(name))
