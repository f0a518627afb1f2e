"""A runner that does not take what is sent to it costs nothing while it does not, and gets the rest as soon as it does."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cantle.allocations.fleet.certificates import make_identities
from cantle.allocations.fleet.lane import Lane
from cantle.allocations.fleet.trust import context_of
from cantle.engines.process import ProcessEngine
from cantle.model.resources import Node
from cantle.runner.channel import DescriptorChannel
from cantle.runner.messages import Define
from cantle.runtime.inbox import SelectInbox

LARGE = 4 << 20
PATIENCE_S = 60.0


class CountingChannel(DescriptorChannel):
    """Counts how often it is asked to send."""

    sends = 0

    def send(self, data: bytes) -> None:
        type(self).sends += 1
        super().send(data)


class Full:
    """An engine with a node whose runner has not taken all of a large message yet."""

    def __init__(self, folder: Path) -> None:
        CountingChannel.sends = 0
        self.inbox = SelectInbox()
        self.engine = ProcessEngine(self.inbox, str(folder))
        ours, self.theirs = socket.socketpair()
        fd = ours.detach()
        self.channel = CountingChannel(fd, fd)
        self.engine.add_node(0, Node("n", 1), self.channel)
        self.engine.tell(0, Define("f", bytes(LARGE)))
        self.engine.flush()
        assert self.channel.backlog

    def read(self, most: int) -> None:
        """Take so much, and wait for it."""
        self.theirs.settimeout(PATIENCE_S)
        while most > 0:
            most -= len(self.theirs.recv(min(most, 1 << 16)))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Full]:
    found = Full(tmp_path)
    yield found
    found.theirs.close()
    found.engine.close()
    found.inbox.close()


def test_while_nobody_takes_anything_nothing_is_tried(full: Full) -> None:
    before = CountingChannel.sends
    for _ in range(20):
        full.inbox.wait(0.0)
        full.engine.flush()
    assert CountingChannel.sends == before


def test_once_somebody_takes_more_all_of_it_goes_although_nothing_else_happens(full: Full) -> None:
    reader = threading.Thread(target=full.read, args=(LARGE,))
    reader.start()
    stop = time.monotonic() + PATIENCE_S
    while full.channel.backlog and time.monotonic() < stop:
        full.inbox.wait(1.0)
    reader.join()
    assert not full.channel.backlog
    full.inbox.wait(0.0)
    before = CountingChannel.sends
    full.inbox.wait(0.0)
    assert CountingChannel.sends == before, "it is not waited for any more"


def test_what_was_gathered_since_does_not_go_before_it_is_written_down(full: Full) -> None:
    full.engine.tell(0, Define("g", b"unsettled"))
    over = threading.Event()
    chunks: list[bytes] = []

    def read() -> None:
        full.theirs.settimeout(0.05)
        while not over.is_set():
            try:
                chunks.append(full.theirs.recv(1 << 16))
            except TimeoutError:
                pass

    reader = threading.Thread(target=read)
    reader.start()
    stop = time.monotonic() + PATIENCE_S
    while full.channel.backlog and time.monotonic() < stop:
        full.inbox.wait(1.0)
    time.sleep(0.2)
    assert b"unsettled" not in b"".join(chunks)
    full.engine.flush()
    while b"unsettled" not in b"".join(chunks[-2:]):
        assert time.monotonic() < stop
        time.sleep(0.01)
    over.set()
    reader.join()


def test_a_runner_that_goes_with_its_channel_full_is_lost_once(full: Full) -> None:
    full.theirs.close()
    stop = time.monotonic() + PATIENCE_S
    events = full.inbox.wait(0.1)
    while not events and time.monotonic() < stop:
        events = full.inbox.wait(0.1)
    assert [type(event).__name__ for event in events] == ["NodeLost"]
    assert full.inbox.wait(0.0) == []


@contextmanager
def lane_and_other_end() -> Iterator[tuple[Lane, ssl.SSLSocket]]:
    ours, theirs = make_identities("run")
    here, there = socket.socketpair()
    lanes: list[Lane] = []

    def serve() -> None:
        lanes.append(Lane(context_of(ours, ssl.Purpose.CLIENT_AUTH).wrap_socket(here, server_side=True)))

    server = threading.Thread(target=serve)
    server.start()
    other = context_of(theirs).wrap_socket(there)
    server.join()
    (lane,) = lanes
    yield lane, other
    lane.close()
    other.close()


def test_a_lane_sends_a_part_at_a_time_so_that_others_have_their_turn() -> None:
    taken = 0
    done = threading.Event()

    def take(other: ssl.SSLSocket) -> None:
        nonlocal taken
        while taken < 8 * LARGE:
            taken += len(other.recv(1 << 16))
        done.set()

    with lane_and_other_end() as (lane, other):
        threading.Thread(target=take, args=(other,), daemon=True).start()
        lane.send(os.urandom(16) * (8 * LARGE // 16))
        assert lane.backlog > 7 * LARGE
        stop = time.monotonic() + PATIENCE_S
        while not done.is_set() and time.monotonic() < stop:
            lane.send(b"")
        assert done.is_set() and lane.backlog == 0


def test_what_a_lane_keeps_comes_whole_and_in_order_and_large_messages_are_not_copied() -> None:
    sizes = [5, 3 << 18, 1, 1 << 18, (1 << 18) - 1, 70_000, 0, 100 << 20, 9, 5 << 20]
    messages = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    found = bytearray()

    def take(other: ssl.SSLSocket) -> None:
        while len(found) < sum(sizes):
            found.extend(other.recv(1 << 16))

    with lane_and_other_end() as (lane, other):
        tracemalloc.start()
        for message in messages:
            lane.send(message)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 8 << 20
        backlog = lane.backlog
        assert backlog <= sum(sizes) and backlog > 100 << 20
        reader = threading.Thread(target=take, args=(other,), daemon=True)
        reader.start()
        stop = time.monotonic() + PATIENCE_S
        while lane.backlog and time.monotonic() < stop:
            lane.send(b"")
            assert lane.backlog <= backlog
            backlog = lane.backlog
        reader.join(PATIENCE_S)
    assert found == b"".join(messages)
