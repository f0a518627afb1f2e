"""How much of which node is free?

Free cores and GPUs of a node are int bit masks. Nodes with the same number of free cores form a set, and that set is one
big int with a bit per node: to find the nodes with room is an OR of few ints, to pick the first of them one bit trick, and
the answer depends on what is free alone, never on the order in which it became free. So the same journal leads to
the same placements, and ten thousand nodes cost no more than their bits.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import structs

from cantle.errors import CantleBug
from cantle.model.resources import Needs, Node, Place, Slots, indexes, list_to_mask, lowest_bits, mask_to_list

Build: TypeAlias = tuple[int, int, int, tuple[tuple[str, int], ...], str, bool]


class Room:
    """The ledger of slots: what the nodes have, and what of it nobody owns.

    The run has one; each partition has one of its own, with what it owns of its nodes. Nodes bear the run's numbers in all of
    them. `capacity` is what there is of a node in this room when nothing runs, as masks of cores and GPUs.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.alive = 0
        self._cores = 0
        """How many there are on all nodes alive; -1 in a view, which counts when it is asked."""
        self._by_build: dict[Build, int] = {}
        """Nodes alive, as bits, by what they have when nothing runs: there are few sorts of node among many nodes."""
        self.capacity: dict[int, tuple[int, int]] = {}
        self.free_cores: dict[int, int] = {}
        self.free_gpus: dict[int, int] = {}
        self.free_memory: dict[int, int] = {}
        self.free_named: dict[int, dict[str, int]] = {}
        self.by_memory: dict[int, int] = {}
        """Nodes, as bits, by the class of their free memory."""
        self.by_named: dict[str, dict[int, int]] = {}
        """The same by how many of a named thing are free."""
        self.by_cores: list[int] = [0]
        self.by_gpus: list[int] = [0]
        self.untouched = 0
        self.of_kind: dict[str, int] = {}
        self.apart = 0
        """Nodes that take nothing but what is staged."""
        self.shared = 0
        """Nodes of which others own the rest: none that wants a node for itself runs there."""
        self.withheld: dict[int, tuple[int, int]] = {}
        """Of nodes on which nothing may begin: the cores and GPUs that would be free."""

    # What changes it

    def add(self, node: Node) -> int:
        """Take in a node; its number."""
        index = len(self.nodes)
        self.nodes[index] = node
        self._enter(index, (1 << node.cores) - 1, (1 << node.gpus) - 1, node.memory_mib, dict(node.named))
        return index

    def _enter(self, index: int, cores: int, gpus: int, memory_mib: int, named: dict[str, int]) -> None:
        bit = 1 << index
        self.alive |= bit
        self._count_in(index)
        self.capacity[index] = (cores, gpus)
        self.free_cores[index] = cores
        self.free_gpus[index] = gpus
        self.free_memory[index] = memory_mib
        self.free_named[index] = named
        self._enlist(index)
        n_cores, n_gpus = cores.bit_count(), gpus.bit_count()
        _widen(self.by_cores, n_cores)[n_cores] |= bit
        _widen(self.by_gpus, n_gpus)[n_gpus] |= bit
        self.untouched |= bit
        kind = self.nodes[index].kind
        self.of_kind[kind] = self.of_kind.get(kind, 0) | bit
        if self.nodes[index].apart:
            self.apart |= bit

    def lose(self, index: int) -> None:
        """The node is gone. What runs on it must have been given back before."""
        bit = 1 << index
        if not self.alive & bit:
            return
        self.alive ^= bit
        self._count_out(index)
        self.withheld.pop(index, None)
        self.by_cores[self.free_cores[index].bit_count()] &= ~bit
        self.by_gpus[self.free_gpus[index].bit_count()] &= ~bit
        self._strike(index)
        self.untouched &= ~bit
        self.of_kind[self.nodes[index].kind] &= ~bit
        self.apart &= ~bit
        self.shared &= ~bit

    def take(self, place: Place, needs: Needs) -> None:
        """The place is owned from now on. CantleBug if any of it already was; then nothing has changed."""
        index = place.node
        bit = 1 << index
        if not self.alive >> index & 1:
            raise CantleBug(f"node {index} is not there")
        cores = list_to_mask(place.cores)
        before = self.free_cores[index]
        if cores & ~before:
            raise CantleBug(f"cores {place.cores} of node {self.nodes[index].name} are not free")
        if place.gpus and list_to_mask(place.gpus) & ~self.free_gpus[index]:
            raise CantleBug(f"GPUs {place.gpus} of node {self.nodes[index].name} are not free")
        if (needs.memory_mib or needs.named) and not self._has_countable(index, needs):
            raise CantleBug(f"node {self.nodes[index].name} has not enough left for {needs}")
        after = before ^ cores
        self.free_cores[index] = after
        self.by_cores[before.bit_count()] ^= bit
        self.by_cores[after.bit_count()] |= bit
        self.untouched &= ~bit
        if place.gpus:
            gpus = list_to_mask(place.gpus)
            free = self.free_gpus[index]
            self.free_gpus[index] = free ^ gpus
            self.by_gpus[free.bit_count()] ^= bit
            self.by_gpus[(free ^ gpus).bit_count()] |= bit
        if needs.memory_mib or needs.named:
            self._count(index, -1, needs.memory_mib, needs.named)

    def give(self, place: Place, needs: Needs) -> None:
        """The place is free again; nothing happens when its node is gone. CantleBug if it already was free."""
        index = place.node
        bit = 1 << index
        if not self.alive & bit:
            return
        before = self.free_cores[index]
        cores = list_to_mask(place.cores)
        if before & cores or (place.gpus and self.free_gpus[index] & list_to_mask(place.gpus)):
            raise CantleBug(f"{place} of node {self.nodes[index].name} is given back, but was free")
        after = before | cores
        self.free_cores[index] = after
        self.by_cores[before.bit_count()] ^= bit
        self.by_cores[after.bit_count()] |= bit
        if place.gpus:
            free = self.free_gpus[index]
            freed = free | list_to_mask(place.gpus)
            self.free_gpus[index] = freed
            self.by_gpus[free.bit_count()] ^= bit
            self.by_gpus[freed.bit_count()] |= bit
        if needs.memory_mib or needs.named:
            self._count(index, 1, needs.memory_mib, needs.named)
        if after == self.capacity[index][0]:
            self.untouched |= bit
        if self.withheld and index in self.withheld:
            self.withhold(index)

    def withhold(self, index: int) -> None:
        """Nothing more begins on the node: what is free there is no longer, nor what becomes free, until `release`."""
        if self.alive >> index & 1:
            cores, gpus = self.withheld.get(index, (0, 0))
            self.withheld[index] = (cores | self.free_cores[index], gpus | self.free_gpus[index])
            self._set_free(index, 0, 0)

    def release(self, index: int) -> None:
        """What was withheld of the node is free again."""
        found = self.withheld.pop(index, None)
        if found is not None:
            self._set_free(index, *found)

    def _set_free(self, index: int, cores: int, gpus: int) -> None:
        bit = 1 << index
        for by_count, before, after in (
            (self.by_cores, self.free_cores[index], cores),
            (self.by_gpus, self.free_gpus[index], gpus),
        ):
            by_count[before.bit_count()] &= ~bit
            by_count[after.bit_count()] |= bit
        self.free_cores[index], self.free_gpus[index] = cores, gpus
        self.untouched &= ~bit
        if cores == self.capacity[index][0]:
            self.untouched |= bit

    # What partitions do

    def cede(self, slots: Slots) -> None:
        """The slots, all of them free, leave this room's free ones: they are a partition's. CantleBug if any is not free."""
        self._shift(slots, leave=True)

    def regain(self, slots: Slots) -> None:
        """The slots are free here again; nothing happens when their node is gone."""
        if self.alive >> slots.node & 1:
            self._shift(slots, leave=False)

    def grow(self, node: Node, slots: Slots) -> None:
        """These slots belong to this room from now on, and are free in it. For the room of a partition."""
        index = slots.node
        cores, gpus = list_to_mask(slots.cores), list_to_mask(slots.gpus)
        if not self.alive >> index & 1:
            self.nodes[index] = structs.replace(
                node, cores=cores.bit_count(), gpus=gpus.bit_count(), memory_mib=slots.memory_mib, named=slots.named
            )
            self._enter(index, cores, gpus, slots.memory_mib, dict(slots.named))
            self._note_share(index, node)
            return
        self._shift(slots, leave=False)
        has = self.capacity[index]
        self.capacity[index] = (has[0] | cores, has[1] | gpus)
        self._retell(index, 1, slots)
        self._note_share(index, node)

    def shrink(self, slots: Slots) -> None:
        """These slots, free ones, belong to this room no more; a node of which nothing is left is not in it any more."""
        index = slots.node
        self._shift(slots, leave=True)
        has = self.capacity[index]
        self.capacity[index] = (has[0] & ~list_to_mask(slots.cores), has[1] & ~list_to_mask(slots.gpus))
        self._retell(index, -1, slots)
        self.shared |= 1 << index
        if self.capacity[index] == (0, 0):
            self.lose(index)

    def _note_share(self, index: int, node: Node) -> None:
        whole = self.nodes[index].cores == node.cores
        self.shared = self.shared & ~(1 << index) if whole else self.shared | 1 << index

    def _retell(self, index: int, sign: int, slots: Slots) -> None:
        """Say anew what there is of a node whose capacity has changed."""
        node = self.nodes[index]
        self._count_out(index)
        cores, gpus = self.capacity[index]
        named = dict(node.named)
        for name, n in slots.named:
            named[name] = named.get(name, 0) + sign * n
        self.nodes[index] = structs.replace(
            node,
            cores=cores.bit_count(),
            gpus=gpus.bit_count(),
            memory_mib=node.memory_mib + sign * slots.memory_mib,
            named=tuple(sorted((name, n) for name, n in named.items() if n)),
        )
        self._count_in(index)
        self.untouched &= ~(1 << index)
        if self.free_cores[index] == cores:
            self.untouched |= 1 << index

    def _count_in(self, index: int) -> None:
        node = self.nodes[index]
        build = _build(node)
        self._by_build[build] = self._by_build.get(build, 0) | 1 << index
        self._cores += node.cores

    def _count_out(self, index: int) -> None:
        node = self.nodes[index]
        build = _build(node)
        left = self._by_build[build] ^ 1 << index
        if left:
            self._by_build[build] = left
        else:
            del self._by_build[build]
        self._cores -= node.cores

    def _shift(self, slots: Slots, leave: bool) -> None:
        index = slots.node
        bit = 1 << index
        for text, frees, by_count in (
            (slots.cores, self.free_cores, self.by_cores),
            (slots.gpus, self.free_gpus, self.by_gpus),
        ):
            mask = list_to_mask(text)
            before = frees[index]
            if not self.alive & bit or (mask & ~before if leave else mask & before):
                raise CantleBug(f"{slots} of node {index} cannot {'leave' if leave else 'enter'} the room")
            frees[index] = after = before ^ mask
            by_count[before.bit_count()] &= ~bit
            _widen(by_count, after.bit_count())[after.bit_count()] |= bit
        if slots.memory_mib or slots.named:
            self._count(index, -1 if leave else 1, slots.memory_mib, slots.named)
            if self.free_memory[index] < 0 or any(n < 0 for n in self.free_named[index].values()):
                raise CantleBug(f"node {index} has not enough left for {slots}")
        self.untouched &= ~bit
        if self.free_cores[index] == self.capacity[index][0]:
            self.untouched |= bit
        if not leave and self.withheld and index in self.withheld:
            self.withhold(index)

    # What is counted: memory and named things

    def _count(self, index: int, sign: int, memory_mib: int, named: tuple[tuple[str, int], ...]) -> None:
        bit = 1 << index
        if memory_mib:
            before = self.free_memory[index]
            after = self.free_memory[index] = before + sign * memory_mib
            old, new = _memory_class(before), _memory_class(after)
            if old != new:
                self.by_memory[old] ^= bit
                self.by_memory[new] = self.by_memory.get(new, 0) | bit
        free = self.free_named[index]
        for name, n in named:
            had = free.get(name, 0)
            has = free[name] = had + sign * n
            listed = self.by_named.setdefault(name, {})
            listed[had] = listed.get(had, 0) & ~bit
            listed[has] = listed.get(has, 0) | bit

    def _enlist(self, index: int) -> None:
        bit = 1 << index
        memory = _memory_class(self.free_memory[index])
        self.by_memory[memory] = self.by_memory.get(memory, 0) | bit
        for name, n in self.free_named[index].items():
            listed = self.by_named.setdefault(name, {})
            listed[n] = listed.get(n, 0) | bit

    def _strike(self, index: int) -> None:
        bit = 1 << index
        self.by_memory[_memory_class(self.free_memory[index])] &= ~bit
        for name, n in self.free_named[index].items():
            self.by_named[name][n] &= ~bit

    def countable(self, found: int, needs: Needs) -> tuple[int, int]:
        """Of these nodes those whose memory and named things suffice for sure, and those of which only a look can tell."""
        for name, n in needs.named:
            enough = 0
            for number, nodes in self.by_named.get(name, {}).items():
                if number >= n:
                    enough |= nodes
            found &= enough
        if not found or not needs.memory_mib:
            return found, 0
        least = _memory_class(needs.memory_mib)
        sure = unsure = 0
        for number, nodes in self.by_memory.items():
            if number > least:
                sure |= nodes
            elif number == least:
                unsure = nodes
        return found & sure, found & unsure

    # What it answers

    def within(self, nodes: int) -> Room:
        """This room as if there were only these nodes (bits), to ask it what fits. It shares the books: change nothing."""
        view = Room.__new__(Room)  # copy, without loading the module for it
        vars(view).update(vars(self))
        view.by_cores = [found & nodes for found in self.by_cores]
        view.untouched &= nodes
        view.alive &= nodes
        view._cores = -1
        return view

    @property
    def cores(self) -> int:
        """How many cores there are in this room, on nodes that are alive."""
        if self._cores < 0:
            self._cores = sum(self.nodes[index].cores for index in indexes(self.alive))
        return self._cores

    @property
    def full(self) -> bool:
        """Not one free core anywhere."""
        return self.by_cores[0] == self.alive

    def fitting(self, needs: Needs) -> int:
        """The nodes, as bits, on which one node's share of `needs` fits now."""
        found = self._roomy(needs)
        if found and (needs.memory_mib or needs.named):
            found, unsure = self.countable(found, needs)
            for index in indexes(unsure):
                if self.free_memory[index] >= needs.memory_mib:
                    found |= 1 << index
        return found

    def _roomy(self, needs: Needs) -> int:
        """The same without what is counted."""
        found = _at_least(self.by_cores, needs.cores)
        if needs.whole_nodes:
            found &= self.untouched & ~self.shared
        if found and needs.gpus:
            found &= _at_least(self.by_gpus, needs.gpus)
        if found and needs.kind:
            found &= self.of_kind.get(needs.kind, 0)
        if self.apart and not needs.staged:
            found &= ~self.apart
        return found

    def fullest_fitting(self, needs: Needs) -> int:
        """The node with the fewest free cores on which one node's share of `needs` fits now, the lowest of them; -1: none."""
        fitting, unsure = self._roomy(needs), 0
        if fitting and (needs.memory_mib or needs.named):
            sure, unsure = self.countable(fitting, needs)
            fitting = sure | unsure
        if not fitting:
            return -1
        for nodes in self.by_cores[needs.cores :]:
            found = nodes & fitting
            while found:
                low = found & -found
                index = low.bit_length() - 1
                if not low & unsure or self.free_memory[index] >= needs.memory_mib:
                    return index
                found ^= low
        return -1

    def _has_countable(self, index: int, needs: Needs) -> bool:
        if self.free_memory[index] < needs.memory_mib:
            return False
        named = self.free_named[index]
        return all(named.get(name, 0) >= n for name, n in needs.named)

    def place(self, index: int, needs: Needs) -> Place:
        """The place that a task with these needs gets on a node where it fits: the lowest free indexes."""
        free = self.free_cores[index]
        cores = free if needs.whole_nodes else lowest_bits(free, needs.cores)
        gpus = self.free_gpus[index]
        if not needs.whole_nodes:
            gpus = lowest_bits(gpus, needs.gpus) if needs.gpus else 0
        return Place(index, mask_to_list(cores), mask_to_list(gpus))

    def could_ever_hold(self, needs: Needs) -> int:
        """The nodes alive, as bits, that could hold a share of `needs` if nothing else ran."""
        found = 0
        for nodes in self._by_build.values():
            if shortage(self.nodes[nodes.bit_length() - 1], needs) == "":
                found |= nodes
        return found & self.alive & (~self.shared if needs.whole_nodes else -1)


def _build(node: Node) -> Build:
    return (node.cores, node.gpus, node.memory_mib, node.named, node.kind, node.apart)


def shortage(node: Node, needs: Needs) -> str:
    """What this node lacks for the needs even when it is empty, "" when nothing."""
    if needs.kind and node.kind != needs.kind:
        return f"is of kind {node.kind or 'none'}"
    if node.apart and not needs.staged:
        return "does not see the run's directory, and nothing is said of what to `stage`"
    if node.cores < needs.cores:
        return f"has {node.cores} of {needs.cores} cores"
    if node.gpus < needs.gpus:
        return f"has {node.gpus} of {needs.gpus} GPUs"
    if node.memory_mib < needs.memory_mib:
        return f"has {node.memory_mib} of {needs.memory_mib} MiB of memory"
    has = dict(node.named)
    for name, n in needs.named:
        if has.get(name, 0) < n:
            return f"has {has.get(name, 0)} of {n} {name}"
    return ""


def _memory_class(mib: int) -> int:
    """Sixteen classes for each doubling, ascending with the memory, so that few nodes need a closer look."""
    length = mib.bit_length()
    return (length << 4) + (mib >> max(0, length - 5) & 15)


def _at_least(by_count: list[int], n: int) -> int:
    found = 0
    for nodes in by_count[n:]:
        found |= nodes
    return found


def _widen(by_count: list[int], n: int) -> list[int]:
    by_count.extend([0] * (n + 1 - len(by_count)))
    return by_count
