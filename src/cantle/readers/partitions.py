"""Which partitions does a study declare?

cantle:
    partitions:
        sim: {nodes: 2, cores: 4, layout: contiguous, near: [node3]}
        mine: {elements: "2 x 400 + 3 x 50, at most 4"}
"""

from __future__ import annotations

from typing import Any

from cantle.model.slicing import choices_of
from cantle.model.study import PartitionWish

from .expansion import Expansion
from .findings import Findings, did_you_mean
from .quantities import memory_mib
from .shape import is_kind, only
from .yaml_nodes import Item

_KEYS = ("nodes", "cores", "gpus", "memory", "kind", "layout", "near", "elements")
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
