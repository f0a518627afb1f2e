"""How does one conductor serve many studies, for as long as its user wants?

The loop is that of any run, over one state with all studies and one journal. Around it stand the door, at which studies come
in, and what each study has of its own. Whatever takes long (reading a study, bringing a journal to the disk) is done by
threads, and whatever goes wrong with one study ends that study alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from time import monotonic

import msgspec

from cantle import __version__
from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.engines.base import CallingEngine, SharedEngine
from cantle.engines.remains import await_runners, end_strays
from cantle.errors import LockedError, PluginError, RequestError
from cantle.model.records import AnyRecord, CancelAsked, Event, RunStarted, StopAsked, StudyOver
from cantle.runtime.conducting import (
    HEARTBEAT_S,
    REQUESTS_S,
    SYNC_S,
    TAKEN_AWAY,
    Machine,
    concerns,
    taken_away,
    told_of_losses,
)
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.loop import turn
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.address import make_folder
from cantle.runtime.pilot.door import Door, Visitor
from cantle.runtime.pilot.entering import Entry, Reopen
from cantle.runtime.pilot.entrance import Entrance
from cantle.runtime.pilot.errands import Errands
from cantle.runtime.pilot.house import House
from cantle.runtime.pilot.jobs import jobs_of
from cantle.runtime.pilot.letters import Letter, Letterbox
from cantle.runtime.pilot.messages import Going, Jobs, Question, Refused, Sit, Submit, Told, Written
from cantle.runtime.pilot.rebuilding import Rebuilt, rebuild, replace_journal
from cantle.runtime.pilot.sittings import Sittings
from cantle.runtime.pilot.splitting import SplitLog
from cantle.runtime.pilot.tenants import KeepStatus, lock_of
from cantle.runtime.pilot.views import Views
from cantle.runtime.real import RealWorld
from cantle.runtime.resuming import RUNNERS_PATIENCE_S, resumed, take_in_results
from cantle.runtime.scaling_functions import ScalingFunction, functions_of
from cantle.runtime.stopping import signals_stop_the_run
from cantle.runtime.timekeeping import Timekeeping
from cantle.runtime.unheeded import unheeded
from cantle.runtime.whereabouts import job_around, standing_in
from cantle.store.journal import Journal
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock
from cantle.store.requests import Requests
from cantle.store.succession import name_of_former

SWITCH_S = 0.0005
"""So soon the loop gets the interpreter back from a thread that reads a study."""
PATIENCE_S = 10.0
"""How long the end of a pilot waits for its threads. A study that is over by then, but not closed, the next pilot closes."""
GOING_DOWN = "the pilot is going down and takes in no more studies"


class Surroundings(msgspec.Struct):
    """What a pilot needs from those who call it.

    `reopen` makes a study again, `keep_status` keeps a status file, `ready` is called once nodes are there and the door is
    open, `note` is told what the log should say.
    """

    reopen: Reopen
    keep_status: KeepStatus
    ready: Callable[[], None]
    note: Callable[[str], None]


class Pilot:
    """The conductor of an allocation that several studies share, from `begin` or `go_on` until `close`."""

    def __init__(self, layout: Layout, lock: ConductorLock, journal: Journal, state: State, views: Views) -> None:
        self.layout = layout
        self.journal = journal
        self.state = state
        self.inbox = SelectInbox(state.now)
        self.log = SplitLog(journal, views)
        self.errands = Errands(self.inbox)
        self.found: list[tuple[Entry, Journal]] = []
        """Studies from before that go on."""
        self.draining = False
        self._lock = lock
        self._requests = Requests(layout.directory)
        self._house: House
        """There once the loop turns, as is the entrance."""
        self._entrance: Entrance
        self._sittings: Sittings
        self._asked: list[ScalingFunction] = []
        self.for_one_program = False
        """It ends when the program that it was begun for has gone."""
        state.news = []

    def conduct(self, machine: Machine, decider: Decider, around: Surroundings) -> None:
        """Turn the loop until the pilot is told to end.

        Raises JournalError when the pilot can no longer be written down, LockedError when somebody took it over: all studies
        can be gone on with then. Raises RequestError when the engine cannot serve several studies.
        """
        engine = machine.make_engine(self.inbox, self.layout, False)
        if not isinstance(engine, SharedEngine):
            raise RequestError(f"{type(engine).__name__} cannot serve several studies at a time")
        decider.lines = engine.keeps_lines
        decider.open_ended = True
        house = self._house = House(
            self.state, self.log, engine, self.errands, self.record, around.keep_status, around.note, self.inbox.now
        )
        self._entrance = Entrance(
            self.layout.directory,
            self.state,
            self.log,
            house,
            self.inbox,
            self.errands,
            self.record,
            around.reopen,
            around.note,
        )
        world = RealWorld(self.state, self.inbox, machine.allocation, engine, house.work)
        world.on_idle = machine.on_idle
        self._sittings = Sittings(
            self.layout.directory,
            self.state,
            self.log,
            house,
            engine if isinstance(engine, CallingEngine) else None,
            self.inbox,
            self.record,
            around.note,
        )
        door: Door | None = None
        sys.setswitchinterval(SWITCH_S)
        try:
            with signals_stop_the_run(self.inbox):
                self._go_on_with_what_was_found(around)
                door = Door(self.layout, self.inbox, self._hear)
                self._turn_until_over(world, decider, door, around)
        finally:
            for function in self._asked:
                function.close()
            self._entrance.close(GOING_DOWN)
            self._sittings.close()
            if door is not None:
                door.close()
            world.close()

    def close(self) -> None:
        """Let all journals reach the disk, and let go of all directories."""
        patience = monotonic() + PATIENCE_S
        while self.errands.count and monotonic() < patience:
            self.inbox.wait(0.05)
            self.errands.follow_up()
        try:
            for _, journal in self.found:
                journal.close()
            if hasattr(self, "_house"):
                self._house.close()
            self.journal.close()
        finally:
            self._lock.release()
            self.inbox.close()

    def record(self, *records: AnyRecord) -> None:
        """Write records down and apply them: those that come from nowhere but the conductor itself."""
        for record in records:
            self.log.write(record)
            self.state.apply(record)
        self.log.flush()

    def _turn_until_over(self, world: RealWorld, decider: Decider, door: Door, around: Surroundings) -> None:
        told = False
        tend = self._housekeeping(door, around)
        tell = told_of_losses(world, around.note)
        asks = self._asked = functions_of(decider.scaling, self.inbox.put, self.inbox.now)
        while not self._is_over():
            events = world.wait()
            self._sittings.heed()
            try:
                turn(self.state, world, self.log, decider, events)
            except PluginError as fault:
                around.note(str(fault))
                self.inbox.put(StopAsked(self.inbox.now(), str(fault)))  # from now on no packer is asked
            if not told and (self.state.room.alive or self._may_grow()):
                told = True
                around.ready()
            if self.state.news:
                news, self.state.news = self.state.news, []
                self._sittings.look_at(news)
                self._house.look_at(news)
            self.errands.follow_up()
            self._sittings.tell()
            tell(self.state)
            for ask in asks:
                ask(self.state)
            if not self.state.stopping:
                self._entrance.step()
            tend()

    def _may_grow(self) -> bool:
        """Whether nodes come when there is work for them: then it is up without any."""
        return self.state.scaling is not None and bool(self.state.scaling.kinds)

    def _is_over(self) -> bool:
        if self.state.stopping:
            return not self.state.running
        return self.draining and not (self._house.tenants or self._entrance or self.errands.count)

    def _hear(self, question: Question, visitor: Visitor) -> None:
        if isinstance(question, Sit):
            if self.draining or self.state.stopping:
                visitor.answer(Refused(GOING_DOWN))
            else:
                self._sittings.take(question, visitor)
        else:
            self._heed(question, visitor)

    def _heed(self, question: Written, asker: Visitor | Letter) -> None:
        """What may be asked at the door and by letter."""
        if isinstance(question, Submit):
            if self.draining or self.state.stopping:
                asker.answer(Refused(GOING_DOWN))
            else:
                self._entrance.take(Layout(question.directory), asker)
        elif isinstance(question, Jobs):
            asker.answer(Told([*jobs_of(self.state), *self._entrance.jobs()], self.draining))
        else:
            self.draining = True
            if question.now:
                self.inbox.put(StopAsked(self.inbox.now(), "the pilot was taken down"))
            asker.answer(Going(len(self._house.tenants) + len(self._entrance)))

    def _asked_of_all(self, note: Callable[[str], None]) -> Iterator[Event]:
        """What was asked in the pilot's own directory: of all studies, or of partitions that are nobody's."""
        for wish in self._requests.poll(self.inbox.now()):
            if concerns(wish, self.state):
                yield wish
            else:
                note(unheeded(wish, self.state))
        for problem in self._requests.problems:
            note(problem)
        self._requests.problems.clear()

    def _housekeeping(self, door: Door, around: Surroundings) -> Callable[[], None]:
        """What has to be done now and then while the loop turns."""
        heartbeat = asked = synced = monotonic()
        clock = Timekeeping(self.inbox, self.state, around.note)
        letters = Letterbox(self.layout, door.secret, self._heed)

        def tend() -> None:
            nonlocal heartbeat, asked, synced
            now = monotonic()
            if now - synced >= SYNC_S:
                synced = now
                self.journal.sync()
            self._house.keep_status()
            if now - asked >= REQUESTS_S:
                asked = now
                door.tend()
                letters.look()
                self._sittings.tell_begun()
                if self.for_one_program and self._sittings.is_left():
                    self.draining = True
                self._sittings.dismiss_broken()
                for event in (*self._asked_of_all(around.note), *self._house.ask_around()):
                    self.inbox.put(event)
            if now - heartbeat >= HEARTBEAT_S:
                heartbeat = now
                clock.look()
                try:
                    if not self.layout.is_gone():
                        self._lock.heartbeat()
                    elif not self.state.stopping:
                        around.note(taken_away(self.layout))
                        self.inbox.put(StopAsked(self.inbox.now(), TAKEN_AWAY))
                except LockedError:
                    self.journal.abandon()
                    raise
                for event in self._house.give_signs_of_life():
                    self.inbox.put(event)

        return tend

    def find_studies(self, rebuilt: Rebuilt) -> None:
        """Take the directories of unfinished studies, and bring their journals up to date; before anything is recorded."""
        for number, study in enumerate(self.state.studies):
            if study.over:
                continue
            layout = Layout(study.added.directory)
            sent = submission.get(layout) if submission.belongs_to(layout, self.layout.directory, number) else None
            lock = lock_of(layout, study.added.name) if sent is not None else None
            if sent is None or lock is None:
                self.log.views.leave(number)
                continue
            end_strays(str(layout.directory))
            replace_journal(layout, rebuilt.records.get(number, ()))
            journal = Journal.reopen(layout.journal)
            self.log.open(number, journal)
            self.found.append((Entry(layout, lock, sent), journal))

    def let_go_of_those_taken_away(self) -> None:
        """Studies that somebody goes on with by themselves, or removed, are none of ours any more."""
        ours = {entry.number for entry, _ in self.found}
        for number, study in enumerate(self.state.studies):
            if not study.over and number not in ours:
                now = self.inbox.now()
                self.record(CancelAsked(now, None, "its being taken out of the pilot", number), StudyOver(now, number))

    def _go_on_with_what_was_found(self, around: Surroundings) -> None:
        for entry, journal in self.found:
            entry.read(around.reopen)
            tenant = self._house.move_in(entry, journal)
            if entry.problem:
                around.note(f"{tenant.name} cannot be gone on with: {entry.problem}")
                self.record(CancelAsked(self.inbox.now(), None, f"the pilot: {entry.problem}", entry.number))
                self._house.move_out(tenant)
            elif tenant.study.known < tenant.study.added.tasks:
                self._entrance.go_on(entry)
            elif not tenant.left:
                self._house.move_out(tenant)
            else:
                around.note(f"{tenant.name} goes on: {tenant.left:,} of {tenant.study.known:,} tasks are left")
        self.found.clear()
        self.state.news = []


def begin(layout: Layout, name: str) -> Pilot:
    """Begin a pilot, or go on with one whose conductor has gone.

    Raises LockedError when it is up, MachineError when the directory cannot be written.
    """
    layout.create()
    lock = ConductorLock(layout.lock, f"pilot {name}")
    lock.acquire()
    try:
        make_folder(layout)  # from now on it is known for a pilot's
        rebuilt = rebuild(layout.journal) if layout.exists() else None
        if rebuilt is None or all(study.over for study in rebuilt.state.studies):
            return _begin_anew(layout, lock, name)
        return _go_on(layout, lock, rebuilt)
    except BaseException:
        lock.release()
        raise


def _begin_anew(layout: Layout, lock: ConductorLock, name: str) -> Pilot:
    _put_aside(layout)
    pilot = Pilot(layout, lock, Journal.open_new(layout.journal), State(), Views())
    now = pilot.inbox.now()
    host, pid = os.uname().nodename, os.getpid()
    called = f"pilot-{name}-{int(now)}-{pid}"
    pilot.record(RunStarted(now, called, __version__, host, pid, tuple(sys.argv), job_around(), standing_in()))
    return pilot


def _go_on(layout: Layout, lock: ConductorLock, rebuilt: Rebuilt) -> Pilot:
    await_runners(str(layout.nodes), RUNNERS_PATIENCE_S)
    end_strays(str(layout.directory))
    pilot = Pilot(layout, lock, Journal.reopen(layout.journal), rebuilt.state, rebuilt.views)
    pilot.find_studies(rebuilt)
    take_in_results(pilot, str(layout.nodes))
    known = len(pilot.state.partitions.all)
    pilot.record(resumed(pilot.inbox.now(), False, known))
    pilot.let_go_of_those_taken_away()
    return pilot


def _put_aside(layout: Layout) -> None:
    """Keep the journal of an earlier pilot, all of whose studies are over."""
    if not layout.exists():
        return
    layout.journal.rename(name_of_former(layout.journal))
