"""How do bytes travel over a pair of descriptors without either side ever waiting for the other?"""

from __future__ import annotations

import os
from typing import Protocol

_RECEIVE = 1 << 16
"""Most bytes taken at once, so that a talkative peer does not keep the loop from its timers.

As much as a pipe holds. Room for twice as much would be mapped anew by the kernel for each message, however short.
"""


class RunnersEnd(Protocol):
    """What a runner speaks with its conductor over. `lifeline`: a descriptor whose end is the conductor's as well, or -1."""

    @property
    def lifeline(self) -> int:
        """It can be read when it has ended."""

    @property
    def write_fd(self) -> int:
        """It can be written when `send` may take more."""

    @property
    def backlog(self) -> int:
        """How many bytes wait for the conductor to take them."""

    def fileno(self) -> int:
        """It can be read when `receive` has something."""

    def send(self, data: bytes) -> None:
        """Send, without waiting. Raises ConnectionError when the conductor has gone."""

    def receive(self) -> bytes:
        """What has arrived, b"" at the end. Raises BlockingIOError when there is nothing yet."""


class DescriptorChannel:
    """A channel over two descriptors: pipes, or one socket twice. What the peer does not take yet waits in a buffer."""

    __slots__ = ("_backlog", "read_fd", "write_fd")

    clock_ahead_s = 0.0
    why_ended = ""
    lifeline = -1

    def __init__(self, read_fd: int, write_fd: int) -> None:
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._backlog = bytearray()

    @property
    def backlog(self) -> int:
        """How many bytes wait for the peer to take them; `send(b"")` tries again when `write_fd` is writable."""
        return len(self._backlog)

    def fileno(self) -> int:
        """The descriptor to wait on for `receive`."""
        return self.read_fd

    def send(self, data: bytes) -> None:
        """Send, or keep for later what does not fit now. Raises OSError when the peer has gone."""
        if self._backlog:
            self._backlog += data
            while self._backlog:
                try:
                    sent = os.write(self.write_fd, memoryview(self._backlog)[:_RECEIVE].toreadonly())
                except BlockingIOError:
                    return
                del self._backlog[:sent]
            return
        at = 0
        rest: bytes | memoryview = data
        while at < len(data):
            try:
                at += os.write(self.write_fd, rest)
            except BlockingIOError:
                self._backlog += memoryview(data)[at:]
                return
            if at < len(
                data
            ):  # no copy of what is left for each piece that the peer takes: that would cost by the square
                rest = memoryview(data)[at : at + _RECEIVE]

    def receive(self) -> bytes:
        """What has arrived, b"" at the end. Raises BlockingIOError when there is nothing yet."""
        try:
            return os.read(self.read_fd, _RECEIVE)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        """Close both descriptors; the peer sees the end."""
        os.close(self.read_fd)
        if self.write_fd != self.read_fd:
            os.close(self.write_fd)
