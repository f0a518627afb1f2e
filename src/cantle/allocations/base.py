"""Where do nodes come from, and how does one reach a runner there? The seam that every allocation fills.

An allocation announces nodes as events: first `NodesAwaited` (how many are on their way), then `NodesJoined`; each request
for more is answered, even with a no, so that nobody waits for ever. It knows nothing of tasks.

`cantle.testing.check_allocation` runs the conformance check on any allocation.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox


class Allocation(Protocol):
    """Supplies nodes. Called from the loop's thread only. `notes` are sentences for the user about what was found."""

    notes: list[str]

    def open(self, inbox: Inbox) -> None:
        """Begin: put `NodesAwaited`, and `NodesJoined` as nodes come up."""

    def connect(self, node: Node) -> Channel:
        """Start a runner on this node and give the channel to it. Raises MachineError when that cannot be done."""

    def lost(self, node: Node) -> None:
        """The node's runner is gone. Whoever can bring the node back puts `NodesAwaited` and, now or later, `NodesJoined`."""

    def close(self) -> None:
        """Give everything back. Runners end by themselves when their channels close."""


@runtime_checkable
class Growing(Allocation, Protocol):
    """An allocation whose nodes come and go while it is in use. It puts `KindsDeclared` when it opens."""

    def request(self, number: int, kind: str, count: int) -> None:
        """Ask for so many more nodes of the kind. `RequestAnswered` follows, and `NodesJoined` with that number."""

    def withdraw(self, number: int, count: int) -> None:
        """So many of a request's nodes are not needed any more. `RequestAnswered` tells how many come all the same."""

    def release(self, index: int, node: Node) -> None:
        """Give the node of this number back. `NodeReleased` follows, and, if it has gone, `NodeLost`."""
