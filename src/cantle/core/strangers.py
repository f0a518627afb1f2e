"""Does a record of a damaged journal name what that journal does not tell of?

Nothing can be made of a task, a step or a study of which only the number is left. Of a node or a request for nodes something
can: nothing is known to run there, nothing to be on its way, so that what is told of it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cantle.model import records as r

if TYPE_CHECKING:
    from cantle.core.state import State
    from cantle.model.study import Task

_OF_A_TASK = (r.Launch, r.Stop, r.TaskStarted, r.TaskHindered, r.TaskEnded, r.Refuse)
_OF_TASKS = (
    r.CancelAsked,
    r.Revived,
    r.StudyChanged,
    r.OrderTasks,
    r.MoveResults,
    r.ResultsMoved,
    r.ResultsLost,
    r.ResultsForgotten,
)
_OF_A_STUDY = (r.TasksAdded, r.StepsAdded, r.StudyClosed, r.StudyOver, r.StudyChanged, r.LimitsChanged, r.CancelAsked)
_OF_A_NODE = (r.NodeLost, r.DrainNode, r.ResumeNode, r.GiveUpNode, r.ReleaseNode, r.NodeReleased, r.NoticeIdle)


def stranger_in(state: State, record: r.AnyRecord) -> str:
    """What the record names that nobody can do without, as in `task 5`; "" where all of that is known."""
    if isinstance(record, _OF_A_STUDY) and record.study is not None and record.study >= len(state.studies):
        return f"study {record.study}"
    if isinstance(record, r.TasksAdded):
        if record.first > len(state.tasks):
            return f"task {len(state.tasks)}"
        return _stranger_among(record.tasks, len(state.steps), record.first + len(record.tasks))
    if isinstance(record, r.StudyChanged):
        found = _stranger_among(record.rows.values(), len(record.steps), len(state.tasks))
        if found:
            return found
    unknown = next((task for task in _tasks_of(record) if task >= len(state.tasks)), None)
    return "" if unknown is None else f"task {unknown}"


def changes_nothing(state: State, record: r.AnyRecord) -> bool:
    """Whether it tells of a node or of a request that nobody knows, or of tasks that are known already."""
    if isinstance(record, _OF_A_NODE):
        return record.node not in state.room.nodes
    if isinstance(record, r.RequestAnswered | r.WithdrawRequest):
        return state.scaling is None or record.request >= len(state.scaling.requests)
    return isinstance(record, r.TasksAdded) and record.first < len(state.tasks)


def _tasks_of(record: r.AnyRecord) -> Iterable[int]:
    if isinstance(record, _OF_A_TASK):
        return (record.task,)
    if isinstance(record, r.StudyChanged):
        return (*record.tasks, *record.rows)
    return (record.tasks or ()) if isinstance(record, _OF_TASKS) else ()


def _stranger_among(rows: Iterable[Task], steps: int, tasks: int) -> str:
    """What these tasks stand on that is not among so many steps and so many tasks."""
    for row in rows:
        if row.step >= steps:
            return f"step {row.step}"
        for parent in _parents(row):
            if parent >= tasks:
                return f"task {parent}"
    return ""


def _parents(row: Task) -> Iterator[int]:
    yield from row.parents
    yield from row.after
