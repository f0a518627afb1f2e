"""How long are results needed that live on a node, how long does it take to move them, and where to?"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from cantle.core.forecast import expected_end, expected_s
from cantle.core.phases import ACTIVE, FINAL
from cantle.model.resources import indexes

if TYPE_CHECKING:
    from cantle.core.state import State

MOVES_MIB_PER_S = 100.0
"""So fast results are taken to move,"""
MOVE_STARTS_S = 1.0
"""and so long each move to take at least."""
MOST_MOVES = 3
"""So often it is tried to move what a node holds, or to so many nodes."""


def move_s(size: int) -> float:
    """What it takes to move so many bytes, seconds."""
    return MOVE_STARTS_S + size / (1 << 20) / MOVES_MIB_PER_S


def needed_for_s(state: State, tasks: Iterable[int]) -> float:
    """For how long the results are needed yet, seconds, as far as anybody can tell; infinite otherwise."""
    longest = 0.0
    for task in tasks:
        users = [child for child in state.children[task] or () if state.phases[child] not in FINAL]
        if not users:
            return inf  # somebody outside the run wants it
        for child in users:
            if state.phases[child] not in ACTIVE:
                return inf
            end = expected_end(state.now, state.launched_at[child], expected_s(state, child))
            longest = max(longest, end - state.now)
    return longest


def stays_longest(state: State, index: int) -> int:
    """The node, not this one, that stays longest, as far as anybody knows, with the most that runs; -1 when there is none."""
    ends = {} if state.lifetimes is None else state.lifetimes.ends
    stay = indexes(_staying(state) & ~(1 << index))
    return max(stay, key=lambda n: (ends.get(n, inf), len(state.running_on.get(n, ())), -n), default=-1)


def stay_longer(state: State, index: int) -> list[int]:
    """Nodes that stay longer than this one, a few of those that stay longest: begun with another one for each node."""
    ends = {} if state.lifetimes is None else state.lifetimes.ends
    stay = indexes(_staying(state) & ~(1 << index))
    latest = max((ends.get(n, inf) for n in stay), default=-inf)
    if latest <= ends.get(index, inf):
        return []
    last = [n for n in stay if ends.get(n, inf) == latest]
    first = index % len(last)
    return (last[first:] + last[:first])[:MOST_MOVES]


def _staying(state: State) -> int:
    """The nodes, as bits, that neither are drained nor about to go."""
    leaving = state.scaling.leaving() if state.scaling is not None else 0
    for drained in state.drained:
        leaving |= 1 << drained
    return state.room.alive & ~leaving
