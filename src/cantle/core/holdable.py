"""Can tasks of this shape ever run in an element of a slice, and if not, what is missing? With the arithmetic, for people."""

from __future__ import annotations

from collections.abc import Container

from msgspec.structs import replace

from cantle.core.queues import Shape
from cantle.core.room import Room, shortage
from cantle.model.resources import Needs, Node, count, indexes
from cantle.model.slicing import named
from cantle.model.study import Slice, Slicing


def why_never_in_slices(room: Room, shape: Shape, slicing: Slicing, held: Container[int] | None = None) -> str:
    """Why tasks of this shape can never run in an element, "" when they can. `held`: in those of these widths alone."""
    needs = shape.needs
    allowed = shape.widths or (needs.nodes,)
    slices = [each for each in slicing.slices if held is None or each.width in held]
    widths = sorted({each.width for each in slices}, reverse=True)
    fitting = [each for each in slices if each.width in allowed]
    if not fitting:
        wanted = " or ".join(map(str, allowed))
        whose = "the slices have" if held is None else f"its partition {shape.partition} has"
        nodes = "node" if allowed == (1,) else "nodes"
        return f"needs {wanted} {nodes} at once; {whose} elements of {', '.join(map(str, widths))} nodes"
    alive = [
        node for index in indexes(room.alive) if not (node := room.nodes[index]).apart
    ]  # elements have none of those
    total = sum(each.copies for each in slicing.slices)
    cap = min(slicing.max_active, total) if slicing.max_active else total
    shortest = ""
    for each in fitting:
        able = [node for node in alive if 0 < (each.share or node.cores // cap) <= node.cores]
        if len(able) < each.width:
            shortest = _why_too_few(each, cap, len(able), len(alive))
            continue
        lacks = [lack_of(node, each.share or node.cores // cap, needs) for node in able]
        groups = [lacks[first : first + each.width] for first in range(0, len(able) - each.width + 1, each.width)]
        if any(not any(group) for group in groups):
            return ""
        share = max((each.share or node.cores // cap) for node in able)
        how = "as the slice says" if each.share else f"the node's cores divided by the {cap} copies that may be active"
        shortest = f"needs {count(needs.cores, 'core')} of each node; an element of {each.width} gets {share} ({how})"
        if needs.cores <= share:
            lack = next(filter(None, lacks))
            shortest = f"needs {needs}; in each element of {count(each.width, 'node')} there is one that {lack} ({how})"
    return shortest


def lack_of(node: Node, cores: int, needs: Needs) -> str:
    """What an element's share of the node, so many of its cores, lacks for the needs, "" when nothing."""
    if needs.whole_nodes and cores < node.cores:
        return f"is {cores} of its node's {count(node.cores, 'core')}"
    return shortage(share_of(node, cores), needs)


def _why_too_few(each: Slice, cap: int, able: int, alive: int) -> str:
    """Why an element of the slice finds too few nodes, when so many have its share of cores, of all that are there."""
    what = f"needs an element of {count(each.width, 'node')}"
    if alive < each.width:
        return f"{what}; there {'is' if alive == 1 else 'are'} {count(alive, 'node')}"
    told = f"only {able} of the {alive} nodes have" if able else f"none of the {alive} nodes has"
    if each.share:
        return f"{what} with {count(each.share, 'core')} on each, as the slice {named(each)} says; {told} so many"
    return (
        f"{what}; each of the {cap} copies that may be active has 1/{cap} of a node's cores, and {told} "
        f"{count(cap, 'core')} to share among them"
    )


def share_of(node: Node, cores: int) -> Node:
    """What an element has of the node with so many of its cores."""
    return replace(
        node,
        cores=cores,
        gpus=node.gpus * cores // node.cores,
        memory_mib=node.memory_mib * cores // node.cores,
        named=node.named if cores == node.cores else (),
    )
