"""Would tasks that can never run have found their nodes with those that were lost? What to tell people of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cantle.core.decide import why_never_as
from cantle.core.lifetimes import in_words
from cantle.core.room import Room

if TYPE_CHECKING:
    from cantle.core.queues import Shape
    from cantle.core.state import State

_MOST = 3
"""Of so many lost nodes it is told how they went."""


class Loss(msgspec.Struct, frozen=True):
    """When and why a node went that nobody gave back, in the records' time."""

    at: float
    reason: str


def told_of_losses(state: State, shape: Shape) -> str:
    """What to add to why tasks of this shape can never run: which nodes were lost, "" where that made no difference."""
    there = {node.name for node in state.nodes_alive()}
    lost = [index for index in state.lost_nodes if state.room.nodes[index].name not in there]
    if not lost or why_never_as(state, shape, _with(state, lost)):
        return ""
    all_of_them = len(there) + len(lost)
    if all_of_them == 1:
        what = "the only node that was there was lost"
    else:
        what = f"{len(lost):,} of the {all_of_them:,} nodes that were there {'was' if len(lost) == 1 else 'were'} lost"
    told = "; ".join(_one(state, index) for index in lost[:_MOST])
    more = f"; and {len(lost) - _MOST:,} more" if len(lost) > _MOST else ""
    return f"; {what}: {told}{more}"


def _one(state: State, index: int) -> str:
    name, loss = state.room.nodes[index].name, state.lost_nodes[index]
    reason = loss.reason.removeprefix(f"{name}: ")
    return f"{name}, {in_words(max(0.0, loss.at - state.started_at))} after the run began{reason and f' ({reason})'}"


def _with(state: State, lost: list[int]) -> Room:
    """The nodes that there would be."""
    room = Room()
    for index, node in state.room.nodes.items():
        room.add(node)
        if not state.room.alive >> index & 1 and index not in lost:
            room.lose(index)
    return room
