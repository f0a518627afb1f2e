"""Which elements of slices are made for whom, and what runs in them?

Tasks of a sliced study that take several nodes run in elements alone. An element that was granted becomes a partition; its
number in the ledger is the partition's. What is remembered here (who wants what, which elements idle) follows from the state
and is made anew from it when it is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from cantle.core.broker import Broker
from cantle.core.demand import ASKED, DEPTH, Demand, asking
from cantle.core.elements import Element, Grant
from cantle.core.holdable import share_of
from cantle.core.lifetimes import expected_on
from cantle.core.packing import find_places
from cantle.core.partitions import Partition, queues_of
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue
from cantle.core.retaining import AGENT_S, Retaining, takes
from cantle.core.roster import Key
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.core.studies import ELEMENTS_OF
from cantle.errors import CantleBug
from cantle.model.records import (
    AdmitPartition,
    AssignPartition,
    ClosePartition,
    Decision,
    GrowPartition,
    OpenPartition,
    RequestPartition,
)
from cantle.model.resources import Needs, Place, Slots, count, indexes, lowest_bits, mask_to_list
from cantle.model.study import PartitionWish, Slicing


class Granting:
    """The slicings of a run, each with its broker, and what is held of each width. `wakes_at`: when to be asked again."""

    def __init__(self) -> None:
        self.wakes_at = math.inf
        self._sliced: dict[Slicing, _Sliced] = {}
        self._asked: dict[Key, int] = {}
        """Which of the broker's jobs those are who ask by name: they keep their number, whoever comes after them."""

    def decide(self, state: State, memory: dict[object, Any]) -> Iterator[Decision]:
        """What shall be done about the elements of all slices, and in them."""
        self.wakes_at = math.inf
        self._look(state)
        for sliced in self._sliced.values():
            yield from sliced.decide(state, memory)
            self.wakes_at = min(self.wakes_at, sliced.wakes_at)

    def why_waiting(self, state: State, study: int) -> str:
        """Why the study does not have all the elements that its ready tasks want, "" when it has. For people."""
        self._look(state)
        slicing = state.studies[study].added.slicing
        return "" if slicing is None else self._sliced[slicing].why_waiting(state, study)

    def _look(self, state: State) -> None:
        """Who is there, and asks for what."""
        for key in asking(state):
            self._asked.setdefault(key, ASKED - len(self._asked))
        for number, study in state.living.items():
            slicing = study.added.slicing
            if slicing is not None and slicing.slices:
                sliced = self._sliced.get(slicing)
                if sliced is None:
                    sliced = self._sliced[slicing] = _Sliced(slicing, state, len(self._sliced), self._asked)
                sliced.jobs[number] = (number, ELEMENTS_OF.format(number))
        first = next(iter(self._sliced.values()), None)
        if first is not None:  # who asks by name asks for elements of the run's first slicing
            first.jobs.update((job, key) for key, job in self._asked.items())


class _Sliced:
    """One slicing, with the studies (the broker's jobs) that it serves."""

    def __init__(self, slicing: Slicing, state: State, number: int, asked: dict[Key, int]) -> None:
        self.jobs: dict[int, Key] = {}
        """Where the tasks of each job are at home."""
        self.wakes_at = math.inf
        self._suffix = f"@{number}" if number else ""
        self._broker = Broker(slicing, state.room, agent_s=AGENT_S)
        self._slicing = slicing
        self._alive = state.room.alive
        self._free: list[int] = []
        """How many cores of which node were free when somebody hungry looked last, as `Room.by_cores`."""
        self._retaining = Retaining(self._broker, self.jobs)
        self._demand = Demand(self._broker, self.jobs, state.room, slicing)
        self._running: dict[int, int] = {}
        """Attempts in each element when it was last looked at, for whom it idles now."""
        self._strays: dict[int, None] = {}
        """Elements from before this was made anew that stand across those that there would be now."""
        self._broker.ledger.cuts.suits = self._demand.suits
        self._take_up(state, asked)

    def decide(self, state: State, memory: dict[object, Any]) -> Iterator[Decision]:
        """One pass: hear what happened, say what is wanted, do what is granted, run what fits, give back what idles."""
        self.wakes_at = math.inf
        self._hear(state)
        yield from self._let_holders_go(state)
        if not state.stopping:
            self._demand.tell(state)
            yield from self._do_what_is_granted(state)
            yield from self._run_what_fits(state, memory)
        yield from self._close_strays(state)
        for number, why in self._retaining.what_goes(state):
            yield from self._close(state, number, why)
        self.wakes_at = self._retaining.wakes_at
        if not state.stopping:  # otherwise nobody is granted anything any more
            self.wakes_at = min(self.wakes_at, self._broker.wakes_at)

    def why_waiting(self, state: State, job: int) -> str:
        """What the broker says to that, were it asked now."""
        from cantle.core.unmet import why_waiting

        self._hear(state)
        self._demand.tell(state)
        return why_waiting(self._broker, job, more_nodes=bool(state.awaited))

    # What happened

    def _take_up(self, state: State, asked: dict[Key, int]) -> None:
        """Learn of the elements that are there already."""
        for partition in state.partitions.living.values():
            study = state.studies[0 if partition.holder else max(0, partition.study)]
            if partition.element is None or study.added.slicing != self._slicing:
                continue
            slice_, copy, index = partition.element
            nodes = tuple(partition.nodes())
            masks = tuple(partition.room.capacity[node][0] for node in nodes)
            job = asked[partition.study, partition.holder] if partition.holder else partition.study
            grant = Grant(job, slice_, copy, index, nodes, masks)
            if len(nodes) == partition.width:
                try:
                    self._broker.ledger.occupy(grant, state.now, partition.number)
                except CantleBug:  # nodes have gone since it was cut, and those that are left are cut otherwise
                    self._strays[partition.number] = None
                    continue
                if partition.closing or partition.over:
                    self._broker.ledger.close(partition.number, state.now)

    def _hear(self, state: State) -> None:
        ledger, now = self._broker.ledger, state.now
        alive = state.room.alive
        if alive != self._alive:
            for node in indexes(self._alive & ~alive):
                ledger.node_lost(node)
            if alive & ~self._alive:
                ledger.node_added()
            self._alive = alive
        for number in list(ledger.elements):
            partition = state.partitions.all[number]
            if number not in state.partitions.living:
                ledger.vacate(number, now)
                self._forget(number, partition.width, now)
            elif partition.over or partition.closing or partition.draining:
                ledger.close(number, now)
                self._forget(number, partition.width, now)
        if any(claim.hungry for claim in self._broker.claims.values()) and state.room.by_cores != self._free:
            changed = 0  # whoever else uses these nodes may have given cores back
            for before, after in zip_longest(self._free, state.room.by_cores, fillvalue=0):
                changed |= before ^ after
            self._free = list(state.room.by_cores)
            ledger.freed(indexes(changed & alive))

    def _forget(self, number: int, width: int, now: float) -> None:
        self._running.pop(number, None)
        self._retaining.lost(number, width, now)

    def _let_holders_go(self, state: State) -> Iterator[Decision]:
        """A task has ended in an element: somebody else may have waited too long for it."""
        broker, now = self._broker, state.now
        for number, before in list(self._running.items()):
            partition = state.partitions.all[number]
            if before <= len(partition.running):
                continue
            self._running[number] = len(partition.running)
            broker.ran(now - partition.busy_since)
            if partition.running:
                continue
            verdict = broker.leaves(number)
            if verdict == "park" and broker.ledger.park(number, now):
                continue
            if verdict:
                yield from self._close(state, number, "somebody else has waited too long for these nodes")

    # What is granted

    def _do_what_is_granted(self, state: State) -> Iterator[Decision]:
        ledger, now = self._broker.ledger, state.now
        for move in self._broker.moves(now):
            if not isinstance(move, Grant):
                yield from self._close(state, move.element, move.why)
            elif move.element is None:
                yield from self._make(state, move)
            else:
                ledger.occupy(move, now)
                partition = state.partitions.all[move.element]
                study, holder = self._held_by(move.job)
                if (partition.study, partition.holder) != (study, holder):
                    yield AssignPartition(now, move.element, study, holder)

    def _make(self, state: State, grant: Grant) -> Iterator[Decision]:
        """An element becomes a partition. When it does not (somebody else's bears its name), nothing has changed."""
        of, now = state.partitions, state.now
        number = len(of.all)
        width = len(grant.nodes)
        cores = {mask.bit_count() for mask in grant.masks}
        name = f"w{width}.{grant.slice}.{grant.copy}.{grant.index}{self._suffix}"
        wish = PartitionWish(name, width, min(cores))
        slots = tuple(_slots_of(state, node, mask) for node, mask in zip(grant.nodes, grant.masks, strict=True))
        study, holder = self._held_by(grant.job)
        why = f"{holder or state.studies[study].added.name} wants an element of {count(width, 'node')}"
        yield RequestPartition(now, wish, study, (grant.slice, grant.copy, grant.index), why, holder)
        if len(of.all) == number:
            return
        yield AdmitPartition(now, number)
        yield GrowPartition(now, number, slots, why)
        yield OpenPartition(now, number, why)
        self._broker.ledger.occupy(grant, now, number)

    def _held_by(self, job: int) -> tuple[int, str]:
        """The study, and the name of the request if it is one."""
        return (job, "") if job > ASKED else self.jobs[job]

    def _close(self, state: State, number: int, why: str) -> Iterator[Decision]:
        self._broker.ledger.close(number, state.now)
        partition = state.partitions.all[number]
        self._forget(number, partition.width, state.now)
        if not partition.closing and not partition.over:
            yield ClosePartition(state.now, number, "done", why)

    def _close_strays(self, state: State) -> Iterator[Decision]:
        """They end as soon as nothing runs there."""
        for number in list(self._strays):
            partition = state.partitions.all[number]
            if partition.over or partition.closing:
                del self._strays[number]
            elif partition.standing == Standing.ACTIVE and not partition.running:
                yield ClosePartition(state.now, number, "done", "the nodes are divided otherwise now")

    # What runs

    def _run_what_fits(self, state: State, memory: dict[object, Any]) -> Iterator[Decision]:
        """Holders pull from the queue that all elements of their study share."""
        ready = {job: queues_of(state, home) for job, home in self.jobs.items()}
        ready = {
            job: found
            for job, queues in ready.items()
            if (found := [n for n in queues if state.queues[n].head() is not None])
        }
        if not ready:
            return
        for element in list(self._broker.ledger.elements.values()):
            if element.status != "held" or element.job not in ready:
                continue
            partition = state.partitions.all[element.number]
            if partition.serves and not partition.room.full:
                yield from self._run_in(state, element, ready[element.job], memory)

    def _run_in(
        self, state: State, element: Element, queues: list[int], memory: dict[object, Any]
    ) -> Iterator[Decision]:
        partition, width = state.partitions.all[element.number], element.width
        fitting = [n for n in queues if takes(state.queues[n].shape, width)]
        plan = Plan(state, partition, fitting, memory)
        for queue in plan.by_urgency():
            needs = queue.shape.needs
            needs = needs if needs.nodes == width else replace(needs, nodes=width)
            places = find_places(partition.room, needs) if plan.may_launch(queue) else None
            task = queue.head()
            if needs.whole_nodes and not _has_whole_nodes(state, partition):
                continue
            if places is not None and state.choosy:
                task, places = _first_in_time(plan, queue, needs)
            if places is None or task is None:
                continue
            self._retaining.busy(element, state.now)
            yield plan.launch(task, places, f"the most urgent in an element of {count(width, 'node')}")
            self._running[element.number] = len(partition.running)


def _has_whole_nodes(state: State, partition: Partition) -> bool:
    return all(partition.room.capacity[i][0].bit_count() == state.room.nodes[i].cores for i in partition.nodes())


def _first_in_time(plan: Plan, queue: ReadyQueue, needs: Needs) -> tuple[int | None, tuple[Place, ...] | None]:
    """The most urgent task of the queue that ends in this element before its nodes leave."""
    for task in queue.first(DEPTH):
        places = find_places(plan.room_for(task, expected_on(plan.state, task, needs.nodes)), needs)
        if places is not None:
            return task, places
    return None, None


def _slots_of(state: State, index: int, mask: int) -> Slots:
    """With these cores of the node its GPUs and memory in proportion, and its named things with all of it."""
    share = share_of(state.room.nodes[index], mask.bit_count())
    gpus = lowest_bits(state.room.free_gpus[index], share.gpus) if share.gpus else 0
    return Slots(index, mask_to_list(mask), mask_to_list(gpus), share.memory_mib, share.named)
