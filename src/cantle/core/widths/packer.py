"""Which ready task starts, on how many nodes and where, in a study whose tasks choose their widths?

When all that is ready here is of one such study, dispatch decides what starts and how wide. When other studies wait as well,
whose turn it is is not for the widths to say: queues are asked as ever, and only how wide their head starts is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from cantle.core.packing import PlacesFor
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue
from cantle.core.sharing import as_its_shape_says, fairly
from cantle.core.state import State
from cantle.core.widths.books import Books
from cantle.model.records import Decision, Launch
from cantle.model.resources import Needs

DEPTH = 16
"""So many tasks of a queue are looked at for one that ends before the nodes do."""


def pack(plan: Plan, places_for: PlacesFor) -> Iterator[Decision]:
    """The policy. `places_for` finds the places of a task whose number of nodes is settled."""
    if plan.room.full:
        return
    books = _books(plan)
    queues = (plan.state.queues[number] for number in plan.queues)
    heads = {queue.shape.study for queue in queues if queue.heap and queue.head() is not None}
    if len(books) == 1 and heads <= books.keys():
        [found] = books.values()
        yield from _all_of_one_study(plan, found, places_for)
    elif heads:
        yield from _among_others(plan, books, places_for)
    if heads and not plan.state.running:
        yield from _whatever_fits(plan, books, places_for)


def _whatever_fits(plan: Plan, books: dict[int, Books], places_for: PlacesFor) -> Iterator[Decision]:
    """Nothing was begun, since all wait for more nodes, and nothing runs that could give any back: one begins narrower."""
    for queue in plan.by_urgency():
        needs, task = queue.shape.needs, queue.heap[0][1]
        for width in reversed(queue.shape.widths or (needs.nodes,)):
            room = plan.room
            if plan.state.choosy:
                own = books.get(queue.shape.study)
                room = plan.room_for(task, None if own is None else own.seconds(plan.state, task, width))
            places = places_for(room, on(needs, width)) if plan.may_launch(queue) else None
            if places is not None:
                yield plan.launch(task, places, f"on {width}: nothing else runs, and more nodes are not to be had")
                if queue.shape.study in books:
                    books[queue.shape.study].settle(plan.state, [task])
                return


def _books(plan: Plan) -> dict[int, Books]:
    """Of the studies that choose widths, in this room, up to date."""
    state = plan.state
    where = -1 if plan.partition is None else plan.partition.number
    kept: dict[int, Books] = plan.memory.setdefault(("widths", where), {})
    found = {}
    for study, seen in state.observed.items():
        queues = frozenset(n for n in plan.queues if state.queues[n].shape.study == study)
        if queues:
            books = kept.get(study)
            if books is None or books.seen is not seen or books.queues != queues:
                books = Books(plan, study, seen)
            books.follow(plan)
            found[study] = books
    kept.clear()
    kept.update(found)
    return found


def _all_of_one_study(plan: Plan, books: Books, places_for: PlacesFor) -> Iterator[Decision]:
    """Dispatch reckons that what it starts takes whole nodes; where they have room for more, it is asked again."""
    state, room, dispatch = plan.state, plan.room, books.dispatch
    free = books.free(plan)
    too_late = False
    while len(dispatch) and any(free.values()):
        horizon_s = dispatch.horizon_s(state.now)
        chosen = dispatch.starts(state.now, free)
        for task, level in chosen:
            queue = state.queue_of(task)
            table = books.table(state, task)
            width = table.widths[level]
            if state.choosy:
                room = plan.room_for(task, table.times[level])
            places = places_for(room, on(queue.shape.needs, width)) if plan.may_launch(queue) else None
            if places is not None:
                yield plan.launch(task, places, why(books, state, task, width, horizon_s))
            else:
                too_late = too_late or state.choosy
        books.settle(state, [task for task, _ in chosen])
        if too_late:
            yield from _in_time(plan, books, places_for)
            return
        free = books.free(plan)
        if not chosen or all(room <= dispatch.spare.get(group, 0) for group, room in free.items()):
            return


def _in_time(plan: Plan, books: Books, places_for: PlacesFor) -> Iterator[Decision]:
    """Some nodes leave before what was chosen for them could end: each task as wide as it has to be to end in time."""
    state = plan.state
    for queue in plan.by_urgency():
        for task in queue.first(DEPTH):
            if plan.room.full or not plan.may_launch(queue):
                break
            table = books.table(state, task)
            for width, seconds in zip(table.widths, table.times, strict=True):
                places = places_for(plan.room_for(task, seconds), on(queue.shape.needs, width))
                if places is not None:
                    yield plan.launch(task, places, f"on {width} of {table.widths[-1]}: so it ends before the nodes do")
                    books.settle(state, [task])
                    break


def _among_others(plan: Plan, books: dict[int, Books], places_for: PlacesFor) -> Iterator[Decision]:
    """Which study's turn it is, its share says; how wide its task starts, its dispatch."""
    state, room = plan.state, plan.room

    def choose(queue: ReadyQueue, task: int) -> tuple[Needs, str] | None:
        needs = queue.shape.needs
        if not queue.shape.widths:
            return as_its_shape_says(queue, task)
        own = books[queue.shape.study]
        width = own.dispatch.advice(task, state.now, room.fitting(needs).bit_count())
        if not width:
            return None
        if state.choosy:
            width = _wide_enough(plan, own, task, width)
        return on(needs, width), why(own, state, task, width, own.dispatch.horizon_s(state.now))

    for decision in fairly(plan, places_for, choose):
        yield decision
        if isinstance(decision, Launch) and (study := state.study_of_step[state.tasks[decision.task].step]) in books:
            books[study].settle(state, [decision.task])


def _wide_enough(plan: Plan, books: Books, task: int, advised: int) -> int:
    """At least as wide as was advised, and so wide that it ends before the nodes do, where that is possible."""
    table = books.table(plan.state, task)
    needs = plan.state.queue_of(task).shape.needs
    for width, seconds in zip(table.widths, table.times, strict=True):
        if width >= advised and plan.room_for(task, seconds).fitting(needs).bit_count() >= width:
            return width
    return advised


def on(needs: Needs, nodes: int) -> Needs:
    """The needs on so many nodes."""
    return needs if needs.nodes == nodes else structs.replace(needs, nodes=nodes)


def why(books: Books, state: State, task: int, width: int, horizon_s: float) -> str:
    """The choice in words."""
    widths = state.step_of(task).widths
    if not widths:
        return "the most urgent that fits"
    planned = books.course.get(task)
    if planned is None:
        reason = f"all that is ready or runs could be over in {horizon_s:.3g} s"
    elif width > planned[0]:
        reason = f"planned on {planned[0]}, wider so as not to be the last, or because nobody else waits"
    else:
        reason = "as planned for the whole study"
    return f"on {width} of {widths[0]}-{widths[-1]} nodes: {reason}"
