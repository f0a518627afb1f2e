"""Is it a provider, and may it tell what it tells? What may not be is a PluginError there: it is the provider's fault."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from math import isfinite
from typing import Any

import msgspec

from cantle.errors import MachineError, PluginError, one_line, said_by, shown
from cantle.model.kinds import Kind
from cantle.model.resources import Node

from .base import Provider

MOST_NAMED = 1_000_000
"""Letters of all names of machines that are given back at once."""
_PARTS = ("kind", "invites", "undo", "add", "withdraw", "remove", "tend", "close")


def provider(called: str, make: Callable[[Kind], Any], kind: Kind) -> Provider:
    """What that makes for this kind, of the provider that is called so."""
    try:
        made: Provider = make(kind)
    except (Exception, SystemExit) as problem:
        raise PluginError(f"provider {called}: it cannot be made for kind {kind.name}: {said_by(problem)}") from problem
    if missing := [part for part in _PARTS if not hasattr(made, part)]:
        raise PluginError(f"provider {called}: {shown(made, 60)} is no provider: it has no {', '.join(missing)}")
    if not isinstance(made.kind, Kind) or made.kind.name != kind.name:
        other = made.kind.name if isinstance(made.kind, Kind) else shown(made.kind, 60)
        raise PluginError(f"provider {called}: its `kind` is {other}, and not the {kind.name} that it was given")
    return made


def text(what: str, given: Any) -> str:
    """A sentence for people, in a form that can be written down."""
    if not isinstance(given, str):
        raise PluginError(f"{what} is {shown(given, 60)}, which is no text")
    return one_line(given)


def name(given: Any) -> str:
    """What something is called, by which it is found again: so it is not changed."""
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise PluginError(f"{shown(given, 60)} cannot be the name of anything")
    return given


def machines(given: Any) -> list[str]:
    """The names of machines that were begun. Raises MachineError with what is wrong about them."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise MachineError(f"gave back {shown(given, 60)}, and not a list of names")
    found: list[str] = []
    size = 0
    for name in given:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise MachineError(f"gave back {shown(name, 60)} among the names, which is none")
        found.append(str.__str__(name))
        size += len(name)
        if size > MOST_NAMED:
            raise MachineError(f"gave back names without an end, or more than {MOST_NAMED:,} letters of them")
    if len(set(found)) < len(found):
        raise MachineError("gave back the same name twice")
    return found


def number(what: str, given: Any) -> int:
    """How many of something, from 0 on."""
    if type(given) is not int or given < 0:
        raise PluginError(f"{what} is {shown(given, 60)}, which is no number of nodes")
    return given


def moment(given: Any) -> float:
    """Seconds since the epoch, 0 for what nobody knows."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given < 0:
        raise PluginError(
            f"expected_at is {shown(given, 60)}, which is no time in seconds since the epoch (0: not known)"
        )
    return float(given)


def nodes(given: Any, kind: str, taken: Container[str]) -> list[Node]:
    """Nodes of this kind, with names that nobody bears yet."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise PluginError(f"{shown(given, 60)} is no list of nodes")
    found: list[Node] = []
    names: set[str] = set()
    for node in given:
        if not isinstance(node, Node):
            raise PluginError(f"{shown(node, 60)} is no cantle.model.resources.Node")
        try:
            msgspec.json.decode(msgspec.json.encode(node), type=Node)
        except (TypeError, ValueError, msgspec.MsgspecError) as problem:
            raise PluginError(f"the node {shown(node.name, 60)} cannot be written down: {problem}") from None
        name(node.name)
        if node.name in names or node.name in taken:
            raise PluginError(f"there is a node {node.name} already")
        if node.kind != kind:
            raise PluginError(f"the node {node.name} is of kind {node.kind or 'none'}, and {kind} was asked for")
        if node.cores < 1 or node.gpus < 0 or node.memory_mib < 0 or any(n < 0 for _, n in node.named):
            raise PluginError(f"the node {node} cannot be: it has at least one core, and of nothing less than none")
        names.add(node.name)
        found.append(node)
    if not found:
        raise PluginError("arrived() was told of no nodes")
    return found
