"""Which partition is made, grows, shrinks or ends now? The broker of named partitions.

A partition that waits gathers free slots until it has all that it wants. Only the one that has waited longest keeps what it
has gathered, so that two of them never wait for each other; one behind it is opened when all that it wants is free beside
what the first has its eyes on. What a partition gathers is lost to others until it opens: it was asked for by somebody, who
waits. (Elements of slices are no such wishes: they are granted by `broker.py`, from what is free.)
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from cantle.core.packing import fewest_runs
from cantle.core.partitions import Partition, key_of, queues_of
from cantle.core.phases import FINAL
from cantle.core.queues import Shape
from cantle.core.room import Room, shortage
from cantle.core.roster import ALL, Key
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.model.records import (
    AdmitPartition,
    ClosePartition,
    Decision,
    GrowPartition,
    OpenPartition,
    Refuse,
    RefusePartition,
    RequestPartition,
    RetireWorkers,
    ShrinkPartition,
)
from cantle.model.resources import Needs, Node, Slots, count, indexes, lowest_bits, mask_to_list
from cantle.model.slicing import choices_of
from cantle.model.study import PartitionWish

_DEPTH = 16
MOST_FAILURES = 3
"""So often in a row a declared partition may fail before it is given up."""


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
        if partition.standing == Standing.PENDING or (partition.serves and _is_short(state, partition)):
            targets = _targets(state, partition)
            if len(targets) >= partition.width:
                yield from _gather(state, partition, targets, first=not gathering)
                gathering = gathering or partition.standing == Standing.PENDING or _is_short(state, partition)
            elif partition.standing == Standing.PENDING:
                yield from _give_back(state, partition, partition.nodes(), "others hold what it lacks")
    yield from _close_those_in_the_way(state)


def _request_what_studies_declare(state: State) -> Iterator[Decision]:
    """A declared partition is made when a task is ready that runs in it."""
    for number, study in enumerate(state.studies):
        for wish in () if study.over else study.added.partitions:
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
    if why and not (state.awaited or _more_may_be_had(state, partition)):
        yield RefusePartition(state.now, partition.number, why)
    elif not why and partition.standing == Standing.NEW:
        yield AdmitPartition(state.now, partition.number)


def _more_may_be_had(state: State, partition: Partition) -> bool:
    """Whether so many nodes could be there, with those that may be asked for."""
    if state.scaling is None:
        return False
    from cantle.core.scaling.capacity import could_ever_be_there

    return could_ever_be_there(state, needs_of(partition.wish)) >= partition.width


def why_never(state: State, wish: PartitionWish, width: int) -> str:
    """Why there can be no such partition on the nodes that are there, "" when there can."""
    needs = needs_of(wish)
    able = state.room.could_ever_hold(needs)
    if wish.layout == "contiguous":
        if any(able >> index & (1 << width) - 1 == (1 << width) - 1 for index in indexes(able)):
            return ""
    elif able.bit_count() >= width:
        return ""
    share = f"{needs} of each" if wish.cores else f"all of each{f' of kind {wish.kind}' if wish.kind else ''}"
    beside = " next to each other" if wish.layout == "contiguous" else ""
    n = able.bit_count()
    there = f"there {'is' if n == 1 else 'are'} {count(n, 'node')} that could be in it"
    return f"wants {count(width, 'node')}{beside} and {share}; {there}"


def why_never_in_partition(state: State, shape: Shape) -> str:
    """Why tasks of this shape can never run in their partition, "" when they can or somebody may still make it."""
    name, needs = shape.partition, shape.needs
    of, key = state.partitions, key_of(state, shape.study, shape.partition)
    if key in of.requests:
        return ""  # what was asked for comes and goes
    declared = [wish for wish in state.studies[shape.study].added.partitions if wish.name == name]
    living = of.by_name.get(key)
    wish = living.wish if living is not None else declared[0] if declared else None
    if wish is not None and wish.elements:
        return _why_no_elements(state, wish, shape)
    if wish is None:
        return ""  # somebody may make it yet; see `refuse_what_nobody_makes`
    width = wish.width if living is None else living.width
    if living is None and key not in of.withheld:
        if of.failures.get(key, 0) >= MOST_FAILURES:
            last = next(partition for partition in reversed(of.all) if partition.key == key)
            return f"its partition {name} failed {MOST_FAILURES} times: {last.why}"
        if why := why_never(state, wish, width):
            return f"its partition {name} {why}"
    if needs.nodes > width:
        return f"needs {needs}; its partition {name} has {count(width, 'node')}"
    lacks, most = "", 0
    for group in _could_have(state, wish, living, width):
        enough = 0
        for node in (state.room.nodes[index] for index in indexes(group)):
            lack = shortage(_share(wish, node), needs)
            if needs.whole_nodes and 0 < wish.cores < node.cores:
                lack = lack or f"has only {wish.cores} of its {count(node.cores, 'core')} there"
            enough += not lack
            lacks = lacks or lack
            if enough == needs.nodes:
                return ""
        most = max(most, enough)
    if most:
        return f"needs {needs}; only {count(most, 'node')} of its partition {name} could hold a share of it"
    return f"needs {needs}; each node of its partition {name} {lacks}" if lacks else ""


def _why_no_elements(state: State, wish: PartitionWish, shape: Shape) -> str:
    slicings = [study.added.slicing for study in state.studies if study.added.slicing is not None]
    if not slicings:
        return f"its partition {wish.name} wants {wish.elements}, but the study has no slices"
    there = {each.width for each in slicings[0].slices}
    wanted = {width for choice in choices_of(wish.elements) for width, _ in choice.widths}
    if wanted & there:
        from cantle.core.holdable import why_never_in_slices

        return why_never_in_slices(state, shape, slicings[0], wanted)
    return f"its partition {wish.name} wants {wish.elements}; the slices have elements of {sorted(there)} nodes"


def refuse_what_nobody_makes(state: State) -> Iterator[Decision]:
    """When nothing else is left to do: fail the ready tasks of partitions that nobody declared or ever asked for."""
    of = state.partitions
    known = {(number, wish.name) for number, study in enumerate(state.studies) for wish in study.added.partitions}
    known |= {partition.key for partition in of.all} | set(of.requests) | set(of.withheld)
    for name, queues in list(state.homes.items()):
        why = (
            f"runs in the partition {name}, which nobody has declared or asked for, and nothing else is left to do; "
            f"declare it under `cantle: partitions:`, or make it while the run goes on: cantle partition create DIR {name}"
        )
        for number in queues:
            shape = state.queues[number].shape
            if not shape.partition or (shape.study, name) in known or (ALL, name) in known:
                continue
            for task in state.queues[number].ready():
                yield Refuse(state.now, task, why)


def _could_have(state: State, wish: PartitionWish, living: Partition | None, width: int) -> Iterator[int]:
    """Groups of nodes, as bits, of which such a partition may have some. One that is open and has all it wants has its own.

    Of one whose nodes are to be next to each other each group is so many; where there is none with those that it has, these.
    """
    able, own = state.room.could_ever_hold(needs_of(wish)), 0
    if living is not None and living.standing == Standing.ACTIVE and not living.draining:
        own = living.room.alive
        if not _is_short(state, living):
            yield own
            return
    if wish.layout != "contiguous":
        yield able
        return
    found = False
    for index in indexes(able):
        window = (1 << width) - 1 << index
        if able & window == window and own & window == own:
            found = True
            yield window
    if own and not found:
        yield own


def _share(wish: PartitionWish, node: Node) -> Node:
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


def _gather(state: State, partition: Partition, targets: list[int], first: bool) -> Iterator[Decision]:
    """Take what is free on the nodes that it wants; open it, or let it grow, when that is all of it."""
    gained = []
    complete = True
    for index in targets:
        slots, whole = _missing(state, partition, index)
        complete = complete and whole
        if slots is not None:
            gained.append(slots)
    if gained and (first or complete):
        why = "all that it wants is free" if complete else "gathered until all is there: it has waited longest"
        yield GrowPartition(state.now, partition.number, tuple(gained), why)
    if complete and partition.standing == Standing.PENDING:
        yield OpenPartition(state.now, partition.number, "it has all its slots")


def _is_short(state: State, partition: Partition) -> bool:
    """Whether an open partition has fewer slots than it wants: it was resized, or a node of it was lost."""
    nodes = partition.nodes()
    if partition.retiring:
        return False  # one after the other: what leaves leaves first
    if len(nodes) < partition.width:
        return True
    return len(nodes) == partition.width and any(_is_reduced(state, partition, index) for index in nodes)


def _is_reduced(state: State, partition: Partition, index: int) -> bool:
    full = partition.wish.cores or state.room.nodes[index].cores
    return partition.room.capacity[index][0].bit_count() < full


def _targets(state: State, partition: Partition) -> list[int]:
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
        share = _share(partition.wish, node)
        misfits = sum(shortage(share, needs) != "" for needs in wanted)
        away = node.machine not in near
        misfits += leaving >> index & 1
        return 2 * misfits + away, node.cores - room.free_cores[index].bit_count(), index

    able.sort(key=key)
    if partition.wish.layout == "spread":
        return has + _on_most_machines(room, has, able, missing)
    ready = [index for index in able if _missing(state, partition, index)[1] and key(index)[0] == key(able[0])[0]]
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


def _missing(state: State, partition: Partition, index: int) -> tuple[Slots | None, bool]:
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
    return partition.standing == Standing.PENDING or (partition.serves and _is_short(state, partition))


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
        return (not _is_reduced(state, partition, index), busy, -index)

    return sorted(nodes, key=used)


def _is_kept(state: State, partition: Partition) -> bool:
    """As long as somebody who asked for it may use it, or a task is left that runs in it."""
    if not partition.declared:  # of elements it is decided where they are granted
        left = partition.study < 0 or not state.studies[partition.study].over
        return left and state.unfinished
    return is_wanted(state, partition.key, ready=False)
