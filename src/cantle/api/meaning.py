"""Does a function of the program still mean what it meant when it was pickled?

A function of the script itself goes to its calls with what it refers to: names of the script, and further functions and classes
of it that these names stand for. When one of them stands for something else, as after a cell of a notebook was run again, the
function is to be pickled anew. That an object was changed in its place nobody can see at this price.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

from cantle.api.reloads import RELOADS

_NOTHING = object()
CACHED = type(functools.lru_cache(len))
"""The type of what `functools.lru_cache` makes."""
Name: TypeAlias = tuple[Mapping[str, Any], str, Any]


class Meaning:
    """What a function referred to when this was made."""

    __slots__ = ("_bodies", "_cells", "_names", "_reloads")

    def __init__(self, function: object) -> None:
        self._reloads = RELOADS.count()
        self._names: list[Name] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._bodies: list[tuple[FunctionType, CodeType, Any]] = []
        self._read(function)

    def holds(self) -> bool:
        """Whether all of that still stands for the same. Costs some 50 ns for each name."""
        if RELOADS.count() != self._reloads:
            return False
        for space, name, value in self._names:
            if space.get(name, _NOTHING) is not value:
                return False
        for function, code, defaults in self._bodies:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
        return all(_content(cell) is value for cell, value in self._cells)

    def values(self) -> Iterator[tuple[str, Any]]:
        """What goes along with the function, by the names that it has there."""
        for _, name, value in self._names:
            if value is not _NOTHING:
                yield name, value
        for function, code, _ in self._bodies:
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
                yield name, _content(cell)

    def _read(self, function: object) -> None:
        left, seen = [function], {id(function)}
        while left:
            try:
                for found in self._referred(left.pop()):
                    if id(found) not in seen:
                        seen.add(id(found))
                        left.append(found)
            except Exception:  # noqa: BLE001 (it is somebody else's; if it does not let itself be pickled either, that is told)
                continue

    def _referred(self, thing: Any) -> Iterator[Any]:
        """What goes along with this one, as far as it can refer to something itself.

        It is asked for nothing but its type before that is known: a proxy may raise whatever it is asked for.
        """
        kind = type(thing)
        if kind is FunctionType:
            if _goes_along(thing):
                self._bodies.append((thing, thing.__code__, thing.__defaults__))
                space = thing.__globals__
                for name in sorted(_names_in(thing.__code__)):
                    value = space.get(name, _NOTHING)
                    self._names.append((space, name, value))
                    yield value
                for cell in thing.__closure__ or ():
                    value = _content(cell)
                    self._cells.append((cell, value))
                    yield value
        elif issubclass(kind, type):
            if _goes_along(thing):
                yield from vars(thing).values()
                yield from thing.__bases__
        elif kind is MethodType:
            yield from (thing.__func__, thing.__self__)
        elif kind in (staticmethod, classmethod, CACHED):
            yield thing.__wrapped__
        elif kind is property:
            yield from (thing.fget, thing.fset, thing.fdel)
        elif kind is functools.partial:
            yield from (thing.func, *thing.args, *thing.keywords.values())
        elif kind.__module__ == "cantle.api.tasks" and kind.__qualname__ == "Task":
            yield thing.function
        elif kind.__module__ != "builtins":
            yield kind


def _goes_along(thing: FunctionType | type) -> bool:
    """Whether this function or class is pickled with all that it consists of, and not as something that can be imported."""
    home = sys.modules.get(thing.__module__)
    if home is None or thing.__module__ == "__main__":
        return True
    found: Any = home
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not thing:
        return True
    by_value: set[str] = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", set)()
    return any(thing.__module__ == name or thing.__module__.startswith(f"{name}.") for name in by_value)


def _names_in(code: CodeType) -> set[str]:
    """The names that this code, and the code in it, may look up; among them are names of attributes."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return _NOTHING
