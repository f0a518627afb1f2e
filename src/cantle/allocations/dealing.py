"""How is one machine dealt out to several nodes that stand on it?

Cores and GPUs go to the nodes one after another, so that no two nodes share one while there are enough of them. Where more
are declared than exist, nothing is bound: then the nodes are for trying things out, and their tasks share what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from cantle.allocations.groups import Group
from cantle.allocations.machine import Machine
from cantle.model.resources import Node, count


def deal(
    machine: Machine,
    name: str,
    groups: Sequence[Group],
    memory_mib: int | None = None,
    named: tuple[tuple[str, int], ...] = (),
) -> tuple[list[Node], list[str]]:
    """The nodes `node1`, `node2` and so on, on the machine of this name, and sentences about what is not as it has it.

    `memory_mib` is each node's; None: the machine's, in proportion to cores. GPUs that no group speaks of, and the things
    that are `named`, are dealt out in equal shares; if they do not come out even, the first nodes have one more.
    """
    each = [group for group in groups for _ in range(group.count)]
    notes: list[str] = []
    cores = [group.cores for group in each]
    declared = sum(cores)
    core_ids = machine.core_ids
    if declared > machine.cores:
        core_ids = ()
        notes.append(
            f"{count(declared, 'core')} declared on {count(len(each), 'node')} where {machine.cores} can be used: "
            "tasks are not bound to cores"
        )
    gpus = _gpus_of(each, len(machine.gpu_ids))
    gpu_ids = machine.gpu_ids
    if sum(gpus) > len(gpu_ids):
        notes.append(f"{count(sum(gpus), 'GPU')} declared where {len(gpu_ids)} can be seen")
        gpu_ids = tuple(map(str, range(sum(gpus))))
    shares = [(thing, _equal_shares(number, len(each))) for thing, number in named]
    notes += [
        f"{number} {thing} dealt out to {count(len(each), 'node')}: {_in_words(share)}"
        for (thing, number), (_, share) in zip(named, shares, strict=True)
    ]
    nodes = []
    for number, (group, core, gpu) in enumerate(zip(each, _starts(cores), _starts(gpus), strict=True)):
        nodes.append(
            Node(
                name=f"node{number + 1}",
                cores=group.cores,
                gpus=gpus[number],
                memory_mib=machine.memory_mib * group.cores // declared if memory_mib is None else memory_mib,
                named=tuple((thing, share[number]) for thing, share in shares),
                kind=group.kind,
                machine=name,
                core_ids=core_ids[core : core + group.cores],
                gpu_ids=gpu_ids[gpu : gpu + gpus[number]],
            )
        )
    return nodes, notes


def _gpus_of(each: Sequence[Group], there: int) -> list[int]:
    """How many GPUs each node has."""
    open_to = [number for number, group in enumerate(each) if group.gpus is None]
    gpus = [group.gpus or 0 for group in each]
    for number, share in zip(open_to, _equal_shares(max(0, there - sum(gpus)), len(open_to)), strict=True):
        gpus[number] = share
    return gpus


def _equal_shares(number: int, among: int) -> list[int]:
    return [number // among + (place < number % among) for place in range(among)]


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *accumulate(lengths[:-1])]


def _in_words(share: Sequence[int]) -> str:
    least, most = min(share), max(share)
    return f"{most} each" if least == most else f"{least} or {most} each"
