"""Which nodes is a partition to have, and what does it still lack on them?

It keeps what it has; beyond that those are chosen that will be free first, in the layout that was asked for.
"""

from __future__ import annotations

from msgspec import structs

from cantle.core.packing import fewest_runs
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
    leaving = _leaving_too_soon(state, partition) if state.choosy else 0
    able = [
        index
        for index in indexes(room.alive)
        if index not in state.drained
        and index not in has
        and shortage(room.nodes[index], needs) == ""
        and _is_to_be_had(state, partition, index)
    ]
    missing = partition.width - len(has)
    if missing <= 0:
        return has
    if len(able) < missing:
        return has
    if partition.wish.layout == "contiguous":
        return _one_run(partition, room, has, able) or has
    near = set(partition.wish.near)
    wanted = [state.queues[number].shape.needs for number in queues_of(state, partition.key)]

    def key(index: int) -> tuple[int, int, int]:
        node = room.nodes[index]
        share = share_on(partition.wish, node)
        misfits = sum(shortage(share, needs) != "" for needs in wanted)
        away = node.machine not in near
        misfits += leaving >> index & 1
        return 2 * misfits + away, node.cores - room.free_cores[index].bit_count(), index

    able.sort(key=key)
    if partition.wish.layout == "spread":
        return has + _on_most_machines(room, has, able, missing)
    ready = [index for index in able if missing_on(state, partition, index)[1] and key(index)[0] == key(able[0])[0]]
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


def _is_to_be_had(state: State, partition: Partition, index: int) -> bool:
    """Whether the node has slots that no other partition owns: those of others come back when they come back."""
    node, wish = state.room.nodes[index], partition.wish
    cores, gpus, memory_mib = node.cores, node.gpus, node.memory_mib
    for other in state.partitions.living.values():
        if other is not partition and other.room.alive >> index & 1:
            if not wish.cores:
                return False
            has = other.room.capacity[index]
            cores -= has[0].bit_count()
            gpus -= has[1].bit_count()
            memory_mib -= other.room.nodes[index].memory_mib
    return not wish.cores or (cores >= wish.cores and gpus >= wish.gpus and memory_mib >= _countables(wish, node)[0])


def _one_run(partition: Partition, room: Room, has: list[int], able: list[int]) -> list[int]:
    """The window of neighbours, around what it has, in which the least is in use; [] when there is none."""
    may = set(able) | set(has)
    best: tuple[int, int] | None = None
    for start in sorted(may):
        window = range(start, start + partition.width)
        if all(index in may for index in window) and set(has) <= set(window):
            used = sum(room.nodes[i].cores - room.free_cores[i].bit_count() for i in window if i not in has)
            if best is None or (used, start) < best:
                best = (used, start)
    return [] if best is None else list(range(best[1], best[1] + partition.width))


def _on_most_machines(room: Room, has: list[int], able: list[int], missing: int) -> list[int]:
    crowd: dict[str, int] = {}
    for index in has:
        machine = room.nodes[index].machine
        crowd[machine] = crowd.get(machine, 0) + 1
    chosen: list[int] = []
    rest = list(able)
    while len(chosen) < missing:
        best = min(rest, key=lambda index: crowd.get(room.nodes[index].machine, 0))
        rest.remove(best)
        chosen.append(best)
        crowd[room.nodes[best].machine] = crowd.get(room.nodes[best].machine, 0) + 1
    return chosen


def missing_on(state: State, partition: Partition, index: int) -> tuple[Slots | None, bool]:
    """What of the node it could take now of what it still lacks there, and whether that would be all."""
    room, own, wish, node = state.room, partition.room, partition.wish, state.room.nodes[index]
    has_cores, has_gpus = own.capacity[index] if own.alive >> index & 1 else (0, 0)
    lacks = (wish.cores or node.cores) - has_cores.bit_count()
    lacks_gpus = (wish.gpus if wish.cores else node.gpus) - has_gpus.bit_count()
    cores = lowest_bits(room.free_cores[index], min(lacks, room.free_cores[index].bit_count()))
    gpus = lowest_bits(room.free_gpus[index], min(lacks_gpus, room.free_gpus[index].bit_count()))
    whole = cores.bit_count() == lacks and gpus.bit_count() == lacks_gpus
    memory = 0
    named: tuple[tuple[str, int], ...] = ()
    if whole and (lacks or lacks_gpus):
        memory, named = _countables(wish, node)
        free_named = room.free_named[index]
        if room.free_memory[index] < memory or any(free_named.get(name, 0) < n for name, n in named):
            whole = False
            cores &= cores - 1  # so that the rest is looked at again, when what is counted is free
            memory, named = 0, ()
    if not cores and not gpus:
        return None, whole and not lacks and not lacks_gpus
    return Slots(index, mask_to_list(cores), mask_to_list(gpus), memory, named), whole


def _countables(wish: PartitionWish, node: Node) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Memory and named things that the partition gets of the node."""
    if not wish.cores:
        return node.memory_mib, node.named
    if wish.memory_mib:
        return wish.memory_mib, ()
    return node.memory_mib * wish.cores // max(1, node.cores), ()
