"""How does a forked child become a runner, and how is it brought to its end?

A fork costs a millisecond where a fresh interpreter costs twenty, but the child inherits what its parent has in memory:
fork while the parent is small. The child closes every descriptor but its channel's, so that it holds nobody's pipe open and
no file of ours. Fork before starting threads: the child has none of them, and imports its own modules.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from cantle.runner import (
    clock,  # noqa: F401 - read before the fork: then what is forked has the same one
    processes,
)
from cantle.runner.channel import DescriptorChannel

_LEAVE_S = 8.0
"""How long a runner may take to end its tasks and leave."""

_MANY_FILES = 1 << 16
_files_before: list[tuple[int, int]] = []
"""How many files this process might have open before it was allowed more; what it forks is as it was."""


class LocalChannel(DescriptorChannel):
    """The conductor's end of a pipe pair to a child. Closing it waits until the runner, and all below it, has ended."""

    __slots__ = ("_open", "_pid")

    def __init__(self, read_fd: int, write_fd: int, pid: int) -> None:
        super().__init__(read_fd, write_fd)
        self._pid = pid
        self._open = True

    @property
    def pid(self) -> int:
        """The runner's process; 0 when there never was one."""
        return self._pid

    def hang_up(self) -> None:
        """Let the runner see the end of its conductor: it ends its tasks and goes, and then `receive` tells the end."""
        if self._open:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.write_fd, inheritable=False)
            os.close(null)

    def close(self) -> None:
        """Close, wait for the runner to end, and end what it may have left behind."""
        if not self._open:
            return
        self._open = False
        super().close()
        pid = self.pid
        if not pid:
            return
        status = wait_for(pid, _LEAVE_S)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
        if status != 0:
            _end_orphans(pid)


def fork_runner(errand: Callable[[], None] | None = None, life: Callable[[int], None] | None = None) -> LocalChannel:
    """Fork a runner, which does the errand first. Raises OSError when the machine refuses.

    With another `life` than to serve over the channel, that is called with its end of it: of a socket pair, which keeps
    messages apart and takes descriptors along.
    """
    ours, theirs = pipe_pairs() if life is None else _socket_pair()
    try:
        pid = os.fork()
    except OSError:
        for fd in {*ours, *theirs}:
            os.close(fd)
        raise
    if pid == 0:
        be_a_runner(*theirs, errand, life)
    for fd in set(theirs):
        os.close(fd)
    return LocalChannel(*ours, pid)


def _socket_pair() -> tuple[tuple[int, int], tuple[int, int]]:
    import socket

    ours, theirs = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    return (ours, ours), (theirs, theirs)


def pipe_pairs() -> tuple[tuple[int, int], tuple[int, int]]:
    """Pipes between a conductor and a runner: (read, write) of the conductor's ends, then of the runner's."""
    down_read, down_write = os.pipe()
    _widen(down_write)
    try:
        up_read, up_write = os.pipe()
    except OSError:
        os.close(down_read)
        os.close(down_write)
        raise
    return (up_read, down_write), (down_read, up_write)


def _widen(pipe: int) -> None:
    """Let a pipe hold a megabyte: a burst of launches then rarely has to wait in the channel's own buffer."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
    except OSError:  # the user's pipes hold enough already
        pass


def be_a_runner(
    read_fd: int,
    write_fd: int,
    errand: Callable[[], None] | None = None,
    life: Callable[[int], None] | None = None,
) -> NoReturn:
    """The child's whole life. Runs no clean-up of its parent's and never writes its buffers."""
    status = 1
    try:
        forget_signals()
        _allow_files_as_before()
        if errand is not None:
            errand()
        close_all_but((read_fd, write_fd))
        import gc

        gc.freeze()  # what we inherited stays shared with the parent
        gc.set_threshold(50_000, 20, 20)
        if life is not None:
            life(read_fd)
        else:
            from cantle.runner.main import serve

            serve(DescriptorChannel(read_fd, write_fd))
        status = 0
    finally:
        os._exit(status)


def allow_many_files() -> None:
    """Many open files, as far as the machine lets us have them; the usual bound is for programs that cannot count beyond it.

    Runners that are forked later, and their tasks, have the bound that was there before.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, _MANY_FILES)
    if 0 <= soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # then it has to do
            return
        _files_before[:] = [(soft, hard)]


def _allow_files_as_before() -> None:
    if _files_before:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, _files_before.pop())


def forget_signals() -> None:
    """Let a forked child have no handler of its parent's, and hear all signals."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(keep: Collection[int]) -> None:
    """Close every descriptor but the first three and these."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:  # the listing's own
                pass


def wait_for(pid: int, seconds: float) -> int | None:
    """A child's wait status, None when it has not ended in time. One that somebody else waited for counts as killed."""
    stop = time.monotonic() + seconds
    pause = 0.0005
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return -1
        if ended:
            return status
        if time.monotonic() > stop:
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def _end_orphans(runner: int) -> None:
    """KILL, and wait for, what a dead runner's tasks left to us; told by the variable that every task was given."""
    mark = (b"%d" % runner,)
    stop = time.monotonic() + _LEAVE_S
    killed: set[int] = set()
    quiet = 0
    while quiet < 2 and time.monotonic() < stop:
        orphans = [
            pid
            for pid in processes.children(os.getpid())
            if pid not in killed and processes.variables(pid, b"CANTLE_RUNNER") == mark
        ]
        for orphan in orphans:
            for pid in (orphan, *processes.descendants(orphan)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        killed.update(orphans)
        for pid in list(killed):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    killed.discard(pid)
            except ChildProcessError:
                killed.discard(pid)
        quiet = 0 if orphans or killed else quiet + 1
        time.sleep(0.002)
