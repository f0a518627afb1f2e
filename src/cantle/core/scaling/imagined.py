"""Could tasks that run in partitions, or in elements of slices, ever run, with all the nodes that may yet be there?

These do not only need nodes that could hold them. So what is there is looked at together with nodes of each kind that may be
asked for, as if they had come.
"""

from __future__ import annotations

from cantle.core.decide import why_never_as
from cantle.core.lifetimes import in_words
from cantle.core.queues import Shape
from cantle.core.room import Room
from cantle.core.scaling.capacity import useful_s
from cantle.core.scaling.ledger import room_for_more
from cantle.core.state import State
from cantle.model.resources import indexes

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


def _imagined(state: State, shape: Shape, walltime_s: float, without: int) -> Room:
    """What is there but for these nodes (bits), and what could come that stays for so long."""
    room = Room()
    for index, node in state.room.nodes.items():
        room.add(node)
        if not state.room.alive & ~without >> index & 1:
            room.lose(index)
    ledger = state.scaling
    if ledger is None:
        return room
    most = ENOUGH * _widest(state, shape)
    for kind in ledger.kinds.values():
        if walltime_s > useful_s(state, kind):
            continue
        up = ledger.up.get(kind.name, 0)
        like = state.room.nodes[indexes(up)[-1]] if up else kind.node(kind.name)
        coming = ledger.coming(kind.name)
        more = room_for_more(kind, up.bit_count() + coming) if ledger.can_add(kind) else 0
        for _ in range(int(min(coming + more, most))):
            room.add(like)
    return room


def _widest(state: State, shape: Shape) -> int:
    """On how many nodes it may have to be looked for room."""
    widths = [*shape.widths, shape.needs.nodes, *(partition.width for partition in state.partitions.living.values())]
    for study in state.studies:
        widths += [wish.width for wish in study.added.partitions]
        widths += [each.width for each in study.added.slicing.slices] if study.added.slicing is not None else []
    return max(widths)
