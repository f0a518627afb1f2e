"""Which nodes is a partition to have, and what does it still lack on them?

It keeps what it has; beyond that those are chosen that will be free first, in the layout that was asked for.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from msgspec import structs

from cantle.core.packing import fewest_runs, windows
from cantle.core.partitions import Partition, queues_of
from cantle.core.room import Room, shortage
from cantle.core.state import State
from cantle.model.resources import Needs, Node, Slots, indexes, lowest_bits, mask_to_list
from cantle.model.study import PartitionWish

_DEPTH = 16


def share_on(wish: PartitionWish, node: Node) -> Node:
    """What of the node would be the partition's."""
    memory_mib, named = _countables(wish, node)
    return structs.replace(
        node,
        cores=wish.cores or node.cores,
        gpus=wish.gpus if wish.cores else node.gpus,
        memory_mib=memory_mib,
        named=named,
    )


def needs_of(wish: PartitionWish) -> Needs:
    """What such a partition needs of each of its nodes."""
    return Needs(cores=wish.cores or 1, gpus=wish.gpus, memory_mib=wish.memory_mib, kind=wish.kind)


def is_short(state: State, partition: Partition) -> bool:
    """Whether an open partition has fewer slots than it wants: it was resized, or a node of it was lost."""
    nodes = partition.nodes()
    if partition.retiring:
        return False  # one after the other: what leaves leaves first
    if len(nodes) < partition.width:
        return True
    return len(nodes) == partition.width and any(is_reduced(state, partition, index) for index in nodes)


def is_reduced(state: State, partition: Partition, index: int) -> bool:
    """Whether it has fewer cores of this node of its than it wants there."""
    full = partition.wish.cores or state.room.nodes[index].cores
    return partition.room.capacity[index][0].bit_count() < full


def targets_of(state: State, partition: Partition) -> list[int]:
    """The nodes that it is to have: what it has, and the others that will be free first."""
    room = state.room
    needs = needs_of(partition.wish)
    has = partition.nodes()
    missing = partition.width - len(has)
    if missing <= 0:
        return has
    able = _to_be_had(state, partition, room.could_ever_hold(needs) & ~(state.drained_nodes | partition.room.alive))
    if len(able) < missing:
        return has
    if partition.wish.layout == "contiguous":
        return _one_run(partition, room, has, able) or has
    leaving = _leaving_too_soon(state, partition) if state.choosy else 0
    near = set(partition.wish.near)
    misfits_of = _Misfits(partition.wish, [state.queues[n].shape.needs for n in queues_of(state, partition.key)])

    def key(index: int) -> tuple[int, int, int]:
        node = room.nodes[index]
        away = node.machine not in near
        misfits = misfits_of(node) + (leaving >> index & 1)
        return 2 * misfits + away, node.cores - room.free_cores[index].bit_count(), index

    keys = sorted(map(key, able))
    able = [index for _, _, index in keys]
    if partition.wish.layout == "spread":
        return has + _on_most_machines(room, has, able, missing)
    cores = partition.wish.cores
    ready = [
        index
        for misfit, used, index in keys
        if misfit == keys[0][0]
        and used <= (room.nodes[index].cores - cores if cores else 0)
        and missing_on(state, partition, index)[1]
    ]
    if len(ready) >= missing:
        bits = sum(1 << index for index in ready)
        return has + fewest_runs(bits, missing)
    return has + able[:missing]


def _leaving_too_soon(state: State, partition: Partition) -> int:
    """The nodes, as bits, that leave before even one of the next tasks of the partition could end there."""
    from cantle.core.lifetimes import barred_for

    found = -1
    for number in queues_of(state, partition.key):
        for task in state.queues[number].first(_DEPTH):
            found &= barred_for(state, task)
    return 0 if found == -1 else found


def _to_be_had(state: State, partition: Partition, nodes: int) -> list[int]:
    """Those of these nodes (bits) that have slots which no other partition owns."""
    others = 0
    for other in state.partitions.living.values():
        if other is not partition:
            others |= other.room.alive
    if not partition.wish.cores:
        return indexes(nodes & ~others)
    return [index for index in indexes(nodes) if not others >> index & 1 or _is_to_be_had(state, partition, index)]


def _is_to_be_had(state: State, partition: Partition, index: int) -> bool:
    """Whether the node has slots that no other partition owns: those of others come back when they come back."""
    node, wish = state.room.nodes[index], partition.wish
    cores, gpus, memory_mib = node.cores, node.gpus, node.memory_mib
    for other in state.partitions.living.values():
        if other is not partition and other.room.alive >> index & 1:
            has = other.room.capacity[index]
            cores -= has[0].bit_count()
            gpus -= has[1].bit_count()
            memory_mib -= other.room.nodes[index].memory_mib
    return cores >= wish.cores and gpus >= wish.gpus and memory_mib >= _countables(wish, node)[0]


class _Misfits:
    """How many of the tasks' needs such a partition's share of a node could not meet: nodes that are alike are asked once."""

    def __init__(self, wish: PartitionWish, wanted: list[Needs]) -> None:
        self._wish = wish
        self._wanted = wanted
        self._known: dict[tuple[object, ...], int] = {}

    def __call__(self, node: Node) -> int:
        if not self._wanted:
            return 0
        build = (node.cores, node.gpus, node.memory_mib, node.named, node.kind, node.apart)
        found = self._known.get(build)
        if found is None:
            share = share_on(self._wish, node)
            found = self._known[build] = sum(shortage(share, needs) != "" for needs in self._wanted)
        return found


def _one_run(partition: Partition, room: Room, has: list[int], able: list[int]) -> list[int]:
    """The window of neighbours, around what it has, in which the least is in use; [] when there is none."""
    width = partition.width
    may = sum(1 << index for index in able) | partition.room.alive
    used = [0]
    for index in range(may.bit_length()):
        new = may >> index & 1 and not partition.room.alive >> index & 1
        used.append(used[-1] + (room.nodes[index].cores - room.free_cores[index].bit_count() if new else 0))
    first, last = (has[-1] - width + 1, has[0]) if has else (0, may.bit_length())
    starts = [start for start in indexes(windows(may, width)) if first <= start <= last]
    if not starts:
        return []
    best = min(starts, key=lambda start: (used[start + width] - used[start], start))
    return list(range(best, best + width))


def _on_most_machines(room: Room, has: list[int], able: list[int], missing: int) -> list[int]:
    """Each on a machine on which there are fewest of them, of such the first of these nodes."""
    crowd: dict[str, int] = {}
    for index in has:
        machine = room.nodes[index].machine
        crowd[machine] = crowd.get(machine, 0) + 1
    on: dict[str, deque[int]] = {}
    for place, index in enumerate(able):
        on.setdefault(room.nodes[index].machine, deque()).append(place)
    next_of = [(crowd.get(machine, 0), places[0], machine) for machine, places in on.items()]
    heapify(next_of)
    chosen: list[int] = []
    while len(chosen) < missing:
        n, place, machine = heappop(next_of)
        chosen.append(able[place])
        on[machine].popleft()
        if on[machine]:
            heappush(next_of, (n + 1, on[machine][0], machine))
    return chosen


def missing_on(state: State, partition: Partition, index: int) -> tuple[Slots | None, bool]:
    """What of the node it could take now of what it still lacks there, and whether that would be all."""
    room, own, wish, node = state.room, partition.room, partition.wish, state.room.nodes[index]
    has_cores, has_gpus = own.capacity[index] if own.alive >> index & 1 else (0, 0)
    lacks = (wish.cores or node.cores) - has_cores.bit_count()
    lacks_gpus = (wish.gpus if wish.cores else node.gpus) - has_gpus.bit_count()
    free_cores, free_gpus = room.free_cores[index], room.free_gpus[index]
    if not (lacks or lacks_gpus) or not (free_cores or free_gpus):
        return None, not (lacks or lacks_gpus)
    cores = lowest_bits(free_cores, min(lacks, free_cores.bit_count()))
    gpus = lowest_bits(free_gpus, min(lacks_gpus, free_gpus.bit_count()))
    whole = cores.bit_count() == lacks and gpus.bit_count() == lacks_gpus
    memory = 0
    named: tuple[tuple[str, int], ...] = ()
    if whole:
        memory, named = _countables(wish, node)
        free_named = room.free_named[index]
        if room.free_memory[index] < memory or any(free_named.get(name, 0) < n for name, n in named):
            whole = False
            cores &= cores - 1  # so that the rest is looked at again, when what is counted is free
            memory, named = 0, ()
    if not cores and not gpus:
        return None, False
    return Slots(index, mask_to_list(cores), mask_to_list(gpus), memory, named), whole


def _countables(wish: PartitionWish, node: Node) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Memory and named things that the partition gets of the node."""
    if not wish.cores:
        return node.memory_mib, node.named
    if wish.memory_mib:
        return wish.memory_mib, ()
    return node.memory_mib * wish.cores // max(1, node.cores), ()
