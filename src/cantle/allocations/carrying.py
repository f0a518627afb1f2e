"""Who brings a file from one node to another? An allocation that spans machines can; on one it is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from cantle.model.resources import Node


class Errand(msgspec.Struct, frozen=True):
    """Bring the file `path` of the node `source` to the machine of the node `to`; None stands for the conductor's.

    There it lies at the path `at`, or, when that is "", by its `name` with what the runners of that machine keep. It stays
    where it was.
    """

    path: str
    source: Node | None
    to: Node | None
    name: str
    at: str = ""


class Carried(msgspec.Struct, frozen=True):
    """It lies at `path` now; or there is a `problem`. `gone`: it cannot be had from where it was, now or later."""

    path: str = ""
    size: int = 0
    problem: str = ""
    gone: bool = False


Then: TypeAlias = Callable[[Carried], None]


@runtime_checkable
class Carrier(Protocol):
    """Brings files from node to node. Called in the loop's thread, never waits, and answers there as well."""

    def carry(self, errand: Errand, then: Then) -> None:
        """Bring it; `then` is told what came of it, unless the run is over before."""


class OneMachine:
    """All nodes stand on the conductor's machine, and see the same files."""

    def carry(self, errand: Errand, then: Then) -> None:
        """It is there."""
        then(Carried(errand.path))
