"""The line between a pilot and a program that stays: pieces of frames, nonsense, and one side that does not read."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot import parting, sitting
from cantle.runtime.pilot.parting import Parting
from cantle.runtime.pilot.sitting import Line
from cantle.runtime.pilot.sitting_messages import MOST_SAID, CancelTasks, Fetched, ForgetTasks, Leave, Note, Up


def framed(*messages: Up) -> bytes:
    body = msgspec.msgpack.encode(messages)
    return len(body).to_bytes(4, "big") + body


class Pair:
    """A line of the pilot's, and the program's end of it."""

    def __init__(self) -> None:
        self.inbox = SelectInbox()
        ours, self.program = socket.socketpair()
        self.news = 0
        self.line = Line(self.inbox, ours, b"hello", self.has_news)

    def has_news(self) -> None:
        self.news += 1

    def turn(self) -> None:
        self.inbox.wait(0.0)

    def close(self) -> None:
        self.line.close()
        self.program.close()
        self.inbox.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_what_could_not_be_sent_before_goes_first(pair: Pair) -> None:
    pair.line.say([Note("more")])
    heard = pair.program.recv(1000)
    assert heard[:5] == b"hello"
    assert msgspec.msgpack.decode(heard[9:]) == [["Note", "more"]]


def test_frames_are_understood_in_whatever_pieces_they_come(pair: Pair) -> None:
    data = framed(ForgetTasks([1, 2]), CancelTasks()) + framed(Leave(True))
    for byte in data:
        pair.program.sendall(bytes([byte]))
        pair.turn()
    assert list(pair.line.heard) == [ForgetTasks([1, 2]), CancelTasks(), Leave(True)]
    assert pair.news == 2
    assert not pair.line.over


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\0\0\1\xc1", "cannot be understood"),
        (framed()[:3] + b"\5" + msgspec.msgpack.encode([[]]) + b"1234", "cannot be understood"),
        ((100_010).to_bytes(4, "big") + b"\x91\x93\xa5Leave\xc2" + b"\x91" * 100_000 + b"\x90", "recursion"),
        ((MOST_SAID + 1).to_bytes(4, "big"), "is longer than"),
    ],
)
def test_nonsense_ends_the_line_and_says_why(pair: Pair, data: bytes, why: str) -> None:
    pair.program.sendall(data)
    pair.turn()
    assert pair.line.over
    assert why in pair.line.problem
    last = pair.program.recv(1000)
    assert last[:5] == b"hello"
    assert msgspec.msgpack.decode(last[9:]) == [["Dismissed", pair.line.problem]]
    assert pair.program.recv(1000) == b""


def test_who_is_sent_away_hears_all_that_was_said_and_nothing_that_it_says_counts(pair: Pair) -> None:
    large = b"x" * (4 << 20)
    pair.line.say([Fetched(0, large)])
    pair.line.dismiss("no such call")
    assert pair.line.over
    pair.program.sendall(framed(Leave()))
    pair.program.settimeout(60)
    heard = bytearray()
    while data := pair.program.recv(1 << 20):
        heard += data
        pair.turn()
    assert msgspec.msgpack.decode(heard[5 + 4 + int.from_bytes(heard[5:9], "big") + 4 :]) == [
        ["Dismissed", "no such call"]
    ]
    assert not pair.line.heard
    news = pair.news
    pair.program.close()
    pair.turn()
    pair.turn()
    assert pair.news > news, "its connection is closed when it has hung up"
    assert pair.line.problem == "no such call"


def test_what_was_heard_before_the_end_still_counts(pair: Pair) -> None:
    pair.program.sendall(framed(Leave()))
    pair.turn()
    pair.program.close()
    pair.turn()
    assert pair.line.over
    assert not pair.line.problem
    assert list(pair.line.heard) == [Leave()]


def test_a_program_that_does_not_read_is_not_read_either_until_it_does(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitting, "_MOST_UNSENT", 1 << 20)
    large = b"x" * (1 << 20)
    for task in range(3):
        pair.line.say([Fetched(task, large)])
    pair.program.sendall(framed(Leave()))
    pair.turn()
    assert not pair.line.heard
    pair.program.settimeout(60)
    read = 0
    while read < 5 + 3 * len(large):
        read += len(pair.program.recv(1 << 20))
        pair.turn()
    pair.turn()
    assert list(pair.line.heard) == [Leave()]


def test_what_is_said_on_a_line_that_is_over_is_lost_without_harm(pair: Pair) -> None:
    pair.line.close()
    pair.line.say([Note("nobody hears")])
    assert pair.line.over


def test_who_was_sent_away_and_does_not_hang_up_is_hung_up_on_after_a_while(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(parting, "monotonic", lambda: now)
    leaving = Parting()
    pair.line.dismiss("no such call")
    leaving.add(pair.line)
    now += parting.LINGERS_S - 1.0
    leaving.step()
    assert (len(leaving), pair.line.lingers) == (1, True)
    now += 2.0
    leaving.step()
    assert (len(leaving), pair.line.lingers) == (0, False)
    while pair.program.recv(1000):
        pass
    with pytest.raises(BrokenPipeError):
        pair.program.sendall(b"x")


def test_who_hangs_up_by_himself_is_not_kept_and_of_many_that_do_not_the_first_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parting, "MOST", 2)
    leaving = Parting()
    pairs = [Pair() for _ in range(4)]
    pairs[0].program.close()
    pairs[0].turn()
    for each in pairs:
        each.line.dismiss("no such call")
        leaving.add(each.line)
    assert [each.line.lingers for each in pairs] == [False, False, True, True]
    leaving.close()
    assert not any(each.line.lingers for each in pairs)
    for each in pairs:
        each.close()
