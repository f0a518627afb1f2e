"""Why can there never be such a partition, and why can tasks never run in theirs?"""

from __future__ import annotations

from collections.abc import Iterator

from cantle.core.packing import windows
from cantle.core.partitions import Partition, key_of
from cantle.core.phases import UNSTARTED
from cantle.core.queues import Shape
from cantle.core.room import Room, shortage
from cantle.core.roster import ALL
from cantle.core.siting import is_short, needs_of, share_on
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.model.records import Decision, Refuse
from cantle.model.resources import Needs, count, indexes
from cantle.model.slicing import choices_of
from cantle.model.study import OF_A_PROGRAM, PartitionWish

MOST_FAILURES = 3
"""So often in a row a declared partition may fail before it is given up."""


def why_never(state: State, wish: PartitionWish, width: int, room: Room | None = None) -> str:
    """Why there can be no such partition on the nodes that are there, or in that room, "" when there can."""
    needs = needs_of(wish)
    able = (room or state.room).could_ever_hold(needs)
    if wish.layout == "contiguous":
        if windows(able, width):
            return ""
    elif able.bit_count() >= width:
        return ""
    share = f"{needs} of each" if wish.cores else f"all of each{_beyond_cores(needs)}"
    beside = " next to each other" if wish.layout == "contiguous" else ""
    n = able.bit_count()
    there = f"there {'is' if n == 1 else 'are'} {count(n, 'node')} that could be in it"
    return f"wants {count(width, 'node')}{beside} and {share}; {there}"


def _beyond_cores(needs: Needs) -> str:
    """What whole nodes must have all the same, as a phrase."""
    has = [count(needs.gpus, "GPU")] if needs.gpus else []
    has += [f"{needs.memory_mib:,} MiB of memory"] if needs.memory_mib else []
    return (f" of kind {needs.kind}" if needs.kind else "") + (f", with {' and '.join(has)}" if has else "")


def may_come(state: State, wish: PartitionWish, width: int) -> bool:
    """Whether so many nodes may be there one day, with those that are awaited or may be asked for."""
    if state.awaited or state.scaling is None:
        return bool(state.awaited)
    from cantle.core.scaling.capacity import could_ever_be_there

    return could_ever_be_there(state, needs_of(wish)) >= width


def why_never_in_partition(state: State, shape: Shape, room: Room) -> str:
    """Why tasks of this shape can never run in their partition, "" when they can or somebody may still make it.

    `room` has the nodes of which it could be.
    """
    name, needs = shape.partition, shape.needs
    of, key = state.partitions, key_of(state, shape.study, shape.partition)
    if key in of.requests:
        return ""  # what was asked for comes and goes
    declared = [wish for wish in state.studies[shape.study].added.partitions if wish.name == name]
    living = of.by_name.get(key)
    wish = living.wish if living is not None else declared[0] if declared else None
    if wish is not None and wish.elements:
        return _why_no_elements(state, wish, shape, room)
    if wish is None:
        return ""  # somebody may make it yet; see `refuse_what_nobody_makes`
    width = wish.width if living is None else living.width
    if living is None and key not in of.withheld:
        if of.failures.get(key, 0) >= MOST_FAILURES:
            last = next(partition for partition in reversed(of.all) if partition.key == key)
            return f"its partition {name} failed {MOST_FAILURES} times: {last.why}"
        if why := why_never(state, wish, width, room):
            return f"its partition {name} {why}"
    if needs.nodes > width:
        return f"needs {needs}; its partition {name} has {count(width, 'node')}"
    lacks, most = "", 0
    for group in _could_have(state, wish, living, width, room):
        enough = 0
        for node in (room.nodes[index] for index in indexes(group)):
            lack = shortage(share_on(wish, node), needs)
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


def _why_no_elements(state: State, wish: PartitionWish, shape: Shape, room: Room) -> str:
    slicings = [study.added.slicing for study in state.studies if study.added.slicing is not None]
    if not slicings:
        return f"its partition {wish.name} wants {wish.elements}, but the study has no slices"
    there = {each.width for each in slicings[0].slices}
    wanted = {width for choice in choices_of(wish.elements) for width, _ in choice.widths}
    if wanted & there:
        from cantle.core.holdable import why_never_in_slices

        return why_never_in_slices(room, shape, slicings[0], wanted)
    return f"its partition {wish.name} wants {wish.elements}; the slices have elements of {sorted(there)} nodes"


def refuse_what_nobody_makes(state: State, nothing_changes: bool) -> Iterator[Decision]:
    """When nothing else can be done: fail the ready tasks of partitions that nobody declared or ever asked for.

    Called when nothing runs, and no node is to come. `nothing_changes`: nobody waits for a time either.
    """
    if state.partitions.living and not _all_wait_for_what_nobody_makes(state, nothing_changes):
        return
    for number in queues_that_nobody_serves(state):
        shape = state.queues[number].shape
        name = shape.partition
        how = (
            f"ask for it in the program before: pilot.partition(name={name!r})"
            if _is_of_a_program(state, shape.study)
            else "declare it under `cantle: partitions:`, or make it while the run goes on: "
            f"cantle partition create DIR {name}"
        )
        why = f"runs in the partition {name}, which nobody has declared or asked for, and nothing else is left to do; {how}"
        for task in state.queues[number].ready():
            yield Refuse(state.now, task, why)


def queues_that_nobody_serves(state: State) -> list[int]:
    """Of tasks in partitions that nobody declared or ever asked for."""
    of = state.partitions
    known = {(number, wish.name) for number, study in enumerate(state.studies) for wish in study.added.partitions}
    known |= {partition.key for partition in of.all} | set(of.requests) | set(of.withheld)
    return [
        number
        for queues in state.homes.values()
        for number in queues
        if (shape := state.queues[number].shape).partition
        and not {(shape.study, shape.partition), (ALL, shape.partition)} & known
    ]


def _all_wait_for_what_nobody_makes(state: State, nothing_changes: bool) -> bool:
    """Whether the partitions that there are only wait for tasks that stand behind those.

    So it is if nothing else is ready, or if what is has no room while they are there, and nothing will change that.
    """
    for partition in state.partitions.living.values():
        if partition.running or partition.closing or partition.standing != Standing.ACTIVE:
            return False
    if nothing_changes and not state.drained:
        return True
    nobodys = set(queues_that_nobody_serves(state))
    return all(number in nobodys for number, queue in enumerate(state.queues) if queue.head() is not None)


def refuse_what_is_left_behind(state: State) -> Iterator[Decision]:
    """Fail the calls of programs whose partition is over: a program gives a name once, so none will take its place."""
    hopeless: dict[int, str] = {}
    for name, queues in state.homes.items():
        for number in queues if name else ():
            study = state.queues[number].shape.study
            if _is_of_a_program(state, study) and (over := _over_and_gone(state, study, name)) is not None:
                hopeless[number] = f"its partition {name} is over{f': {over.why}' if over.why else ''}"
    if not hopeless:
        return
    for task, phase in enumerate(state.phases):
        if phase in UNSTARTED and (why := hopeless.get(state.shape_of_step[state.tasks[task].step])):
            yield Refuse(state.now, task, why)


def _over_and_gone(state: State, study: int, name: str) -> Partition | None:
    of = state.partitions
    if {(study, name), (ALL, name)} & {*of.by_name, *of.requests}:
        return None
    return next((each for each in reversed(of.all) if each.key == (study, name) and each.over), None)


def _is_of_a_program(state: State, study: int) -> bool:
    return state.studies[study].added.reader == OF_A_PROGRAM


def _could_have(state: State, wish: PartitionWish, living: Partition | None, width: int, room: Room) -> Iterator[int]:
    """Groups of nodes, as bits, of which such a partition may have some. One that is open and has all it wants has its own.

    Of one whose nodes are to be next to each other each group is so many; where there is none with those that it has, these.
    """
    able, own = room.could_ever_hold(needs_of(wish)), 0
    if living is not None and living.standing == Standing.ACTIVE and not living.draining:
        own = living.room.alive
        if not is_short(state, living):
            yield own
            return
    if wish.layout != "contiguous":
        yield able
        return
    found = False
    for index in indexes(windows(able, width)):
        window = (1 << width) - 1 << index
        if own & window == own:
            found = True
            yield window
    if own and not found:
        yield own
