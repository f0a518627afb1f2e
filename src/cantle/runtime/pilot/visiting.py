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
    Written,
    framed,
    is_proven,
    proof,
    unframed,
)
from cantle.store.layout import Layout
from cantle.store.lock import Holder, holder

QUICK_S = 10.0
"""A pilot that is well answers sooner, except a submission, which may have much to read."""


def ask(pilot: Path, name: str, question: Written, timeout_s: float | None = QUICK_S) -> Answer:
    """What the pilot in that directory answers; `name` is what people call it. One on another host is asked by letter.

    Raises RequestError when it is not up, cannot be reached from here or refuses, MachineError when no letter can be written,
    PilotGoneError when it went away or did not answer in time (then it is not known whether it heard).
    """
    layout = Layout(pilot)
    there, address = _address(layout, name)
    if is_elsewhere(there):
        from cantle.runtime.pilot.letters import ask_by_letter

        if address.letters != VERSION:
            raise RequestError(_ask_it_there(name, there))
        return _granted(ask_by_letter(layout, name, there, address, question, timeout_s))
    answer, connection = _asked(address, name, question, timeout_s)
    connection.close()
    return answer


def stay(pilot: Path, name: str, question: Sit) -> tuple[Seated, socket.socket]:
    """Take a seat: the answer, and the connection, on which all that follows is said. Raises as `ask` does."""
    there, address = _address(Layout(pilot), name)
    if is_elsewhere(there):
        raise RequestError(_ask_it_there(name, there))
    answer, connection = _asked(address, name, question, QUICK_S)
    if not isinstance(answer, Seated):
        connection.close()
        raise RequestError(f"the pilot {name} gave an answer that makes no sense here: {answer}")
    connection.settimeout(None)
    return answer, connection


def _asked(address: Address, name: str, question: Question, timeout_s: float | None) -> tuple[Answer, socket.socket]:
    try:
        connection = _connect(address)
    except OSError as error:
        raise RequestError(
            f"the pilot {name} cannot be reached: {error.strerror or error}. Is it up? cantle up {name}"
        ) from error
    try:
        connection.settimeout(timeout_s)
        return _granted(_talk(connection, address, question)), connection
    except (OSError, ValueError) as error:
        connection.close()
        reason = "it did not answer in time" if isinstance(error, TimeoutError) else f"it went away ({error})"
        raise PilotGoneError(f"the pilot {name} was asked, but {reason}; look with: cantle jobs {name}") from error
    except BaseException:
        connection.close()
        raise


def _granted(answer: Answer) -> Answer:
    if isinstance(answer, Refused):
        raise RequestError(answer.why)
    return answer


def is_elsewhere(there: Holder) -> bool:
    """Whether the pilot is on another host, where its socket cannot be reached from here."""
    return there.host not in (os.uname().nodename, "?")


def _address(layout: Layout, name: str) -> tuple[Holder, Address]:
    """Who is up in that directory, and where its door is."""
    there = holder(layout.lock) if layout.lock.exists() else None
    if there is None:
        if not layout.exists():
            raise RequestError(f"there is no pilot {name}; begin one with: cantle up {name}")
        raise RequestError(f"the pilot {name} is not up; go on with it: cantle up {name}")
    address = published(layout)
    if address is None or address.pid != there.pid:
        raise RequestError(f"the pilot {name} ({there}) is just coming up or going down; try again in a moment")
    return there, address


def _ask_it_there(name: str, there: Holder) -> str:
    host = there.host
    return (
        f"the pilot {name} is on host {host} (pid {there.pid}); ask it from there, not from {os.uname().nodename}: "
        f"`ssh {host}`, or in its job of Slurm `srun --jobid=JOB --overlap --nodelist={host} COMMAND`"
    )


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
