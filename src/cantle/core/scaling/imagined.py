"""Could tasks that run in partitions, or in elements of slices, ever run, with all the nodes that may yet be there?

These do not only need nodes that could hold them. So what is there is looked at together with nodes of each kind that may be
asked for, as if they had come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from cantle.core.decide import why_never_as
from cantle.core.lifetimes import in_words
from cantle.core.queues import Shape
from cantle.core.room import Room
from cantle.core.scaling.capacity import able_now, can_hold, useful_s
from cantle.core.scaling.idle import element_for
from cantle.core.scaling.ledger import room_for_more
from cantle.core.siting import needs_of
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.resources import Needs, indexes

ENOUGH = 2
"""So many times as many nodes of a kind are imagined as anybody needs: some of them stand next to each other in any case."""


def why_never_in_its_place(state: State, shape: Shape, walltime_s: float) -> str:
    """Why tasks of this shape can never run in their partition or in an element, "" when they can."""
    lifetimes = state.lifetimes
    why = why_never_as(state, shape)
    too_short = 0 if lifetimes is None or not walltime_s else lifetimes.leave_before(state.now + walltime_s)
    if not (why or too_short & state.room.alive):
        return ""
    found = why_never_as(state, shape, _imagined(state, shape, walltime_s, too_short))
    if not found or not walltime_s:
        return found
    for_so_long = f"{found}, for the {in_words(walltime_s)} that it needs"
    return why_never_as(state, shape, _imagined(state, shape, 0.0, 0)) or for_so_long


def scattered(state: State) -> Iterator[tuple[Needs, int]]:
    """What is ready and has nodes enough, but not side by side: what it needs of each, and how many there must be in all.

    Elements are cut from nodes that follow each other, so one that could not hold its share spoils those beside it.
    """
    ledger = state.scaling
    for queue in state.queues if ledger is not None else ():
        found = _side_by_side(state, queue.shape) if queue.head() is not None else None
        if ledger is None or found is None:
            continue
        needs, width = found
        able = able_now(state, needs)
        alike = able == state.room.alive and not queue.shape.partition
        if alike or able.bit_count() < width or not why_never_as(state, queue.shape):
            continue
        for kind in ledger.kinds.values():
            most = int(min(ledger.headroom(kind), ENOUGH * width)) if ledger.can_add(kind) else 0
            if most and can_hold(state, kind, needs) and (more := _how_many_more(state, queue.shape, kind, most)):
                yield needs, able.bit_count() + more
                break


def _side_by_side(state: State, shape: Shape) -> tuple[Needs, int] | None:
    """Of each of how many nodes that follow each other something is needed, None where they may be any."""
    if state.is_sliced(shape):
        return next(((needs, width) for needs, width, _ in element_for(state, shape)), None)
    declared = state.studies[shape.study].added.partitions if shape.partition else ()
    for wish in declared:
        if wish.name == shape.partition and wish.layout == "contiguous":
            return needs_of(wish), wish.width
    return None


def _how_many_more(state: State, shape: Shape, kind: Kind, most: int) -> int:
    """How many nodes of the kind let tasks of the shape run, 0 when not even `most` do."""

    def is_enough(number: int) -> bool:
        room = _as_it_is(state, 0)
        _add(state, room, kind, number)
        return not why_never_as(state, shape, room)

    more = bisect_left(range(most + 1), True, lo=1, key=is_enough)
    return more if more <= most else 0


def _imagined(state: State, shape: Shape, walltime_s: float, without: int) -> Room:
    """What is there but for these nodes (bits), and what could come that stays for so long."""
    room = _as_it_is(state, without)
    ledger = state.scaling
    if ledger is None:
        return room
    most = ENOUGH * _widest(state, shape)
    for kind in ledger.kinds.values():
        if walltime_s > useful_s(state, kind):
            continue
        coming = ledger.coming(kind.name)
        there = ledger.up.get(kind.name, 0).bit_count()
        more = room_for_more(kind, there + coming) if ledger.can_add(kind) else 0
        _add(state, room, kind, int(min(coming + more, most)))
    return room


def _as_it_is(state: State, without: int) -> Room:
    room = Room()
    for index, node in state.room.nodes.items():
        room.add(node)
        if not (state.room.alive & ~without) >> index & 1:
            room.lose(index)
    return room


def _add(state: State, room: Room, kind: Kind, number: int) -> None:
    """So many that are like those of the kind that are there."""
    up = 0 if state.scaling is None else state.scaling.up.get(kind.name, 0)
    like = state.room.nodes[indexes(up)[-1]] if up else kind.node(kind.name)
    for _ in range(number):
        room.add(like)


def _widest(state: State, shape: Shape) -> int:
    """On how many nodes it may have to be looked for room."""
    widths = [*shape.widths, shape.needs.nodes, *(partition.width for partition in state.partitions.living.values())]
    for study in state.studies:
        widths += [wish.width for wish in study.added.partitions]
        widths += [each.width for each in study.added.slicing.slices] if study.added.slicing is not None else []
    return max(widths)
