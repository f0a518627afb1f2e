"""Whose task starts next when several studies want the same room?

The study that has least goes first. What a study has is the cores that it holds now, idle ones in its partitions included,
plus their mean over the last while, divided by its share: its weight times two to its priority. The present alone would let a
study that works in bursts lose what it did not use; the past alone would starve an old study for a newcomer. Nothing is
hoarded: the mean decays.

A wide task of the study that has least gets room kept for it when it does not fit, one at a time; and before it is even ready,
when all that it waits for is running, so that the others drain while its parents end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from math import exp, inf
from typing import TypeAlias

from cantle.core.forecast import expected_end, expected_s
from cantle.core.packing import PlacesFor
from cantle.core.phases import FINAL, OVER, Phase
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue, Urgency
from cantle.core.reserving import Kept, kept_before, kept_for, let_go
from cantle.core.state import State
from cantle.model.records import Decision
from cantle.model.resources import Needs

DECAY_S = 60.0
"""The time over which the mean is taken, seconds."""
COMING = 4
"""So many of the next wide tasks of a study are looked at, to see whether one is about to be ready."""


Choose: TypeAlias = Callable[[ReadyQueue, int], tuple[Needs, str] | None]
"""What the head of a queue shall need, and why; None when it shall not start now."""


class Shares:
    """What each study has and has had. It is told by `observe` before a pass and by `settle` after it."""

    def __init__(self) -> None:
        self.live: list[int] = []
        self._time = 0.0
        self._mean: dict[int, float] = {}
        self._held: dict[int, int] = {}
        self._idle: dict[int, int] = {}

    def observe(self, state: State) -> None:
        """Since the last pass each study held what it held then. One that is seen for the first time has always held it."""
        fade = exp(-max(0.0, state.now - self._time) / DECAY_S)
        self._time = state.now
        self._idle = _idle_in_partitions(state)
        self.live = list(state.living)
        held, mean = self._held, self._mean
        self._mean = {}
        for number in self.live:
            before = held.get(number, self._has(state, number))
            self._mean[number] = before + (mean.get(number, before) - before) * fade

    def settle(self, state: State) -> None:
        """The pass is over."""
        self._held = {number: self._has(state, number) for number in self.live}

    def key(self, state: State, number: int) -> float:
        """What studies are compared by, cores: the least goes first."""
        added = state.studies[number].added
        share: float = added.weight * 2.0**added.priority
        return (self._has(state, number) + self._mean.get(number, 0.0)) / share

    def _has(self, state: State, number: int) -> int:
        return state.studies[number].slots + self._idle.get(number, 0)


def _idle_in_partitions(state: State) -> dict[int, int]:
    """By study: the cores in its partitions on which nothing runs."""
    idle: dict[int, int] = {}
    for partition in state.partitions.living.values():
        if partition.study >= 0:
            free = sum(n * nodes.bit_count() for n, nodes in enumerate(partition.room.by_cores))
            idle[partition.study] = idle.get(partition.study, 0) + free
    return idle


def as_its_shape_says(queue: ReadyQueue, _task: int) -> tuple[Needs, str]:
    """For tasks that have no choice."""
    return queue.shape.needs, "the most urgent that fits of the study that has least"


def compete(plan: Plan) -> bool:
    """Whether more than one study is there that is not over."""
    return len(plan.state.living) > 1


def fairly(plan: Plan, places_for: PlacesFor, choose: Choose | None = None) -> Iterator[Decision]:
    """One task at a time of the study that has least, of equals the one with the most urgent task: its first that fits.

    `choose` tells for the head of a queue what it shall need, when that is not what its shape says, and why.
    """
    state = plan.state
    shares: Shares = plan.memory.setdefault("shares", Shares())
    before = shares.live
    shares.observe(state)
    for number in before:
        if state.studies[number].over:
            plan.memory.pop(("wide", number), None)
            plan.memory.pop(("means", number), None)
    if not plan.room.full:
        yield from _pass(plan, places_for, shares, choose or as_its_shape_says)
    shares.settle(state)


def _pass(plan: Plan, places_for: PlacesFor, shares: Shares, choose: Choose) -> Iterator[Decision]:
    state = plan.state
    room = plan.room
    queues = state.queues
    holder = _holder(plan)
    kept_task = None if holder is None else queues[holder].head()
    if (
        holder is not None
        and (task := kept_task) is not None
        and (places := places_for(plan.room_for(task), queues[holder].shape.needs)) is not None
    ):
        yield plan.launch(task, places, "room was kept for it")
        let_go(plan)
        holder = None
    most = plan.cores() / 2
    heads: dict[int, list[tuple[Urgency, int]]] = {}
    for number in plan.queues:
        queue = queues[number]
        if number != holder and queue.heap and queue.head() is not None:
            heads.setdefault(queue.shape.study, []).append((queue.key(most), number))
    for mine in heads.values():
        heapify(mine)
    kept = _kept(plan, holder) if holder is not None else _kept_for_coming(plan, shares, heads)
    asked = False
    least = [(shares.key(state, study), mine[0][0], study) for study, mine in heads.items()]
    heapify(least)
    while least and not room.full:
        study = heappop(least)[2]
        mine = heads[study]
        while mine:
            number = mine[0][1]
            queue = queues[number]
            task = queue.head()
            if task is None or not plan.may_launch(queue):
                break
            chosen = choose(queue, task)
            if chosen is None:
                heappop(mine)
                continue
            needs, why = chosen
            own = plan.room_for(task)
            places = places_for(own, needs) if kept is None else kept.places(plan, task, places_for, needs)
            if places is None and kept is not None and (fitting := places_for(own, needs)) is not None:
                shorter = kept.shorter(state, queue)
                if shorter:
                    task, places = shorter[0], fitting
                    if state.choosy:
                        places = places_for(plan.room_for(task), needs)
            if places is None and kept is None and state.choosy and needs == queue.shape.needs:
                from cantle.core.timely import others

                instead = others(plan, queue, places_for)
                task, places = next(instead, (task, None))
                instead.close()
            if places is None:
                if kept is None and queue.breadth and not asked:
                    asked = True
                    kept = kept_before(plan, queue, task)
                heappop(mine)
                continue
            if kept is not None:
                kept.took(state, task, places)
            yield plan.launch(task, places, why)
            if queue.head() is None:
                heappop(mine)
            else:
                heapreplace(mine, (queue.key(most), number))
            if mine:
                heappush(least, (shares.key(state, study), mine[0][0], study))
            break


def _holder(plan: Plan) -> int | None:
    """The queue whose head room is kept for since an earlier pass. It keeps its place as long as it wants to start."""
    task = kept_for(plan)
    if task is None:
        return None
    state = plan.state
    number = state.shape_of_step[state.tasks[task].step]
    queue = state.queues[number]
    if state.phases[task] == Phase.READY and queue.head() == task and plan.may_launch(queue):
        return number
    if state.phases[task] != Phase.WAITING:
        let_go(plan)
    return None


def _kept(plan: Plan, holder: int) -> Kept | None:
    queue = plan.state.queues[holder]
    task = queue.head()
    assert task is not None
    return kept_before(plan, queue, task)


def _kept_for_coming(plan: Plan, shares: Shares, ready: Container[int]) -> Kept | None:
    """Room for the next wide task of the study that has least, if its parents all run. `ready`: studies with ready tasks."""
    state = plan.state
    busy = [number for number in shares.live if state.studies[number].in_progress or number in ready]
    if plan.partition is None and busy:
        study = min(busy, key=lambda number: (shares.key(state, number), number))
        for task in _next_wide(plan, study) if study not in ready else ():
            ready_at = _ready_at(state, task)
            if ready_at < inf:
                return kept_before(plan, state.queue_of(task), task, ready_at)
    let_go(plan)
    return None


def _ready_at(state: State, task: int) -> float:
    """When the last of those that the task waits for should be over; infinite unless all of them run."""
    found = state.now
    row = state.tasks[task]
    for parents, enough in ((row.parents, (Phase.DONE,)), (row.after, OVER)):
        for parent in parents:
            if state.phases[parent] in enough:
                continue
            if parent not in state.running:
                return inf
            found = max(found, expected_end(state.now, state.launched_at[parent], expected_s(state, parent)))
    return found


def _next_wide(plan: Plan, study: int) -> list[int]:
    """The next tasks of the study that wait and take several cores or nodes of the common room."""
    state = plan.state
    of = state.studies[study]
    known: tuple[str, int, deque[int]] | None = plan.memory.get(("wide", study))
    digest, seen, wide = known if known is not None and known[0] == of.digest else (of.digest, 0, deque[int]())
    if seen != of.known:  # those that are new bear higher numbers
        queues, shapes = state.queues, state.shape_of_step
        broad = {n for n in plan.queues if queues[n].breadth and queues[n].shape.study == study}
        new = (of.tasks.number(own) for own in range(seen, of.known)) if broad else ()
        wide.extend(task for task in new if shapes[state.tasks[task].step] in broad)
        plan.memory["wide", study] = (digest, of.known, wide)
    while wide and state.phases[wide[0]] in FINAL:
        wide.popleft()
    return [task for task in islice(wide, COMING) if state.phases[task] == Phase.WAITING]
