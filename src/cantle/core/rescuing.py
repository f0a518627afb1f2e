"""Which results are brought to another node since the time of theirs is up?

What a node holds alone, and is needed, goes with the node when its allocation ends. So it is brought to a node that stays
longer: once this one is to be empty, and earlier where there is more than can be moved between then and its end. Where no node
stays longer there is no place for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from cantle.core.keeping import Keeping
from cantle.core.lifetimes import Lifetimes
from cantle.core.moving import move_s, needed_for_s, stay_longer
from cantle.core.state import State
from cantle.model.records import Decision, MoveResults
from cantle.model.resources import count, indexes

WAKES_AT = "rescuing wakes at"
"""In a plan's memory: when to be asked again though nothing happens."""
AHEAD = 2.0
"""A move is taken to last so many times as long as it should."""
PAUSE_S = 1.0
"""What becomes alone on a node that is about to leave is moved together with what else does so within this time."""


def rescue(state: State, memory: dict[object, Any]) -> Iterator[Decision]:
    """Move what would be lost with the nodes that end before others do."""
    lifetimes, keeping = state.lifetimes, state.keeping
    memory[WAKES_AT] = inf
    if lifetimes is None or keeping is None or not lifetimes.steps:
        return
    if len(lifetimes.steps) == 1 and not state.room.alive & ~lifetimes.steps[0][1]:
        return  # all end together
    for at, index in _in_order(lifetimes):
        if not state.room.alive >> index & 1:
            continue
        over = bool(lifetimes.over >> index & 1)
        tasks = keeping.lost_with(index) if over else list(keeping.alone_on(index)[0])
        if not tasks or any(task in keeping.moving for task in tasks):
            continue
        takes_s = AHEAD * move_s(sum(keeping.results[task].size for task in tasks))
        due = at - max(0.0, takes_s - (lifetimes.ends[index] - at))
        if state.now < due:
            memory[WAKES_AT] = min(memory[WAKES_AT], due)
        elif over or needed_for_s(state, tasks) > at - state.now:
            yield from _move(state, keeping, memory, index, tasks)


def _in_order(lifetimes: Lifetimes) -> list[tuple[float, int]]:
    """When each node has to be empty, the first one first."""
    found: list[tuple[float, int]] = []
    before = 0
    for at, left in lifetimes.steps:
        found += ((at, index) for index in indexes(left & ~before))
        before = left
    return found


def _move(
    state: State, keeping: Keeping, memory: dict[object, Any], index: int, tasks: list[int]
) -> Iterator[Decision]:
    targets = stay_longer(state, index)
    by_target: dict[int, list[int]] = {}
    for task in tasks:
        to = next((to for to in targets if (task, to) not in keeping.problems), -1)
        if to >= 0:
            by_target.setdefault(to, []).append(task)
    paused_until = memory.get(("rescue paused", index), -inf)
    if by_target and state.now < paused_until:
        memory[WAKES_AT] = min(memory[WAKES_AT], paused_until)
        return
    if by_target:
        memory["rescue paused", index] = state.now + PAUSE_S
    why = f"would be lost with {state.room.nodes[index].name}, whose allocation ends"
    for to, movable in by_target.items():
        yield MoveResults(state.now, movable, index, to, f"{count(len(movable), 'result')} {why}")
