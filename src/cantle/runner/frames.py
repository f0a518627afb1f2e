"""How do messages become bytes on a channel, and bytes messages again?

A frame is four bytes of length (big endian) and a MessagePack array of messages. Senders encode each message when it is
made, so that one that cannot be encoded is found where it came from and spoils no frame.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

encode = msgspec.msgpack.Encoder().encode
"""One message as bytes. Raises UnicodeEncodeError for text that is no valid Unicode."""


def frame(messages: list[bytes]) -> bytes:
    """One frame of messages that are encoded already."""
    body = b"".join(messages)
    return (len(body) + 5).to_bytes(4, "big") + b"\xdd" + len(messages).to_bytes(4, "big") + body


class Frames(Generic[T]):
    """Takes bytes as they come and gives whole messages of one type."""

    __slots__ = ("_decode", "_rest")

    def __init__(self, kind: object) -> None:
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[T]:
        """The messages that are complete now. Raises msgspec.DecodeError on bytes that are no messages of the type."""
        try:
            return self._fed(data)
        except RecursionError as error:
            raise msgspec.DecodeError("a message is nested too deeply") from error

    def _fed(self, data: bytes) -> list[T]:
        if not self._rest and len(data) >= 4 and int.from_bytes(data[:4], "big") == len(data) - 4:
            return self._decode(data[4:])  # the usual case: one whole frame, nothing to keep
        self._rest += data
        found: list[T] = []
        at = 0
        while len(self._rest) - at >= 4:
            end = at + 4 + int.from_bytes(self._rest[at : at + 4], "big")
            if len(self._rest) < end:
                break
            found += self._decode(bytes(self._rest[at + 4 : end]))
            at = end
        if at:
            del self._rest[:at]
        return found
