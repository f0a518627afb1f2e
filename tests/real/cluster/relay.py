"""A bad line: frames between a node's cable and the switch come late, and some not at all.

    relay.py CABLE PLUG BRIDGE READY DELAY_MS LOSS_PERCENT SEED

Takes CABLE (the head's end of a veth pair) off BRIDGE and puts PLUG, a TAP device of its own, in its place. READY is made when
it carries. Delay and loss hold for each direction; the order of frames stays. Kernels without netem need this.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

_LARGEST = 65_536
_WAITING = 4_000  # frames in a direction; a real queue is not endless either
_EVERY_PROTOCOL = 0x0003
_SOL_PACKET, _IGNORE_OUTGOING = 263, 23
_TUNSETIFF, _TAP, _BARE_FRAMES = 0x400454CA, 0x0002, 0x1000


class Direction:
    """Frames on their way, the next to arrive first."""

    def __init__(self, read: Callable[[], bytes], write: Callable[[bytes], object]) -> None:
        self.read = read
        self._write = write
        self._under_way: deque[tuple[float, bytes]] = deque()

    def take(self, delay: float, lost: Callable[[], bool]) -> None:
        """All that has come."""
        due = time.monotonic() + delay
        while True:
            try:
                frame = self.read()
            except BlockingIOError:
                return
            except OSError:  # the node's end is gone, or down for a moment
                time.sleep(0.01)
                return
            if len(self._under_way) < _WAITING and not lost():
                self._under_way.append((due, frame))

    def give(self) -> float | None:
        """All that is due; returns seconds until the next is, None if there is none."""
        while self._under_way:
            wait = self._under_way[0][0] - time.monotonic()
            if wait > 0:
                return wait
            try:
                self._write(self._under_way.popleft()[1])
            except OSError:
                pass  # a full queue or a cable that is gone loses it, as real ones do
        return None


def main() -> None:
    cable, plug, bridge, ready = sys.argv[1:5]
    delay, loss = float(sys.argv[5]) / 1000, float(sys.argv[6]) / 100
    chance = random.Random(int(sys.argv[7]))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", plug.encode(), _TAP | _BARE_FRAMES))
    # Off the bridge the cable's end would answer for the head's addresses by itself.
    Path(f"/proc/sys/net/ipv4/conf/{cable}/arp_ignore").write_text("8")
    try:
        Path(f"/proc/sys/net/ipv6/conf/{plug}/disable_ipv6").write_text("1")
    except OSError:
        pass
    subprocess.run(["ip", "link", "set", cable, "nomaster"], check=True)
    subprocess.run(["ip", "link", "set", plug, "master", bridge, "up"], check=True)

    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
    wire.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    wire.bind((cable, _EVERY_PROTOCOL))
    wire.setblocking(False)
    Path(ready).touch()

    def lost() -> bool:
        return chance.random() < loss

    outwards = Direction(lambda: wire.recv(_LARGEST), lambda frame: os.write(tap, frame))
    inwards = Direction(lambda: os.read(tap, _LARGEST), wire.send)
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    poll.register(tap, select.POLLIN)
    while True:
        waits = [wait for wait in (outwards.give(), inwards.give()) if wait is not None]
        poll.poll(min(waits) * 1000 if waits else None)
        outwards.take(delay, lost)
        inwards.take(delay, lost)


if __name__ == "__main__":
    main()
