"""How far is one session with a host? Feeds its shell, hears what that says, and minds how long it takes."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Sequence
from time import monotonic

from cantle.allocations.fleet.source import JOINED, REFUSED
from cantle.allocations.hosts import script
from cantle.allocations.hosts.wording import End, Phase

_KEPT = 8192
"""So many bytes of what it says last are kept."""
_PHASES: tuple[Phase, ...] = ("connecting", "setting up", "joining", "joined", "refused", "leaving")
_ONCE_MORE_S = 1.0
_LEAVE_S = 5.0


class Session:
    """A process that leads to a host's shell: given its input, it runs until its runner ends. Raises OSError.

    Each of the `parts` is written when the one before has asked for it; then the input stays open. `patience_s` bounds
    connecting, setting up and joining.
    """

    def __init__(
        self,
        words: Sequence[str],
        parts: Sequence[Sequence[bytes]],
        patience_s: tuple[float, float, float],
        selector: selectors.BaseSelector,
    ) -> None:
        self._selector = selector
        self._patience_s = (*patience_s, math.inf, math.inf, _LEAVE_S)
        self._parts = deque(parts)
        self._pieces: deque[memoryview] = deque()
        self._said = bytearray()
        self._line = bytearray()
        self._markers: list[tuple[str, str]] = []
        self._step = -1
        self._too_late = False
        self._ended_at = 0.0
        self.phase: Phase = "connecting"
        self._since = monotonic()
        # A group of its own: Ctrl-C in the terminal is for the conductor.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._in, self._out, self._err = (
            pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        self._open = {self._in, self._out, self._err}
        self._writing = False
        os.set_blocking(self._in, False)
        for fd in (self._out, self._err):
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ, self)
        self._next_part()

    def serve(self, fd: int) -> None:
        """The descriptor is ready."""
        if fd not in self._open:
            return
        try:
            if fd == self._in:
                self._write()
            elif data := os.read(fd, 65536):
                self._hear(fd, data)
            else:
                self._let_go(fd)
        except BlockingIOError:
            pass
        except OSError:  # whoever read our words has gone; why, his last words or his status tell
            self._let_go(fd)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be expected of it before it is heard: its runner has joined."""
        return self.phase == "joined" and {self._out, self._err} <= self._open

    def is_over(self, now: float) -> bool:
        """Whether the process has ended and its last words are heard; ends it when it takes too long."""
        if self._process.poll() is None:
            left = self._patience_s[_PHASES.index(self.phase)] - (now - self._since)
            if left <= 0:
                self._too_late = True
                self.kill()
                self._process.wait()
                return True
            return False
        if {self._out, self._err} & self._open and not self._ended_at:
            self._ended_at = now
        # Somebody else may hold its pipes (a proxy, a command of the set-up that stays): his words are not waited for long.
        return not {self._out, self._err} & self._open or now - self._ended_at > _ONCE_MORE_S

    def end(self) -> End:
        """How it ended."""
        said = self._said.decode(errors="replace")
        status = None if self._too_late else self._process.returncode
        patience_s = self._patience_s[_PHASES.index(self.phase)]
        return End(self.phase, status, said, self._markers, self._step, patience_s)

    def hang_up(self) -> None:
        """Close its input: a runner ends, and soon the process."""
        self._enter("leaving")
        self._let_go(self._in)
        if self._process.stdin:
            self._process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait for it to end; kill it when it has not."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the process here; what runs on the host ends by its life line."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        """Let go of all descriptors."""
        for fd in list(self._open):
            self._let_go(fd)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _write(self) -> None:
        while self._pieces:
            written = os.write(self._in, self._pieces[0][: 1 << 16])
            self._pieces[0] = self._pieces[0][written:]
            if not self._pieces[0]:
                self._pieces.popleft()
        self._selector.unregister(self._in)  # it stays open: the life line
        self._writing = False

    def _next_part(self) -> None:
        if self._parts and self._in in self._open:
            self._pieces += [memoryview(piece) for piece in self._parts.popleft() if piece]
            if not self._writing:
                self._writing = True
                self._selector.register(self._in, selectors.EVENT_WRITE, self)

    def _hear(self, fd: int, data: bytes) -> None:
        if fd == self._err:
            self._said += data
            del self._said[:-_KEPT]
            return
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = bytearray(rest[-_KEPT:])
        for line in lines:
            self._mark(line.decode(errors="replace").strip())

    def _mark(self, line: str) -> None:
        if line in (JOINED, REFUSED):
            self._enter("joined" if line == JOINED else "refused")
            return
        if not line.startswith(script.MARK):
            return
        word, _, rest = line.removeprefix(script.MARK).partition(" ")
        if word == script.NEXT:
            if self.phase == "connecting":
                self._enter("setting up")
            self._next_part()
        elif word == script.STEP:
            self._step = int(rest) if rest.isdigit() else -1
        elif word == script.READY:
            self._step = -1
            self._enter("joining")
        else:
            self._markers.append((word, rest))

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since = monotonic()

    def _let_go(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            if fd != self._in or self._writing:
                self._selector.unregister(fd)
