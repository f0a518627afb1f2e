"""Which processes belong together, and what do they use? Answered from /proc, with as few system calls as will do.

A runner is the *subreaper* of its tasks: whatever loses its parent below it becomes its own child, however often it forks
and whatever session it opens. So all that tasks ever started are the runner's descendants, and the kernel's list of its
children shows those that slipped away from their task.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH110, PTH208

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_ENVIRONMENT = 1 << 20
"""Bytes. Read at one go: after an `exec` there is no more of it to be read."""


def become_subreaper() -> bool:
    """Inherit orphans among my descendants from now on. False where the kernel refuses."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> bool:
    """Let the kernel KILL this process when the thread that started it ends. False where the kernel refuses."""
    from signal import SIGKILL

    return _prctl(_PR_SET_PDEATHSIG, int(SIGKILL))


def _prctl(option: int, value: int) -> bool:
    try:  # the extension alone loads in a third of the time of the whole of ctypes
        from _ctypes import call_function, dlopen, dlsym

        prctl = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program itself
        return bool(call_function(prctl, (option, value, 0, 0, 0)) == 0)
    except (ImportError, OSError):
        return False


def ancestors() -> list[int]:
    """The parents of this process, up to the first."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 1:
        found.append(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return found


SIGNAL_RECORD = 128
"""Bytes of one signal on a signal descriptor."""


def signal_descriptor(numbers: Collection[int]) -> int:
    """A descriptor on which these signals arrive instead of interrupting; -1 where that cannot be had."""
    import signal

    mask = sum(1 << (number - 1) for number in numbers).to_bytes(128, "little")
    try:
        from _ctypes import call_function, dlopen, dlsym

        address = dlsym(dlopen(None, 0), "signalfd")  # type: ignore[arg-type]
        fd = int(call_function(address, (-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)))
    except (ImportError, OSError):
        return -1
    if fd >= 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    return fd


def _find_current_core() -> Callable[[], int]:
    """libc's sched_getcpu, found once."""
    try:
        from _ctypes import call_function, dlopen, dlsym

        address = dlsym(dlopen(None, 0), "sched_getcpu")  # type: ignore[arg-type]
    except (ImportError, OSError):
        return lambda: -1
    return lambda: int(call_function(address, ()))


def current_core() -> int:
    """The number of the core on which this process runs right now, -1 where that cannot be told."""
    global _current_core
    if _current_core is None:
        _current_core = _find_current_core()
    return _current_core()


_current_core: Callable[[], int] | None = None


class Children:
    """The kernel's list of this process's children, kept open: one read tells them."""

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        pid = os.getpid()
        try:
            self._fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            self._fd = -1

    def count(self) -> int:
        """How many there are, dead ones that nobody waited for included."""
        return len(self.pids()) if self._fd < 0 else self._read().count(b" ")

    def pids(self) -> list[int]:
        """My children, dead ones that nobody waited for included."""
        if self._fd < 0:
            return _by_parent().get(os.getpid(), [])
        return [int(pid) for pid in self._read().split()]

    def close(self) -> None:
        """Close the list."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bytes:
        """Their numbers, a space after each."""
        data = os.pread(self._fd, 16384, 0)
        if len(data) > 16000:
            while more := os.pread(self._fd, 16384, len(data)):
                data += more
        return data


def children(pid: int) -> list[int]:
    """The children of any process; of one that is gone, none."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except FileNotFoundError:
        if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
            return _by_parent().get(pid, [])
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on, parents first."""
    found = children(pid)
    for child in found:  # grows while we walk it
        found += children(child)
    return found


class Identity(NamedTuple):
    """What the kernel says about a process. `started` is in clock ticks since boot: with the pid it is unique."""

    state: str
    parent: int
    group: int
    session: int
    started: int


def identity(pid: int) -> Identity | None:
    """Who this process is; None when it is gone."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    return Identity(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def environment(pid: int) -> dict[bytes, bytes] | None:
    """The environment that the process began with; empty if it has none, has gone or is another user's.

    None while it is in `exec`: then it has neither this nor a command line. It is that of one moment: who asks again may be
    told of the next program.
    """
    try:
        block = _read(f"/proc/{pid}/environ", _MOST_ENVIRONMENT)
        if not block:
            if not _read(f"/proc/{pid}/cmdline", 1):
                who = identity(pid)
                return {} if who is None or who.state in "ZX" else None
            block = _read(f"/proc/{pid}/environ", _MOST_ENVIRONMENT)  # it may have come out of `exec` between the two
    except OSError:
        return {}
    found: dict[bytes, bytes] = {}
    for each in block.split(b"\0"):
        name, there, value = each.partition(b"=")
        if there:
            found.setdefault(name, value)
    return found


def variables(pid: int, *names: bytes) -> tuple[bytes, ...] | None:
    """The values of these variables in the environment that the process began with; None unless all are there."""
    found = environment(pid) or {}
    return tuple(found[name] for name in names) if all(name in found for name in names) else None


def resident_mib(pids: list[int]) -> float:
    """Memory of these processes by the cheap count, in which shared pages count for each of them."""
    pages = 0
    for pid in pids:
        try:
            pages += int(_read(f"/proc/{pid}/statm").split()[1])
        except (OSError, IndexError):
            pass
    return pages * _PAGE / 2**20


def proportional_mib(pids: list[int]) -> float:
    """Memory of these processes by the dear count, in which pages shared by n processes count for 1/n."""
    kib = 0.0
    for pid in pids:
        try:
            text = _read(f"/proc/{pid}/smaps_rollup")
            kib += int(text.partition(b"\nPss:")[2].split(None, 1)[0])
        except (OSError, IndexError, ValueError):  # somebody else's process, an old kernel, or gone
            kib += resident_mib([pid]) * 1024
    return kib / 1024


def _read(path: str, most: int = 65536) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        data = os.read(fd, most)
        if len(data) == most or path.endswith("/environ"):
            while more := os.read(fd, 1 << 20):
                data += more
        return data
    finally:
        os.close(fd)


def _by_parent() -> dict[int, list[int]]:
    """The whole process table by parent, for kernels that list no children."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (who := identity(int(name))):
            table.setdefault(who.parent, []).append(int(name))
    return table
