"""What does a task need, and what has a node to give?

Cores and GPUs are indexed: a placement names *which* of them a task got, because affinity masks and
`CUDA_VISIBLE_DEVICES` need names, not counts. In memory a set of indexes is an int bit mask (bit i = index i); in records
it is the kernel's list format, `"0-3,7"`, which people can read and JSON can hold at any width.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec


class Needs(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one task needs on each of its nodes, all or nothing.

    `nodes` counts the nodes; everything else is per node. `memory_mib` 0 means "not stated": nothing is reserved and
    nothing enforced. `named` holds further countable things of a node, licences say, as sorted (name, count) pairs. `staged`:
    what it reads and writes is brought there and back, so that it may run on a node apart as well.
    """

    cores: int = 1
    nodes: int = 1
    gpus: int = 0
    memory_mib: int = 0
    named: tuple[tuple[str, int], ...] = ()
    kind: str = ""
    whole_nodes: bool = False
    staged: bool = False

    @property
    def area(self) -> int:
        """Cores over all nodes: how much of the machine the task covers while it runs."""
        return self.cores * self.nodes

    def __str__(self) -> str:
        text = _in_words(self)
        if self.whole_nodes:
            text += ", nothing else beside it"
        if self.nodes > 1:
            text += f" on each of {self.nodes} nodes"
        return f"{text} of kind {self.kind}" if self.kind else text


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that work can be placed on.

    `cores` counts its slots, indexed from 0. `core_ids`, when given, are the operating system's numbers of those cores in
    the same order, and tasks are bound to them; empty means logical cores without binding (more declared than exist).
    `gpu_ids` are the names by which the vendor's variable selects each GPU. `machine` is what the node stands on: several
    nodes may share one. `ends_at` is when its allocation ends, in seconds since the epoch (in a simulation since its start), 0
    when no end is known: as the machine's clock has it when an allocation tells it, as records bear their times in a record.
    `apart`: it does not see the run's directory, and has one of the same path to itself.
    """

    name: str
    cores: int
    gpus: int = 0
    memory_mib: int = 0
    named: tuple[tuple[str, int], ...] = ()
    kind: str = ""
    machine: str = ""
    core_ids: tuple[int, ...] = ()
    gpu_ids: tuple[str, ...] = ()
    ends_at: float = 0.0
    apart: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({_in_words(self)})"


class Place(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Where one node's share of a task runs: the node's number, and which of its cores and GPUs, as index lists."""

    node: int
    cores: str
    gpus: str = ""


class Slots(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What a partition owns of one node: which of its cores and GPUs, as index lists, and how much of what is counted."""

    node: int
    cores: str
    gpus: str = ""
    memory_mib: int = 0
    named: tuple[tuple[str, int], ...] = ()


def _in_words(of: Needs | Node) -> str:
    parts = [count(of.cores, "core")]
    if of.gpus:
        parts.append(count(of.gpus, "GPU"))
    if of.memory_mib:
        parts.append(f"{of.memory_mib} MiB of memory")
    parts += [f"{n} {name}" for name, n in of.named]
    return ", ".join(parts)


def count(n: int, noun: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


@lru_cache(maxsize=1 << 16)
def mask_to_list(mask: int) -> str:
    """`0b10001111` as `"0-3,7"`; 0 as `""`."""
    runs = []
    start = 0
    while mask >> start:
        if not mask >> start & 1:
            start += (mask >> start & -(mask >> start)).bit_length() - 1
        run = mask >> start
        length = (~run & (run + 1)).bit_length() - 1
        runs.append(str(start) if length == 1 else f"{start}-{start + length - 1}")
        start += length
    return ",".join(runs)


@lru_cache(maxsize=1 << 16)
def list_to_mask(text: str) -> int:
    """`"0-3,7"` as `0b10001111`. Raises ValueError on anything else than such a list."""
    mask = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not dash:
            last = first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
            raise ValueError(f"not a list of indexes: {text!r}")
        low, high = int(first), int(last)
        if high < low:
            raise ValueError(f"not a list of indexes: {text!r}")
        mask |= (1 << high + 1) - (1 << low)
    return mask


def indexes(mask: int) -> list[int]:
    """The indexes of a mask, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def lowest_bits(mask: int, n: int) -> int:
    """The n lowest set bits of a mask that has at least n."""
    if n == 1:
        return mask & -mask
    rest = mask
    for _ in range(n):
        rest &= rest - 1
    return mask ^ rest
