"""How does one process of a batch system's starter fare? It says things, its runners join one after another, and it ends."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Sequence
from time import monotonic

from cantle.allocations.fleet.source import JOINED

from .job import Start

_LINES = 12
"""So many of the last lines are kept for messages."""


class Starter:
    """One process of the system's starter. Raises OSError when it cannot be started."""

    def __init__(self, start: Start, env: dict[str, str]) -> None:
        self.start = start
        self.said: deque[str] = deque(maxlen=_LINES)
        self.waits = True
        self.told = False
        self.ended = False
        self.silent = False
        """It has closed its output, and may live on."""
        self.code = 0
        self.missing = len(start.hosts)
        self._rest = b""
        self.output, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.output, False)
        try:
            self._process = subprocess.Popen(
                start.words,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,  # Ctrl-C is the conductor's to heed
            )
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(theirs)
        self.end = os.pidfd_open(self._process.pid)
        self.begun = monotonic()

    def hear(self) -> bool:
        """Take in what it says. True once it has ended."""
        while True:
            try:
                data = os.read(self.output, 65536)
            except BlockingIOError:
                break
            if not data:
                self.silent = True
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._keep(lines)
        code = self._process.poll()
        if code is None:
            return False
        self._keep([self._rest])
        self.code, self.ended = code, True
        return True

    def forget(self) -> None:
        """Close what leads to it."""
        os.close(self.output)
        os.close(self.end)

    def signal(self, number: int) -> None:
        """Signal it and what it has started here, if it is still there."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, number)
            except OSError:
                pass

    def wait(self, seconds: float) -> None:
        """Wait for its end, so long at most."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def _keep(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            text = line.decode(errors="replace").strip()
            if JOINED in text:
                self.missing = max(0, self.missing - 1)
            elif text:
                self.said.append(text)
