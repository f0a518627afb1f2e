"""How is a run begun, and conducted until it is over? Joins the store, the machine and the loop.

The order matters, since the process may die at any line: the lock before anything is written; what a resumed run needs
before the journal; the journal's first records before a process is started; and at the end the processes before the
journal is closed, the journal before the lock is given back. (`resuming.py` takes a run up again.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from cantle import __version__
from cantle.allocations.base import Allocation
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.engines.base import Engine
from cantle.errors import LockedError, MachineError, PluginError
from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    ElementsAsked,
    Event,
    LimitsChanged,
    NodeDrainAsked,
    NodeResumeAsked,
    NodesWished,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionResizeAsked,
    RunStarted,
    StopAsked,
    StudyAdded,
    TasksAdded,
)
from cantle.model.study import Commands, Limits, Study
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.loop import run
from cantle.runtime.real import RealWorld
from cantle.runtime.stopping import signals_stop_the_run
from cantle.runtime.timekeeping import Timekeeping
from cantle.runtime.whereabouts import job_around, standing_in
from cantle.store.journal import Journal
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock
from cantle.store.requests import Requests

if TYPE_CHECKING:
    from cantle.runtime.scaling_functions import ScalingFunction

HEARTBEAT_S = 10.0
REQUESTS_S = 0.25
SYNC_S = 0.02
"""Syncs are asked for at most so often: each wakes a thread. The loop turns often enough even when nothing happens."""
TASKS_PER_RECORD = 1000

TAKEN_AWAY = "its directory was removed, or moved"
"""Why a run is stopped of which nothing can be found where it was begun."""
OF_PARTITIONS = (PartitionAsked, PartitionResizeAsked, PartitionDrainAsked, PartitionCancelAsked, ElementsAsked)
"""Requests that are made for a study: in a run, for its only one."""

Observer = Callable[[State], None]
MakeEngine = Callable[[SelectInbox, Layout, bool], Engine]
"""From the inbox, the run's layout, and whether tasks without GPUs shall see none."""


class Machine(msgspec.Struct):
    """On what a run stands: where nodes come from, and what tasks turn into there; `is_spread`: not on this machine alone.

    `on_idle`: a command that is told of unused nodes.
    """

    allocation: Allocation
    make_engine: MakeEngine
    is_spread: bool = False
    on_idle: str = ""


class Outcome(msgspec.Struct):
    """How a run ended: 0 all done, 2 something failed, 3 canceled or stopped (as Maestro's foreground mode says it).

    4 when its allocation ended: what is left runs when it is resumed. `lost`: what it wrote is not where it was begun any more;
    then nothing is done for whoever looks there, and it is 3 at least.
    """

    state: State
    exit_code: int
    lost: bool = False


class Conductor:
    """The one process that writes in a run's directory, from `begin` or `resume` until `close`."""

    def __init__(self, layout: Layout, lock: ConductorLock, journal: Journal, state: State, work: Commands) -> None:
        self.layout = layout
        self.lock = lock
        self.journal = journal
        self.state = state
        self.work = work
        self.inbox = SelectInbox(state.now)
        self.requests = Requests(layout.directory)
        self._watching = -1

    def conduct(
        self,
        machine: Machine,
        decider: Decider,
        observers: Sequence[Observer] = (),
        note: Callable[[str], None] = lambda _: None,
    ) -> Outcome:
        """Turn the loop until the run is over. `note` is told what the user should know.

        Raises JournalError when the run can no longer be written down, LockedError when somebody took it over, PluginError
        when a packer that is not ours broke the rules; then the run was stopped in order, and can be resumed.
        """
        asks_gpus = any(step.needs.gpus for step in self.state.steps)
        engine = machine.make_engine(self.inbox, self.layout, asks_gpus)
        decider.lines = engine.keeps_lines
        world = RealWorld(self.state, self.inbox, machine.allocation, engine, self.work)
        world.on_idle = machine.on_idle
        asked: Sequence[ScalingFunction] = ()
        try:
            self.work.prepare(str(self.layout.directory))
            with signals_stop_the_run(self.inbox):
                if decider.scaling is not None and decider.scaling.policies:
                    from cantle.runtime.scaling_functions import functions_of

                    asked = functions_of(decider.scaling, self.inbox.put, self.inbox.now)
                watching: Sequence[Observer] = (
                    self._housekeeping(note),
                    told_of_losses(world, note),
                    *observers,
                    *asked,
                )
                try:
                    run(self.state, world, self.journal, decider, watching)
                except PluginError as fault:
                    self.inbox.put(StopAsked(self.inbox.now(), str(fault)))  # from now on no packer is asked
                    run(self.state, world, self.journal, decider, watching)
                    raise PluginError(
                        f"{fault}\n    The run was stopped. Go on with another packer or policy, or when this one is mended: "
                        f"cantle resume {self.layout.directory}"
                    ) from fault
        finally:
            for function in asked:
                function.close()
            world.close()
        code, lost = exit_code(self.state), not self.journal.is_there()
        if lost and self.state.stopping != TAKEN_AWAY:
            note(taken_away(self.layout))
            self.state.apply(StopAsked(self.inbox.now(), TAKEN_AWAY))
        return Outcome(self.state, (code or 3) if lost else code, lost)

    def close(self) -> None:
        """Let the journal reach the disk, and let go of the directory."""
        try:
            self.journal.close()
        finally:
            self.lock.release()
            if self._watching >= 0:
                self.inbox.unwatch(self._watching)
                os.close(self._watching)
            self.inbox.close()

    def take_up(self, journal: Journal, state: State, study: Study) -> None:
        """Go on with another journal, which has taken the place of the one before; that one is closed."""
        self.journal, self.state = journal, state
        self.work = study.work(str(self.layout.directory))

    def record(self, *records: AnyRecord) -> None:
        """Write records down and apply them: those that come from nowhere but the conductor itself."""
        for record in records:
            self.journal.write(record)
            self.state.apply(record)
        self.journal.flush()

    def _hear_of_requests(self) -> int:
        """Let the kernel wake the loop when a request is made, where it can; later than the first moments of a run."""
        from cantle.store.waking import drain, watch_folder

        fd = watch_folder(self.layout.requests)
        if fd < 0:
            return sys.maxsize  # not again

        def hear() -> None:
            drain(fd)
            self.requests.woken = True

        self.inbox.watch(fd, hear)
        self._watching = fd
        return fd

    def _housekeeping(self, note: Callable[[str], None]) -> Observer:
        """What has to be done now and then while the loop turns."""
        requests = self.requests
        heartbeat = asked = synced = monotonic()
        clock = Timekeeping(self.inbox, self.state, note)
        told = -1  # a descriptor on which the kernel tells of requests

        def observe(state: State) -> None:
            nonlocal heartbeat, asked, synced, told
            now = monotonic()
            if now - synced >= SYNC_S:
                synced = now
                self.journal.sync()
            if now - asked >= REQUESTS_S or requests.woken:
                if told < 0 and not requests.woken:
                    told = self._hear_of_requests()
                asked = now
                requests.woken = False
                for event in requests.poll(self.inbox.now(), state.studies[0].limits):
                    if isinstance(event, OF_PARTITIONS):
                        event = msgspec.structs.replace(event, study=0)
                    if concerns(event, state):
                        self.inbox.put(event)
                    else:
                        from cantle.runtime.unheeded import unheeded

                        note(unheeded(event, state))
                for problem in requests.problems:
                    note(problem)
                requests.problems.clear()
            if now - heartbeat >= HEARTBEAT_S:
                heartbeat = now
                clock.look()
                try:
                    if not self.layout.is_gone():
                        self.lock.heartbeat()
                    elif not state.stopping:
                        note(taken_away(self.layout))
                        self.inbox.put(StopAsked(self.inbox.now(), TAKEN_AWAY))
                except LockedError:
                    self.journal.abandon()
                    raise

        return observe


def taken_away(layout: Layout) -> str:
    """What is told when a run's directory is gone, or another run's journal lies in it."""
    if not layout.is_gone():
        what = "it was removed, or replaced, and with it what is known of the run"
        return f"{layout.journal} is not what this run has written: {what}"
    return (
        f"{layout.directory} is not there any more. If it was removed, so are the results; if it was moved, the run can be "
        "resumed where it is now"
    )


def _is_want(event: ElementsAsked, state: State) -> bool:
    """Whether it can be read, and there are slices."""
    from cantle.model.slicing import choices_of

    try:
        choices_of(event.want or "1 x 1")
    except ValueError:
        return False
    return any(study.added.slicing is not None and study.added.slicing.slices for study in state.studies)


def concerns(event: Event, state: State) -> bool:
    """Whether a request speaks of tasks and studies that there are."""
    if isinstance(event, CancelAsked):
        there = event.study is None or 0 <= event.study < len(state.studies)
        return there and all(0 <= task < len(state.tasks) for task in event.tasks or ())
    if isinstance(event, NodeDrainAsked | NodeResumeAsked):
        named = {node.name for node in state.room.nodes.values()}
        return event.node in named or event.node in state.drained_names
    if isinstance(event, NodesWished):
        return state.scaling is not None and event.kind in state.scaling.kinds and (event.count or 0) >= 0
    if isinstance(event, ElementsAsked):
        return -1 <= event.study < len(state.studies) and _is_want(event, state)
    if isinstance(event, PartitionAsked):
        there = -1 <= event.study < len(state.studies)
        return there and event.wish.width > 0 and (event.study, event.wish.name) not in state.partitions.by_name
    if isinstance(event, PartitionResizeAsked | PartitionDrainAsked | PartitionCancelAsked):
        return state.partitions.asked_for(event.study, event.name) is not None
    return not isinstance(event, LimitsChanged) or 0 <= event.study < len(state.studies)


def told_of_losses(world: RealWorld, note: Callable[[str], None]) -> Observer:
    """Tell the user of nodes that went away or never came: of three in a moment each, of more their number."""

    def observe(_: State) -> None:
        lost = world.lost
        if not lost:
            return
        for news in list(lost)[:3]:
            note(news)
        if len(lost) > 3:
            note(f"and {len(lost) - 3:,} more nodes are lost, drained or used again")
        lost.clear()

    return observe


def exit_code(state: State) -> int:
    """0 all done, 4 the allocation ended and resuming goes on, 3 canceled or stopped, 2 otherwise.

    3 as well when the allocation was over before anything could be begun: resuming on one like it would do no more.
    """
    if state.succeeded:
        return 0
    if state.expired:
        begun = any(n and at >= state.begun_at for n, at in zip(state.attempts, state.launched_at, strict=True))
        return 4 if begun else 3
    if any(study.failing for study in state.studies) and not state.stopping:
        return 2  # what --fail-fast canceled is not what the user canceled
    return 3 if state.stopping or state.totals[Phase.CANCELED] else 2


def begin(
    study: Study, layout: Layout, reader: str, limits: Limits, options: str = "", argv: Sequence[str] = ()
) -> Conductor:
    """Begin a run of the study in a new directory. Raises LockedError, MachineError, JournalError.

    `options` are those that the study was read with, as JSON, so that it can be read like that again.
    """
    layout.create()
    lock = ConductorLock(layout.lock, study.name)
    lock.acquire()
    try:
        keep(study, layout.study)
        copy_for_people(study, layout)
        journal = Journal.open_new(layout.journal)
    except BaseException:
        lock.release()
        raise
    conductor = Conductor(layout, lock, journal, State(), study.work(str(layout.directory)))
    try:
        conductor.record(*opening(study, layout, reader, limits, options, argv, conductor.inbox.now()))
    except BaseException:
        conductor.close()
        layout.journal.unlink(missing_ok=True)  # what was never whole shall not be taken for a run
        raise
    return conductor


def opening(
    study: Study, layout: Layout, reader: str, limits: Limits, options: str, argv: Sequence[str], now: float
) -> list[AnyRecord]:
    """The first records of a run."""
    run = RunStarted(
        now,
        f"{study.name}-{int(now)}-{os.getpid()}",
        __version__,
        os.uname().nodename,
        os.getpid(),
        tuple(argv),
        job_around(),
        standing_in(),
    )
    added = study_added(study, str(layout.directory), limits, reader, options, now)
    return [run, added, *tasks_from(study, 0, now)]


def study_added(study: Study, directory: str, limits: Limits, reader: str, options: str, now: float) -> StudyAdded:
    """The record by which a study enters a run."""
    return StudyAdded(
        now,
        study.name,
        study.steps,
        directory,
        limits,
        study.digest,
        study.source,
        reader,
        options,
        len(study.tasks),
        study.slicing,
        partitions=study.partitions,
        engines=study.engines,
    )


def tasks_from(study: Study, first: int, now: float) -> Iterator[TasksAdded]:
    """The study's tasks from this number on, some at a time."""
    for number in range(first, len(study.tasks), TASKS_PER_RECORD):
        yield TasksAdded(now, number, study.tasks[number : number + TASKS_PER_RECORD])


def keep(study: Study, folder: Path) -> None:
    """Write what a study needs to be made again into its folder. Raises MachineError."""
    try:
        folder.mkdir(exist_ok=True)
        for name, content in study.keep.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(path.name + ".new")
            temporary.write_bytes(content)
            temporary.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {folder}: {error.strerror}. Mend that, and begin again.") from error


def copy_for_people(study: Study, layout: Layout) -> None:
    """Maestro leaves a copy of the study's file at the top of its directory, and people look for it there.

    Raises MachineError when it cannot be written.
    """
    source = Path(study.source)
    try:
        if source.is_file():
            (layout.directory / source.name).write_bytes(source.read_bytes())
    except OSError as error:
        raise MachineError(f"cannot write {layout.directory}: {error.strerror}. Mend that, and begin again.") from error
