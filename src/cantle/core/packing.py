"""Which ready task goes where? The built-in packers; each is a policy, a function of a plan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue
from cantle.core.room import Room
from cantle.model.records import Decision
from cantle.model.resources import Needs, Place, indexes, lowest_bits

if TYPE_CHECKING:
    from cantle.core.nearness import Nearness
    from cantle.core.reserving import Kept

PlacesFor: TypeAlias = Callable[[Room, Needs], tuple[Place, ...] | None]
"""The places for one task, all or nothing; None when there is no room for it."""


def best_fit(plan: Plan) -> Iterator[Decision]:
    """Most urgent first; each on the fullest node that holds it, so that wide room stays whole for wide tasks."""
    return _packed(plan, find_places)


def first_fit(plan: Plan) -> Iterator[Decision]:
    """Most urgent first; each on the lowest numbered nodes that hold it, so that the last nodes stay idle longest."""
    return _packed(plan, _lowest_numbered)


def spread(plan: Plan) -> Iterator[Decision]:
    """Most urgent first; each on the nodes with the most free cores, so that tasks share memory and disks with the fewest."""
    return _packed(plan, _emptiest)


def is_ours(packer: object) -> bool:
    """Whether this is one of the packers above. They keep the rules, so that nobody need check what they yield."""
    return any(packer is ours for ours in (best_fit, first_fit, spread))


def _packed(plan: Plan, places_for: PlacesFor) -> Iterator[Decision]:
    """Where some tasks choose how wide they run, that decides what starts as well."""
    if plan.state.observed:
        from cantle.core.widths.packer import pack

        return pack(plan, places_for)
    return _most_urgent_first(plan, places_for)


def _most_urgent_first(plan: Plan, places_for: PlacesFor) -> Iterator[Decision]:
    """What does not fit is passed over and others fill the room, unless it decides when the study ends: see `reserving`."""
    if len(plan.state.studies) > 1:
        from cantle.core.sharing import compete, fairly

        if compete(plan):
            yield from fairly(plan, places_for)
            return
    room = plan.room
    if room.full:
        return
    why = "the most urgent"
    kept: Kept | None = None
    asked = False
    near = _nearness(plan)
    choosy = plan.state.choosy
    for queue in plan.by_urgency():
        if room.full:
            return
        task = queue.heap[0][1]
        places = None
        if plan.may_launch(queue):
            if kept is not None:
                places = kept.places(plan, task, places_for)
            elif near is not None:
                task, places = near.choose(plan, queue, places_for)
                while places is not None and task != queue.heap[0][1]:  # the head keeps its turn
                    yield plan.launch(task, places, why)
                    if queue.head() is None or not plan.may_launch(queue):
                        places = None
                        break
                    task, places = near.choose(plan, queue, places_for)
            else:
                places = places_for(plan.room_for(task) if choosy else room, queue.shape.needs)
            if places is None and kept is None and queue.breadth and not asked:
                misfit = near is None or places_for(room, queue.shape.needs) is None
                if misfit:
                    asked = True
                    kept = _room_to_keep(plan, queue, queue.heap[0][1])
        if places is None:
            why = "the most urgent that fits"
            if kept is not None and plan.may_launch(queue):
                yield from _meanwhile(plan, queue, kept, places_for)
            elif choosy and plan.may_launch(queue):
                yield from _in_time(plan, queue, places_for)
            continue
        if kept is not None:
            kept.took(plan.state, task, places)
        yield plan.launch(task, places, why)


def _nearness(plan: Plan) -> Nearness | None:
    """Where inputs lie, if that can matter: where there is more than one machine."""
    if not plan.state.several_machines:
        return None
    from cantle.core.nearness import nearness_of

    return nearness_of(plan)


def _meanwhile(plan: Plan, queue: ReadyQueue, kept: Kept, places_for: PlacesFor) -> Iterator[Decision]:
    """The next ones of a queue whose head would be in the way of the task for which room is kept, and they not."""
    if places_for(plan.room, queue.shape.needs) is None:
        return
    for task in kept.shorter(plan.state, queue):
        places = places_for(plan.room_for(task), queue.shape.needs) if plan.may_launch(queue) else None
        if places is None:
            return
        yield plan.launch(task, places, "over before the room is needed that is kept for a wider task")


def _in_time(plan: Plan, queue: ReadyQueue, places_for: PlacesFor) -> Iterator[Decision]:
    """The next ones of a queue whose head may not start where there is room, and they may."""
    from cantle.core.timely import others

    for task, places in others(plan, queue, places_for):
        yield plan.launch(task, places, "the most urgent that ends before the node does")


def _room_to_keep(plan: Plan, queue: ReadyQueue, task: int) -> Kept | None:
    from cantle.core.reserving import decides_the_end, kept_before

    kept = kept_before(plan, queue, task) if decides_the_end(plan, queue) else None
    return kept if kept is not None and kept.foreseen else None


def find_places(room: Room, needs: Needs) -> tuple[Place, ...] | None:
    """The places for one task, all or nothing: on one node the fullest that fits, on several the fewest runs."""
    if needs.nodes == 1:
        if needs.gpus or needs.memory_mib or needs.named or needs.kind or needs.whole_nodes or room.apart:
            index = room.fullest_fitting(needs)
            return None if index < 0 else (room.place(index, needs),)
        for nodes in room.by_cores[needs.cores :]:
            if nodes:
                return (room.place((nodes & -nodes).bit_length() - 1, needs),)
        return None
    fitting = room.fitting(needs)
    if fitting.bit_count() < needs.nodes:
        return None
    return tuple(room.place(index, needs) for index in fewest_runs(fitting, needs.nodes))


def _lowest_numbered(room: Room, needs: Needs) -> tuple[Place, ...] | None:
    fitting = room.fitting(needs)
    if fitting.bit_count() < needs.nodes:
        return None
    return tuple(room.place(index, needs) for index in indexes(lowest_bits(fitting, needs.nodes)))


def _emptiest(room: Room, needs: Needs) -> tuple[Place, ...] | None:
    fitting = room.fitting(needs)
    missing = needs.nodes
    if fitting.bit_count() < missing:
        return None
    chosen = 0
    for nodes in reversed(room.by_cores):
        found = nodes & fitting
        if found:
            found = lowest_bits(found, min(missing, found.bit_count()))
            chosen |= found
            missing -= found.bit_count()
            if not missing:
                break
    return tuple(room.place(index, needs) for index in indexes(chosen))


def fewest_runs(nodes: int, n: int) -> list[int]:
    """n of these nodes (bits), in as few runs of consecutive numbers as possible, ascending.

    The smallest run that holds all of them, otherwise the largest runs first and the rest from the smallest that holds it.
    """
    runs = []
    rest = nodes
    while rest:
        start = (rest & -rest).bit_length() - 1
        shifted = rest >> start
        length = (~shifted & (shifted + 1)).bit_length() - 1
        runs.append((length, start))
        rest &= ~(((1 << length) - 1) << start)
    runs.sort()
    chosen: list[int] = []
    while n:
        most, start = runs.pop(min(bisect_left(runs, (n, -1)), len(runs) - 1))
        length = min(most, n)
        chosen.extend(range(start, start + length))
        n -= length
    return sorted(chosen)


def windows(nodes: int, n: int) -> int:
    """Where n of these nodes (bits) begin that follow each other, as bits."""
    found, length = nodes, 1
    while length < n:
        step = min(length, n - length)
        found &= found >> step
        length += step
    return found
