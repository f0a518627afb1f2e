"""Why is a request not heeded? For the people who read what a conductor notes."""

from __future__ import annotations

from cantle.core.scaling.wishing import why_not
from cantle.core.state import State
from cantle.model.records import (
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
    StopAsked,
)
from cantle.model.resources import count

MOST_NAMED = 5


def unheeded(wish: Event, state: State, *, of_one_study: bool = False) -> str:
    """One sentence. `of_one_study`: it was left in the directory of one of a pilot's studies, and read as it was left."""
    by = getattr(wish, "by", "")
    return f"a request{f' by {by}' if by else ''} to {_what(wish)} is ignored: {reason(wish, state, of_one_study)}"


def _what(wish: Event) -> str:
    match wish:
        case CancelAsked():
            return f"cancel {_tasks(wish)}"
        case LimitsChanged():
            return "change the limits"
        case StopAsked():
            return "stop the run"
        case NodeDrainAsked():
            return f"{'give back' if wish.goes else 'drain'} node {wish.node}"
        case NodeResumeAsked():
            return f"use node {wish.node} again"
        case NodesWished():
            many = "any number of nodes" if wish.count is None else count(wish.count, "node")
            return f"have {many} of kind {wish.kind}"
        case PartitionAsked():
            return f"make the partition {wish.wish.name!r}"
        case PartitionResizeAsked():
            return f"resize the partition {wish.name!r}"
        case PartitionDrainAsked():
            return f"drain the partition {wish.name!r}"
        case PartitionCancelAsked():
            return f"cancel the partition {wish.name!r}"
        case ElementsAsked():
            return f"{'hold ' + wish.want if wish.want else 'give elements back'} under the name {wish.name!r}"
        case _:
            return f"do what {type(wish).__name__} says"


def reason(wish: Event, state: State, of_one_study: bool = False) -> str:
    """Why it is not heeded, without what was asked."""
    match wish:
        case StopAsked() if of_one_study:
            return "it is one of several studies of a pilot; cancel it, or take the pilot down"
        case NodeDrainAsked() | NodeResumeAsked() | NodesWished() if of_one_study:
            return "nodes are those of the whole pilot; ask in its directory"
        case NodeDrainAsked() | NodeResumeAsked():
            return "there is no node of that name"
        case NodesWished():
            return why_not(state, wish.kind, wish.count) or "no node of that kind can be had here"
        case ElementsAsked() if of_one_study:
            return "elements are asked for in the directory of the pilot"
        case CancelAsked() if wish.study is not None and wish.tasks is None:
            return f"there is no study {wish.study + 1}"
        case CancelAsked():
            return "there is no such task"
        case LimitsChanged():
            return f"there is no study {wish.study + 1}"
        case PartitionAsked() if wish.wish.width < 1:
            return f"no partition has {wish.wish.width} nodes"
        case PartitionAsked() if (wish.study, wish.wish.name) in state.partitions.by_name:
            return "there is one of that name already"
        case PartitionResizeAsked() | PartitionDrainAsked() | PartitionCancelAsked():
            return _why_not_meant(wish.name, wish.study, state)
        case ElementsAsked():
            return "it cannot be read, or nothing is sliced here"
        case _:
            return "there is nothing that it could be asked of"


def _why_not_meant(name: str, study: int, state: State) -> str:
    if study < 0 and any(partition.name == name for partition in state.partitions.by_name.values()):
        return "several studies have one of that name; ask in the study's directory"
    if any(partition.name == name and partition.is_seen_by(study) for partition in state.partitions.all):
        return "it is over already"
    return "there is none of that name"


def _tasks(wish: CancelAsked) -> str:
    if wish.tasks is None:
        return "all tasks"
    named = ", ".join(map(str, wish.tasks[:MOST_NAMED]))
    more = len(wish.tasks) - MOST_NAMED
    return f"{'task' if len(wish.tasks) == 1 else 'tasks'} {named}{f' and {more} more' if more > 0 else ''}"
