"""Who holds a lock, and does that process still live?

The lock's file says in one line of JSON who holds it. On the same running kernel a process can be looked up; of one on
another machine there is only its last sign of life.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

ALIVE_S = 60.0
"""A conductor that is out of sight and has given no sign of life for so long counts as gone."""

_WIDTH = 512


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A conductor that holds the lock, by its own word.

    `since` and `heartbeat` are seconds since the epoch, `start` is the process's start in clock ticks since its machine's
    boot (so that a reused process number is noticed), `boot` names that boot, `space` the process number's name space.
    """

    host: str
    pid: int
    since: float
    heartbeat: float
    start: int = 0
    boot: str = ""
    space: str = ""
    run: str = ""

    def __str__(self) -> str:
        same_day = time.localtime(self.since)[:3] == time.localtime()[:3]
        since = time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", time.localtime(self.since))
        return f"host {self.host}, pid {self.pid}, since {since}"

    @property
    def silent_s(self) -> float:
        """Seconds since its last sign of life; 0 if its clock is ahead of ours."""
        return max(0.0, time.time() - self.heartbeat)

    @property
    def shares_our_kernel(self) -> bool:
        """Whether it runs, or ran, on this machine since its last boot: there a lock of the kernel tells the truth."""
        boot = _boot()
        return self.boot == boot if boot and self.boot else self.host == _host()

    @property
    def in_our_sight(self) -> bool:
        """Whether its process number means something to us (it does not from inside another container)."""
        return self.shares_our_kernel and self.space == _space()

    @property
    def alive(self) -> bool:
        """Whether it lives, as far as one can tell without a lock."""
        if self.in_our_sight:
            return start_of(self.pid) == self.start
        return self.silent_s < ALIVE_S


def myself(run: str) -> Holder:
    """This process as a holder, from now on."""
    now, pid = time.time(), os.getpid()
    return Holder(_host(), pid, now, now, start_of(pid), _boot(), _space(), run)


def same(one: Holder, other: Holder) -> bool:
    """Whether both are one holding of the lock, at perhaps different times."""
    return (one.host, one.pid, one.start, one.since) == (other.host, other.pid, other.start, other.since)


def start_of(pid: int) -> int:
    """When a process of this machine started, in clock ticks since the boot; -1 if there is none, or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def put(fd: int, holder: Holder) -> None:
    """Write the holder's line, always equally long, so that a reader sees the old one or the new one. Raises OSError."""
    os.pwrite(fd, msgspec.json.encode(holder).ljust(_WIDTH - 1) + b"\n", 0)


def get(fd: int) -> Holder | None:
    """Who the file says holds the lock; None when it was given back in order, or what it says makes no sense."""
    try:
        return msgspec.json.decode(os.pread(fd, 4 * _WIDTH, 0), type=Holder)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def _host() -> str:
    return os.uname().nodename


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
