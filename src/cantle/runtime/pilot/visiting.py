"""How does one ask something of a pilot, and what if nobody is there?"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from cantle.errors import PilotGoneError, RequestError
from cantle.runtime.pilot.address import Address, published
from cantle.runtime.pilot.messages import (
    MOST_ANSWERED,
    MOST_ASKED,
    NONCE_BYTES,
    VERSION,
    Answer,
    Hello,
    Question,
    Refused,
    Sealed,
    Seated,
    Sit,
    T,
    framed,
    is_proven,
    proof,
    unframed,
)
from cantle.store.layout import Layout
from cantle.store.lock import Holder, holder

QUICK_S = 10.0
"""A pilot that is well answers sooner, except a submission, which may have much to read."""


def ask(pilot: Path, name: str, question: Question, timeout_s: float | None = QUICK_S) -> Answer:
    """What the pilot in that directory answers; `name` is what people call it.

    Raises RequestError when it is not up, cannot be reached from here or refuses, PilotGoneError when it went away or did not
    answer in time (then it is not known whether it heard).
    """
    answer, connection = _asked(pilot, name, question, timeout_s)
    connection.close()
    return answer


def stay(pilot: Path, name: str, question: Sit) -> tuple[Seated, socket.socket]:
    """Take a seat: the answer, and the connection, on which all that follows is said. Raises as `ask` does."""
    answer, connection = _asked(pilot, name, question, QUICK_S)
    if not isinstance(answer, Seated):
        connection.close()
        raise RequestError(f"the pilot {name} gave an answer that makes no sense here: {answer}")
    connection.settimeout(None)
    return answer, connection


def _asked(pilot: Path, name: str, question: Question, timeout_s: float | None) -> tuple[Answer, socket.socket]:
    address = _address(pilot, name)
    try:
        connection = _connect(address)
    except OSError as error:
        raise RequestError(
            f"the pilot {name} cannot be reached: {error.strerror or error}. Is it up? cantle up {name}"
        ) from error
    try:
        connection.settimeout(timeout_s)
        answer = _talk(connection, address, question)
    except (OSError, ValueError) as error:
        connection.close()
        reason = "it did not answer in time" if isinstance(error, TimeoutError) else f"it went away ({error})"
        raise PilotGoneError(f"the pilot {name} was asked, but {reason}; look with: cantle jobs {name}") from error
    except BaseException:
        connection.close()
        raise
    if isinstance(answer, Refused):
        connection.close()
        raise RequestError(answer.why)
    return answer, connection


def is_elsewhere(there: Holder) -> bool:
    """Whether the pilot is on another host, where its door cannot be reached from here."""
    return there.host not in (os.uname().nodename, "?")


def _address(pilot: Path, name: str) -> Address:
    layout = Layout(pilot)
    there = holder(layout.lock) if layout.lock.exists() else None
    if there is None:
        if not layout.exists():
            raise RequestError(f"there is no pilot {name}; begin one with: cantle up {name}")
        raise RequestError(f"the pilot {name} is not up; go on with it: cantle up {name}")
    address = published(layout)
    if is_elsewhere(there):
        host = there.host
        raise RequestError(
            f"the pilot {name} is on host {host} (pid {there.pid}); ask it from there, not from {os.uname().nodename}: "
            f"`ssh {host}`, or in its job of Slurm `srun --jobid=JOB --overlap --nodelist={host} cantle ...`"
        )
    if address is None or address.pid != there.pid:
        raise RequestError(f"the pilot {name} (pid {there.pid}) is just coming up or going down; try again in a moment")
    return address


def _connect(address: Address) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX if address.kind == "unix" else socket.AF_INET)
    connection.settimeout(QUICK_S)
    try:
        connection.connect(address.where if address.kind == "unix" else ("127.0.0.1", int(address.where)))
    except BaseException:
        connection.close()
        raise
    return connection


def _talk(connection: socket.socket, address: Address, question: Question) -> Answer:
    hello = _hear(connection, Hello, MOST_ASKED)
    if hello.version != VERSION:
        raise RequestError(
            f"the pilot speaks version {hello.version}, and this Cantle version {VERSION}: use the one that it was begun with"
        )
    nonce = os.urandom(NONCE_BYTES)
    text = msgspec.msgpack.encode(question)
    seal = proof(address.secret, b"visitor", hello.nonce, nonce, text)
    connection.sendall(framed(Sealed(nonce, text, seal)))
    answer = _hear(connection, Sealed, MOST_ANSWERED)
    if answer.nonce != nonce or not is_proven(answer, address.secret, b"door", hello.nonce):
        raise ValueError("somebody else answered")
    return msgspec.msgpack.decode(answer.text, type=Answer)


def _hear(connection: socket.socket, kind: type[T], most: int) -> T:
    """One message. Raises OSError or ValueError when none comes."""
    heard = bytearray()
    wanted = 4
    while len(heard) < wanted:
        data = connection.recv(wanted - len(heard))
        if not data:
            raise ConnectionError("the connection was closed")
        heard += data
        if len(heard) == 4:
            wanted = 4 + int.from_bytes(heard, "big")
            if wanted > 4 + most:
                raise ValueError("the answer is too long")
    message = unframed(heard, kind, most)
    if message is None:
        raise ValueError("the message is not whole")
    return message
