"""When are local files brought to where a task can run that takes them?

It runs where its files are. When no node that has all of them can be used for it, they are brought together on one that can:
on the one with most of their bytes already. A node to which they could not be brought is not tried again. When none is left,
and nothing runs or comes that could change that, the task fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from cantle.core.keeping import Keeping
from cantle.core.nearness import DEPTH
from cantle.core.queues import Shape
from cantle.core.state import State
from cantle.model.records import Decision, MoveResults, Refuse
from cantle.model.resources import indexes


def gather(state: State) -> Iterator[Decision]:
    """Move the files of the most urgent ready tasks that could not start anywhere."""
    keeping = state.keeping
    assert keeping is not None
    going = state.drained_nodes
    for index in keeping.leaving():
        going |= 1 << index
    for queue in state.queues:
        if queue.head() is None:
            continue
        shape = queue.shape
        usable = state.room.could_ever_hold(shape.needs) if not shape.partition else _in_partition(state, shape)
        usable &= ~going
        if usable.bit_count() < shape.needs.nodes:
            continue
        for task in queue.first(DEPTH):
            barred = keeping.barred(state, task)
            if barred and (usable & ~barred).bit_count() < shape.needs.nodes:
                yield from _bring_together(state, keeping, task, usable & barred)


def _in_partition(state: State, shape: Shape) -> int:
    """The nodes, as bits, of the partition in which tasks of the shape run that could hold one; 0 when there is none."""
    from cantle.core.partitions import key_of

    partition = state.partitions.by_name.get(key_of(state, shape.study, shape.partition))
    return partition.room.could_ever_hold(shape.needs) if partition is not None and partition.serves else 0


def _bring_together(state: State, keeping: Keeping, task: int, usable: int) -> Iterator[Decision]:
    """To one of these nodes, and then to the next one if it needs several."""
    files = [parent for parent in dict.fromkeys(state.tasks[task].parents) if _is_file(keeping, parent)]
    if any(parent in keeping.moving for parent in files):
        return
    there = {parent: keeping.nodes_with(parent) for parent in files}

    def missing(index: int) -> list[int]:
        return [parent for parent in files if not there[parent] >> index & 1]

    able = [i for i in indexes(usable) if not any((parent, i) in keeping.problems for parent in missing(i))]
    if not able:
        coming = state.awaited or (state.scaling is not None and state.scaling.open)
        if not (state.running or coming or state.drained_names):
            yield Refuse(state.now, task, _why_not_brought(state, keeping, files, usable))
        return
    to = min(able, key=lambda index: (sum(keeping.results[parent].size for parent in missing(index)), index))
    by_source: dict[int, list[int]] = {}
    for parent in missing(to):
        by_source.setdefault(indexes(there[parent])[0], []).append(parent)
    for source, parents in by_source.items():
        yield MoveResults(
            state.now, parents, source, to, f"{state.tasks[task].name} takes them, and cannot run where they are"
        )


def _why_not_brought(state: State, keeping: Keeping, files: list[int], usable: int) -> str:
    """What went wrong with the first of them, on the last node to which it was to be brought."""
    nodes = state.room.nodes
    for parent in files:
        for to in reversed(indexes(usable)):
            if (parent, to) in keeping.problems:
                where = nodes[indexes(keeping.nodes_with(parent))[0]].name
                whose = state.tasks[parent].name
                return (
                    f"takes files that {whose} left on {where}, where it cannot run; they could be brought to no other node, "
                    f"the last time to {nodes[to].name}: {keeping.problems[parent, to]}"
                )
    return "takes files that could be brought to no node where it could run"


def _is_file(keeping: Keeping, parent: int) -> bool:
    result = keeping.results.get(parent)
    return result is not None and result.files and bool(result.at)
