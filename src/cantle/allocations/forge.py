"""Where do runners come from once the conductor has grown? From a forge: a small child that forks them when it is told to.

To fork a conductor with a large study in its memory costs milliseconds, and the loop stands still meanwhile. The forge was
forked while the conductor was small, has loaded what a runner needs, and does it beside us: a request is one message that
carries the runner's ends of its pipes. The runner is forked by a child of the forge that leaves at once; so the conductor,
which inherits orphans, becomes its parent, as if it had forked the runner itself.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.

from __future__ import annotations

import os
import signal
import socket
import struct
from typing import NoReturn

from cantle.allocations.awaiting import can_be_read
from cantle.allocations.forking import (
    LocalChannel,
    be_a_runner,
    close_all_but,
    forget_signals,
    pipe_pairs,
    wait_for,
)

_ANSWER = struct.Struct("=qq")
"""The number of a request, and the runner's process: 0 when none could be forked."""
_PATIENCE_S = 10.0


class Forge:
    """The conductor's hand on the forge. Raises OSError when it cannot be made.

    The process must inherit orphans (`become_subreaper`) before the first runner is asked for.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self._pid == 0:
            _be_the_forge(theirs)
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._asked = 0
        self._answers: dict[int, int] = {}

    def runner(self) -> LocalChannel:
        """Ask for a runner; it comes about while we go on. Raises OSError when the forge cannot be asked."""
        ours, theirs = pipe_pairs()
        number = self._asked
        self._asked += 1
        try:
            self._hear()
            socket.send_fds(self._socket, [number.to_bytes(8, "little")], theirs)
        except OSError:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return _ForgedChannel(*ours, self, number)

    def pid_of(self, number: int) -> int:
        """The process of a runner that was asked for; 0 when there is none. Waits until the forge has answered."""
        while number not in self._answers:
            if not can_be_read(self._socket.fileno(), _PATIENCE_S) or not self._hear():
                break
        return self._answers.pop(number, 0)

    def close(self) -> None:
        """Let the forge go. Runners that it has forked are not concerned."""
        self._hear()
        self._socket.close()
        if wait_for(self._pid, _PATIENCE_S) is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _hear(self) -> bool:
        """Take in all answers that have come; False when no more can come."""
        try:
            while answer := self._socket.recv(_ANSWER.size):
                number, pid = _ANSWER.unpack(answer)
                self._answers[number] = pid
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


class _ForgedChannel(LocalChannel):
    """A channel to a runner whose process number is known when the forge has told it."""

    __slots__ = ("_forge", "_number")

    def __init__(self, read_fd: int, write_fd: int, forge: Forge, number: int) -> None:
        super().__init__(read_fd, write_fd, -1)
        self._forge = forge
        self._number = number

    @property
    def pid(self) -> int:
        """The runner's process; 0 when there never was one."""
        if self._pid < 0:
            self._pid = self._forge.pid_of(self._number)
        return self._pid


def _be_the_forge(requests: socket.socket) -> NoReturn:
    """The forge's whole life: it ends when its conductor does."""
    try:
        forget_signals()
        os.setsid()  # Ctrl-C in the terminal is for the conductor
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        close_all_but((requests.fileno(),))
        import gc

        import cantle.runner.main  # noqa: F401 - loaded once, for all runners

        gc.freeze()
        while True:
            message, fds, _, _ = socket.recv_fds(requests, 8, 2)
            if not message:
                break
            for fd in fds:
                os.set_inheritable(fd, False)  # a task that held them would hide its runner's death
            pid = _fork_a_runner(requests, fds)
            for fd in fds:
                os.close(fd)
            requests.send(_ANSWER.pack(int.from_bytes(message, "little"), pid))
    finally:
        os._exit(0)


def _fork_a_runner(requests: socket.socket, fds: list[int]) -> int:
    """Fork a runner that is nobody's child here. Its process, 0 when it cannot be."""
    told, tell = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        return 0
    if between == 0:
        try:
            pid = os.fork()
            if pid == 0:
                requests.close()
                be_a_runner(fds[0], fds[1])
            os.write(tell, b"%d" % pid)
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(between, 0)
    pid = int(os.read(told, 20) or b"0")
    os.close(told)
    return pid
