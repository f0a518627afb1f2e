"""When are local files brought to where a task can run that takes them?

It runs where its files are. When no node that has all of them can be used for it, they are brought together on one that can:
on the one with most of their bytes already. A node to which they could not be brought is not tried again. When none is left,
and nothing runs or comes that could change that, the task fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cantle.core.keeping import Keeping
from cantle.core.nearness import DEPTH
from cantle.core.queues import Shape
from cantle.core.state import State
from cantle.model.records import Decision, MoveResults, Refuse
from cantle.model.resources import indexes

Place: TypeAlias = tuple[int, int]
"""Nodes, as bits, and how many of them a task takes."""


def gather(state: State) -> Iterator[Decision]:
    """Move the files of the most urgent ready tasks that could not start anywhere."""
    keeping = state.keeping
    assert keeping is not None
    unusable = sum(1 << index for index in {*state.drained, *keeping.leaving()})
    for number, queue in enumerate(state.queues):
        if queue.head() is None:
            continue
        places = [place for place in _places(state, number) if _suffices(place, unusable)]
        for task in queue.first(DEPTH) if places else ():
            barred = keeping.barred(state, task)
            if barred and not any(_suffices(place, unusable | barred) for place in places):
                usable, _ = min(places, key=lambda place: _lacking(keeping, state, task, place[0] & barred & ~unusable))
                yield from _bring_together(state, keeping, task, usable & barred & ~unusable)


def _suffices(place: Place, without: int) -> bool:
    nodes, wanted = place
    return (nodes & ~without).bit_count() >= wanted


def _lacking(keeping: Keeping, state: State, task: int, nodes: int) -> tuple[bool, int]:
    """Of those nodes: whether one of them could not be given what it lacks, and how many bytes they lack in all."""
    files = [parent for parent in dict.fromkeys(state.tasks[task].parents) if _is_file(keeping, parent)]
    lacks = [(parent, i) for i in indexes(nodes) for parent in files if not keeping.nodes_with(parent) >> i & 1]
    return any(lack in keeping.problems for lack in lacks), sum(keeping.results[parent].size for parent, _ in lacks)


def _places(state: State, number: int) -> list[Place]:
    """Where tasks of this queue could run if all that is taken were free: nodes, and how many of them it takes.

    In an element they take all of its nodes.
    """
    shape = state.queues[number].shape
    if not shape.partition and not state.is_sliced(shape):
        return [(state.room.could_ever_hold(shape.needs), shape.needs.nodes)]
    from cantle.core.partitions import key_of
    from cantle.core.retaining import takes

    key = key_of(state, shape.study, shape.partition) if shape.partition else (shape.study, "")
    living = state.partitions.living.values()
    elements = [p for p in living if p.element is not None and p.serves and (p.study, p.holder) == key]
    if not shape.partition or key in state.partitions.requests or elements:
        return [(p.room.alive, p.width) for p in elements if takes(shape, p.width)] or _elements_to_be(state, shape)
    partition = state.partitions.by_name.get(key)
    if partition is None or not partition.serves:
        return []
    return [(partition.room.could_ever_hold(shape.needs), shape.needs.nodes)]


def _elements_to_be(state: State, shape: Shape) -> list[Place]:
    """The elements that could be made for tasks of the shape, were all cores free."""
    from cantle.core.cuts import Cuts
    from cantle.core.holdable import lack_of
    from cantle.core.retaining import takes

    slicing = state.studies[shape.study].added.slicing
    if slicing is None:
        return []
    cuts, found = Cuts(slicing, state.room), list[Place]()
    for slice_, each in enumerate(slicing.slices):
        order = cuts.order(slice_) if takes(shape, each.width) else ()
        for first in range(0, len(order) - each.width + 1, each.width):
            nodes = [(state.room.nodes[index], index) for index in order[first : first + each.width]]
            if not any(lack_of(node, cuts.share(slice_, node.cores), shape.needs) for node, _ in nodes):
                found.append((sum(1 << index for _, index in nodes), each.width))
    return found


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
