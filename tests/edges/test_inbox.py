"""Is whoever waits at the inbox woken by what is watched, put and ended, and by nothing else?"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from cantle.model.records import TimePassed
from cantle.runtime.inbox import SelectInbox


@pytest.fixture
def inbox() -> Iterator[SelectInbox]:
    inbox = SelectInbox()
    yield inbox
    inbox.close()


def test_a_watched_descriptor_is_heard_once_a_turn_however_often_it_was_watched(inbox: SelectInbox) -> None:
    read, write = os.pipe()
    heard: list[str] = []
    inbox.watch(read, lambda: heard.append("first"))
    inbox.watch(read, lambda: heard.append("then"))
    os.write(write, b"x")
    inbox.wait(30.0)
    assert heard == ["then"]
    inbox.unwatch(read)
    inbox.unwatch(read)
    inbox.wait(0.0)
    assert heard == ["then"]
    for fd in (read, write):
        os.close(fd)


def test_the_end_of_a_descriptor_is_heard_and_a_number_that_is_used_again_is_another_descriptor(
    inbox: SelectInbox,
) -> None:
    heard: list[bytes] = []
    for said in (b"", b"again"):
        read, write = os.pipe()
        inbox.watch(read, lambda read=read: heard.append(os.read(read, 9)))  # type: ignore[misc]
        os.write(write, said)
        os.close(write)
        inbox.wait(30.0)
        inbox.unwatch(read)
        os.close(read)
    assert heard == [b"", b"again"]


def test_an_event_from_another_thread_ends_the_wait(inbox: SelectInbox) -> None:
    event = TimePassed(1.0)
    putting = threading.Timer(0.05, inbox.put, [event])
    putting.start()
    found: list[object] = []
    while not found:
        found += inbox.wait(30.0)
    putting.join()
    assert found == [event]
