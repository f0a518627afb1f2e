"""Which partitions does a study declare?

cantle:
    partitions:
        sim: {nodes: 2, cores: 4, layout: contiguous, near: [node3]}
        mine: {elements: "2 x 400 + 3 x 50, at most 4"}
        calc: {nodes: 4, engine: dask}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cantle.model.resources import count
from cantle.model.slicing import choices_of
from cantle.model.study import PartitionWish, Step

from .expansion import Expansion
from .findings import Findings, did_you_mean
from .quantities import memory_mib
from .shape import is_kind, only
from .yaml_nodes import Item

_KEYS = ("nodes", "cores", "gpus", "memory", "kind", "layout", "near", "elements", "engine")
_LAYOUTS = ("any", "contiguous", "spread")


def partitions_of(block: Item, place: str, findings: Findings) -> tuple[PartitionWish, ...]:
    """The partitions in this mapping of name to wish, in the order of the file. What is wrong is noted."""
    if block.value is None or not is_kind(block, dict, place, findings):
        return ()
    found = []
    for name, item in block.mapping.items():
        path = f"{place}.{name}"
        if not name or not name.isprintable():
            findings.wrong(block.lines[name], path, "cannot be the name of a partition", "letters and digits, say")
        elif item.value is None:
            found.append(PartitionWish(name))
        elif is_kind(item, dict, path, findings):
            found.append(_wish(name, item, path, findings))
    return tuple(found)


def check_names(partitions: tuple[PartitionWish, ...], expansion: Expansion, findings: Findings) -> None:
    """Note steps whose partition looks like a slip of a declared one's name; others may be made while the run goes on."""
    names = [wish.name for wish in partitions]
    for step, plan in zip(expansion.steps, expansion.plan_of, strict=True):
        if step.partition and step.partition not in names:
            said = plan.settings["partition"]
            mend = did_you_mean(step.partition, names)
            what = f"no partition {step.partition!r} is declared; its tasks wait until somebody makes one"
            findings.odd(said.line, said.key, f"{what}; {mend}" if mend else what)


def check_sizes(partitions: tuple[PartitionWish, ...], expansion: Expansion, findings: Findings) -> None:
    """Note steps that can never fit the partition that is declared for them."""
    wishes = {wish.name: wish for wish in partitions}
    for step, plan in zip(expansion.steps, expansion.plan_of, strict=True):
        wish = wishes.get(step.partition)
        if wish is None:
            continue
        for keys, what in _misfits(step, wish):
            said = next(plan.settings[key] for key in (*keys, "partition") if key in plan.settings)
            mend = f"make the partition larger (`cantle.partitions.{wish.name}`), or name another one"
            findings.wrong(said.line, said.key, what, mend)


def _misfits(step: Step, wish: PartitionWish) -> Iterator[tuple[tuple[str, ...], str]]:
    """What of the step does not fit the partition: the settings that could have said it, and a sentence."""
    needs, it = step.needs, f"its partition {wish.name}"
    widths = step.widths or (needs.nodes,)
    if wish.elements:
        there = sorted({width for choice in choices_of(wish.elements) for width, _ in choice.widths})
        if not set(widths) & set(there):
            what = f"takes {_listed(widths, 'or')}; {it} has elements of {_listed(there, 'and')}"
            yield ("widths", "nodes"), what
        return
    if widths[0] > wish.width:
        yield ("widths", "nodes"), f"takes {_listed(widths[:1], 'or')}; {it} has {count(wish.width, 'node')}"
    if not wish.cores:
        return
    has = f"{it} has {count(wish.cores, 'core')} of each node"
    if needs.whole_nodes:
        yield ("exclusive",), f"takes whole nodes; {has}"
    if needs.cores > wish.cores:
        keys = ("cores per task", "cpus per rs", "procs", "streams")
        yield keys, f"takes {count(needs.cores, 'core')} of each node; {has}"
    if needs.gpus > wish.gpus:
        yield ("gpus",), f"takes {count(needs.gpus, 'GPU')} of each node; {it} has {count(wish.gpus, 'GPU')}"
    if needs.memory_mib > wish.memory_mib > 0:
        yield ("memory",), f"takes {needs.memory_mib} MiB of memory; {it} has {wish.memory_mib} MiB of each node"
    for name, n in needs.named:
        if n:
            yield (f"resources.{name}",), f"takes {n} {name}; {has}, and a part of a node has no such thing"


def _listed(widths: Sequence[int], word: str) -> str:
    *most, last = (f"{width:,}" for width in widths)
    return f"{', '.join(most)} {word} {last} nodes" if most else count(widths[-1], "node")


def _wish(name: str, item: Item, path: str, findings: Findings) -> PartitionWish:
    only(item, _KEYS, path, findings)
    said: dict[str, Any] = {}
    for key, field, least in (("nodes", "width", 1), ("cores", "cores", 0), ("gpus", "gpus", 0)):
        child = item.mapping.get(key)
        if child is None:
            continue
        if isinstance(child.value, int) and not isinstance(child.value, bool) and child.value >= least:
            said[field] = child.value
        else:
            mend = "0 means whole nodes" if key == "cores" else ""
            what = f"must be a whole number, {least} or more, not {child.text or child.kind}"
            findings.wrong(child.line, f"{path}.{key}", what, mend)
    memory = item.mapping.get("memory")
    if memory is not None:
        try:
            said["memory_mib"] = memory_mib(memory.text)
        except ValueError:
            what = f"must be '4 GB' or '512 MiB', not {memory.text or memory.kind}"
            findings.wrong(memory.line, f"{path}.memory", what)
    kind = item.mapping.get("kind")
    if kind is not None:
        if isinstance(kind.value, dict | list):
            findings.wrong(kind.line, f"{path}.kind", f"must be one word, not {kind.kind}")
        said["kind"] = kind.text if kind.value is not None else ""
    layout = item.mapping.get("layout")
    if layout is not None:
        if layout.value in _LAYOUTS:
            said["layout"] = layout.value
        else:
            mend = did_you_mean(layout.text, _LAYOUTS) or f"known are {', '.join(_LAYOUTS)}"
            findings.wrong(layout.line, f"{path}.layout", f"{layout.text or layout.kind!r} is no layout", mend)
    near = item.mapping.get("near")
    if near is not None:
        entries = near.value if isinstance(near.value, list) else [near]
        if any(isinstance(each.value, dict | list) or each.value is None for each in entries):
            findings.wrong(near.line, f"{path}.near", "must name machines", "near: [node1, node2]")
        else:
            said["near"] = tuple(each.text for each in entries)
    engine = item.mapping.get("engine")
    if engine is not None:
        if isinstance(engine.value, dict | list) or not engine.text:
            findings.wrong(engine.line, f"{path}.engine", f"must be a name, not {engine.kind}", "dask, say")
        else:
            said["engine"] = engine.text
    elements = item.mapping.get("elements")
    if elements is not None:
        said["elements"] = elements.text
        try:
            choices_of(elements.text)
        except ValueError as problem:
            findings.wrong(elements.line, f"{path}.elements", str(problem))
        if len(item.mapping) > 1:
            what = "says which elements of the slices these are, so nothing else can be said of their size"
            findings.wrong(elements.line, f"{path}.elements", what)
    return PartitionWish(name, **said)
