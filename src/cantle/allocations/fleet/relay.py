"""How do bytes get from a channel into an event loop that must not wait, and from there into the channel?

On a node there are two: one at the lane to the conductor, one at the pipes of the runner's process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Pipe(Protocol):
    """A channel of which both descriptors are known."""

    @property
    def read_fd(self) -> int:
        """Where it can be seen that something has arrived."""

    @property
    def write_fd(self) -> int:
        """Where it can be seen that there is room again."""

    @property
    def backlog(self) -> int:
        """How many bytes wait."""

    def send(self, data: bytes) -> None:
        """Send, without waiting."""

    def receive(self) -> bytes:
        """What has arrived."""


class Relay:
    """Hands on what comes out of the channel, and puts into it what `feed` is given. Used from the loop's thread only.

    `ended` is called once, when the other side of the channel has gone, unless we have closed it.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        channel: Pipe,
        hand_on: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._hand_on = hand_on
        self._ended = ended
        self._writing = False
        self.open = True
        loop.add_reader(channel.read_fd, self._read)

    def feed(self, data: bytes) -> None:
        """Put bytes into the channel; what does not fit waits."""
        if not self.open:
            return
        try:
            self._channel.send(data)
        except OSError:
            self._read()  # what it said before it went still counts; its end comes by the same way
            return
        self._mind_the_backlog()

    def stop(self) -> None:
        """Look at the channel no more; it stays open."""
        if self.open:
            self.open = False
            self._loop.remove_reader(self._channel.read_fd)
            if self._writing:
                self._loop.remove_writer(self._channel.write_fd)

    def _read(self) -> None:
        if not self.open:
            return
        try:
            data = self._channel.receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._hand_on(data)
        else:
            self.stop()
            self._ended()

    def _write(self) -> None:
        try:
            self._channel.send(b"")
        except OSError:
            self._read()
            return
        self._mind_the_backlog()

    def _mind_the_backlog(self) -> None:
        if bool(self._channel.backlog) == self._writing:
            return
        self._writing = not self._writing
        if self._writing:
            self._loop.add_writer(self._channel.write_fd, self._write)
        else:
            self._loop.remove_writer(self._channel.write_fd)
