"""How does a pilot talk with a program that stays: what comes in, what goes out, and what if one of them is slow?

Only bytes and messages are handled here; what they mean stands in `sittings.py`. Nothing waits: what a slow program does not
take is kept up to a bound, beyond which nothing more of its own is read.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from cantle.model.seams import Inbox
from cantle.runtime.pilot.sitting_messages import MOST_SAID, Dismissed, Down, Up

_READ_BYTES = 1 << 20
_MOST_UNSENT = 1 << 26
"""So many bytes may wait for a program that does not read; as long as more do, nothing is read of it either."""


class Line:
    """One program's connection. `heard` are the messages that came and were not taken yet; `over` says that it has ended."""

    def __init__(self, inbox: Inbox, connection: socket.socket, unsent: bytes, on_news: Callable[[], None]) -> None:
        self.heard: deque[Up] = deque()
        self.over = False
        self.problem = ""
        """Why it was ended by us, "" when the program did."""
        self._inbox = inbox
        self._socket = connection
        self._on_news = on_news
        self._decoder = msgspec.msgpack.Decoder(list[Up])
        self._encoder = msgspec.msgpack.Encoder()
        self._incoming = bytearray()
        self._unsent: deque[memoryview] = deque([memoryview(unsent)] if unsent else [])
        self._waiting = sum(map(len, self._unsent))
        self._room: select.epoll | None = None
        """Readable when the connection takes more; there while it did not."""
        self._deaf = False
        self._dismissed = False
        """It is told why, and nothing that it says counts; the connection lasts until it has hung up."""
        connection.setblocking(False)
        inbox.watch(connection.fileno(), self._listen)
        self.push()

    def say(self, messages: Sequence[Down]) -> None:
        """One frame with these."""
        if self.over:
            return
        body = self._encoder.encode(messages)
        data = memoryview(len(body).to_bytes(4, "big") + body)
        self._unsent.append(data)
        self._waiting += len(data)
        if len(self._unsent) == 1:
            self.push()

    def dismiss(self, why: str) -> None:
        """Tell the program what it did wrong, and hear nothing more of it."""
        if not self.over:
            self.say([Dismissed(why)])
        if not self.over:
            self.over = self._dismissed = True
            self.problem = why
            self._incoming.clear()
            if not self._unsent:
                self._hang_up()
            self._on_news()

    @property
    def lingers(self) -> bool:
        """Whether it was dismissed and has not hung up."""
        return self._dismissed

    def push(self) -> None:
        """Send what the program takes."""
        try:
            while self._unsent:
                first = self._unsent[0]
                sent = self._socket.send(first)
                self._waiting -= sent
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._await_room()
        except OSError:
            self._end(self.problem)
            return
        if not self._unsent and self._room is not None:
            self._drop_room()
        if not self._unsent and self._dismissed:
            self._hang_up()
        if self._deaf and self._waiting <= _MOST_UNSENT:
            self._deaf = False
            self._inbox.watch(self._socket.fileno(), self._listen)

    def close(self) -> None:
        """No more is said or heard."""
        if not self.over or self._dismissed:
            self._end(self.problem)
            self.heard.clear()

    def _listen(self) -> None:
        if self._waiting > _MOST_UNSENT:
            self._deaf = True
            self._inbox.unwatch(self._socket.fileno())
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(self.problem)
            return
        if self._dismissed:
            return
        incoming = self._incoming
        incoming += data
        at = 0
        try:
            while len(incoming) - at >= 4:
                length = int.from_bytes(incoming[at : at + 4], "big")
                if length > MOST_SAID:
                    raise ValueError(f"a frame of {length:,} bytes is longer than the {MOST_SAID:,} that are allowed")
                if len(incoming) - at < 4 + length:
                    break
                self.heard += self._decoder.decode(bytes(memoryview(incoming)[at + 4 : at + 4 + length]))
                at += 4 + length
        except (ValueError, msgspec.MsgspecError, RecursionError) as problem:
            self.dismiss(f"what it said cannot be understood: {problem}")
            return
        if at:
            del incoming[:at]
            self._on_news()

    def _await_room(self) -> None:
        if self._room is None:
            self._room = select.epoll()
            self._room.register(self._socket.fileno(), select.EPOLLOUT)
            self._inbox.watch(self._room.fileno(), self.push)

    def _drop_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            self._inbox.unwatch(room.fileno())
            room.close()

    def _hang_up(self) -> None:
        """All was sent: what the program still says is read, so that the last word is not lost with it."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._end(self.problem)

    def _end(self, problem: str) -> None:
        self.over = True
        self._dismissed = False
        self.problem = problem
        self._drop_room()
        self._inbox.unwatch(self._socket.fileno())
        self._socket.close()
        self._unsent.clear()
        self._waiting = 0
        self._on_news()
