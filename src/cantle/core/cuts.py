"""How would a copy of a slice be cut now, and which cores would an element get?

What is free is asked each time, so that others may hold cores of the same nodes. The *layer* of a copy is only a preference:
the same core numbers on all nodes of an element, which MPI's pinning likes. Where a layer's cores are taken, others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from cantle.core.elements import Copy
from cantle.model.resources import Node, indexes, lowest_bits
from cantle.model.study import Slice, Slicing


class Nodes(Protocol):
    """What is asked about the nodes. A `Room` answers it."""

    @property
    def alive(self) -> int:
        """The nodes that are there, as bits."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """All nodes there ever were, by number."""

    @property
    def free_cores(self) -> Mapping[int, int]:
        """For each node, by number, the cores that nobody owns, as bits."""


class Cuts:
    """The arithmetic of a slicing over the nodes of this moment. It remembers nothing but what it need not count twice."""

    def __init__(self, slicing: Slicing, nodes: Nodes) -> None:
        self.slices: tuple[Slice, ...] = slicing.slices
        total = sum(each.copies for each in slicing.slices)
        self.cap = min(slicing.max_active, total) if slicing.max_active else total
        """How many copies may be active at once."""
        self.nodes = nodes
        self.suits: Callable[[tuple[int, ...], tuple[int, ...]], bool] | None = None
        """What else decides whether an element on these nodes with these cores is worth making."""
        self._orders: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}

    def share(self, slice_: int, cores: int) -> int:
        """How many cores an element takes on a node that has so many."""
        return self.slices[slice_].share or cores // max(1, self.cap)

    def order(self, slice_: int) -> tuple[int, ...]:
        """The nodes that a copy would be cut from: those alive that have the share, ascending."""
        return self._order(slice_)[0]

    def elements(self, slice_: int) -> int:
        """How many elements a copy would have."""
        return len(self.order(slice_)) // self.slices[slice_].width

    def spares(self, slice_: int) -> tuple[int, ...]:
        """The nodes that would remain over."""
        order = self.order(slice_)
        return order[self.elements(slice_) * self.slices[slice_].width :]

    def nodes_at(self, copy: Copy, index: int) -> tuple[int, ...]:
        """The nodes of an element, also of one in a copy that is not active yet."""
        if copy.active:
            return copy.nodes_of(index)
        return self.order(copy.slice)[index * copy.width : (index + 1) * copy.width]

    def layers(self, slice_: int, others: Iterable[Copy]) -> dict[int, int]:
        """For a copy beside these others: by the number of a node's cores, the lowest ones outside all other layers."""
        layers = {}
        for cores in self._order(slice_)[1]:
            free = (1 << cores) - 1
            for copy in others:
                free &= ~copy.layers.get(cores, 0)
            share = self.share(slice_, cores)
            layers[cores] = lowest_bits(free, share) if free.bit_count() >= share else 0
        return layers

    def masks(self, slice_: int, nodes: tuple[int, ...], layers: dict[int, int]) -> tuple[int, ...] | None:
        """The cores that an element would get on these nodes: its layer, or any; None when there can be none there now."""
        free_cores, all_nodes = self.nodes.free_cores, self.nodes.nodes
        masks = []
        for node in nodes:
            free, cores = free_cores[node], all_nodes[node].cores
            mask = layers.get(cores, 0)
            if not mask or mask & ~free:
                share = self.share(slice_, cores)
                if free.bit_count() < share:
                    return None
                mask = lowest_bits(free, share)
            masks.append(mask)
        found = tuple(masks)
        return found if self.suits is None or self.suits(nodes, found) else None

    def could_hold(self, slice_: int, more: Mapping[int, int]) -> bool:
        """Whether a copy could have an element if these cores (node -> mask) were free as well. Costs by nodes."""
        width = self.slices[slice_].width
        free_cores, all_nodes = self.nodes.free_cores, self.nodes.nodes
        enough = 0
        for position, node in enumerate(self.order(slice_)):
            if position % width == 0:
                enough = 0
            free = free_cores[node] | more.get(node, 0)
            enough += free.bit_count() >= self.share(slice_, all_nodes[node].cores)
            if enough == width:
                return True
        return False

    def _order(self, slice_: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The nodes, and the different numbers of cores that they have."""
        alive = self.nodes.alive
        known = self._orders.get(slice_)
        if known is not None and known[0] == alive:
            return known[1:]
        nodes = self.nodes.nodes
        order = tuple(
            n for n in indexes(alive) if 0 < self.share(slice_, nodes[n].cores) <= nodes[n].cores and not nodes[n].apart
        )
        self._orders[slice_] = (alive, order, tuple(sorted({nodes[n].cores for n in order})))
        return self._orders[slice_][1:]
