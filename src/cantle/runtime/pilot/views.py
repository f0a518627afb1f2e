"""Which records of a pilot would a study's own run have written, had it been alone?

A pilot's journal tells of all its studies. Each of them also has a journal in its own directory that is that of a run by
itself: its tasks and steps count from 0, what concerns another study is not in it, and what concerns all (nodes that come
and go, the stop of the run) is. It depends on the pilot's records alone, so it can be made again from them at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from msgspec.structs import replace

from cantle.core.spans import Spans
from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    Launch,
    LimitsChanged,
    MoveResults,
    OrderTasks,
    Refuse,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
    Revived,
    RunStarted,
    StepsAdded,
    Stop,
    StudyAdded,
    StudyChanged,
    StudyClosed,
    StudyOver,
    TaskEnded,
    TaskHindered,
    TasksAdded,
    TaskStarted,
    TimePassed,
)
from cantle.model.study import Task
from cantle.runtime.pilot.prelude import Prelude

OfTask = Launch | Stop | Refuse | TaskStarted | TaskHindered | TaskEnded
OfTasks = Revived | OrderTasks | MoveResults | ResultsMoved | ResultsLost | ResultsForgotten


class Views:
    """Told each record of the pilot in order, says who else shall write it down, and how."""

    def __init__(self) -> None:
        self._run: RunStarted | None = None
        self._open: set[int] = set()
        self._shared = Prelude()
        """What concerned all studies so far: the beginning of each new view."""
        self._steps = 0
        self._whose = _Whose()
        self._spans: list[tuple[Spans, Spans]] = []
        """By study, its tasks and its steps."""

    def leave(self, study: int) -> None:
        """Nothing more is written down for this study."""
        self._open.discard(study)

    def split(self, record: AnyRecord) -> Iterator[tuple[int, AnyRecord]]:
        """The studies whose view has the record, and how it reads there."""
        if isinstance(record, OfTask):
            study = self._whose.study_of(record.task)
            if study in self._open:
                yield study, self._renumbered(record, self._spans[study][0])
        elif isinstance(record, TasksAdded):
            self._whose.add(record.first, len(record.tasks), record.study)
            tasks = self._spans[record.study][0]
            tasks.add(record.first, len(record.tasks))
            if record.study in self._open:
                yield record.study, self._tasks_of(record)
        elif isinstance(record, StepsAdded):
            self._spans[record.study][1].add(self._steps, len(record.steps))
            self._steps += len(record.steps)
            if record.study in self._open:
                yield record.study, replace(record, study=0)
        elif isinstance(record, StudyClosed):
            if record.study in self._open:
                yield record.study, replace(record, study=0)
        elif isinstance(record, StudyAdded):
            yield from self._begin(record)
        elif isinstance(record, StudyOver):
            self.leave(record.study)
        elif isinstance(record, CancelAsked) and (record.tasks is not None or record.study is not None):
            yield from self._canceled(record)
        elif isinstance(record, LimitsChanged):
            if record.study in self._open:
                yield record.study, replace(record, study=0)
        elif isinstance(record, OrderTasks) and not record.tasks:
            for study in sorted(self._open):
                yield study, record
        elif isinstance(record, OfTasks):
            yield from self._with_tasks(record)
        elif isinstance(record, RunStarted):
            self._run = record
        elif not isinstance(record, StudyChanged | TimePassed):
            self._shared.remember(record)
            for study in sorted(self._open):
                yield study, _seen_from(study, record)

    def _begin(self, record: StudyAdded) -> Iterator[tuple[int, AnyRecord]]:
        study = len(self._spans)
        tasks, steps = Spans(), Spans()
        self._spans.append((tasks, steps))
        steps.add(self._steps, len(record.steps))
        self._steps += len(record.steps)
        self._open.add(study)
        run = self._run or RunStarted(record.time, "pilot", "", "", 0)
        yield study, replace(run, time=record.time, run=f"{record.name}-{int(record.time)}-{study + 1}")
        for shared in self._shared:
            yield study, replace(_seen_from(study, shared), time=record.time)
        yield study, record

    def _tasks_of(self, record: TasksAdded) -> TasksAdded:
        tasks, steps = self._spans[record.study]
        first = tasks.own_number(record.first) if record.tasks else 0
        if len(tasks.firsts) < 2 and len(steps.firsts) < 2:
            task, step = record.first - first, steps.firsts[0] if steps.firsts else 0
            if not (task or step):
                return replace(record, study=0)
            return TasksAdded(record.time, first, moved(record.tasks, -task, -step))
        own, own_step = tasks.own_number, steps.own_number
        return TasksAdded(
            record.time,
            first,
            [
                replace(
                    task,
                    step=own_step(task.step),
                    parents=tuple([own(parent) for parent in task.parents]),
                    after=tuple([own(parent) for parent in task.after]),
                )
                for task in record.tasks
            ],
        )

    def _renumbered(self, record: OfTask, tasks: Spans) -> OfTask:
        own = tasks.own_number(record.task)
        if isinstance(record, Launch) and record.behind is not None:
            if own == record.task and len(tasks.firsts) == 1:
                return record
            return replace(record, task=own, behind=tasks.own_number(record.behind))
        return record if own == record.task else replace(record, task=own)

    def _canceled(self, record: CancelAsked) -> Iterator[tuple[int, AnyRecord]]:
        if record.tasks is None:
            if record.study in self._open:
                yield record.study, replace(record, study=None)
            return
        for study, tasks in self._by_study(record.tasks).items():
            yield study, replace(record, tasks=tasks)

    def _with_tasks(self, record: OfTasks) -> Iterator[tuple[int, AnyRecord]]:
        for study, tasks in self._by_study(record.tasks).items():
            yield study, replace(record, tasks=tasks)

    def _by_study(self, tasks: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for task in tasks:
            study = self._whose.study_of(task)
            if study in self._open:
                found.setdefault(study, []).append(self._spans[study][0].own_number(task))
        return found


class _Whose:
    """To which study does a task belong?"""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._studies: list[int] = []

    def add(self, first: int, n: int, study: int) -> None:
        """The next tasks are this study's."""
        if n and not (self._studies and self._studies[-1] == study):
            self._firsts.append(first)
            self._studies.append(study)

    def study_of(self, task: int) -> int:
        """Its number."""
        return self._studies[bisect_right(self._firsts, task) - 1]


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
