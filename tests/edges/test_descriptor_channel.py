"""How does a large message go over a pair of descriptors whose other end takes it in small pieces?"""

from __future__ import annotations

import os

import pytest

from cantle.runner import channel
from cantle.runner.channel import DescriptorChannel


def test_what_is_left_of_a_large_message_is_not_copied_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    ends = DescriptorChannel(reading, writing)
    data = os.urandom(1 << 20)
    taken: list[bytes] = []
    handed: list[int] = []

    def write(fd: int, piece: bytes | memoryview) -> int:
        if fd != writing:
            return real(fd, piece)
        handed.append(len(piece) if isinstance(piece, bytes) else 0)  # a view costs nothing
        taken.append(bytes(piece[:1000]))
        return len(taken[-1])

    real = os.write
    monkeypatch.setattr(channel.os, "write", write)
    ends.send(data)
    monkeypatch.undo()
    assert b"".join(taken) == data
    assert sum(handed) == len(data), "the message itself, once"
    ends.close()


def test_what_the_other_end_does_not_take_waits_and_goes_out_in_order() -> None:
    reading, writing = os.pipe()
    ends = DescriptorChannel(reading, writing)
    data = os.urandom(1 << 20)
    ends.send(data)
    ends.send(b"the end")
    assert 0 < ends.backlog < len(data) + 7
    heard = bytearray()
    while ends.backlog or len(heard) < len(data) + 7:
        heard += ends.receive()
        ends.send(b"")
    assert heard == data + b"the end"
    ends.close()
