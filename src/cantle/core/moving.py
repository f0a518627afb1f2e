"""How long are results needed that live on a node, how long does it take to move them, and where to?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from cantle.core.forecast import expected_end, expected_s
from cantle.core.phases import ACTIVE
from cantle.model.resources import indexes

if TYPE_CHECKING:
    from cantle.core.keeping import Keeping
    from cantle.core.state import State

MOVES_MIB_PER_S = 100.0
"""So fast results are taken to move,"""
MOVE_STARTS_S = 1.0
"""and so long each move to take at least."""
MOST_MOVES = 3
"""To so many nodes it is tried to move a result."""
PAUSE_S = 1.0
"""So often at most it is looked at all that a node holds: there may be thousands of results."""


def move_s(size: int) -> float:
    """What it takes to move so many bytes, seconds."""
    return MOVE_STARTS_S + size / (1 << 20) / MOVES_MIB_PER_S


def needed_for_s(state: State, keeping: Keeping, tasks: Iterable[int]) -> float:
    """For how long the kept results are needed yet, seconds, as far as anybody can tell; infinite otherwise."""
    longest = 0.0
    for task in tasks:
        result = keeping.results[task]
        if result.wanted or not result.users:
            return inf  # somebody outside the run may ask for it at any time
        for user in result.users:
            if state.phases[user] not in ACTIVE:
                return inf
            end = expected_end(state.now, state.launched_at[user], expected_s(state, user))
            longest = max(longest, end - state.now)
    return longest


def stay_longest(state: State, index: int) -> list[int]:
    """A few of the nodes, not this one, that stay longest, as far as anybody knows: begun with another one for each node.

    Those on which something runs come before the others, which are the first to be given back.
    """
    ends = {} if state.lifetimes is None else state.lifetimes.ends
    stay = indexes(_staying(state) & ~(1 << index))
    latest = max((ends.get(n, inf) for n in stay), default=inf)
    last = [n for n in stay if ends.get(n, inf) == latest]
    busy, idle = [n for n in last if state.running_on.get(n)], [n for n in last if not state.running_on.get(n)]
    return (_begun_with(busy, index) + _begun_with(idle, index))[:MOST_MOVES]


def _begun_with(nodes: list[int], number: int) -> list[int]:
    first = number % len(nodes) if nodes else 0
    return nodes[first:] + nodes[:first]


def stay_longer(state: State, index: int) -> list[int]:
    """As `stay_longest`; none when this one stays as long."""
    ends = {} if state.lifetimes is None else state.lifetimes.ends
    found = stay_longest(state, index)
    return found if found and ends.get(found[0], inf) > ends.get(index, inf) else []


def by_target(keeping: Keeping, tasks: Iterable[int], targets: Sequence[int]) -> dict[int, list[int]]:
    """Which of the results are brought to which of these nodes: to the first to which it was not tried in vain before."""
    found: dict[int, list[int]] = {}
    for task in tasks:
        for to in targets:
            if (task, to) not in keeping.problems:
                found.setdefault(to, []).append(task)
                break
    return found


def _staying(state: State) -> int:
    """The nodes, as bits, that neither are drained nor about to go."""
    leaving = state.scaling.leaving() if state.scaling is not None else 0
    return state.room.alive & ~(leaving | state.drained_nodes)
