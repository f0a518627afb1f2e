"""How do runners get into the fleet that nobody of ours starts? By a source that starts none, and passes the invitation on."""

from __future__ import annotations

from collections.abc import Callable

from cantle.allocations.fleet.source import Invitation, Report


class Gate:
    """A source of the fleet. `opens` is called with the invitation once there is one, in the loop's thread.

    `instance_of` tells, of a node that has joined, what its provider calls it.
    """

    def __init__(self) -> None:
        self.opens: Callable[[Invitation], None] = lambda _: None
        self.instance_of: Callable[[str], str] = lambda _: ""

    def start(self, invitation: Invitation, report: Report) -> None:  # noqa: ARG002 - providers answer in their own way
        """Others may invite from now on."""
        self.opens(invitation)

    def lost(self, name: str) -> None:
        """Whether another node comes in its place is decided elsewhere."""

    def close(self) -> None:
        """Nothing was started here."""
