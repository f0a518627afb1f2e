"""A broker over a room, whose moves are made at once, and every rule of the ledger checked after each of them."""

from __future__ import annotations

from cantle.core.broker import Broker
from cantle.core.elements import Element, Grant
from cantle.core.room import Room
from cantle.core.rotation import Close
from cantle.core.wants import Want
from cantle.model.resources import Needs, Node, Place, list_to_mask, mask_to_list
from cantle.model.slicing import choices_of, slices_of
from cantle.model.study import Slicing


class Rig:
    """`slow`: what closes stays until `gone` is told."""

    def __init__(
        self,
        nodes: int,
        cores: int,
        slices: str,
        cap: int = 0,
        patience_s: float = 1e9,
        slow: bool = False,
        **more: object,
    ) -> None:
        self.room = Room()
        for n in range(nodes):
            self.room.add(Node(f"n{n}", cores))
        self.broker = Broker(Slicing(slices_of(slices), 0, cap), self.room, patience_s, **more)  # type: ignore[arg-type]
        self.ledger = self.broker.ledger
        self.now = 0.0
        self.slow = slow
        self.outside: list[Place] = []
        self.closed: list[int] = []

    # What happens

    def ask(self, job: int, wants: str, weight: float = 1.0) -> None:
        self.broker.ask(Want(job, self.now, choices_of(wants) if wants else (), weight))

    def turn(self) -> list[Grant]:
        """One pass; its grants."""
        grants = []
        for move in self.broker.moves(self.now):
            if isinstance(move, Close):
                self.close(move.element)
            else:
                assert move.element is not None or all(
                    self.room.free_cores[n] & m == m for n, m in zip(move.nodes, move.masks, strict=True)
                )
                if move.element is None:
                    for place in move.places:
                        self.room.take(place, Needs())
                self.ledger.occupy(move, self.now)
                grants.append(move)
            self.check()
        return grants

    def later(self, seconds: float) -> list[Grant]:
        self.now += seconds
        return self.turn()

    def close(self, number: int) -> None:
        """The element ends; its cores come back, unless closing is slow."""
        self.closed.append(number)
        self.ledger.close(number, self.now)
        if not self.slow:
            self.gone(number)

    def gone(self, number: int) -> bool:
        element = self.ledger.elements.get(number)
        if element is not None:
            for node, mask in zip(element.nodes, element.masks, strict=True):
                self.room.give(Place(node, mask_to_list(mask)), Needs())
        done = self.ledger.vacate(number, self.now)
        self.check()
        return done

    def park(self, number: int) -> bool:
        return self.ledger.park(number, self.now)

    def lose(self, node: int) -> list[Element]:
        broken = self.ledger.node_lost(node)
        for place in [place for place in self.outside if place.node == node]:
            self.outside.remove(place)
            self.room.give(place, Needs())
        self.room.lose(node)
        for element in broken:
            self.gone(element.number)
        self.check()
        return broken

    def add(self, cores: int) -> None:
        self.room.add(Node("late", cores))
        self.ledger.node_added()

    def taken_outside(self, node: int, mask: int) -> None:
        place = Place(node, mask_to_list(mask))
        self.room.take(place, Needs())
        self.outside.append(place)

    def given_outside(self, place: Place) -> None:
        self.outside.remove(place)
        self.room.give(place, Needs())
        self.ledger.freed([place.node])

    # What is so

    def held(self, job: int) -> dict[int, int]:
        return dict(self.ledger.held.get(job, {}))

    def of(self, job: int) -> list[int]:
        return [element.number for element in self.ledger.of_job(job)]

    def active(self) -> dict[int, int]:
        """How many copies are active, by width."""
        found: dict[int, int] = {}
        for copy in self.ledger.active.values():
            found[copy.width] = found.get(copy.width, 0) + 1
        return found

    def check(self) -> None:
        """No core owned twice, none leaked, the cap kept; the ledger's counts agree with its elements."""
        ledger, room = self.ledger, self.room
        owned = dict.fromkeys(range(len(room.nodes)), 0)
        for place in self.outside:
            owned[place.node] |= list_to_mask(place.cores)
        held: dict[int, dict[int, int]] = {}
        cores: dict[int, int] = {}
        for number, element in ledger.elements.items():
            copy = element.copy
            assert copy.live[element.index] is element and element.number == number
            assert ledger.active[copy.slice, copy.number] is copy
            assert copy.nodes_of(element.index) == element.nodes
            for node, mask in zip(element.nodes, element.masks, strict=True):
                assert not owned[node] & mask, f"cores of node {node} are owned twice"
                assert mask.bit_count() == ledger.cuts.share(copy.slice, room.nodes[node].cores)
                owned[node] |= mask
            assert (element.job is not None) == (element.status == "held")
            if element.job is not None:
                mine = held.setdefault(element.job, {})
                mine[element.width] = mine.get(element.width, 0) + 1
                cores[element.job] = cores.get(element.job, 0) + element.cores
        for node, mine in owned.items():
            if room.alive >> node & 1:
                everything = (1 << room.nodes[node].cores) - 1
                assert mine | room.free_cores[node] == everything and not mine & room.free_cores[node], f"node {node}"
        assert held == ledger.held and cores == ledger.cores_of
        warm = {e.number for e in ledger.elements.values() if e.status == "warm"}
        assert warm == {number for some in ledger.warm.values() for number in some}
        assert warm == {number for some in ledger.warm_of.values() for number in some}
        assert len(ledger.active) <= ledger.cap
        for copies in ledger.copies:
            for copy in copies:
                assert copy.busy == sum(e.status == "held" for e in copy.live.values())
                if not copy.active:
                    assert (copy.cut, copy.layers, copy.free, copy.draining) == ((), {}, 0, False)
                else:
                    gone = {i for i in range(len(copy.cut) // copy.width) if not self._stands(copy.nodes_of(i))}
                    free = {i for i in range(len(copy.cut) // copy.width) if copy.free >> i & 1}
                    assert not free & gone and not free & set(copy.live)
                    assert free | gone | set(copy.live) == set(range(len(copy.cut) // copy.width)), "an index leaked"

    def _stands(self, nodes: tuple[int, ...]) -> bool:
        return all(self.room.alive >> node & 1 for node in nodes)
