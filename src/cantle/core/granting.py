"""Which elements of slices are made for whom, what runs in them, and which are held when they idle?

Tasks of a sliced study that take several nodes run in elements alone. An element that was granted becomes a partition; its
number in the ledger is the partition's. What is remembered here (who wants what, which elements idle) follows from the state
and is made anew from it when it is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from cantle.core.broker import Broker
from cantle.core.carving import is_wanted
from cantle.core.elements import Element, Grant
from cantle.core.forecast import expected_end, expected_s
from cantle.core.holdable import share_of
from cantle.core.holding import Holding, gang_start_cost_s
from cantle.core.lifetimes import barred_for, expected_on
from cantle.core.packing import find_places
from cantle.core.partitions import Partition, queues_of
from cantle.core.phases import UNSTARTED, Phase
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue, Shape
from cantle.core.room import shortage
from cantle.core.roster import Key
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.core.studies import ELEMENTS_OF
from cantle.core.wants import Want
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
from cantle.model.slicing import choices_of, combination
from cantle.model.study import PartitionWish, Slicing

ASKED = -2
"""The broker's jobs are the studies, by number, and from here downwards those who asked from outside."""
DEPTH = 16
"""So many tasks of a queue are looked at for one that ends before the nodes leave."""
AGENT_S = 0.02
"""What starting an agent is taken to cost, until some have started."""


class Granting:
    """The slicings of a run, each with its broker, and what is held of each width. `wakes_at`: when to be asked again."""

    def __init__(self) -> None:
        self.wakes_at = math.inf
        self._sliced: dict[Slicing, _Sliced] = {}

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
        for number, study in enumerate(state.studies):
            slicing = study.added.slicing
            if slicing is not None and slicing.slices and not study.over:
                sliced = self._sliced.get(slicing)
                if sliced is None:
                    sliced = self._sliced[slicing] = _Sliced(slicing, state, len(self._sliced))
                sliced.jobs[number] = (number, ELEMENTS_OF.format(number))
        first = next(iter(self._sliced.values()), None)
        if first is not None:  # who asks by name asks for elements of the run's first slicing
            for number, key in enumerate(_asking(state)):
                first.jobs[ASKED - number] = key


def _asking(state: State) -> dict[Key, str]:
    """Who wants elements under a name of his own, and which: a study that declares it, or somebody from outside.

    The names keep their order, so that they can be numbered; who wants nothing (any more) wants "".
    """
    found: dict[Key, str] = {}
    for number, study in enumerate(state.studies):
        for wish in study.added.partitions:
            if wish.elements:
                key = (number, wish.name)
                found[key] = wish.elements if is_wanted(state, key, ready=False) else ""
    for key, request in state.partitions.requests.items():
        found[key] = request.want
    return found


class _Sliced:
    """One slicing, with the studies (the broker's jobs) that it serves."""

    def __init__(self, slicing: Slicing, state: State, number: int) -> None:
        self.jobs: dict[int, Key] = {}
        """Where the tasks of each job are at home."""
        self.wakes_at = math.inf
        self._suffix = f"@{number}" if number else ""
        self._broker = Broker(slicing, state.room, agent_s=AGENT_S)
        self._slicing = slicing
        self._alive = state.room.alive
        self._free: list[int] = []
        """How many cores of which node were free when somebody hungry looked last, as `Room.by_cores`."""
        self._holding: dict[int, Holding[int]] = {}
        self._running: dict[int, int] = {}
        """Attempts in each element when it was last looked at, for whom it idles now."""
        self._wanted: dict[int, dict[Needs, int]] = {}
        """By width, what the tasks need that are ready, and which nodes (bits) leave too soon for all of these."""
        self._unsuited = False
        self._room = state.room
        self._broker.ledger.cuts.suits = self._suits
        self._take_up(state)

    def decide(self, state: State, memory: dict[object, Any]) -> Iterator[Decision]:
        """One pass: hear what happened, say what is wanted, do what is granted, run what fits, give back what idles."""
        self.wakes_at = math.inf
        self._hear(state)
        yield from self._let_holders_go(state)
        if not state.stopping:
            self._say_what_is_wanted(state)
            yield from self._do_what_is_granted(state)
            yield from self._run_what_fits(state, memory)
        yield from self._give_back_what_idles(state)
        self.wakes_at = min(self.wakes_at, self._broker.wakes_at)

    def why_waiting(self, state: State, job: int) -> str:
        """What the broker says to that, were it asked now."""
        from cantle.core.unmet import why_waiting

        self._hear(state)
        self._say_what_is_wanted(state)
        return why_waiting(self._broker, job, more_nodes=bool(state.awaited))

    # What happened

    def _take_up(self, state: State) -> None:
        """Learn of the elements that are there already."""
        for partition in state.partitions.living.values():
            study = state.studies[0 if partition.holder else max(0, partition.study)]
            if partition.element is None or study.added.slicing != self._slicing:
                continue
            slice_, copy, index = partition.element
            nodes = tuple(partition.nodes())
            masks = tuple(partition.room.capacity[node][0] for node in nodes)
            asking = list(_asking(state))
            holder = (partition.study, partition.holder)
            job = ASKED - asking.index(holder) if partition.holder else partition.study
            grant = Grant(job, slice_, copy, index, nodes, masks)
            if len(nodes) == partition.width:
                self._broker.ledger.occupy(grant, state.now, partition.number)
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
        if width in self._holding:
            self._holding[width].lost(number, now)

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

    # What is wanted, and granted

    def _suits(self, nodes: tuple[int, ...], masks: tuple[int, ...]) -> bool:
        """Whether all of such an element's share is free, and some task is ready that fits there."""
        room = self._room
        shares = []
        for index, mask in zip(nodes, masks, strict=True):
            node = room.nodes[index]
            if node.gpus or node.memory_mib or node.named:
                share = share_of(node, mask.bit_count())
                named = room.free_named[index]
                if (
                    share.gpus > room.free_gpus[index].bit_count()
                    or share.memory_mib > room.free_memory[index]
                    or any(n > named.get(name, 0) for name, n in share.named)
                ):
                    self._unsuited = True
                    return False
                shares.append(share)
            else:
                shares.append(replace(node, cores=mask.bit_count()))
        whole = all(mask.bit_count() == room.nodes[i].cores for i, mask in zip(nodes, masks, strict=True))
        alike = {(each.cores, each.gpus, each.memory_mib, each.named, each.kind): each for each in shares}
        for needs, leaving in self._wanted.get(len(nodes), {}).items():
            if leaving and any(leaving >> index & 1 for index in nodes):
                continue
            if needs.whole_nodes and not whole:
                continue
            if not any(shortage(share, needs) for share in alike.values()):
                return True
        self._unsuited = True
        return False

    def _want(self, wanted: dict[int, dict[Needs, int]]) -> None:
        """What did not suit anybody may do so now."""
        if self._unsuited and wanted != self._wanted:
            self._unsuited = False
            self._broker.ledger.freed(indexes(self._alive))
        self._wanted = wanted

    def _say_what_is_wanted(self, state: State) -> None:
        asking = _asking(state)
        wanted: dict[int, dict[Needs, int]] = {}
        for job, home in list(self.jobs.items()):
            if job <= ASKED:
                self._heed(state, job, asking[home])
                if job in self._broker.claims:
                    for width in self._broker.claims[job].open(self._broker.ledger):
                        wanted.setdefault(width, {})[Needs()] = 0
                continue
            counts: dict[int, int] = {}
            total = in_use = 0
            for number in queues_of(state, home):
                queue = state.queues[number]
                ready = len(queue.heap) if queue.head() is not None else 0
                if not ready:
                    continue
                total += ready
                for width in self._widths_for(state, queue.shape, ready):
                    leaving = _leaving_too_soon(state, queue, width) if state.choosy else 0
                    if leaving and (state.room.alive & ~leaving).bit_count() < width:
                        continue
                    counts[width] = counts.get(width, 0) + ready
                    who = wanted.setdefault(width, {})
                    who[queue.shape.needs] = leaving & who.get(queue.shape.needs, leaving)
            for element in self._broker.ledger.of_job(job):
                busy = len(state.partitions.all[element.number].running)
                counts[element.width] = counts.get(element.width, 0) + busy
                total += busy
                in_use += busy > 0
            study = state.studies[job]
            if study.limits.throttle:  # more would idle, be given back, and be wanted again at once
                total = min(total, in_use + max(0, study.limits.throttle - study.in_progress))
            if not counts:
                if job in self._broker.claims:
                    self._broker.withdraw(job)
                continue
            want = Want(job, state.now, (combination(*counts.items(), at_most=total),), state.studies[job].added.weight)
            known = self._broker.claims.get(job)
            if known is None or known.want.choices != want.choices:
                self._broker.ask(want if known is None else replace(want, asked_at=known.want.asked_at))
        self._want(wanted)

    def _heed(self, state: State, job: int, wanted: str) -> None:
        """Somebody wants elements by name, or no more."""
        known = self._broker.claims.get(job)
        if not wanted:
            if known is not None:
                self._broker.withdraw(job)
        else:
            choices = choices_of(wanted)
            if known is None or known.want.choices != choices:
                self._broker.ask(Want(job, state.now if known is None else known.want.asked_at, choices))

    def _widths_for(self, state: State, shape: Shape, ready: int) -> list[int]:
        """The widths that tasks of this shape may have here, the preferred first.

        The widest at which all that is ready runs at once; then narrower ones, which only waste less; wider ones last.
        """
        allowed = shape.widths or (shape.needs.nodes,)
        widths = [width for width in allowed if width in self._broker.ledger.of_width]
        if len(widths) < 2:
            return widths
        cap = self._broker.ledger.cap
        elements = {width: state.room.alive.bit_count() // width for width in widths}
        together = [width for width in widths if elements[width] * cap >= ready]
        best = max(together, default=min(widths))
        return [w for w in reversed(widths) if w <= best] + [w for w in widths if w > best]

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

    # What runs

    def _run_what_fits(self, state: State, memory: dict[object, Any]) -> Iterator[Decision]:
        """Holders pull from the queue that all elements of their study share."""
        ready = {job: queues_of(state, home) for job, home in self.jobs.items()}
        ready = {job: found for job, queues in ready.items() if (found := [n for n in queues if _has_ready(state, n)])}
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
        fitting = [n for n in queues if width in (state.queues[n].shape.widths or (state.queues[n].shape.needs.nodes,))]
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
            if width in self._holding:
                self._holding[width].busy(element.number, state.now)
            yield plan.launch(task, places, f"the most urgent in an element of {count(width, 'node')}")
            self._running[element.number] = len(partition.running)

    # What is held

    def _give_back_what_idles(self, state: State) -> Iterator[Decision]:
        ledger, now = self._broker.ledger, state.now
        for element in list(ledger.elements.values()):
            partition = state.partitions.all[element.number]
            if partition.running or partition.standing != Standing.ACTIVE or element.status == "closing":
                continue
            if element.job is not None and element.job <= ASKED:
                if element.job not in self._broker.claims or not state.unfinished:
                    yield from self._close(state, element.number, f"{partition.holder} wants it no more")
                continue
            if element.status == "held" and not ledger.park(element.number, now):
                yield from self._close(state, element.number, "nothing is ready for it, and its copy is wanted no more")
                continue
            self._holding_of(state, element.width).idle(element.number, now)
        hungry = sum(claim.hungry for claim in self._broker.claims.values())
        for width, holding in self._holding.items():
            if not holding.held:
                continue
            left = not state.stopping and self._work_left(state, width)
            verdict = holding.decide(
                now, partial(self._coming, state, width, len(holding.held)), work_left=left, waited_for=hungry
            )
            for number in verdict.give_back:
                idle = now - state.partitions.all[number].idle_since
                reason = "nothing is left that could use it" if not left else "fewer are expected to be used soon"
                yield from self._close(state, number, f"idle for {idle:.1f} s; {reason}")
            if verdict.wake_up_at is not None:
                self.wakes_at = min(self.wakes_at, verdict.wake_up_at)

    def _holding_of(self, state: State, width: int) -> Holding[int]:
        holding = self._holding.get(width)
        if holding is None:
            holding = self._holding[width] = Holding(gang_start_cost_s(width, _agent_s(state), self._drain_s(state)))
        return holding

    def _drain_s(self, state: State) -> float:
        """What it takes until so many nodes are free together again: half a task, where others would take them."""
        others = len(self._broker.ledger.of_width) > 1 or len(self.jobs) > 1 or bool(state.homes[""])
        means = [
            state.queues[n].mean_s
            for home in self.jobs.values()
            for n in queues_of(state, home)
            if state.queues[n].done
        ]
        return sum(means) / len(means) / 2 if others and means else 0.0

    def _work_left(self, state: State, width: int) -> bool:
        """Whether any task may still want an element of this width."""
        for home in self.jobs.values():
            shapes = {
                n
                for n in queues_of(state, home)
                if width in (state.queues[n].shape.widths or (state.queues[n].shape.needs.nodes,))
            }
            for step, shape in enumerate(state.shape_of_step):
                if shape in shapes and any(state.counts[step][phase] for phase in UNSTARTED):
                    return True
        return False

    def _coming(self, state: State, width: int, at_most: int, until: float) -> int:
        """How many tasks of this width are ready, or will be until that time: those whose last parents run."""
        homes = {n for home in self.jobs.values() for n in queues_of(state, home)}
        found = sum(
            len(state.queues[n].heap) for n in homes if _has_ready(state, n) and _takes(state.queues[n].shape, width)
        )
        open_parents: dict[int, int] = {}
        for task in state.running:
            end = expected_end(state.now, state.launched_at[task], expected_s(state, task))
            if end > until:
                continue
            for child in state.children[task] or ():
                shape = state.shape_of_step[state.tasks[child].step]
                if shape in homes and state.phases[child] == Phase.WAITING and _takes(state.queues[shape].shape, width):
                    open_parents[child] = open_parents.get(child, 0) + 1
        return min(at_most, found + sum(n == state.blockers[child] for child, n in open_parents.items()))


def _takes(shape: Shape, width: int) -> bool:
    return width in (shape.widths or (shape.needs.nodes,))


def _has_whole_nodes(state: State, partition: Partition) -> bool:
    return all(partition.room.capacity[i][0].bit_count() == state.room.nodes[i].cores for i in partition.nodes())


def _leaving_too_soon(state: State, queue: ReadyQueue, width: int) -> int:
    """The nodes, as bits, that leave before the shortest of the queue's first tasks could end on so many of them."""
    found = -1
    for task in queue.first(DEPTH):
        found &= barred_for(state, task, expected_on(state, task, width))
    return found & state.room.alive


def _first_in_time(plan: Plan, queue: ReadyQueue, needs: Needs) -> tuple[int | None, tuple[Place, ...] | None]:
    """The most urgent task of the queue that ends in this element before its nodes leave."""
    for task in queue.first(DEPTH):
        places = find_places(plan.room_for(task, expected_on(plan.state, task, needs.nodes)), needs)
        if places is not None:
            return task, places
    return None, None


def _has_ready(state: State, number: int) -> bool:
    return state.queues[number].head() is not None


def _agent_s(state: State) -> float:
    """What agents took to start, so far."""
    took = [p.active_at - p.opened_at for p in state.partitions.all[-50:] if p.active_at]
    return sum(took) / len(took) if took else AGENT_S


def _slots_of(state: State, index: int, mask: int) -> Slots:
    """With these cores of the node its GPUs and memory in proportion, and its named things with all of it."""
    share = share_of(state.room.nodes[index], mask.bit_count())
    gpus = lowest_bits(state.room.free_gpus[index], share.gpus) if share.gpus else 0
    return Slots(index, mask_to_list(mask), mask_to_list(gpus), share.memory_mib, share.named)
