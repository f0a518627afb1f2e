"""Which rank belongs where? The partition's places, dealt out to ranks in order.

Ranks go to the nodes in blocks: neighbours stay together, and no node has more than one rank above another. Of a node's
cores and GPUs each rank has its own, side by side, as far as they go; where a script asks for more ranks on a node than have
room there, all of them share what the step has of the node. Nodes that stand on one machine are one host.
"""

from __future__ import annotations

from collections.abc import Sequence

from cantle.engines.launchers.base import Host, Layout, Seat
from cantle.model.resources import Node, Place, indexes, list_to_mask


class _Share:
    """What the step has of one node, and how many ranks of it were given away."""

    def __init__(self, place: Place, node: Node) -> None:
        own = indexes(list_to_mask(place.cores))
        self.name = node.machine or node.name
        self.count = len(own)
        self.cores = [node.core_ids[index] for index in own] if node.core_ids else []
        self.gpus = [_gpu(node, index) for index in indexes(list_to_mask(place.gpus))]
        self.whole = len(own) == node.cores
        self.given = 0

    def room(self, cores_each: int) -> int:
        return self.count // cores_each - self.given

    def seats(self, ranks: int, cores_each: int, gpus_each: int) -> list[Seat]:
        first = self.given
        crowded = (first + ranks) * cores_each > self.count
        self.given += ranks
        found = []
        for rank in range(first, first + ranks):
            cores = self.cores if crowded else self.cores[rank * cores_each : (rank + 1) * cores_each]
            gpus = self.gpus
            if gpus_each and (rank + 1) * gpus_each <= len(self.gpus):
                gpus = self.gpus[rank * gpus_each : (rank + 1) * gpus_each]
            found.append(Seat(tuple(cores), tuple(gpus)))
        return found


class Table:
    """The places of one attempt, from which its launches are dealt their ranks, each after the one before."""

    def __init__(
        self,
        places: Sequence[Place],
        nodes: Sequence[Node],
        cores_each: int = 1,
        gpus_each: int = 0,
        memory_mib: int = 0,
    ) -> None:
        self._places = list(zip(places, nodes, strict=True))
        self._cores_each = cores_each
        self._gpus_each = gpus_each
        self._memory_mib = memory_mib
        self._shares = self._fresh()

    def whole(self, ranks: int) -> Layout:
        """All of the step: so many ranks over all of its nodes."""
        return self._layout(
            [(share, n) for share, n in zip(self._fresh(), _blocks(ranks, len(self._places)), strict=True)]
        )

    def part(self, ranks: int, nodes: int = 0) -> Layout:
        """A part of the step: beside those that were dealt before, as far as there is room; `nodes` 0: on as few as will do.

        Raises ValueError when it asks for more nodes than the step has.
        """
        if nodes > len(self._shares):
            raise ValueError(f"[{nodes}n, {ranks}p] asks for {nodes} nodes, and the step has {len(self._shares)}")
        chosen = self._beside(ranks, nodes)
        if chosen is None:  # not beside the others, then after them
            self._shares = self._fresh()
            chosen = self._beside(ranks, nodes)
        if chosen is None:
            nodes = nodes or len(self._shares)
            chosen = list(zip(self._shares[:nodes], _blocks(ranks, nodes), strict=True))
        return self._layout(chosen)

    def _beside(self, ranks: int, nodes: int) -> list[tuple[_Share, int]] | None:
        rooms = [(share, share.room(self._cores_each)) for share in self._shares]
        if nodes:
            wanted = _blocks(ranks, nodes)
            able = [share for share, room in rooms if room >= wanted[0]][:nodes]
            return list(zip(able, wanted, strict=True)) if len(able) == nodes else None
        found = []
        for share, room in rooms:
            taken = min(max(room, 0), ranks)
            if taken:
                found.append((share, taken))
                ranks -= taken
        return None if ranks else found

    def _fresh(self) -> list[_Share]:
        return [_Share(place, node) for place, node in self._places]

    def _layout(self, dealt: list[tuple[_Share, int]]) -> Layout:
        seats: dict[str, list[Seat]] = {}
        bound = False
        for share, ranks in dealt:
            if ranks:
                seats.setdefault(share.name, []).extend(share.seats(ranks, self._cores_each, self._gpus_each))
                bound = bound or (bool(share.cores) and not share.whole)
        return Layout(
            tuple(Host(name, tuple(of_host)) for name, of_host in seats.items()),
            self._cores_each,
            self._gpus_each,
            max((len(share.gpus) for share, _ in dealt), default=0),
            self._memory_mib,
            bound,
            self._shares[0].name,
        )


def _blocks(ranks: int, nodes: int) -> list[int]:
    """How many ranks each node gets: the first ones have one more when they do not come out even."""
    return [ranks // nodes + (at < ranks % nodes) for at in range(nodes)]


def _gpu(node: Node, index: int) -> str:
    return node.gpu_ids[index] if index < len(node.gpu_ids) else str(index)
