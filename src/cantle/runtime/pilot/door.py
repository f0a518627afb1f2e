"""Who may ask something of a pilot, and how is it heard while the loop turns?

The door is a socket that only its owner can reach: in a folder closed to others, or, where the path is too long or the
file system knows no sockets, on the loopback interface. Whoever comes has to prove that it knows the secret; on a socket
in a folder the kernel is asked as well whose process it is. Nothing here waits: a visitor that is slow, silent or
talks nonsense is sent away when its time is up, and costs nobody else anything.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Literal

import msgspec

from cantle.errors import MachineError
from cantle.model.seams import Inbox
from cantle.runtime.pilot.address import LONGEST_SOCKET_PATH, Address, make_folder, new_secret, publish
from cantle.runtime.pilot.messages import (
    MOST_ASKED,
    NONCE_BYTES,
    VERSION,
    Answer,
    Hello,
    Question,
    Sealed,
    framed,
    is_proven,
    proof,
    unframed,
)
from cantle.store.layout import Layout

PATIENCE_S = 5.0
"""So long a visitor may take to ask, and to hear the answer."""
MOST_VISITORS = 64
_AGAIN_S = 1.0


class Visitor:
    """One connection: what it has said so far, and what it is still to be told."""

    __slots__ = ("_door", "_heard", "_unsent", "_visitor_nonce", "asked", "deadline", "nonce", "socket")

    def __init__(self, door: Door, connection: socket.socket) -> None:
        self._door = door
        self.socket = connection
        self.nonce = os.urandom(NONCE_BYTES)
        self.deadline: float | None = monotonic() + PATIENCE_S
        self.asked = False
        self._heard = bytearray()
        self._visitor_nonce = b""
        self._unsent = framed(Hello(VERSION, self.nonce))

    def listen(self) -> None:
        """Take in what it says. Once it has asked, all that can still come is its end."""
        try:
            data = self.socket.recv(MOST_ASKED)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self.asked:
            self._door.dismiss(self)
            return
        self._heard += data
        try:
            sealed = unframed(self._heard, Sealed, MOST_ASKED)
            if sealed is None:
                return
            if not is_proven(sealed, self._door.secret, b"visitor", self.nonce):
                raise ValueError("it does not know the secret")
            question = msgspec.msgpack.decode(sealed.text, type=Question)
        except (ValueError, RecursionError):  # whatever it was: who is not one of us is not told why
            self._door.dismiss(self)
            return
        self._visitor_nonce = sealed.nonce
        self.asked = True
        self.deadline = None
        self._door.hear(question, self)

    def answer(self, answer: Answer) -> None:
        """Answer what it asked; then it has to go. Without effect when it has gone already."""
        text = msgspec.msgpack.encode(answer)
        seal = proof(self._door.secret, b"door", self.nonce, self._visitor_nonce, text)
        self._unsent += framed(Sealed(self._visitor_nonce, text, seal))
        self.deadline = monotonic() + PATIENCE_S
        self.push()

    def stay(self, answer: Answer) -> bytes:
        """Answer, and let go of the connection without closing it: what of the answer could not be sent yet."""
        text = msgspec.msgpack.encode(answer)
        seal = proof(self._door.secret, b"door", self.nonce, self._visitor_nonce, text)
        unsent = self._unsent + framed(Sealed(self._visitor_nonce, text, seal))
        self._unsent = b""
        self._door.let_go(self)
        return unsent

    def push(self) -> None:
        """Send what it takes; when all is sent that it is to be told, there is only its end to come."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._door.dismiss(self)


class Door:
    """`hear` is called, in the loop's thread, with each question and the visitor to be answered, now or later."""

    def __init__(self, layout: Layout, inbox: Inbox, hear: Callable[[Question, Visitor], None]) -> None:
        self.hear = hear
        self.secret = new_secret()
        self._inbox = inbox
        self._visitors: dict[int, Visitor] = {}
        self._shut_until = 0.0
        folder = make_folder(layout)
        self._socket, kind, where = _open(folder)
        self._folder = folder
        self._inbox.watch(self._socket.fileno(), self._admit)
        publish(layout, Address(kind, where, self.secret, os.uname().nodename, os.getpid(), VERSION))

    def tend(self) -> None:
        """Send away those whose time is up, and try again what did not go before. Call it now and then."""
        now = monotonic()
        for visitor in list(self._visitors.values()):
            if visitor.deadline is not None and now > visitor.deadline:
                self.dismiss(visitor)
            else:
                visitor.push()
        if self._shut_until and now > self._shut_until:
            self._shut_until = 0.0
            self._inbox.watch(self._socket.fileno(), self._admit)

    def dismiss(self, visitor: Visitor) -> None:
        """The conversation is over."""
        fd = visitor.socket.fileno()
        if self._visitors.pop(fd, None) is not None:
            self._inbox.unwatch(fd)
            visitor.socket.close()

    def let_go(self, visitor: Visitor) -> None:
        """The connection is somebody else's from now on."""
        fd = visitor.socket.fileno()
        if self._visitors.pop(fd, None) is not None:
            self._inbox.unwatch(fd)

    def close(self) -> None:
        """Nobody is heard any more."""
        for visitor in list(self._visitors.values()):
            self.dismiss(visitor)
        self._inbox.unwatch(self._socket.fileno())
        self._socket.close()
        for left in ("address", "socket"):
            (self._folder / left).unlink(missing_ok=True)

    def _admit(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return
        except OSError:  # no descriptor is left: whoever waits outside would wake us over and over
            self._inbox.unwatch(self._socket.fileno())
            self._shut_until = monotonic() + _AGAIN_S
            return
        if len(self._visitors) >= MOST_VISITORS or not _is_ours(connection):
            connection.close()
            return
        connection.setblocking(False)
        visitor = Visitor(self, connection)
        self._visitors[connection.fileno()] = visitor
        self._inbox.watch(connection.fileno(), visitor.listen)
        visitor.push()


def _open(folder: Path) -> tuple[socket.socket, Literal["unix", "tcp"], str]:
    """A socket that listens, and how to reach it."""
    path = str(folder / "socket")
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(path)
            (folder / "socket").chmod(0o600)
            return _listen(listening), "unix", path
        except OSError:  # a file system without sockets
            listening.close()
    try:
        listening = socket.socket(socket.AF_INET)
        listening.bind(("127.0.0.1", 0))
        return _listen(listening), "tcp", str(listening.getsockname()[1])
    except OSError as error:
        raise MachineError(f"a pilot cannot be reached here: {error.strerror or error}") from error


def _listen(listening: socket.socket) -> socket.socket:
    listening.setblocking(False)
    listening.listen(MOST_VISITORS)
    return listening


def _is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end, as far as the kernel tells."""
    if connection.family != socket.AF_UNIX:
        return True
    try:
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return False
    return bool(user == os.geteuid())
