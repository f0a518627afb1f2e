"""Which elements of slices are wanted, by the tasks that are ready and by those who ask by name?"""

from __future__ import annotations

from msgspec.structs import replace

from cantle.core.broker import Broker
from cantle.core.carving import is_wanted
from cantle.core.holdable import share_of, why_never_in_slices
from cantle.core.lifetimes import barred_for, expected_on
from cantle.core.partitions import Partition, queues_of
from cantle.core.queues import ReadyQueue, Shape
from cantle.core.room import Room, shortage
from cantle.core.roster import Key
from cantle.core.state import State
from cantle.core.wants import Want
from cantle.model.resources import Needs, indexes
from cantle.model.slicing import Combination, choices_of, combination
from cantle.model.study import Slicing

ASKED = -2
"""The broker's jobs are the studies, by number, and from here downwards those who asked from outside."""
DEPTH = 16
"""So many tasks of a queue are looked at for one that ends before the nodes leave."""


class Demand:
    """What is wanted of one slicing. `jobs`: where the tasks of each job of the broker are at home."""

    def __init__(self, broker: Broker, jobs: dict[int, Key], room: Room, slicing: Slicing) -> None:
        self._broker = broker
        self._slicing = slicing
        self._vain: dict[tuple[int, int], tuple[int, bool]] = {}
        """Of a queue and a width: whether no element there could hold its tasks, and for which nodes that was found."""
        self._jobs = jobs
        self._room = room
        self._wanted: dict[int, dict[Needs, int]] = {}
        """By width, what the tasks need that are ready, and which nodes (bits) leave too soon for all of these."""
        self._unsuited = False

    def tell(self, state: State) -> None:
        """The broker learns who wants how many elements of which widths."""
        named = asking(state)
        wanted: dict[int, dict[Needs, int]] = {}
        for job, home in list(self._jobs.items()):
            if job <= ASKED:
                self._heed(state, job, home, named.get(home, ""))
                if job in self._broker.claims:
                    for width in self._broker.claims[job].open(self._broker.ledger):
                        for needs in _ready_for(state, home, width) or [Needs()]:
                            wanted.setdefault(width, {})[needs] = 0
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
                    if self._is_vain(state, number, width):
                        continue
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

    def _is_vain(self, state: State, number: int, width: int) -> bool:
        """Whether no element of the nodes that are there could hold the queue's tasks: then it would be had in vain.

        With nodes on their way such tasks wait, and are not refused.
        """
        known = self._vain.get((number, width))
        if known is None or known[0] != state.feasibility_version:
            why = why_never_in_slices(state.room, state.queues[number].shape, self._slicing, (width,))
            known = self._vain[number, width] = (state.feasibility_version, bool(why))
        return known[1]

    def _heed(self, state: State, job: int, home: Key, wanted: str) -> None:
        """Somebody wants elements by name, or no more."""
        known = self._broker.claims.get(job)
        if not wanted:
            if known is not None:
                self._broker.withdraw(job)
        else:
            choices = _useful(state, home, choices_of(wanted))
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

    def _want(self, wanted: dict[int, dict[Needs, int]]) -> None:
        """What did not suit anybody may do so now."""
        if self._unsuited and wanted != self._wanted:
            self._unsuited = False
            self._broker.ledger.freed(indexes(self._room.alive))
        self._wanted = wanted

    def suits(self, nodes: tuple[int, ...], masks: tuple[int, ...]) -> bool:
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


def _ready_for(state: State, home: Key, width: int) -> list[Needs]:
    """What the tasks need that are ready at this home and can run on so many nodes."""
    shapes = [
        state.queues[number].shape for number in queues_of(state, home) if state.queues[number].head() is not None
    ]
    return [shape.needs for shape in shapes if width in (shape.widths or (shape.needs.nodes,))]


def _useful(state: State, home: Key, choices: tuple[Combination, ...]) -> tuple[Combination, ...]:
    """Of what a study declares that it wants: the widths in which something that is ready could run, if there is any."""
    if not _is_declared(state, home):
        return choices
    able = {width for choice in choices for width, _ in choice.widths if _ready_for(state, home, width)}
    found = (Combination(tuple(each for each in c.widths if each[0] in able), c.at_most) for c in choices)
    return tuple(choice for choice in found if choice.widths) or choices


def _is_declared(state: State, home: Key) -> bool:
    """Whether the elements are there for the tasks of a study alone, and nobody holds them for other reasons."""
    study, name = home
    return study >= 0 and any(wish.name == name and wish.elements for wish in state.studies[study].added.partitions)


def is_in_the_way(state: State, home: Key, width: int) -> bool:
    """Whether something is ready for which a study declares elements, and it takes none of so many nodes."""
    ready = any(state.queues[number].head() is not None for number in queues_of(state, home))
    return ready and _is_declared(state, home) and not _ready_for(state, home, width)


def suits_none(state: State, home: Key, partition: Partition) -> bool:
    """Whether tasks of that home are ready that take as many nodes, and none of them could ever run in this element."""
    room, width = partition.room, partition.width
    wanted = _ready_for(state, home, width)
    return bool(wanted) and all(room.could_ever_hold(needs).bit_count() < width for needs in wanted)


def asking(state: State) -> dict[Key, str]:
    """Who wants elements under a name of his own, and which: a study that declares it, or somebody from outside.

    Who wants nothing (any more) wants "".
    """
    found: dict[Key, str] = {}
    for number, study in state.living.items():
        for wish in study.added.partitions:
            if wish.elements:
                key = (number, wish.name)
                found[key] = wish.elements if is_wanted(state, key, ready=False) else ""
    for key, request in state.partitions.requests.items():
        left = state.unfinished and (key[0] < 0 or not state.studies[key[0]].over)
        found[key] = request.want if left else ""
    return found


def _leaving_too_soon(state: State, queue: ReadyQueue, width: int) -> int:
    """The nodes, as bits, that leave before the shortest of the queue's first tasks could end on so many of them."""
    found = -1
    for task in queue.first(DEPTH):
        found &= barred_for(state, task, expected_on(state, task, width))
    return found & state.room.alive
