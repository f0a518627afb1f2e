"""What belongs to one study of a pilot, from its first task to its last?

The study's directory is that of a run: the pilot holds its lock, writes its journal, hears what is asked there, and keeps
its `status.csv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from cantle.core.phases import FINAL
from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.errors import CantleError, JournalError, LockedError
from cantle.model.records import (
    CancelAsked,
    Event,
    LimitsChanged,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionResizeAsked,
)
from cantle.runtime.conducting import concerns
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.jobs import job_name
from cantle.runtime.unheeded import unheeded
from cantle.store.journal import Journal
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock
from cantle.store.requests import Requests


class StatusKeeper(Protocol):
    """Keeps the file that tells people how the tasks stand."""

    def __call__(self, state: State) -> None:
        """Write a piece of it if it is time to."""

    def write(self, state: State) -> None:
        """Write the whole of it now."""


KeepStatus: TypeAlias = Callable[[Path, StudyState], StatusKeeper]
"""From the path of the file, and whose tasks it shall tell of."""


class Tenant:
    """A study that is in and not over. `left` counts its tasks that are not over."""

    def __init__(
        self,
        number: int,
        study: StudyState,
        layout: Layout,
        lock: ConductorLock,
        journal: Journal,
        status: StatusKeeper,
    ) -> None:
        self.number = number
        self.study = study
        self.layout = layout
        self.lock = lock
        self.journal = journal
        self.status = status
        self.left = study.added.tasks
        self.lost = False
        """Whether another conductor has taken the directory over."""
        self.requests = Requests(layout.directory)

    @property
    def name(self) -> str:
        """What it is called within its pilot."""
        return job_name(self.study.added.name, self.number)

    def count(self, state: State) -> None:
        """Count anew what is left."""
        study = self.study
        tasks = max(study.added.tasks, study.known)
        self.left = tasks - sum(state.phases[task] in FINAL for task in study.tasks)

    def wishes(self, state: State, note: Callable[[str], None], now: float) -> Iterator[Event]:
        """What was asked of the run in its directory, as the pilot understands it."""
        for wish in self.requests.poll(now, self.study.limits):
            understood = self._understood(wish)
            if understood is None or not concerns(understood, state):
                note(f"{self.name}: {unheeded(wish if understood is None else understood, state, of_one_study=True)}")
            else:
                yield understood
        for problem in self.requests.problems:
            note(f"{self.name}: {problem}")
        self.requests.problems.clear()

    def _understood(self, wish: Event) -> Event | None:
        if isinstance(wish, LimitsChanged) and wish.study == 0:
            return replace(wish, study=self.number)
        if isinstance(wish, CancelAsked):
            if wish.tasks is None:
                return replace(wish, study=self.number)
            if all(0 <= task < self.study.known for task in wish.tasks):
                return replace(wish, tasks=[self.study.tasks.number(task) for task in wish.tasks])
        if isinstance(wish, PartitionAsked | PartitionResizeAsked | PartitionDrainAsked | PartitionCancelAsked):
            return replace(wish, study=self.number)
        return None

    def heartbeat(self) -> None:
        """Give a sign of life. Raises LockedError when somebody took the directory over."""
        self.lock.heartbeat()

    def finish(self, state: State) -> str:
        """The study is over: the last status file, the journal to the disk, the directory to whoever wants it.

        Takes as long as the disk does; called in a thread of its own, when nothing of the study changes any more. What went
        wrong, "" when nothing did.
        """
        if self.lost:
            return ""
        if not self.journal.is_there():
            from cantle.runtime.conducting import taken_away

            self.abandon()
            self.lock.release()
            return taken_away(self.layout)
        trouble = ""
        try:
            self.status.write(state)
            self.journal.close()
            submission.drop(self.layout)
            if self.layout.arguments.exists():  # of a program that did not live to remove them
                rmtree(self.layout.arguments, ignore_errors=True)
        except (CantleError, OSError) as problem:
            trouble = str(problem)
        self.lock.release()
        return trouble

    def let_go(self) -> None:
        """The pilot ends before the study does: it can be gone on with, by the next pilot or by itself."""
        try:
            self.journal.close()
        except JournalError:  # the pilot's own journal knows all
            pass
        finally:
            self.lock.release()

    def abandon(self) -> None:
        """Somebody else has taken the directory over: write nothing more there."""
        self.lost = True
        self.journal.abandon()


def lock_of(layout: Layout, name: str) -> ConductorLock | None:
    """The lock of a study's directory, held by us; None when another conductor has it or it cannot be had."""
    lock = ConductorLock(layout.lock, name)
    try:
        lock.acquire()
    except (LockedError, CantleError):
        return None
    return lock
