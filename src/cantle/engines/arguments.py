"""How do arguments that lie in a file come to a node that does not see it?

They are brought there as kept results are, beside the loop and not through it. Calls on one node that share a file share the
copy, which is removed when none of them is under way any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cantle.runner.messages import Key

Then: TypeAlias = Callable[[str, str], None]
"""Called with the path at which the arguments can be read on the node, or with "" and what went wrong."""
Bring: TypeAlias = Callable[[str, str, int, Callable[[str, str, bool], None]], None]
"""Brings the file of that path to the machine of a node, to lie there by that name; then as `calls.Brought`."""


class _Copy:
    """A file on a node, or on its way there. `number` names it."""

    __slots__ = ("number", "path", "users", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.path = ""
        self.users: dict[Key, None] = {}
        self.waiting: list[tuple[Key, Then]] = []


class Arguments:
    """The copies. `remove` takes what lies by a name like a result's from a node."""

    def __init__(self, remove: Callable[[int, Key], object]) -> None:
        self._remove = remove
        self._copies: dict[tuple[str, int], _Copy] = {}
        """By file and node."""
        self._of: dict[Key, tuple[str, int]] = {}
        self._made = 0

    def give(self, key: Key, file: str, node: int, bring: Bring, then: Then) -> None:
        """Let the attempt have the file on its node; at once, if it is there already."""
        where = self._of[key] = (file, node)
        copy = self._copies.get(where)
        if copy is None:
            self._made += 1
            copy = self._copies[where] = _Copy(-self._made)
        copy.users[key] = None
        if copy.path:
            then(copy.path, "")
            return
        copy.waiting.append((key, then))
        if len(copy.waiting) == 1:
            name = f"{copy.number}-0"  # as results are called, whose tasks have no such numbers
            bring(file, name, node, lambda path, problem, _gone: self._has_come(where, copy, path, problem))

    def over(self, key: Key) -> None:
        """The attempt needs it no more."""
        where = self._of.pop(key, None)
        copy = self._copies.get(where) if where is not None else None
        if where is None or copy is None:
            return
        copy.users.pop(key, None)
        if not copy.users and not copy.waiting:
            del self._copies[where]
            self._remove(where[1], (copy.number, 0))

    def gone(self, node: int) -> None:
        """The node is gone, and what lay there."""
        for where in [where for where in self._copies if where[1] == node]:
            del self._copies[where]

    def _has_come(self, where: tuple[str, int], copy: _Copy, path: str, problem: str) -> None:
        waiting, copy.waiting = copy.waiting, []
        wanted = [(key, then) for key, then in waiting if key in copy.users]
        current = self._copies.get(where) is copy
        if current and (problem or not wanted):
            del self._copies[where]
        if path and current and not wanted:
            self._remove(where[1], (copy.number, 0))
        copy.path = path
        for _, then in wanted if current else ():
            then(path, problem)
