"""What did a conductor that is dead leave: runners that still end their tasks, results that nobody wrote down, processes?"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH108, PTH115, PTH208

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from cantle.engines.told import as_event
from cantle.engines.verdict import Result, joined
from cantle.errors import LockedError
from cantle.model.records import TaskEnded
from cantle.runner import processes
from cantle.runner.messages import RUN
from cantle.runner.spool import read_spool


def await_runners(home: str, timeout_s: float = 15.0) -> None:
    """Wait until no runner of an earlier conductor is left. `home` is the engine's folder, absolute.

    Raises LockedError when one still lives after the time, OSError when a lock file cannot be used.
    """
    import fcntl

    stop = time.monotonic() + timeout_s
    for name in _files(home, ".lock"):
        fd = os.open(name, os.O_RDWR)
        try:
            while True:
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, PermissionError):
                    if time.monotonic() > stop:
                        raise LockedError(
                            f"the runner of an earlier conductor still holds {name}: its tasks have not ended yet; "
                            "try again in a moment"
                        ) from None
                    time.sleep(0.02)
        finally:
            os.close(fd)


def end_strays(directory: str, timeout_s: float = 5.0) -> int:
    """KILL what is left of a run's processes on this machine, and wait until it is gone. Returns how many there were.

    There is something only when a runner was killed together with its conductor. For the holder of the run's lock.
    """
    mark = (os.fsencode(os.path.abspath(directory)),)  # noqa: PTH100
    return _end(lambda pid: processes.variables(pid, RUN) == mark, timeout_s)


def end_orphans(directory: str, timeout_s: float = 5.0) -> int:
    """KILL the tasks that dead runners of a run that goes on left here, and wait until they are gone. Returns how many.

    There is something only when a runner was killed together with the process that carries its bytes. Runners count by
    their numbers, so what lives in another namespace of numbers is left alone.
    """
    own = os.readlink("/proc/self/ns/pid")
    mark = os.fsencode(os.path.abspath(directory))  # noqa: PTH100

    def is_orphan(pid: int) -> bool:
        run, runner = processes.variables(pid, RUN, b"CANTLE_RUNNER") or (b"", b"")
        if run != mark or not runner.isdigit() or os.path.exists(f"/proc/{int(runner)}"):  # noqa: PTH110
            return False
        try:
            return os.readlink(f"/proc/{pid}/ns/pid") == own
        except OSError:
            return False

    return _end(is_orphan, timeout_s)


def _end(is_one: Callable[[int], bool], timeout_s: float) -> int:
    ours = {os.getpid(), *processes.ancestors()}
    found: set[int] = set()
    stop = time.monotonic() + timeout_s
    clean = 0
    while clean < 2 and time.monotonic() < stop:
        left = [
            pid for name in os.listdir("/proc") if name.isdigit() and (pid := int(name)) not in ours and is_one(pid)
        ]
        clean = 0 if left else clean + 1  # one that is just in `exec` cannot be told
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                found.add(pid)
            except OSError:  # it has gone, or is not ours to end
                ours.add(pid)
        time.sleep(0.02 if left else 0.002)
    return len(found)


def leftovers(home: str) -> list[TaskEnded]:
    """Results that an earlier conductor did not write down, oldest first. Call `await_runners` before."""
    spools = [read_spool(name) for name in _files(home, ".spool")]
    found = [as_event(ended) for spool in spools for ended in spool if len(ended.key) == 2 and ended.key[0] >= 0]
    parts = [
        Result(ended, node, ended.key[2]) for node, spool in enumerate(spools) for ended in spool if len(ended.key) > 2
    ]
    return sorted(found + joined(parts), key=lambda event: event.time)


def clear_leftovers(home: str) -> None:
    """The leftovers are in the journal now: remove their files."""
    for name in _files(home, ".spool"):
        os.unlink(name)


def _files(home: str, end: str) -> list[str]:
    try:
        return sorted(f"{home}/{name}" for name in os.listdir(home) if name.endswith(end))
    except FileNotFoundError:
        return []
