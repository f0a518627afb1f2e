"""How do bytes travel between a conductor's engine and a runner on another machine? Over a connection of their own: a lane.

A message over Dask's streams costs some two hundred microseconds on each side, and must pass from thread to thread. A lane is
a TLS connection that the conductor's own loop reads and writes like the pipes of a local runner: its channel. Dask says who is
there and who has gone; a runner that it has let in opens its lane with the key that it was given for that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

KEY_BYTES = 16
TAKEN = b"\0"
"""What the conductor says first, to a runner whose key it knows."""
_RECEIVE = 1 << 18
"""About so many bytes are taken at once."""
_RECORD = 1 << 14
"""TLS hands out so many at most."""
_SEND = 1 << 16
_OPENS_S = 20.0


class Lane:
    """A channel over an encrypted connection whose handshake is over. Used by one thread at a time.

    `clock_ahead_s`: by how much the clock of the runner's machine is ahead of ours. `why_ended`: when the other side has gone,
    what is known of that. `on_close` is called once, before the connection is closed by us.
    """

    def __init__(self, connection: ssl.SSLSocket, clock_ahead_s: float = 0.0) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._backlog = bytearray()
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
        return len(self._backlog)

    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` has something."""
        return self.read_fd

    def send(self, data: bytes) -> None:
        """Send, or keep for later what does not fit now. Raises OSError when the other side has gone."""
        self._backlog += data
        while self._backlog:
            try:
                # What could not be sent must come again, from the same first byte and no shorter: so it all stays in one place.
                sent = self._connection.send(bytes(memoryview(self._backlog)[:_SEND]))
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            del self._backlog[:sent]

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


class Lanes:
    """Takes the connections of runners that were let in. `host` "" listens on all addresses.

    `take` is given the key that came over a connection, says `TAKEN` over it if it wants that, and whether it does; `refused`
    is told of strangers.
    """

    def __init__(
        self,
        host: str,
        context: ssl.SSLContext,
        take: Callable[[bytes, ssl.SSLSocket], bool],
        refused: Callable[[str], None],
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self._listener.setblocking(False)
        self._context = context
        self._take = take
        self._refused = refused
        self._opening: set[asyncio.Task[None]] = set()
        self.port: int = self._listener.getsockname()[1]

    async def accept(self) -> None:
        """Take them until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    plain, address = await loop.sock_accept(self._listener)
                except OSError:  # too many descriptors, or somebody was gone before he came
                    await asyncio.sleep(0.1)
                    continue
                opening = loop.create_task(self._open(plain, str(address[0])))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)
        finally:
            self._listener.close()
            for opening in list(self._opening):
                opening.cancel()

    async def _open(self, plain: socket.socket, who: str) -> None:
        """Who is it? Strangers, and those who take too long, are hung up on."""
        connection = plain
        try:
            async with asyncio.timeout(_OPENS_S):
                _prepare(plain)
                connection = secured = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                await _until_done(secured, secured.do_handshake)
                key = b""
                while len(key) < KEY_BYTES:
                    said = await _until_done(secured, lambda: secured.recv(KEY_BYTES - len(key)))  # noqa: B023
                    if not said:
                        raise ConnectionError("it hung up")
                    key += said
            if not self._take(key, secured):
                secured.close()
                self._refused(f"{who}: it has the certificate, but was not let in")
        except ssl.SSLError as error:
            connection.close()
            if not isinstance(error, ssl.SSLEOFError):
                self._refused(f"{who}: {error.reason or error}")
        except (OSError, TimeoutError, asyncio.CancelledError):
            connection.close()


async def open_lane(host: str, port: int, context: ssl.SSLContext, key: bytes) -> Lane:
    """The runner's end. Raises OSError when the conductor does not take it, or TimeoutError when it does not answer."""
    async with asyncio.timeout(_OPENS_S):
        loop = asyncio.get_running_loop()
        [(family, kind, protocol, _, address), *_] = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        plain = socket.socket(family, kind, protocol)
        connection = plain
        try:
            plain.setblocking(False)
            await loop.sock_connect(plain, address)
            _prepare(plain)
            connection = secured = context.wrap_socket(plain, do_handshake_on_connect=False)
            await _until_done(secured, secured.do_handshake)
            await _until_done(secured, lambda: secured.send(key))
            if await _until_done(secured, lambda: secured.recv(1)) != TAKEN:
                raise ConnectionError("it has forgotten us meanwhile")
        except BaseException:
            connection.close()
            raise
        return Lane(secured)


def _prepare(plain: socket.socket) -> None:
    plain.setblocking(False)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def _until_done(connection: ssl.SSLSocket, step: Callable[[], T]) -> T:
    """Do it, as soon as the connection can."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            add, remove = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            add, remove = loop.add_writer, loop.remove_writer
        ready = loop.create_future()
        add(connection.fileno(), _resolve, ready)
        try:
            await ready
        finally:
            remove(connection.fileno())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
