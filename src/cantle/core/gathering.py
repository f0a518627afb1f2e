"""When are local files brought to where a task can run that takes them?

It runs where its files are. When no node that has all of them can be used for it, they are brought together on one that can:
on the one with most of their bytes already. A node to which they could not be brought is not tried again.
"""

from __future__ import annotations

from collections.abc import Iterator

from cantle.core.keeping import Keeping
from cantle.core.nearness import DEPTH
from cantle.core.state import State
from cantle.model.records import Decision, MoveResults
from cantle.model.resources import indexes


def gather(state: State) -> Iterator[Decision]:
    """Move the files of the most urgent ready tasks that could not start anywhere."""
    keeping = state.keeping
    assert keeping is not None
    for queue in state.queues:
        if not queue.heap or queue.shape.partition or queue.shape.needs.nodes > 1:
            continue
        usable = state.room.could_ever_hold(queue.shape.needs)
        for index in (*state.drained, *keeping.leaving()):
            usable &= ~(1 << index)
        for task in queue.first(DEPTH):
            barred = keeping.barred(state, task)
            if barred and usable and not usable & ~barred:
                yield from _bring_together(state, keeping, task, usable)


def _bring_together(state: State, keeping: Keeping, task: int, usable: int) -> Iterator[Decision]:
    files = [parent for parent in dict.fromkeys(state.tasks[task].parents) if _is_file(keeping, parent)]
    if any(parent in keeping.moving for parent in files):
        return
    there = {parent: keeping.nodes_with(parent) for parent in files}

    def missing(index: int) -> list[int]:
        return [parent for parent in files if not there[parent] >> index & 1]

    able = [i for i in indexes(usable) if not any((parent, i) in keeping.problems for parent in missing(i))]
    if not able:
        return
    to = min(able, key=lambda index: (sum(keeping.results[parent].size for parent in missing(index)), index))
    by_source: dict[int, list[int]] = {}
    for parent in missing(to):
        by_source.setdefault(indexes(there[parent])[0], []).append(parent)
    for source, parents in by_source.items():
        yield MoveResults(
            state.now, parents, source, to, f"{state.tasks[task].name} takes them, and cannot run where they are"
        )


def _is_file(keeping: Keeping, parent: int) -> bool:
    result = keeping.results.get(parent)
    return result is not None and result.files and bool(result.at)
