"""Through which openings do engines and allocations meet the rest?

Only through these: events go into an `Inbox`, and a `Channel` leads from the conductor to the runner of one node. Both are
narrow on purpose, so that a channel may be a socket pair to a child, an ssh session or a stream of somebody's cluster
library without anybody else knowing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .records import Event


class Inbox(Protocol):
    """The one place where events arrive. Owned by the world that turns the loop."""

    def put(self, event: Event) -> None:
        """Hand over an event. From any thread; never waits."""

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` in the loop's own thread whenever the descriptor can be read."""

    def unwatch(self, fd: int) -> None:
        """Stop watching the descriptor, before it is closed; unknown ones are ignored."""

    def now(self) -> float:
        """The time to stamp on an event, in seconds since the epoch."""


class Channel(Protocol):
    """Bytes to and from one runner, in order. What the bytes mean is the engine's and the runner's affair.

    `clock_ahead_s`: by how much the clock of the runner's machine is ahead of ours. `why_ended`: once the runner has gone,
    what is known of the reason, "" for nothing.
    """

    @property
    def clock_ahead_s(self) -> float:
        """Seconds; negative when it is behind. 0 where it is the same clock, or nearly."""

    @property
    def why_ended(self) -> str:
        """A sentence, or ""."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` has something, the end included."""

    @property
    def backlog(self) -> int:
        """How many bytes wait because the other side did not take them yet; `send(b"")` tries again."""

    @property
    def write_fd(self) -> int:
        """A descriptor that can be written when the other side takes more of them."""

    def send(self, data: bytes) -> None:
        """Send, without waiting for the other side to take it. Raises OSError when the runner has gone."""

    def receive(self) -> bytes:
        """What has arrived, b"" at the end (the runner has gone). Does not wait: call it when readable."""

    def close(self) -> None:
        """Close; the runner takes this as the end of its conductor and ends all that it started."""
