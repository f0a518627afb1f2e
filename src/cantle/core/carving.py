"""Which partition is made, grows, shrinks or ends now? The broker of named partitions.

A partition that waits gathers free slots until it has all that it wants. Only the one that has waited longest keeps what it
has gathered, so that two of them never wait for each other; one behind it is opened when all that it wants is free beside
what the first has its eyes on. What a partition gathers is lost to others until it opens: it was asked for by somebody, who
waits. (Elements of slices are no such wishes: they are granted by `broker.py`, from what is free.)
"""

from __future__ import annotations

from collections.abc import Iterator

from cantle.core.partitions import Partition, key_of, queues_of
from cantle.core.phases import FINAL
from cantle.core.roster import Key
from cantle.core.siting import is_reduced, is_short, missing_on, targets_of
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.core.unmakeable import MOST_FAILURES, may_come, why_never
from cantle.model.records import (
    AdmitPartition,
    ClosePartition,
    Decision,
    GrowPartition,
    OpenPartition,
    RefusePartition,
    RequestPartition,
    RetireWorkers,
    ShrinkPartition,
)


def carve(state: State) -> Iterator[Decision]:
    """Everything about partitions that is not an element of a slice. Each decision is applied before the next is asked for."""
    if not state.stopping:
        yield from _request_what_studies_declare(state)
    living = list(state.partitions.living.values())
    for partition in living:  # first what gives slots back, so that others find them in the same pass
        if not partition.closing:
            yield from _dwindle(state, partition)
    if state.stopping:
        return
    gathering = False
    for partition in living:
        if partition.element is not None or partition.over or partition.closing:
            continue
        if partition.standing in (Standing.NEW, Standing.PENDING):
            yield from _admit_or_refuse(state, partition)
        if partition.standing == Standing.PENDING or (partition.serves and is_short(state, partition)):
            targets = targets_of(state, partition)
            if len(targets) >= partition.width:
                yield from _gather(state, partition, targets, first=not gathering)
                gathering = gathering or partition.standing == Standing.PENDING or is_short(state, partition)
            elif partition.standing == Standing.PENDING:
                yield from _give_back(state, partition, partition.nodes(), "others hold what it lacks")
    yield from _close_those_in_the_way(state)


def _request_what_studies_declare(state: State) -> Iterator[Decision]:
    """A declared partition is made when a task is ready that runs in it."""
    for number, study in list(state.living.items()):
        for wish in study.added.partitions:
            of, key = state.partitions, (number, wish.name)
            if wish.elements or key in of.by_name or key in of.withheld or of.failures.get(key, 0) >= MOST_FAILURES:
                continue
            if is_wanted(state, key, ready=True) and not why_never(state, wish, wish.width):
                yield RequestPartition(state.now, wish, number, why="a task is ready that runs in it")


def is_wanted(state: State, key: Key, ready: bool) -> bool:
    """Whether a task runs in it that is ready, or with `ready` false any task that is not over."""
    queues = queues_of(state, key)
    for number in queues:
        queue = state.queues[number]
        if queue.head() is not None:
            return True
    if ready:
        return False
    homes = set(queues)
    steps = [step for step, shape in enumerate(state.shape_of_step) if shape in homes]
    return any(n and phase not in FINAL for step in steps for phase, n in enumerate(state.counts[step]))


def _admit_or_refuse(state: State, partition: Partition) -> Iterator[Decision]:
    """Also one that waits is refused, when the nodes are gone that it could have had."""
    why = why_never(state, partition.wish, partition.width)
    if why and not may_come(state, partition.wish, partition.width):
        yield RefusePartition(state.now, partition.number, why)
    elif not why and partition.standing == Standing.NEW:
        yield AdmitPartition(state.now, partition.number)


def _gather(state: State, partition: Partition, targets: list[int], first: bool) -> Iterator[Decision]:
    """Take what is free on the nodes that it wants; open it, or let it grow, when that is all of it."""
    gained = []
    complete = True
    for index in targets:
        slots, whole = missing_on(state, partition, index)
        complete = complete and whole
        if slots is not None:
            gained.append(slots)
    if gained and (first or complete):
        why = "all that it wants is free" if complete else "gathered until all is there: it has waited longest"
        yield GrowPartition(state.now, partition.number, tuple(gained), why)
    if complete and partition.standing == Standing.PENDING:
        yield OpenPartition(state.now, partition.number, "it has all its slots")


def _dwindle(state: State, partition: Partition) -> Iterator[Decision]:
    """Give back what it needs no more: nodes beyond its width, all of them when it drains; close it when it is empty."""
    if partition.over or partition.canceled:
        if partition.agent or not partition.over:
            yield ClosePartition(state.now, partition.number, "canceled", partition.why)
        return
    if partition.standing in (Standing.NEW, Standing.PENDING):
        if partition.draining:
            yield ClosePartition(state.now, partition.number, "canceled", "drained before it was opened")
            return
        if not _is_kept(state, partition):
            yield ClosePartition(state.now, partition.number, "canceled", "no task is left that runs in it")
            return
    elif partition.standing != Standing.ACTIVE:
        return
    if partition.wish.engine:
        yield from _let_workers_go(state, partition)
    elif partition.element is None and (partition.draining or len(partition.nodes()) > partition.width):
        leaving = _leaving(state, partition, partition.nodes())
        yield from _give_back(state, partition, leaving, "drained" if partition.draining else "resized")
    if partition.running or partition.standing != Standing.ACTIVE:
        return
    if partition.draining:
        yield ClosePartition(state.now, partition.number, "done", "drained")
    elif not _is_kept(state, partition):
        yield ClosePartition(state.now, partition.number, "done", "no task is left that runs in it")


def _let_workers_go(state: State, partition: Partition) -> Iterator[Decision]:
    """What it hosts leaves a node before its slots do. While it drains it keeps all: what runs there may need it."""
    going = partition.retiring
    left = [index for index in partition.nodes() if index not in going]
    if not partition.draining and len(left) > partition.width:
        surplus = len(left) - partition.width
        leaving = _by_use(state, partition, [index for index in left if index != partition.head])[:surplus]
        yield RetireWorkers(state.now, partition.number, tuple(leaving), "resized")
    gone = [index for index, is_gone in going.items() if is_gone]
    if gone:
        yield from _give_back(state, partition, gone, "what it hosts has left")


def _give_back(state: State, partition: Partition, nodes: list[int], why: str) -> Iterator[Decision]:
    """Give back what is free on these nodes."""
    free = [slots for index in nodes if (slots := partition.free_slots(index)).cores or slots.gpus]
    if free:
        yield ShrinkPartition(state.now, partition.number, tuple(free), why)


def _close_those_in_the_way(state: State) -> Iterator[Decision]:
    """A declared partition in which nothing runs, and nothing could now, is closed when somebody waits who cannot begin.

    It is made again when a task is ready that runs in it. Otherwise its tasks could wait for others, and those for its slots.
    """
    idle = [
        partition
        for partition in state.partitions.living.values()
        if partition.declared and partition.serves and not partition.running
    ]
    idle = [partition for partition in idle if not is_wanted(state, partition.key, ready=True)]
    if not idle:
        return
    lacking = [p for p in state.partitions.living.values() if p.element is None and _lacks_slots(state, p)]
    tasks_wait = _a_task_waits(state)
    for partition in idle:
        if tasks_wait or any(other is not partition for other in lacking):
            yield ClosePartition(
                state.now, partition.number, "done", "no task is ready for it, and others wait for room"
            )


def _lacks_slots(state: State, partition: Partition) -> bool:
    return partition.standing == Standing.PENDING or (partition.serves and is_short(state, partition))


def _a_task_waits(state: State) -> bool:
    """Whether a ready task that runs in no open partition has no room, or waits for its partition or an element."""
    for home, queues in state.homes.items():
        heads = [queue for queue in (state.queues[number] for number in queues) if queue.head() is not None]
        if home and any(key_of(state, q.shape.study, home) not in state.partitions.by_name for q in heads):
            return True
        if not home and any(state.room.fitting(q.shape.needs).bit_count() < q.shape.needs.nodes for q in heads):
            return True
    return False


def _leaving(state: State, partition: Partition, nodes: list[int]) -> list[int]:
    """The nodes that it gives up: all when it drains, otherwise those beyond its width: those that began to, then the idle."""
    if partition.draining:
        return nodes
    surplus = len(nodes) - partition.width
    if surplus <= 0:
        return []
    return _by_use(state, partition, nodes)[:surplus]


def _by_use(state: State, partition: Partition, nodes: list[int]) -> list[int]:
    """Those first that have begun to leave, then those where least runs."""
    room = partition.room

    def used(index: int) -> tuple[bool, int, int]:
        busy = room.capacity[index][0].bit_count() - room.free_cores[index].bit_count()
        return (not is_reduced(state, partition, index), busy, -index)

    return sorted(nodes, key=used)


def _is_kept(state: State, partition: Partition) -> bool:
    """As long as somebody who asked for it may use it, or a task is left that runs in it."""
    if not partition.declared:  # of elements it is decided where they are granted
        left = partition.study < 0 or not state.studies[partition.study].over
        return left and state.unfinished
    return is_wanted(state, partition.key, ready=False)
