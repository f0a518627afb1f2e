"""Who adds and removes nodes of one kind, and what does he answer? The seam that every provider fills.

A provider serves one kind of node. Its calls come from a thread of its own, one after another, so that it may wait for whatever
it has to ask; whoever needs long for one of them keeps nobody else waiting. Nodes come in one of two ways. Either runners
join by themselves, with the words of the invitation and whatever their machine is called there, the *instance* (a job, a host,
a machine of a cloud). Or the provider says `arrived`, where this machine's own allocation starts the runners.

A request is handed on once. What becomes of it is told by `Answers`, now or later; what is not told counts as on its way.

`cantle.testing.check_provider` runs the conformance check on any provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from cantle.allocations.fleet.source import Invitation
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.resources import Node

T = TypeVar("T")


class Asked(msgspec.Struct, frozen=True):
    """A request for `count` nodes of the provider's kind.

    `token` is a name that no other request has, in this run or another: what is left of it can be found by that. `invitation`:
    for runners that join by themselves. `directory` is the run's, `folder` a place in it for what a provider writes.
    """

    number: int
    count: int
    token: str
    directory: str = ""
    folder: str = ""
    invitation: Invitation | None = None


class Answers(Protocol):
    """What a provider tells. From any thread; never waits, but for `handed_out`, which writes to the disk."""

    def handed_out(self, request: int, instance: str) -> None:
        """Something was begun for the request, and is called so: after a crash it is found by that name."""

    def waits(self, request: int, detail: str, expected_at: float = 0.0) -> None:
        """Why its nodes are not there yet, and when they should be, in seconds since the epoch (0: nobody knows)."""

    def refused(self, request: int, n: int, why: str) -> None:
        """So many of its nodes will not come. `why` has the other side's own words."""

    def over(self, request: int, instance: str, n: int, why: str) -> None:
        """The instance, which has or would have had `n` nodes, is gone: those of them that did not join will not come."""

    def arrived(self, request: int, nodes: Sequence[Node]) -> None:
        """These nodes of this machine are there. For runners that join by themselves nobody need say so."""

    def joined(self, request: int) -> Mapping[str, Sequence[str]]:
        """The names of the nodes that ever joined for the request, by the instance as which they came."""

    def note(self, text: str) -> None:
        """A sentence for the user."""


class Provider(Protocol):
    """Adds and removes nodes of one kind.

    `kind` is it, with `adds` and `removes` as the provider can. `invites`: runners join by themselves. `undo` tells whoever
    finds a request after a crash how to take back what came of it, as `leftovers.py` understands it; empty: nothing stays.
    """

    kind: Kind
    invites: bool
    undo: dict[str, str]

    def add(self, asked: Asked, answers: Answers) -> None:
        """Begin to bring so many nodes. Raises CantleError when none of them will come."""

    def withdraw(self, request: int, n: int) -> int:
        """So many of the request's nodes, which have not joined, are wanted no more. How many now will not come."""

    def remove(self, node: Node, instance: str) -> None:
        """Take the node back, on which nothing runs. Raises CantleError when that cannot be done; then it stays in use."""

    def tend(self) -> float:
        """Look after what is on its way or on its way out; in how many seconds to do so again, infinite for not at all."""

    def close(self) -> None:
        """The run is over: take back all that was brought, and end what is on its way, within some seconds.

        Raises CantleError when something may be left; it stays on record then.
        """


@runtime_checkable
class HearsOfLosses(Protocol):
    """A provider whose machines outlive what runs on them."""

    def lost(self, instance: str) -> None:
        """All nodes of the instance are gone by themselves: end it, if it is still there. What goes wrong is a note."""


def end_all(things: Iterable[T], end: Callable[[T], object]) -> None:
    """End each of these, also when one of them cannot be. Raises MachineError with all problems."""
    problems = []
    for thing in list(things):
        try:
            end(thing)
        except MachineError as problem:
            problems.append(str(problem))
    if problems:
        raise MachineError("; ".join(problems))
