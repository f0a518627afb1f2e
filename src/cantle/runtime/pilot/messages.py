"""What can be said at a pilot's door, and how does each side prove that it knows the secret?

A connection carries one question and one answer. The door opens with a `Hello`, the visitor sends what it asks, the door
what it answers; both are sealed: with a code (HMAC-SHA-256) over the secret, both sides' nonces and the text. So the secret
itself never travels, a recorded conversation is worth nothing, and who took over the address of a dead pilot cannot
answer. Each message is one frame: its length in four bytes, and MessagePack.
"""

from __future__ import annotations

import hmac
from typing import TypeAlias, TypeVar

import msgspec

VERSION = 2
NONCE_BYTES = 16
MOST_ASKED = 1 << 22
"""No question is longer, in bytes."""
MOST_ANSWERED = 1 << 24


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The door's first words."""

    version: int
    nonce: bytes


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A text (a question or an answer, encoded) with the proof that it comes from one who knows the secret."""

    nonce: bytes
    text: bytes
    proof: bytes


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Take in the study whose submission lies in this directory (absolute)."""

    directory: str


class Jobs(msgspec.Struct, frozen=True, tag=True):
    """Tell of all studies."""


class Sit(msgspec.Struct, frozen=True, tag=True):
    """Let a program stay that hands in calls as it goes: see `sitting_messages.py`.

    `directory` (absolute, not there yet or empty) becomes its study's. `env` is what its calls begin with.
    """

    name: str
    directory: str
    env: dict[bytes, bytes] = {}
    argv: tuple[str, ...] = ()


class Down(msgspec.Struct, frozen=True, tag=True):
    """Take in no more studies and end when all are over; `now`: end what runs, so that the studies can go on another day."""

    now: bool = False


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One study of a pilot. `since` in seconds since the epoch; of tasks, `running` counts what is launched as well."""

    job: str
    state: str
    directory: str
    done: int = 0
    failed: int = 0
    running: int = 0
    tasks: int = 0
    priority: float = 0.0
    weight: float = 1.0
    since: float = 0.0


class Taken(msgspec.Struct, frozen=True, tag=True):
    """The study is in."""

    job: str


class Told(msgspec.Struct, frozen=True, tag=True):
    """All studies, in the order in which they came."""

    jobs: list[Job]
    draining: bool = False


class Going(msgspec.Struct, frozen=True, tag=True):
    """The pilot will end; so many studies are not over yet."""

    unfinished: int


class Seated(msgspec.Struct, frozen=True, tag=True):
    """The program may stay. `job` is what its study is called, `cantle` the version of the pilot."""

    job: str
    cantle: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """That cannot be done."""

    why: str


Written: TypeAlias = Submit | Jobs | Down
"""One question, one answer: may also come by letter, from another host."""
Question: TypeAlias = Written | Sit
Answer: TypeAlias = Taken | Told | Going | Seated | Refused

T = TypeVar("T")


def framed(message: object) -> bytes:
    """One message as a frame."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


def unframed(data: bytes | bytearray, kind: type[T], most: int) -> T | None:
    """The message of a whole frame, None while it is not whole.

    Raises ValueError when it is longer than `most`, is followed by something, or is no such message.
    """
    if len(data) < 4:
        return None
    length = int.from_bytes(data[:4], "big")
    if length > most or len(data) > 4 + length:
        raise ValueError("a message is too long")
    return msgspec.msgpack.decode(data[4:], type=kind) if len(data) == 4 + length else None


def proof(secret: bytes, side: bytes, door_nonce: bytes, visitor_nonce: bytes, text: bytes) -> bytes:
    """The code that only one who knows the secret can make for this text in this conversation, on this side of it."""
    parts = (side, door_nonce, visitor_nonce, text)
    return hmac.digest(secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


def is_proven(sealed: Sealed, secret: bytes, side: bytes, door_nonce: bytes) -> bool:
    """Whether the seal fits; takes as long for any that does not."""
    return hmac.compare_digest(sealed.proof, proof(secret, side, door_nonce, sealed.nonce, sealed.text))
