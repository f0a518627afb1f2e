"""On which machine lie a task's inputs, and how long does it wait for a place there?

What a task reads, its parents wrote; most of it is still in the memory or on the disk of the machine that they ran on. So a
task prefers the machine of most of its parents, or of most bytes where results live on nodes. When that is full, another task
of its queue that is at home where there is room goes first, and the one that was passed over waits for a moment: long enough
that a core there is likely to come free, short against what it would lose elsewhere. Then it runs anywhere. (This is delay
scheduling.) Where tasks go in an order that was reckoned (`ordering`), nobody waits, and only like goes before like: what the
order gains would be lost. On a single machine nothing of this happens.
"""

from __future__ import annotations

import math

from cantle.core.forecast import expected_s
from cantle.core.packing import PlacesFor
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue
from cantle.model.resources import Place, indexes

PATIENCE = 0.05
"""A task waits so large a part of its expected duration for a place near its inputs,"""
LEAST_S = 0.05
MOST_S = 3.0
"""and never longer than that."""
AS_URGENT = 0.8
"""Another task goes first only when nearly as much hangs on it."""
ALIKE = 0.05
"""In an order that was reckoned, only tasks whose ranks differ by no more than this part change places."""
UNKNOWN_BYTES = 1 << 16
"""An input of which nobody knows how large it is weighs as much as this, and so does one that is smaller."""
DEPTH = 16
"""So many tasks of a queue are looked at to find one that is at home where there is room."""


class Nearness:
    """The machines, as bits of their nodes, and who waits for one. Kept in the memory of the plans of a run."""

    def __init__(self) -> None:
        self._machines: dict[str, int] = {}
        self._alive = 0
        self._since: dict[int, tuple[float, int]] = {}
        """Who waits, since when, and for which nodes (bits): these stay the same meanwhile, however much a task takes."""
        self.wakes_at = math.inf
        """When somebody's patience ends; whoever begins a pass sets it back."""

    @property
    def several(self) -> bool:
        """Whether there is more than one machine."""
        return len(self._machines) > 1

    def begin(self, plan: Plan) -> None:
        """A pass begins: learn of nodes that came and went; forget who has got his place."""
        room = plan.state.room
        if room.alive != self._alive:
            self._alive = room.alive
            self._machines = {}
            for index in indexes(room.alive):
                machine = room.nodes[index].machine
                self._machines[machine] = self._machines.get(machine, 0) | 1 << index
        if self._since:
            self._since = {t: waits for t, waits in self._since.items() if plan.state.queued[t]}

    def choose(self, plan: Plan, queue: ReadyQueue, places_for: PlacesFor) -> tuple[int, tuple[Place, ...] | None]:
        """Which of the queue's first tasks starts where; no places when none does now."""
        state, needs = plan.state, queue.shape.needs
        head = queue.heap[0][1]
        anywhere = places_for(plan.room_for(head), needs)
        if anywhere is None:
            return head, None
        if head in state.ordered and state.keeping is None:
            return self._in_order(plan, queue, places_for) or (head, anywhere)
        room = plan.room_for(head)
        overdue = -1
        choosy = state.choosy
        least = AS_URGENT * state.ranks[head]
        for task in queue.in_order(DEPTH):
            if state.ranks[task] < least:
                break
            waits = self._since.get(task)
            home = self._home(plan, task) if waits is None else waits[1] & plan.room.alive
            if choosy and task != head:
                room = plan.room_for(task)
                if (elsewhere := places_for(room, needs)) is None:
                    continue
                anywhere = elsewhere
            if not home:
                if overdue < 0:
                    return task, anywhere
                continue
            near = places_for(room.within(home), needs)
            if near is not None:
                return task, near
            since, _ = self._since.setdefault(task, (state.now, home))
            until = since + _patience_s(plan, task)
            if until <= state.now:
                overdue = task if overdue < 0 else overdue
            else:
                self.wakes_at = min(self.wakes_at, until)
        if overdue >= 0:
            return overdue, places_for(plan.room_for(overdue), needs) if choosy else anywhere
        return head, None

    def _in_order(self, plan: Plan, queue: ReadyQueue, places_for: PlacesFor) -> tuple[int, tuple[Place, ...]] | None:
        """Of the first tasks one at home where there is room, if as much hangs on it as on the very first."""
        ranks = plan.state.ranks
        rank = ranks[queue.heap[0][1]]
        for task in queue.in_order(DEPTH):
            home = self._home(plan, task) if abs(ranks[task] - rank) <= ALIKE * rank else 0
            near = places_for(plan.room_for(task).within(home), queue.shape.needs) if home else None
            if near is not None:
                return task, near
        return None

    def _home(self, plan: Plan, task: int) -> int:
        """The nodes, as bits, of the machine with most of its inputs (by bytes, if known); 0 when there is none to prefer."""
        state, keeping = plan.state, plan.state.keeping
        votes: dict[str, int] = {}
        for parent in state.tasks[task].parents:
            nodes = keeping.nodes_with(parent) if keeping is not None else 0
            if keeping is not None and nodes:
                machines = dict.fromkeys(state.room.nodes[index].machine for index in indexes(nodes))
                weight = max(UNKNOWN_BYTES, keeping.results[parent].size)
            else:
                index = state.ran_on[parent]
                machines = {state.room.nodes[index].machine: None} if index >= 0 else {}
                weight = UNKNOWN_BYTES
            for machine in machines:
                votes[machine] = votes.get(machine, 0) + weight
        if not votes:
            return 0
        best = max(votes, key=lambda machine: votes[machine])
        return self._machines.get(best, 0) & plan.room.alive


def _patience_s(plan: Plan, task: int) -> float:
    expected = expected_s(plan.state, task)
    return min(MOST_S, max(LEAST_S, PATIENCE * expected)) if expected < math.inf else LEAST_S


def nearness_of(plan: Plan) -> Nearness | None:
    """What is known of machines, None when there is only one: then every place is as near as any other."""
    known: Nearness | None = plan.memory.get("nearness")
    if known is None:
        known = plan.memory["nearness"] = Nearness()
    known.begin(plan)
    return known if known.several else None
