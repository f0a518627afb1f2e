"""Which records of a pilot would a study's own run have written, had it been alone?

A pilot's journal tells of all its studies. Each of them also has a journal in its own directory that is that of a run by
itself: its tasks and steps count from 0, what concerns another study is not in it, and what concerns all (nodes that come
and go, the stop of the run) is. It depends on the pilot's records alone, so it can be made again from them at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from msgspec.structs import replace

from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    EndRun,
    Launch,
    LimitsChanged,
    NodeLost,
    NodesAwaited,
    NodesJoined,
    Refuse,
    Revived,
    RunResumed,
    RunStarted,
    Stop,
    StopAsked,
    StudyAdded,
    StudyChanged,
    StudyOver,
    TaskEnded,
    TaskHindered,
    TasksAdded,
    TaskStarted,
    TimePassed,
)
from cantle.model.study import Task

OfTask = Launch | Stop | Refuse | TaskStarted | TaskHindered | TaskEnded


class Views:
    """Told each record of the pilot in order, says who else shall write it down, and how."""

    def __init__(self) -> None:
        self._run: RunStarted | None = None
        self._open: set[int] = set()
        self._shared: list[AnyRecord] = []
        """What concerned all studies so far: the beginning of each new view."""
        self._first_tasks: list[int] = []
        self._first_steps: list[int] = []
        self._steps = 0
        self._tasks = 0
        self._alive: dict[int, None] = {}
        self._nodes = 0

    def leave(self, study: int) -> None:
        """Nothing more is written down for this study."""
        self._open.discard(study)

    def first_task(self, study: int) -> int:
        """The pilot's number of the study's first task."""
        return self._first_tasks[study]

    def split(self, record: AnyRecord) -> Iterator[tuple[int, AnyRecord]]:
        """The studies whose view has the record, and how it reads there."""
        if isinstance(record, OfTask):
            study = bisect_right(self._first_tasks, record.task) - 1
            if study in self._open:
                yield study, self._renumbered(record, self._first_tasks[study])
        elif isinstance(record, TasksAdded):
            self._tasks += len(record.tasks)
            if record.study in self._open:
                yield record.study, self._tasks_of(record)
        elif isinstance(record, StudyAdded):
            yield from self._begin(record)
        elif isinstance(record, StudyOver):
            self.leave(record.study)
        elif isinstance(record, CancelAsked) and (record.tasks is not None or record.study is not None):
            yield from self._canceled(record)
        elif isinstance(record, LimitsChanged):
            if record.study in self._open:
                yield record.study, replace(record, study=0)
        elif isinstance(record, Revived):
            yield from self._revived(record)
        elif isinstance(record, RunStarted):
            self._run = record
        elif not isinstance(record, StudyChanged | TimePassed):
            self._remember(record)
            for study in sorted(self._open):
                yield study, _seen_from(study, record)

    def _begin(self, record: StudyAdded) -> Iterator[tuple[int, AnyRecord]]:
        study = len(self._first_tasks)
        self._first_tasks.append(self._tasks)
        self._first_steps.append(self._steps)
        self._steps += len(record.steps)
        self._open.add(study)
        run = self._run or RunStarted(record.time, "pilot", "", "", 0)
        yield study, replace(run, time=record.time, run=f"{record.name}-{int(record.time)}-{study + 1}")
        for shared in self._shared:
            yield study, replace(_seen_from(study, shared), time=record.time)
        yield study, record

    def _tasks_of(self, record: TasksAdded) -> TasksAdded:
        task, step = self._first_tasks[record.study], self._first_steps[record.study]
        if not (task or step):
            return replace(record, study=0)
        return TasksAdded(record.time, record.first - task, moved(record.tasks, -task, -step))

    def _renumbered(self, record: OfTask, first: int) -> OfTask:
        if not first:
            return record
        if isinstance(record, Launch) and record.behind is not None:
            return replace(record, task=record.task - first, behind=record.behind - first)
        return replace(record, task=record.task - first)

    def _canceled(self, record: CancelAsked) -> Iterator[tuple[int, AnyRecord]]:
        if record.tasks is None:
            if record.study in self._open:
                yield record.study, replace(record, study=None)
            return
        for study, tasks in self._by_study(record.tasks).items():
            yield study, replace(record, tasks=tasks)

    def _revived(self, record: Revived) -> Iterator[tuple[int, AnyRecord]]:
        for study, tasks in self._by_study(record.tasks).items():
            yield study, replace(record, tasks=tasks)

    def _by_study(self, tasks: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for task in tasks:
            study = bisect_right(self._first_tasks, task) - 1
            if study in self._open:
                found.setdefault(study, []).append(task - self._first_tasks[study])
        return found

    def _remember(self, record: AnyRecord) -> None:
        """What a study that enters later has to know."""
        if isinstance(record, RunResumed):  # another conductor, with nodes of its own: those from before are gone
            self._shared += [NodeLost(record.time, node, "its conductor is gone") for node in self._alive]
            self._alive.clear()
            self._forget_awaited()
        if isinstance(record, RunResumed | StopAsked | CancelAsked | EndRun):
            return
        if isinstance(record, NodesJoined):
            self._alive |= dict.fromkeys(range(self._nodes, self._nodes + len(record.nodes)))
            self._nodes += len(record.nodes)
        elif isinstance(record, NodeLost):
            self._alive.pop(record.node, None)
        elif isinstance(record, NodesAwaited):
            self._forget_awaited()
        self._shared.append(record)

    def _forget_awaited(self) -> None:
        self._shared = [known for known in self._shared if not isinstance(known, NodesAwaited)]


def _seen_from(study: int, record: AnyRecord) -> AnyRecord:
    """What concerns all, as this study knows it: itself is its only study, and others are below -1, told apart."""
    whose = getattr(record, "study", None)
    if whose is None or whose < 0:
        return record
    return replace(record, study=0 if whose == study else -2 - whose)


def moved(tasks: list[Task], by_tasks: int, by_steps: int) -> list[Task]:
    """The tasks as they are numbered so much further on in a run."""
    return [
        replace(
            task,
            step=task.step + by_steps,
            parents=tuple([parent + by_tasks for parent in task.parents]),
            after=tuple([parent + by_tasks for parent in task.after]),
        )
        for task in tasks
    ]
