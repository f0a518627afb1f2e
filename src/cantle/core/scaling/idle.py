"""Which nodes are unused, and which of them are kept for somebody who waits for several?

A node that somebody waits for is not idle, although nothing runs there: the nodes of a gang come one by one, and those that are
there first wait for the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import structs

from cantle.core.partitions import key_of, queues_of
from cantle.model.resources import Needs, indexes, lowest_bits

if TYPE_CHECKING:
    from cantle.core.queues import ReadyQueue, Shape
    from cantle.core.roster import Key
    from cantle.core.state import State


def is_empty(state: State, index: int) -> bool:
    """Whether nothing runs on the node, and no partition has anything of it."""
    if state.running_on.get(index):
        return False
    return not any(partition.room.alive >> index & 1 for partition in state.partitions.living.values())


def unused(state: State) -> int:
    """The nodes, as bits, on which nothing runs, of which no partition has anything, and that may be used."""
    return state.room.untouched & state.room.alive


def needed_alone_on(state: State, index: int) -> tuple[Collection[int], int]:
    """The tasks whose results are needed and live on this node alone, and how many bytes these are."""
    return ((), 0) if state.keeping is None else state.keeping.alone_on(index)


def earmarked(state: State, survivors_s: float, kept: int = 0) -> int:
    """The unused nodes, as bits, that somebody waits for: who needs several at once, whoever fits there now, those in `kept`.

    While nothing is on its way nobody keeps a node that has had no work for `survivors_s`.
    """
    ledger = state.scaling
    rest = unused(state)
    if ledger is None or not rest:
        return 0
    found = rest & kept
    for needs, width, number, too_short in gangs(state):
        able = rest & ~found & state.room.fitting(needs) & ~too_short
        wanted = width * number
        found |= lowest_bits(able, wanted) if able.bit_count() > wanted else able
    for number in state.homes[""]:
        queue = state.queues[number]
        if queue.shape.needs.nodes == 1 and queue.head() is not None:  # it waits for a place near its inputs, say
            able = rest & ~found & state.room.fitting(queue.shape.needs) & ~_leaving_too_soon(state, queue)
            wanted = min(len(queue.heap), may_begin(state, queue.shape.study), able.bit_count())
            found |= lowest_bits(able, wanted) if wanted else 0
    for index in indexes(found) if not ledger.open else ():
        if state.now - ledger.idle_since(state, index) >= survivors_s:
            found ^= 1 << index
    return found


def gangs(state: State) -> list[tuple[Needs, int, int, int]]:
    """Who waits for several nodes at once: what he needs of each, of how many, how many such there are; and the nodes, as bits,
    that leave before one of them could be over."""
    found: list[tuple[Needs, int, int, int]] = []
    for number in state.homes[""]:
        queue = state.queues[number]
        if queue.shape.needs.nodes > 1 and queue.head() is not None:
            ready = min(len(queue.heap), may_begin(state, queue.shape.study))
            if ready > 0:
                found.append((queue.shape.needs, queue.shape.needs.nodes, ready, _leaving_too_soon(state, queue)))
    found += ((*wanted, 0) for wanted in partitions_wanted(state))
    return found


def _leaving_too_soon(state: State, queue: ReadyQueue) -> int:
    """The nodes, as bits, that leave before even the shortest of the queue's most urgent tasks could end there."""
    if state.lifetimes is None:
        return 0
    from cantle.core.scaling.capacity import shortest

    return state.lifetimes.leave_before(state.now + shortest(state, queue)[0])


def may_begin(state: State, study: int) -> int:
    """How many more tasks of the study the throttle lets begin now."""
    throttle = state.studies[study].limits.throttle
    return max(0, throttle - state.studies[study].in_progress) if throttle else 1 << 60


def partitions_wanted(state: State) -> list[tuple[Needs, int, int]]:
    """Partitions that are missing nodes: declared ones in which a task is ready, and those that gather.

    Not where all that is ready is kept for when the run is resumed on other nodes: they would be asked for without end.
    """
    studies = state.living
    if not (state.partitions.living or any(each.added.partitions or each.added.slicing for each in studies.values())):
        return []
    from cantle.core.carving import is_wanted
    from cantle.core.siting import needs_of

    found: list[tuple[Needs, int, int]] = []
    for partition in state.partitions.living.values():
        missing = partition.width - len(partition.nodes())
        if partition.element is not None or partition.over or partition.closing or missing <= 0:
            continue
        if not _serves_only_what_is_kept(state, partition.key):
            found.append((needs_of(partition.wish), missing, 1))
    for number, study in studies.items():
        for wish in study.added.partitions:
            key = (number, wish.name)
            of = state.partitions
            if wish.elements or key in of.by_name or key in of.withheld or key_of(state, number, wish.name) != key:
                continue
            if is_wanted(state, key, ready=True) and not _serves_only_what_is_kept(state, key):
                found.append((needs_of(wish), wish.width, 1))
    unused_yet = [
        partition
        for partition in state.partitions.living.values()
        if partition.element is not None and not (partition.over or partition.closing or partition.running)
    ]
    for number, queue in enumerate(state.queues):
        shape = queue.shape
        if state.is_sliced(shape) and queue.head() is not None and number not in state.homes[""]:
            allowed = shape.widths or (shape.needs.nodes,)
            fits = next((each for each in unused_yet if each.study == shape.study and each.width in allowed), None)
            if fits is not None:
                unused_yet.remove(fits)  # it runs there, as soon as that is open
            elif not _is_kept(state, queue):
                found += element_for(state, shape)
    return found


def _serves_only_what_is_kept(state: State, key: Key) -> bool:
    """Whether tasks are ready that run in the partition, and none of them could ever run here."""
    heads = [state.queues[number] for number in queues_of(state, key) if state.queues[number].head() is not None]
    return bool(heads) and all(_is_kept(state, queue) for queue in heads)


def _is_kept(state: State, queue: ReadyQueue) -> bool:
    """Whether none of the queue's most urgent tasks, which run in a partition or an element, could ever run here."""
    from cantle.core.scaling.capacity import DEPTH, keeps_what_fits_nowhere

    if not keeps_what_fits_nowhere(state):
        return False  # otherwise they are refused
    from cantle.core.scaling.imagined import why_never_in_its_place

    least_s = min(state.step_of(task).walltime_s for task in queue.first(DEPTH))
    return bool(why_never_in_its_place(state, queue.shape, least_s))


def element_for(state: State, shape: Shape) -> list[tuple[Needs, int, int]]:
    """What the smallest element needs of its nodes in which tasks of the shape could run; nothing when there is none."""
    slicing = state.studies[shape.study].added.slicing
    allowed = shape.widths or (shape.needs.nodes,)
    fitting = [each for each in slicing.slices if each.width in allowed] if slicing is not None else []
    if slicing is None or not fitting:
        return []
    copies = sum(each.copies for each in slicing.slices)
    active = min(slicing.max_active or copies, copies)
    each, needs = min(fitting, key=lambda each: each.width), shape.needs
    if each.share:
        return [(structs.replace(needs, cores=max(needs.cores, each.share)), each.width, 1)]
    whole = structs.replace(
        needs, cores=needs.cores * active, gpus=needs.gpus * active, memory_mib=needs.memory_mib * active
    )
    return [(whole, each.width, 1)]
