"""Which studies are in, and how does each come to what it has of its own, and lose it again when it is over?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cantle.core.state import State
from cantle.engines.base import SharedEngine
from cantle.errors import LockedError
from cantle.model.records import AnyRecord, CancelAsked, Event, PartitionEnded, StudyOver
from cantle.runtime.pilot.entering import Entry
from cantle.runtime.pilot.errands import Errands
from cantle.runtime.pilot.jobs import is_over, job_of
from cantle.runtime.pilot.sharing_work import SharedWork, base_of
from cantle.runtime.pilot.splitting import SplitLog
from cantle.runtime.pilot.tenants import KeepStatus, Tenant
from cantle.store.journal import Journal

WriteDown: TypeAlias = Callable[[AnyRecord], None]


class House:
    """The studies that are in and not over. `tenants` by number; those that are just being closed are not among them."""

    def __init__(
        self,
        state: State,
        log: SplitLog,
        engine: SharedEngine,
        errands: Errands,
        write_down: WriteDown,
        keep_status: KeepStatus,
        note: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self.tenants: dict[int, Tenant] = {}
        self.work = SharedWork(state)
        self._state = state
        self._log = log
        self._engine = engine
        self._errands = errands
        self._write_down = write_down
        self._keep_status = keep_status
        self._note = note
        self._now = now
        self._turn = 0

    def move_in(self, entry: Entry, journal: Journal) -> Tenant:
        """Give the study what it has of its own, so that its tasks can be launched."""
        number = entry.number
        study = self._state.studies[number]
        first = study.tasks.number(0) if study.known else len(self._state.tasks)
        status = self._keep_status(entry.layout.status, study)
        tenant = self.tenants[number] = Tenant(number, study, entry.layout, entry.lock, journal, status)
        tenant.count(self._state)
        if entry.work is not None:
            directory = str(entry.layout.directory)
            self._engine.open_base(base_of(number), directory, entry.submission.env, entry.hide_gpus, first)
            self.work.add(number, entry.work)
        return tenant

    def look_at(self, news: list[int]) -> None:
        """These tasks reached a final phase: with the last of a study, the study is over."""
        state = self._state
        for task in news:
            tenant = self.tenants.get(state.study_of_step[state.tasks[task].step])
            if tenant is not None:
                tenant.left -= 1
                if tenant.left <= 0 and is_over(state, tenant.study):
                    self.move_out(tenant)

    def move_out(self, tenant: Tenant) -> None:
        """The study is over: bring its files in order, then forget it."""
        number = tenant.number
        del self.tenants[number]
        for partition in self._state.partitions.living:  # they go on, but not in this study's own journal
            tenant.journal.write(PartitionEnded(self._now(), partition))
        self._log.leave(number)
        self.work.remove(number)
        self._engine.close_base(base_of(number))

        def forget(trouble: str) -> None:
            if trouble:
                self._note(f"{tenant.name}: {trouble}")
            job = job_of(self._state, number)
            self._note(f"{tenant.name} is over: {job.state}, {job.done:,} of {job.tasks:,} tasks done")
            self._write_down(StudyOver(self._now(), number))

        self._errands.send(f"finish-{number}", lambda: tenant.finish(self._state), forget)

    def ask_around(self) -> Iterator[Event]:
        """What was asked in the studies' directories; and the end of those whose journal cannot be written."""
        for tenant in self.tenants.values():
            yield from tenant.wishes(self._state, self._note, self._now())
        for number, problem in self._log.broken.items():
            self._note(problem)
            yield CancelAsked(self._now(), None, f"the pilot: {problem}", number)
        self._log.broken.clear()

    def keep_status(self) -> None:
        """Write a piece of one study's status file: one a turn, so that however many there are, no task waits for them."""
        if self.tenants:
            self._turn += 1
            tenants = list(self.tenants.values())
            tenants[self._turn % len(tenants)].status(self._state)

    def give_signs_of_life(self) -> Iterator[Event]:
        """In all directories; and the end of the studies whose directory somebody else took over, or removed."""
        for tenant in self.tenants.values():
            if tenant.lost:
                continue
            if tenant.layout.is_gone():
                self._log.leave(tenant.number)
                tenant.abandon()
                tenant.lock.release()
                where = tenant.layout.directory
                self._log.broken[tenant.number] = (
                    f"{where} was removed, or moved, while it was at work: let it stay there"
                )
                continue
            try:
                tenant.lock.heartbeat()
            except LockedError as problem:
                self._note(f"{tenant.name}: {problem}")
                self._log.leave(tenant.number)
                tenant.abandon()
                yield CancelAsked(self._now(), None, "the pilot: another conductor took it over", tenant.number)

    def close(self) -> None:
        """The pilot ends; what is not over can be gone on with."""
        for tenant in self.tenants.values():
            tenant.let_go()
        self.tenants.clear()
