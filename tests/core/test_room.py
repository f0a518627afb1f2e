"""The ledger of slots against an oracle that counts everything by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cantle.core.packing import find_places
from cantle.core.room import Room, shortage
from cantle.errors import CantleBug
from cantle.model.resources import Needs, Node, Place, Slots, indexes, list_to_mask, mask_to_list

NAMES = ("licence", "port")
some_mib = st.sampled_from([0, 0, 2, 5])


@st.composite
def some_named(draw: st.DrawFn, most: int) -> tuple[tuple[str, int], ...]:
    return tuple((name, draw(st.integers(1, most))) for name in NAMES if draw(st.integers(0, 3)) == 0)


@st.composite
def some_node(draw: st.DrawFn) -> Node:
    return Node(
        "n",
        draw(st.integers(0, 6)),
        draw(st.integers(0, 3)),
        draw(st.sampled_from([0, 4, 8])),
        draw(some_named(4)),
        draw(st.sampled_from(["", "big"])),
        apart=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def some_needs(draw: st.DrawFn) -> Needs:
    return Needs(
        draw(st.integers(1, 5)),
        draw(st.sampled_from([1, 1, 1, 2, 3])),
        draw(st.sampled_from([0, 0, 1, 2])),
        draw(st.sampled_from([0, 0, 2, 5])),
        draw(some_named(3)),
        draw(st.sampled_from(["", "", "big"])),
        draw(st.sampled_from([False, False, False, True])),
        draw(st.booleans()),
    )


def sums_agree(room: Room, alive: list[int]) -> None:
    """What is kept as nodes come and go is what counting finds, also in a view of some of them."""
    assert room.cores == sum(room.nodes[i].cores for i in alive)
    every_second = sum(1 << i for i in range(0, 64, 2))
    view = room.within(every_second)
    assert view.cores == sum(room.nodes[i].cores for i in alive if not i % 2)
    assert room.cores == sum(room.nodes[i].cores for i in alive)
    for needs in (Needs(), Needs(3), Needs(gpus=1), Needs(memory_mib=3), Needs(named=(("port", 1),))):
        ever = [i for i in alive if not shortage(room.nodes[i], needs)]
        assert indexes(room.could_ever_hold(needs)) == ever
        assert indexes(view.could_ever_hold(needs)) == [i for i in ever if not i % 2]


class Owned:
    """What one holder has of one node, counted one by one."""

    def __init__(self, place: Place, needs: Needs) -> None:
        self.cores = set(indexes(list_to_mask(place.cores)))
        self.gpus = set(indexes(list_to_mask(place.gpus)))
        self.memory = needs.memory_mib
        self.named = dict(needs.named)


class TheRoom(RuleBasedStateMachine):
    """Takes and gives, adds and loses; after each step every answer is compared with one found by counting."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room()
        self.held: list[tuple[tuple[Place, ...], Needs]] = []
        self.lost: set[int] = set()

    @initialize(nodes=st.lists(some_node(), min_size=1, max_size=4))
    def begin(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.room.add(node)

    @rule(node=some_node())
    def add(self, node: Node) -> None:
        if len(self.room.nodes) < 8:
            assert self.room.add(node) == len(self.room.nodes) - 1

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.room.nodes) - 1))
        for held in [h for h in self.held if any(p.node == index for p in h[0])]:
            self._give(held)
        self.room.lose(index)
        self.lost.add(index)

    @rule(needs=some_needs())
    def take(self, needs: Needs) -> None:
        able = self._able(needs)
        places = find_places(self.room, needs)
        if len(able) < needs.nodes:
            assert places is None
            return
        assert places is not None
        assert len({place.node for place in places}) == needs.nodes
        assert {place.node for place in places} <= able
        for place in places:
            cores = list_to_mask(place.cores).bit_count()
            gpus = list_to_mask(place.gpus).bit_count()
            node = self.room.nodes[place.node]
            assert (cores, gpus) == ((node.cores, node.gpus) if needs.whole_nodes else (needs.cores, needs.gpus))
            self.room.take(place, needs)
        self.held.append((places, needs))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        self._give(self.held[data.draw(st.integers(0, len(self.held) - 1))])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def taking_what_is_owned_is_a_bug_and_changes_nothing(self, data: st.DataObject) -> None:
        places, needs = self.held[data.draw(st.integers(0, len(self.held) - 1))]
        before = self._everything()
        with pytest.raises(CantleBug):
            self.room.take(places[0], needs)
        assert self._everything() == before

    @rule(needs=some_needs())
    def questions_are_answered_as_by_counting(self, needs: Needs) -> None:
        assert set(indexes(self.room.fitting(needs))) == self._able(needs)
        ever = {i for i in self._alive() if self._lacks_nothing(i, needs)}
        assert set(indexes(self.room.could_ever_hold(needs))) == ever
        for i in self._alive():
            assert (shortage(self.room.nodes[i], needs) == "") == (i in ever)

    @invariant()
    def the_books_agree(self) -> None:
        room = self.room
        for i in self._alive():
            cores, gpus, memory, named = self._free(i)
            assert set(indexes(room.free_cores[i])) == cores
            assert set(indexes(room.free_gpus[i])) == gpus
            assert room.free_memory[i] == memory
            assert room.free_named[i] == named
            assert [n for n, found in enumerate(room.by_cores) if found >> i & 1] == [len(cores)]
            assert [n for n, found in enumerate(room.by_gpus) if found >> i & 1] == [len(gpus)]
        assert room.full == all(not self._free(i)[0] for i in self._alive())
        sums_agree(room, self._alive())

    def _give(self, held: tuple[tuple[Place, ...], Needs]) -> None:
        places, needs = held
        for place in places:
            self.room.give(place, needs)
        self.held.remove(held)

    def _alive(self) -> list[int]:
        return [i for i in range(len(self.room.nodes)) if i not in self.lost]

    def _free(self, i: int) -> tuple[set[int], set[int], int, dict[str, int]]:
        node = self.room.nodes[i]
        cores, gpus = set(range(node.cores)), set(range(node.gpus))
        memory, named = node.memory_mib, dict(node.named)
        for places, needs in self.held:
            for place in places:
                if place.node == i:
                    owned = Owned(place, needs)
                    assert owned.cores <= cores and owned.gpus <= gpus
                    cores -= owned.cores
                    gpus -= owned.gpus
                    memory -= owned.memory
                    for name, n in owned.named.items():
                        named[name] -= n
        return cores, gpus, memory, named

    def _able(self, needs: Needs) -> set[int]:
        found = set()
        for i in self._alive():
            cores, gpus, memory, named = self._free(i)
            alone = len(cores) == self.room.nodes[i].cores
            enough = len(cores) >= needs.cores and len(gpus) >= needs.gpus and memory >= needs.memory_mib
            enough = enough and all(named.get(name, 0) >= n for name, n in needs.named)
            kind = not needs.kind or self.room.nodes[i].kind == needs.kind
            kind = kind and (needs.staged or not self.room.nodes[i].apart)
            if enough and kind and (alone or not needs.whole_nodes):
                found.add(i)
        return found

    def _lacks_nothing(self, i: int, needs: Needs) -> bool:
        node = self.room.nodes[i]
        return (
            node.cores >= needs.cores
            and node.gpus >= needs.gpus
            and node.memory_mib >= needs.memory_mib
            and all(dict(node.named).get(name, 0) >= n for name, n in needs.named)
            and (not needs.kind or needs.kind == node.kind)
            and (needs.staged or not node.apart)
        )

    def _everything(self) -> str:
        return repr(vars(self.room))


class ARoomOfAPartition(RuleBasedStateMachine):
    """Slots come and go, and nodes with all of theirs; what is there is counted one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room()
        self.has: dict[int, tuple[set[int], set[int], int]] = {}

    @rule(index=st.integers(0, 5), cores=st.sets(st.integers(0, 5)), gpus=st.sets(st.integers(0, 2)), mib=some_mib)
    def grow(self, index: int, cores: set[int], gpus: set[int], mib: int) -> None:
        own, own_gpus, memory = self.has.get(index, (set(), set(), 0))
        cores, gpus = cores - own, gpus - own_gpus
        if cores or gpus:
            self.room.grow(Node(f"n{index}", 6, 3, 8), slots(index, cores, gpus, mib))
            self.has[index] = (own | cores, own_gpus | gpus, memory + mib)

    @precondition(lambda self: self.has)
    @rule(data=st.data())
    def shrink(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.has)))
        cores, gpus, memory = self.has[index]
        less = {core for core in sorted(cores) if data.draw(st.booleans())}
        less_gpus = {gpu for gpu in sorted(gpus) if data.draw(st.booleans())}
        mib = memory if (less, less_gpus) == (cores, gpus) else data.draw(st.integers(0, memory))
        self.room.shrink(slots(index, less, less_gpus, mib))
        self.has[index] = (cores - less, gpus - less_gpus, memory - mib)
        if self.has[index][:2] == (set(), set()):
            del self.has[index]

    @precondition(lambda self: self.has)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.has)))
        self.room.lose(index)
        del self.has[index]

    @invariant()
    def the_sums_agree(self) -> None:
        for index, (cores, gpus, memory) in self.has.items():
            node = self.room.nodes[index]
            assert (node.cores, node.gpus, node.memory_mib) == (len(cores), len(gpus), memory)
        assert indexes(self.room.alive) == sorted(self.has)
        sums_agree(self.room, sorted(self.has))


def slots(index: int, cores: set[int], gpus: set[int], mib: int) -> Slots:
    """By numbers."""
    as_list = [mask_to_list(sum(1 << n for n in numbers)) for numbers in (cores, gpus)]
    return Slots(index, *as_list, mib)


TestARoomOfAPartition = ARoomOfAPartition.TestCase
TestARoomOfAPartition.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestTheRoom = TheRoom.TestCase
TestTheRoom.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


def test_places_go_by_the_lowest_free_indexes_whatever_the_order_they_became_free_in() -> None:
    room = Room()
    room.add(Node("n", 4, 2))
    one = Needs(gpus=1)
    first, second = room.place(0, one), None
    room.take(first, one)
    second = room.place(0, one)
    room.take(second, one)
    assert (first, second) == (Place(0, "0", "0"), Place(0, "1", "1"))
    room.give(first, one)
    assert room.place(0, one) == first


def test_giving_back_what_is_free_is_a_bug() -> None:
    room = Room()
    room.add(Node("n", 4))
    with pytest.raises(CantleBug, match="was free"):
        room.give(Place(0, "0"), Needs())


def test_memory_and_named_things_cannot_be_promised_twice() -> None:
    room = Room()
    room.add(Node("n", 4, memory_mib=8, named=(("licence", 1),)))
    room.take(Place(0, "0"), Needs(memory_mib=6))
    with pytest.raises(CantleBug, match="not enough left"):
        room.take(Place(0, "1"), Needs(memory_mib=6))
    room.take(Place(0, "1"), Needs(named=(("licence", 1),)))
    with pytest.raises(CantleBug, match="not enough left"):
        room.take(Place(0, "2"), Needs(named=(("licence", 1),)))


def test_a_node_that_is_gone_or_never_was_holds_nothing() -> None:
    room = Room()
    room.add(Node("n", 4))
    room.lose(0)
    room.lose(0)
    assert room.cores == 0
    assert room.full and not room.fitting(Needs()) and not room.could_ever_hold(Needs())
    room.give(Place(0, "0"), Needs())
    for index in (0, 1):
        with pytest.raises(CantleBug, match="is not there"):
            room.take(Place(index, "0"), Needs())


@given(st.lists(some_node(), max_size=6), some_needs())
@settings(max_examples=150, deadline=None)
def test_shortage_names_something_exactly_when_an_empty_node_does_not_hold_it(nodes: list[Node], needs: Needs) -> None:
    room = Room()
    for node in nodes:
        room.add(node)
    fits = [i for i, node in enumerate(nodes) if not shortage(node, needs)]
    assert indexes(room.fitting(needs)) == fits == indexes(room.could_ever_hold(needs))
