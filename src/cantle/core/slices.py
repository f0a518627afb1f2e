"""Which elements of which slices exist now, who holds them, and which could be made?

The ledger owns no nodes: it is told of elements that came and went, of nodes that did, and that others gave cores back.
`occupy`, `park`, `close` and `vacate` are an element's life; everything else is a question.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from cantle.core.cuts import Cuts, Nodes
from cantle.core.elements import Copy, Element, Grant
from cantle.errors import CantleBug
from cantle.model.resources import indexes, mask_to_list
from cantle.model.study import Slicing

Opening: TypeAlias = tuple[Copy, int, tuple[int, ...]]
"""An element that could be made: its copy, its index, and the cores that it would get on each node."""


class Ledger:
    """The elements of one slicing.

    `touched` collects, as bits, the slices from which more may be granted than before; whoever looks at it clears it.
    """

    def __init__(self, slicing: Slicing, nodes: Nodes) -> None:
        self.cuts = Cuts(slicing, nodes)
        self.slices = slicing.slices
        self.cap = self.cuts.cap
        self.copies = [[Copy(s, c, each.width) for c in range(each.copies)] for s, each in enumerate(self.slices)]
        self.of_width: dict[int, list[int]] = {}
        for s, each in enumerate(self.slices):
            self.of_width.setdefault(each.width, []).append(s)
        self.active: dict[tuple[int, int], Copy] = {}
        self.elements: dict[int, Element] = {}
        self.held: dict[int, dict[int, int]] = {}
        """By job and width, how many elements the job holds."""
        self.cores_of: dict[int, int] = {}
        """By job, how many cores its elements have."""
        self.ours: dict[int, int] = {}
        """By node, the cores that elements own."""
        self.warm: dict[int, dict[int, Element]] = {width: {} for width in self.of_width}
        """By width, the warm elements by number, the longest warm first."""
        self.warm_of: dict[tuple[int, int], dict[int, Element]] = {}
        """The same by the job that left them, and width."""
        self.released: dict[int, float] = {}
        """Jobs that hold less than before, and since when; whoever looks at it clears it."""
        self.version = 0
        self._all = (1 << len(self.slices)) - 1
        self.touched = self._all
        self._inactive = [(1 << each.copies) - 1 for each in self.slices]
        self._ready: list[list[tuple[int, int]]] = [[] for _ in self.slices]
        self._stuck = 0
        """Slices, as bits, of which no inactive copy had the cores for an element, until cores come back."""
        self._next = 0

    # What it answers

    def has(self, job: int, width: int) -> int:
        """How many elements of the width the job holds."""
        return self.held.get(job, {}).get(width, 0)

    def of_job(self, job: int) -> list[Element]:
        """The elements that the job holds, in the order in which they were made. Costs by elements."""
        return [element for element in self.elements.values() if element.job == job]

    def in_active(self, slice_: int) -> Opening | None:
        """The lowest free element of the active copy that has the fewest left."""
        ready = self._ready[slice_]
        while ready:
            copy = self.copies[slice_][ready[0][1]]
            while usable := copy.usable:
                bit = usable & -usable
                index = bit.bit_length() - 1
                masks = self.cuts.masks(slice_, copy.nodes_of(index), copy.layers)
                if masks is not None:
                    return copy, index, masks
                copy.short |= bit
            self._sort(copy)
        return None

    def in_new(self, slice_: int) -> Opening | None:
        """The first element of an inactive copy, where the cap leaves room for one."""
        first = next(self._of_new(slice_), None)
        if first is None and len(self.active) < self.cap:
            self._stuck |= 1 << slice_
        return first

    def everywhere(self, slice_: int, new: bool) -> Iterator[Opening]:
        """Every element that could be made, those of active copies first; `new`: also in an inactive copy. Costs by nodes."""
        for _, number in list(self._ready[slice_]):
            copy = self.copies[slice_][number]
            for index in indexes(copy.usable):
                masks = self.cuts.masks(slice_, copy.nodes_of(index), copy.layers)
                if masks is not None:
                    yield copy, index, masks
        if new:
            yield from self._of_new(slice_)

    def could_be(self, slice_: int) -> bool:
        """Whether an inactive copy could have an element if all elements gave their cores back. Costs by nodes."""
        return bool(self._inactive[slice_]) and self.cuts.could_hold(slice_, self.ours)

    # What changes it

    def occupy(self, grant: Grant, now: float, number: int | None = None) -> Element:
        """The job has the element from now on; under this number when it is new (None: the next one).

        CantleBug when that contradicts what the ledger knows; then nothing has changed.
        """
        element = self._make(grant, now, number) if grant.element is None else self._take_over(grant, now)
        element.copy.busy += 1
        held = self.held.setdefault(grant.job, {})
        held[element.width] = held.get(element.width, 0) + 1
        self.cores_of[grant.job] = self.cores_of.get(grant.job, 0) + element.cores
        self.version += 1
        return element

    def park(self, number: int, now: float) -> bool:
        """The job lets the element go, and it stays warm. False, with nothing changed, when it has to be closed instead."""
        element = self.elements.get(number)
        if element is None or element.status != "held" or element.lost or element.copy.draining:
            return False
        job = self._let_go(element, now)
        element.status = "warm"
        element.warm_of = job
        self.warm[element.width][number] = element
        self.warm_of.setdefault((job, element.width), {})[number] = element
        for slice_ in self.of_width[element.width]:
            self.touched |= 1 << slice_
        return True

    def close(self, number: int, now: float) -> None:
        """The element is being ended: nobody holds it, but its cores are taken until `vacate`. Late calls change nothing."""
        element = self.elements.get(number)
        if element is None or element.status == "closing":
            return
        if element.status == "held":
            self._let_go(element, now)
        else:
            self._cool(element)
        element.status = "closing"
        self.version += 1

    def vacate(self, number: int, now: float) -> bool:
        """The element's cores are given back. False, with nothing changed, when there is no such element any more."""
        element = self.elements.get(number)
        if element is None:
            return False
        self.close(number, now)
        del self.elements[number]
        copy = element.copy
        del copy.live[element.index]
        for node, mask in zip(element.nodes, element.masks, strict=True):
            self.ours[node] ^= mask
        if not element.lost:
            copy.free |= 1 << element.index
        if copy.live:
            self._sort(copy)
            self.touched |= 1 << copy.slice
        else:
            self._deactivate(copy)
        self.freed(element.nodes)
        return True

    def freed(self, nodes: Sequence[int]) -> None:
        """Cores of these nodes were given back, by an element or by somebody else: what lacked some may fit now."""
        self.touched |= self._stuck
        self._stuck = 0
        for copy in self.active.values():
            if copy.short:
                for node in nodes:
                    if (index := copy.index_on(node)) is not None:
                        copy.short &= ~(1 << index)
                self._sort(copy)
                self.touched |= 1 << copy.slice
        self.version += 1

    def node_lost(self, node: int) -> list[Element]:
        """The node is gone: the elements that break with it. They stay until they are vacated."""
        broken = []
        for copy in self.active.values():
            index = copy.index_on(node)
            if index is None:
                continue
            copy.free &= ~(1 << index)
            self._sort(copy)
            element = copy.live.get(index)
            if element is not None and not element.lost:
                element.lost = True
                broken.append(element)
                if element.status == "warm":
                    self._cool(element)
                    element.status = "closing"
        self.version += 1
        return broken

    def node_added(self) -> None:
        """A node came. Active copies stay as they are cut; those use it that become active from now on."""
        self._stuck = 0
        self.touched = self._all
        self.version += 1

    def drain(self, copy: Copy, draining: bool) -> None:
        """Grant no more elements of this copy, or do so again."""
        if copy.draining != draining:
            copy.draining = draining
            self._sort(copy)
            self.touched |= 1 << copy.slice
            self.version += 1

    def touch_all(self) -> None:
        """Something else changed on which grants depend."""
        self.touched = self._all

    # How

    def _of_new(self, slice_: int) -> Iterator[Opening]:
        inactive = self._inactive[slice_]
        if len(self.active) >= self.cap or not inactive or self._stuck >> slice_ & 1:
            return
        cuts = self.cuts
        copy = self.copies[slice_][(inactive & -inactive).bit_length() - 1]
        layers = cuts.layers(slice_, self.active.values())
        for index in range(cuts.elements(slice_)):
            masks = cuts.masks(slice_, cuts.nodes_at(copy, index), layers)
            if masks is not None:
                yield copy, index, masks

    def _take_over(self, grant: Grant, now: float) -> Element:
        element = None if grant.element is None else self.elements.get(grant.element)
        if element is None or element.status != "warm":
            raise CantleBug(f"element {grant.element} is granted as a warm one, and is none")
        self._cool(element)
        element.job = grant.job
        element.status = "held"
        element.since = now
        return element

    def _make(self, grant: Grant, now: float, number: int | None) -> Element:
        copy = self.copies[grant.slice][grant.copy]
        number = self._next if number is None else number
        self._check(copy, grant, number)
        self._next = max(self._next, number + 1)
        if not copy.active:
            copy.layers = self.cuts.layers(copy.slice, self.active.values())
            elements = self.cuts.elements(copy.slice)
            copy.cut = self.cuts.order(copy.slice)[: elements * copy.width]
            copy.free = (1 << elements) - 1
            self.active[copy.slice, copy.number] = copy
            self._inactive[copy.slice] ^= 1 << copy.number
        element = self.elements[number] = copy.live[grant.index] = Element(number, copy, grant, now)
        copy.free &= ~(1 << grant.index)
        for node, mask in zip(grant.nodes, grant.masks, strict=True):
            self.ours[node] = self.ours.get(node, 0) | mask
        self._sort(copy)
        return element

    def _check(self, copy: Copy, grant: Grant, number: int) -> None:
        name = f"element {grant.index} of copy {grant.copy} of slice {grant.slice}"
        if number in self.elements:
            raise CantleBug(f"there is an element {number} already")
        if grant.index in copy.live:
            raise CantleBug(f"{name} is granted twice")
        if not copy.active and len(self.active) >= self.cap:
            raise CantleBug(f"{name} would make {len(self.active) + 1} copies active, more than {self.cap}")
        if len(grant.nodes) != copy.width or self.cuts.nodes_at(copy, grant.index) != grant.nodes:
            raise CantleBug(f"{name} does not stand on nodes {grant.nodes}")
        for node, mask in zip(grant.nodes, grant.masks, strict=True):
            if self.ours.get(node, 0) & mask:
                raise CantleBug(f"{name} is granted cores {mask_to_list(mask)} of node {node}, which are taken")

    def _deactivate(self, copy: Copy) -> None:
        copy.cut = ()
        copy.layers = {}
        copy.free = copy.short = 0
        copy.draining = False
        self._sort(copy)
        del self.active[copy.slice, copy.number]
        self._inactive[copy.slice] |= 1 << copy.number
        self.touched = self._all

    def _let_go(self, element: Element, now: float) -> int:
        job = element.job
        assert job is not None
        self.released[job] = now
        element.job = None
        element.since = element.copy.idle_since = now
        element.copy.busy -= 1
        held = self.held[job]
        held[element.width] -= 1
        if not held[element.width]:
            del held[element.width]
        self.cores_of[job] -= element.cores
        if not held:
            del self.held[job], self.cores_of[job]
        self.version += 1
        return job

    def _cool(self, element: Element) -> None:
        """It is not warm any more."""
        assert element.warm_of is not None
        del self.warm[element.width][element.number]
        left = self.warm_of[element.warm_of, element.width]
        del left[element.number]
        if not left:
            del self.warm_of[element.warm_of, element.width]
        element.warm_of = None

    def _sort(self, copy: Copy) -> None:
        """Put the copy to its place among those of its slice that have elements to grant."""
        ready = self._ready[copy.slice]
        if copy.rank is not None:
            del ready[bisect_left(ready, copy.rank)]
            copy.rank = None
        if copy.live and (usable := copy.usable):
            copy.rank = (usable.bit_count(), copy.number)
            insort(ready, copy.rank)
