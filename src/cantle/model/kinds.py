"""Which kinds of node could there be, beside those that are there?"""

from __future__ import annotations

import msgspec

from .resources import Needs, Node

MOST_NODES = 100_000
"""More nodes of a kind there are never, whatever is asked for: a slip of the pen is not to fill a queue, or a memory."""
MOST_CORES = 100_000
"""No node has more."""


class Kind(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kind of node that a provider has. What a node of it will have is per node, as in `Node`.

    `most` nodes of it may be there or on their way at once, and `least` are kept; 0 for no bound of its own, and for none.
    `starts_in_s` passes, as far as anybody knows, from a request until its nodes can work; what is observed corrects it.
    `cost` is what a node of it costs a second, against others. `lasts_s`: a node stays so long, 0 for as long as it is
    wanted. `block`: they come so many at a time, as those of one batch job do. `adds` and `removes` tell what its provider
    can do at all. `stays_s` is the least time for which a node is worth having once it is there.
    """

    name: str
    cores: int
    gpus: int = 0
    memory_mib: int = 0
    named: tuple[tuple[str, int], ...] = ()
    least: int = 0
    most: int = 0
    starts_in_s: float = 0.0
    cost: float = 1.0
    lasts_s: float = 0.0
    block: int = 1
    adds: bool = True
    removes: bool = True
    stays_s: float = 0.0
    provider: str = ""

    @property
    def bound(self) -> int:
        """How many there may be at once, whether or not anything was said."""
        return min(self.most or MOST_NODES, MOST_NODES)

    def node(self, name: str, ends_at: float = 0.0) -> Node:
        """What a node of this kind will be like."""
        return Node(name, self.cores, self.gpus, self.memory_mib, self.named, self.name, machine=name, ends_at=ends_at)

    def could_hold(self, needs: Needs) -> bool:
        """Whether an empty node of this kind has the room for one node's share of these needs."""
        mine = dict(self.named)
        return (
            needs.kind in ("", self.name)
            and needs.cores <= self.cores
            and needs.gpus <= self.gpus
            and (not self.memory_mib or needs.memory_mib <= self.memory_mib)
            and all(n <= mine.get(name, 0) for name, n in needs.named)
        )
