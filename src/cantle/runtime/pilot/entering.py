"""What is a study on its way into a pilot: what of it has been read, and by which records does it enter?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from cantle.core.state import State
from cantle.errors import CantleError, RequestError, said_by
from cantle.model.records import AnyRecord, StudyAdded, TasksAdded
from cantle.model.study import Commands, Study
from cantle.runtime.conducting import study_added
from cantle.runtime.pilot.submission import Submission
from cantle.runtime.pilot.views import moved
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock

TASKS_AT_ONCE = 1000

Reopen: TypeAlias = Callable[[str, Path], Study]
"""From a reader's name and the folder with what was kept, the study."""


class Entry:
    """A study on its way in. `number` is the pilot's number of it, -1 as long as it has none."""

    def __init__(self, layout: Layout, lock: ConductorLock, submission: Submission) -> None:
        self.layout = layout
        self.lock = lock
        self.submission = submission
        self.number = submission.number
        self.problem = ""
        self.rest: Iterator[AnyRecord] = iter(())
        """The records by which the rest of it enters."""
        self.study: Study | None = None
        self.work: Commands | None = None

    @property
    def hide_gpus(self) -> bool:
        """Whether some of its tasks ask for GPUs, so that the others shall see none."""
        return self.study is not None and any(step.needs.gpus for step in self.study.steps)

    def read(self, reopen: Reopen) -> Entry:
        """Make the study again from its kept files, and prepare it. What goes wrong is told in `problem`. Returns itself."""
        directory = str(self.layout.directory)
        try:
            study = reopen(self.submission.reader, self.layout.study)
            if (study.digest, len(study.tasks)) != (self.submission.digest, self.submission.tasks):
                raise RequestError(
                    f"the copy of the study in {self.layout.study} is not what was submitted: was it edited by hand?"
                )
            work = study.work(directory)
            work.prepare(directory)
        except CantleError as problem:
            self.problem = str(problem)
        except BaseException as problem:  # noqa: BLE001 - a reader's bug, even an exit, is this study's affair alone
            self.problem = f"the study could not be read: {said_by(problem)}"
        else:
            self.study, self.work = study, work
        return self

    def added(self, now: float) -> StudyAdded:
        """The record by which it enters. Only after it was read."""
        assert self.study is not None
        sent = self.submission
        added = study_added(self.study, str(self.layout.directory), sent.limits, sent.reader, sent.options, now)
        return replace(added, priority=sent.priority, weight=sent.weight, slicing=sent.slicing)

    def tasks(self, state: State, now: Callable[[], float]) -> Iterator[AnyRecord]:
        """The records of the tasks that the state does not know yet, some at a time. Each must be applied before the next."""
        assert self.study is not None
        entered = state.studies[self.number]
        tasks = self.study.tasks
        self.study.tasks = []  # they are the state's now, or the work half's
        for begin in range(entered.known, len(tasks), TASKS_AT_ONCE):
            some = tasks[begin : begin + TASKS_AT_ONCE]
            first = len(state.tasks)
            yield TasksAdded(now(), first, moved(some, first - begin, entered.step_numbers.number(0)), self.number)
