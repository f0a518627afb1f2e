"""How does the machine under us serve as nodes? Each node's runner is a forked child of the conductor.

A fork costs a millisecond where a fresh interpreter costs twenty, but the child inherits what the conductor has in memory:
call `prepare` before anything large is read. The child closes every descriptor but its channel's, so that it holds nobody's
pipe open and no file of ours. Fork before starting threads: the child has none of them, and imports its own modules.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from cantle.allocations.machine import look
from cantle.errors import MachineError, RequestError
from cantle.model.records import NodesAwaited, NodesJoined
from cantle.model.resources import Node, count
from cantle.model.seams import Inbox
from cantle.runner import processes
from cantle.runner.channel import DescriptorChannel

MOST_REVIVALS = 5
"""So often a dead runner is replaced. A task that kills its runners is stopped after three."""
_LEAVE_S = 8.0
"""How long a runner may take to end its tasks and leave."""


class LocalChannel(DescriptorChannel):
    """The conductor's end of a pipe pair to a child. Closing it waits until the runner, and all below it, has ended."""

    __slots__ = ("_open", "_pid")

    def __init__(self, read_fd: int, write_fd: int, pid: int) -> None:
        super().__init__(read_fd, write_fd)
        self._pid = pid
        self._open = True

    @property
    def pid(self) -> int:
        """The runner's process."""
        return self._pid

    def close(self) -> None:
        """Close, wait for the runner to end, and end what it may have left behind."""
        if not self._open:
            return
        self._open = False
        super().close()
        status = _wait_for(self._pid, _LEAVE_S)
        if status is None:
            os.kill(self._pid, signal.SIGKILL)
            status = os.waitpid(self._pid, 0)[1]
        if status != 0:
            _end_orphans(self._pid)


class LocalAllocation:
    """This machine, as one node or as the nodes given.

    `cores`, `gpus` and `memory_mib` replace what is found; more cores than there are make logical ones, without binding.
    `nodes` replaces everything. `physical` counts one core for all its hardware threads. `named` are further
    countable things, sorted. `notes` says, after `open`,
    what is not as the machine has it.
    """

    def __init__(
        self,
        cores: int | None = None,
        gpus: int | None = None,
        memory_mib: int | None = None,
        nodes: Sequence[Node] | None = None,
        physical: bool = False,
        named: tuple[tuple[str, int], ...] = (),
    ) -> None:
        for what, number, least in (("cores", cores, 1), ("gpus", gpus, 0), ("memory", memory_mib, 1)):
            if number is not None and number < least:
                raise RequestError(f"{what}: {number} cannot be; at least {least} is needed")
        self._cores = cores
        self._gpus = gpus
        self._memory_mib = memory_mib
        self._nodes = nodes
        self._physical = physical
        self._named = named
        self._ready: list[LocalChannel] = []
        self._open: list[LocalChannel] = []
        self._inbox: Inbox | None = None
        self._revivals = 0
        self.notes: list[str] = []

    def prepare(self, errand: Callable[[], None] | None = None) -> None:
        """Fork a runner now, while this process is small and has no threads; the first `connect` takes it.

        `errand` is something for the child to do first, on a core of its own.
        """
        if not self._ready and not self._open:
            self._ready.append(_fork_runner(errand))

    def open(self, inbox: Inbox) -> None:
        """Begin: all nodes are there at once."""
        self._inbox = inbox
        processes.become_subreaper()  # should a runner be killed, its tasks become our children and can be ended
        nodes = list(self._nodes) if self._nodes is not None else [self._this_machine()]
        inbox.put(NodesAwaited(inbox.now(), len(nodes)))
        inbox.put(NodesJoined(inbox.now(), nodes))
        inbox.put(NodesAwaited(inbox.now(), 0))

    def connect(self, node: Node) -> LocalChannel:
        """Start a runner for this node. Raises MachineError when the machine refuses another process."""
        try:
            channel = self._ready.pop() if self._ready else _fork_runner()
        except OSError as error:
            raise MachineError(f"no runner could be started for {node.name}: {error.strerror or error}") from error
        self._open.append(channel)
        return channel

    def lost(self, node: Node) -> None:
        """The machine is well, only a runner is gone: bring its node back, if that does not go on and on."""
        if self._inbox is not None and self._revivals < MOST_REVIVALS:
            self._revivals += 1
            self._inbox.put(NodesAwaited(self._inbox.now(), 1))
            self._inbox.put(NodesJoined(self._inbox.now(), [node]))

    def close(self) -> None:
        """Close what is open; runners end with their channels."""
        for channel in (*self._ready, *self._open):
            channel.close()
        self._ready.clear()
        self._open.clear()

    def _this_machine(self) -> Node:
        found = look("", os.environ, os.sched_getaffinity(0), self._physical)
        self.notes += found.notes
        cores, core_ids = found.cores, found.core_ids
        if self._cores is not None:
            cores, core_ids = self._cores, found.core_ids[: self._cores]
            if cores > found.cores:
                core_ids = ()
                self.notes.append(
                    f"{count(cores, 'core')} declared where {found.cores} can be used: tasks are not bound to cores"
                )
        gpu_ids = found.gpu_ids
        if self._gpus is not None:
            gpu_ids = found.gpu_ids[: self._gpus]
            if self._gpus > len(found.gpu_ids):
                gpu_ids = tuple(map(str, range(self._gpus)))
                self.notes.append(f"{count(self._gpus, 'GPU')} declared where {len(found.gpu_ids)} can be seen")
        name = os.uname().nodename
        return Node(
            name=name,
            cores=cores,
            gpus=len(gpu_ids),
            memory_mib=self._memory_mib or found.memory_mib,
            named=self._named,
            machine=name,
            core_ids=core_ids,
            gpu_ids=gpu_ids,
        )


def _fork_runner(errand: Callable[[], None] | None = None) -> LocalChannel:
    down_read, down_write = os.pipe()
    _widen(down_write)
    try:
        up_read, up_write = os.pipe()
    except OSError:
        os.close(down_read)
        os.close(down_write)
        raise
    try:
        pid = os.fork()
    except OSError:
        for fd in (down_read, down_write, up_read, up_write):
            os.close(fd)
        raise
    if pid == 0:
        _be_a_runner(down_read, up_write, errand)
    os.close(down_read)
    os.close(up_write)
    return LocalChannel(up_read, down_write, pid)


def _widen(pipe: int) -> None:
    """Let a pipe hold a megabyte: a burst of launches then rarely has to wait in the channel's own buffer."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
    except OSError:  # the user's pipes hold enough already
        pass


def _be_a_runner(read_fd: int, write_fd: int, errand: Callable[[], None] | None) -> None:
    """The child's whole life. Never returns, runs no clean-up of the conductor's and never writes its buffers."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if errand is not None:
            errand()
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            if fd > 2 and fd not in (read_fd, write_fd):
                try:
                    os.close(fd)
                except OSError:  # the listing's own
                    pass
        import gc

        gc.freeze()  # what we inherited stays shared with the conductor
        gc.set_threshold(50_000, 20, 20)
        from cantle.runner.main import serve

        serve(DescriptorChannel(read_fd, write_fd))
        status = 0
    finally:
        os._exit(status)


def _wait_for(pid: int, seconds: float) -> int | None:
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
