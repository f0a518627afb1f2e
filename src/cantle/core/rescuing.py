"""Which results are brought to another node since the time of theirs is up?

What a node holds alone, and is needed, goes with the node when its allocation ends. So it is brought to a node that stays
longer: once this one is to be empty, and earlier where there is more than can be moved between then and its end. Where no node
stays longer there is no place for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

from cantle.core.keeping import Keeping
from cantle.core.lifetimes import Lifetimes
from cantle.core.moving import PAUSE_S, by_target, move_s, needed_for_s, stay_longer
from cantle.core.state import State
from cantle.model.records import Decision, MoveResults
from cantle.model.resources import count, indexes

WAKES_AT = "rescuing wakes at"
"""In a plan's memory: when to be asked again though nothing happens."""
AHEAD = 2.0
"""A move is taken to last so many times as long as it should."""
LOOK_S = 1.0
"""So often at most, unless something is due, it is looked at nodes whose time is not up: there may be thousands."""


class _Looked(NamedTuple):
    """When all nodes were looked at last: what was known of their ends then, and when to look again at the earliest."""

    steps: list[tuple[float, int]]
    over: int
    again_at: float


def rescue(state: State, memory: dict[object, Any]) -> Iterator[Decision]:
    """Move what would be lost with the nodes that end before others do."""
    lifetimes, keeping = state.lifetimes, state.keeping
    memory[WAKES_AT] = inf
    if lifetimes is None or keeping is None or not lifetimes.steps:
        return
    if len(lifetimes.steps) == 1 and not state.room.alive & ~lifetimes.steps[0][1]:
        return  # all end together
    looked: _Looked | None = memory.get("rescue looked")
    if looked is not None and (looked.steps is not lifetimes.steps or looked.over != lifetimes.over):
        looked = None
    if looked is not None and state.now < looked.again_at:
        memory[WAKES_AT] = looked.again_at
        for index in indexes(lifetimes.over & state.room.alive):
            yield from _rescue_from(state, lifetimes, keeping, memory, index)
        return
    for index in indexes(lifetimes.steps[-1][1] & state.room.alive):
        yield from _rescue_from(state, lifetimes, keeping, memory, index)
    memory["rescue looked"] = _Looked(lifetimes.steps, lifetimes.over, min(state.now + LOOK_S, memory[WAKES_AT]))


def _rescue_from(
    state: State, lifetimes: Lifetimes, keeping: Keeping, memory: dict[object, Any], index: int
) -> Iterator[Decision]:
    """Costs by what lives on the node only when something is due, and then once in a while."""
    over = bool(lifetimes.over >> index & 1)
    tasks, size = keeping.alone_on(index)
    if not tasks or index not in lifetimes.leaves:
        return
    paused_until = memory.get(("rescue paused", index), -inf)
    if state.now < paused_until:
        memory[WAKES_AT] = min(memory[WAKES_AT], paused_until)
        return
    at = lifetimes.leaves[index]
    due = at - max(0.0, AHEAD * move_s(size) - (lifetimes.ends[index] - at))
    if state.now < due:
        memory[WAKES_AT] = min(memory[WAKES_AT], due)
        return
    targets = stay_longer(state, index)
    if not targets:
        return
    memory["rescue paused", index] = state.now + PAUSE_S
    if any(task in keeping.moving for task in tasks):
        return
    if over or needed_for_s(state, keeping, tasks) > at - state.now:
        why = f"would be lost with {state.room.nodes[index].name}, whose allocation ends"
        for to, movable in by_target(keeping, tasks, targets).items():
            yield MoveResults(state.now, movable, index, to, f"{count(len(movable), 'result')} {why}")
