"""What is known of a run from its directory, and is anybody at work on it?

A run is its journal folded into a state, as in the conductor itself; nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.records import AnyRecord, RunResumed
from cantle.model.study import OF_A_PROGRAM
from cantle.store.journal import Follower, follow, read
from cantle.store.layout import DOOR, Layout
from cantle.store.lock import Holder, holder
from cantle.store.reading import JournalContents

if TYPE_CHECKING:
    from cantle.core.mend import Mender
    from cantle.runtime.orchestration.watch import JobWatch


class Condition(Enum):
    """How a run stands, as one word."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DEAD = "dead"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"
    STOPPED = "stopped"


OVER = frozenset({Condition.DONE, Condition.FAILED, Condition.CANCELED, Condition.STOPPED})


class Run:
    """A run as its directory tells it. `refresh` brings it up to date."""

    def __init__(self, layout: Layout) -> None:
        """Use `load`."""
        self.layout = layout
        self.state = State()
        self.conductor: Holder | None = None
        self.damage: list[str] = []
        self.since = 0.0
        """When the run began or was last resumed, in seconds since the epoch."""
        self._follower: Follower | None = None
        self._restarts = 0
        self._mender: Mender | None = None
        self._jobs: JobWatch | None = None

    @property
    def directory(self) -> Path:
        """The run's directory, absolute."""
        return self.layout.directory

    @property
    def name(self) -> str:
        """The study's name."""
        return self.state.studies[0].added.name if self.state.studies else self.directory.name

    @property
    def of_a_program(self) -> bool:
        """Whether it is calls that a Python program makes, and nobody else."""
        return any(study.added.reader == OF_A_PROGRAM for study in self.state.studies)

    @property
    def now(self) -> float:
        """The present for a run that goes on, its last moment for one that does not. Seconds since the epoch."""
        return self.state.present(time()) if self.conductor is not None else self.state.now

    @property
    def seconds(self) -> float:
        """How long it has been at work since it began or was resumed."""
        return max(0.0, self.now - self.since)

    @property
    def condition(self) -> Condition:
        """How the run stands."""
        state = self.state
        if self.conductor is None and self.jobs is not None and (there := self._in_a_job()) is not None:
            return there
        if not state.studies or not state.finished:
            if self.conductor is None:
                return Condition.DEAD
            if not state.studies:
                return Condition.STARTING
            return Condition.STOPPING if state.stopping else Condition.RUNNING
        if state.succeeded:
            return Condition.DONE
        if state.stopping:
            return Condition.STOPPED
        return Condition.CANCELED if self.exit_code == 3 else Condition.FAILED

    @property
    def exit_code(self) -> int:
        """What the run itself ended with, as in Maestro's foreground mode. Only when it is over."""
        from cantle.runtime.conducting import exit_code

        return exit_code(self.state) if self.state.finished and not self._canceled_in_the_queue else 3

    @property
    def jobs(self) -> JobWatch | None:
        """The batch jobs that the run was given to, None when there are none."""
        if self._jobs is None and self.layout.batch.exists():
            from cantle.runtime.orchestration.records import Jobs
            from cantle.runtime.orchestration.watch import JobWatch

            jobs = Jobs(self.layout)
            self._jobs = JobWatch(jobs) if jobs.exist() else None
        return self._jobs

    @property
    def gone_from(self) -> str:
        """On which host the conductor stood that is gone, although its batch job still runs; "" where that is not so."""
        if self.conductor is not None or self.jobs is None or self.state.stopping or self.state.finished:
            return ""
        return self.jobs.gone_from(self.since)

    @property
    def _canceled_in_the_queue(self) -> bool:
        """Whether its batch job was canceled before it had done what it was there for."""
        if self.conductor is not None or self.jobs is None or not self.jobs.jobs.canceled:
            return False
        return not self.state.finished or self.jobs.shall_go_on(self.state.resumed)

    def _in_a_job(self) -> Condition | None:
        """How a run stands on which nobody is at work, as far as its batch jobs tell; None when they tell nothing."""
        from cantle.allocations.submission.wanted import Stage

        assert self.jobs is not None
        state = self.state
        if state.studies and state.finished and not state.stopping and not self.jobs.shall_go_on(state.resumed):
            return None
        stage = self.jobs.standing().stage
        if stage is Stage.PENDING or (stage is Stage.UNKNOWN and not self.jobs.has_begun):
            return Condition.QUEUED
        if stage is Stage.RUNNING:
            return Condition.STARTING
        return Condition.CANCELED if self._canceled_in_the_queue else None

    def refresh(self) -> list[AnyRecord]:
        """Take in what has happened since, and return it. Raises JournalError when the journal cannot be read.

        The first call, which is `load`'s, returns nothing: that would be the whole journal.
        """
        # First whether a conductor lives, then what it wrote: the other way round one that ends between the two
        # questions would look as if it had died.
        self.conductor = holder(self.layout.lock)
        if self._follower is None:
            contents = read(self.layout.journal)
            self._fold(contents, contents)
            self._follower = follow(self.layout.journal, after=contents)
            self.damage = [str(stretch) for stretch in contents.damaged]
            return []
        known = len(self._follower.damaged)
        records = self._follower.poll()
        if self._follower.restarts != self._restarts:
            self._restarts = self._follower.restarts
            self.state, self._mender, self.damage, known = State(), None, [], 0
        new = self._follower.damaged[known:]
        self.damage += [str(stretch) for stretch in new]
        if new:
            self._gap()
        self._fold(records)
        return records

    def _fold(self, records: Iterable[AnyRecord], contents: JournalContents | None = None) -> None:
        known = 0
        for record in records:
            if contents is not None and len(contents.damaged) > known:
                known = len(contents.damaged)
                self._gap()
            if type(record) is RunResumed or not self.since:
                self.since = record.time
            if self._mender is None:
                self.state.apply(record)
            else:
                for each in self._mender.mended(self.state, record):
                    self.state.apply(each)

    def _gap(self) -> None:
        """Records are missing here."""
        from cantle.core.mend import Mender

        self._mender = self._mender or Mender()
        self._mender.gap()


def load_one(directory: Path | str) -> Run:
    """The same as `load`, for whoever wants to look at one study. Raises RequestError as well in a pilot's directory."""
    layout = Layout(directory)
    if (layout.own / DOOR).exists():
        raise RequestError(
            f"{layout.directory} is the directory of a pilot. Its studies: cantle jobs {layout.directory}; "
            "each of them is looked at in its own directory"
        )
    return load(directory)


def load(directory: Path | str) -> Run:
    """The run in a directory. Raises RequestError when there is none, JournalError when its journal cannot be read."""
    layout = Layout(directory)
    if not layout.directory.exists():
        raise RequestError(f"there is no directory {layout.directory}{_pilot_called(str(directory))}")
    run = Run(layout.require())
    run.refresh()
    return run


def _pilot_called(name: str) -> str:
    """Where the pilot lies whose name was given in place of a directory, as the end of a sentence; "" where there is none."""
    from cantle.runtime.pilot.address import directory_of

    try:
        place = directory_of(name)
    except RequestError:
        return ""
    return f"; the pilot {name} lies in {place}" if (Layout(place).own / DOOR).exists() else ""
