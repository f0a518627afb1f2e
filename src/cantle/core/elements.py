"""What are slices cut into? Copies, their elements, and the grant of an element to a job.

A slice may exist in several *copies*; a copy that has an element is *active*, and only then it is cut: consecutive groups of
`width` nodes; what remains is spare. An element owns some cores on each of its nodes. It is held by a job, warm (made, but
used by nobody), or closing. Warm and closing elements keep their copy active, because their cores are taken.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import msgspec

from cantle.model.resources import Place, mask_to_list


class Grant(msgspec.Struct, frozen=True):
    """An element for a job: which one, its nodes, and on each of them the mask of its cores.

    `element` is its number when it is warm and only changes hands, otherwise None: then it has to be made. `start_s` is how
    many seconds it is expected to take until it works.
    """

    job: int
    slice: int
    copy: int
    index: int
    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    element: int | None = None
    start_s: float = 0.0

    @property
    def places(self) -> tuple[Place, ...]:
        """The same as records say it."""
        return tuple(Place(node, mask_to_list(mask)) for node, mask in zip(self.nodes, self.masks, strict=True))


class Element:
    """A made element, from its grant until its cores are given back."""

    __slots__ = ("copy", "cores", "index", "job", "lost", "masks", "nodes", "number", "since", "status", "warm_of")

    def __init__(self, number: int, copy: Copy, grant: Grant, now: float) -> None:
        self.number = number
        self.copy = copy
        self.index = grant.index
        self.nodes = grant.nodes
        self.masks = grant.masks
        self.cores = sum(mask.bit_count() for mask in grant.masks)
        self.job: int | None = grant.job
        self.warm_of: int | None = None
        self.status: Literal["held", "warm", "closing"] = "held"
        self.since = now
        self.lost = False

    @property
    def width(self) -> int:
        """On how many nodes it stands."""
        return self.copy.width


class Copy:
    """One copy of a slice. While it is inactive, everything but its name is empty."""

    __slots__ = (
        "busy", "cut", "draining", "free", "idle_since", "layers", "live", "number", "rank", "short", "slice", "width",
    )  # fmt: skip

    def __init__(self, slice_: int, number: int, width: int) -> None:
        self.slice = slice_
        self.number = number
        self.width = width
        self.cut: tuple[int, ...] = ()
        self.live: dict[int, Element] = {}
        self.free = 0
        """Indexes that nobody has, as bits."""
        self.short = 0
        """Those of them found to lack cores, until cores come back."""
        self.layers: dict[int, int] = {}
        """The preferred cores of an element, by how many cores a node has; 0 where there are none."""
        self.busy = 0
        """How many elements are held."""
        self.draining = False
        """No more elements are granted from it."""
        self.idle_since = 0.0
        self.rank: tuple[int, int] | None = None
        """Where it stands among the copies of its slice that have elements to grant."""

    @property
    def active(self) -> bool:
        """Whether it counts against the cap."""
        return bool(self.live)

    @property
    def usable(self) -> int:
        """Indexes that may be granted, as bits."""
        return 0 if self.draining else self.free & ~self.short

    def nodes_of(self, index: int) -> tuple[int, ...]:
        """The nodes of the element at this index."""
        return self.cut[index * self.width : (index + 1) * self.width]

    def index_on(self, node: int) -> int | None:
        """The index whose element has the node, None when the node is a spare one."""
        position = bisect_left(self.cut, node)
        if position == len(self.cut) or self.cut[position] != node:
            return None
        return position // self.width
