"""How does the conductor take the connections of runners that it has let in, while hundreds come at once?"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from cantle.allocations.fleet.lane import KEY_BYTES, OPENS_S, prepare

T = TypeVar("T")


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
            async with asyncio.timeout(OPENS_S):
                prepare(plain)
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
