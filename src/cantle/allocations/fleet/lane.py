"""How do bytes travel between a conductor's engine and a runner on another machine? Over a connection of their own: a lane.

A message over Dask's streams costs some two hundred microseconds on each side, and must pass from thread to thread. A lane is
a TLS connection that the conductor's own loop reads and writes like the pipes of a local runner: its channel. Dask says who is
there and who has gone; a runner that it has let in opens its lane with the key that it was given for that.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from threading import Lock

KEY_BYTES = 16
TAKEN = b"\0"
"""What the conductor says first, to a runner whose key it knows."""
_RECEIVE = 1 << 18
"""About so many bytes are taken at once."""
_RECORD = 1 << 14
"""TLS hands out so many at most."""
_SEND = 1 << 16
_LARGE = 1 << 18
"""A message of so many bytes waits as it is, without being copied, when it cannot be sent at once."""
_MOST_SENT = 1 << 20
"""About so many bytes are sent at once: a runner may take them as fast as we send, and others wait meanwhile."""
OPENS_S = 20.0
"""Whoever takes longer to open one is given up."""


class Lane:
    """A channel over an encrypted connection whose handshake is over. Used by one thread at a time.

    `clock_ahead_s`: by how much the clock of the runner's machine is ahead of ours. `why_ended`: when the other side has gone,
    what is known of that. `on_close` is called once, before the connection is closed by us.
    """

    def __init__(self, connection: ssl.SSLSocket, clock_ahead_s: float = 0.0) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._waiting: deque[bytearray | memoryview] = deque()
        """What was not taken yet, in order: large messages as they came, small ones put together."""
        self._backlog = 0
        self.read_fd = self.write_fd = connection.fileno()
        self.clock_ahead_s = clock_ahead_s
        self.why_ended = ""
        self.on_close: Callable[[], None] | None = None
        self._spare = os.dup(self.read_fd)
        self._ending = Lock()
        """Whoever hangs up must not meet a descriptor that has become somebody else's meanwhile."""

    @property
    def backlog(self) -> int:
        """How many bytes wait because the other side did not take them yet; `send(b"")` tries again."""
        return self._backlog

    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` has something."""
        return self.read_fd

    def send(self, data: bytes) -> None:
        """Send, or keep for later what does not fit now. Raises OSError when the other side has gone."""
        if len(data) >= _LARGE:
            self._waiting.append(memoryview(data))
        elif data:
            if not self._waiting or isinstance(self._waiting[-1], memoryview):
                self._waiting.append(bytearray())
            self._waiting[-1] += data  # type: ignore[operator]  # it is no view
        self._backlog += len(data)
        left = _MOST_SENT
        while self._waiting and left > 0:
            # What could not be sent must come again, with the same bytes and no fewer; where they lie does not matter.
            first = self._waiting[0]
            try:
                sent = self._connection.send(bytes(memoryview(first)[:_SEND]))
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            if sent == len(first):
                self._waiting.popleft()
            elif isinstance(first, memoryview):
                self._waiting[0] = first[sent:]
            else:
                del first[:sent]
            self._backlog -= sent
            left -= sent

    def receive(self) -> bytes:
        """All that has arrived, b"" at the end. Raises BlockingIOError when nothing has."""
        found = b""
        while len(found) < _RECEIVE or self._connection.pending():
            try:
                data = self._connection.recv(_RECORD)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if found:
                    return found
                raise BlockingIOError from None
            except OSError:
                data = b""
            if not data:
                return found  # the end comes again when it is asked for
            found = found + data if found else data
            if len(data) < _RECORD and not self._connection.pending():
                break  # to ask again would nearly always be in vain; if not, the descriptor is readable still
        return found

    def hang_up(self) -> None:
        """End the connection from another thread: whoever uses the lane finds that the other side has gone."""
        with self._ending:
            try:
                with socket.socket(fileno=os.dup(self._spare)) as same:
                    same.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended by itself
                pass

    def close(self) -> None:
        """Close; the runner takes this as the end of its conductor and ends all that it started."""
        if self._spare < 0:
            return
        if self.on_close is not None:
            self.on_close()
        self._connection.close()
        with self._ending:
            os.close(self._spare)
            self._spare = -1


def open_lane(plain: socket.socket, context: ssl.SSLContext, key: bytes) -> ssl.SSLSocket:
    """The runner's end of a connection to the conductor, once that has taken it. Waits.

    Raises OSError when the conductor does not take it, or does not answer (TimeoutError).
    """
    plain.settimeout(OPENS_S)
    connection = plain
    try:
        connection = secured = context.wrap_socket(plain)
        secured.sendall(key)
        if secured.recv(1) != TAKEN:
            raise ConnectionError("it has forgotten us meanwhile")
    except BaseException:
        connection.close()
        raise
    return secured


def prepare(plain: socket.socket) -> None:
    """Let small messages go at once, and notice whoever has gone without a word."""
    plain.setblocking(False)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
