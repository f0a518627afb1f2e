"""Does what a partition hosts serve yet? Looked at often, and then ever more rarely, until it does.

By its own word on stdout, or by whether somebody answers on a port. Nothing here waits: a connection that is not there in a
moment is asked for again at the next look.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import os
import select
import socket
import sys
import time

from msgspec.structs import replace

from .family import Attempt
from .messages import PYTHON, Key, Serve, Serving, Setup, Start

_FIRST_S = 0.02
_SLOWER = 1.2
_SLOWEST_S = 0.5
_CONNECT_MS = 20
_MOST_BYTES = 1 << 16
"""So much of what it has said is looked through at a time; a line is shorter than that."""


class _Probed:
    __slots__ = ("attempt", "due", "pause_s", "read", "serve")

    def __init__(self, attempt: Attempt, serve: Serve) -> None:
        self.attempt = attempt
        self.serve = serve
        self.pause_s = _FIRST_S
        self.due = time.monotonic() + (_FIRST_S if serve.says or serve.answers else 0.0)
        self.read = 0
        """So many bytes of its stdout need no second look."""


class Probes:
    """All that is to serve on this node and does not yet."""

    def __init__(self) -> None:
        self._probed: dict[Key, _Probed] = {}

    def add(self, attempt: Attempt, serve: Serve) -> None:
        """Look at this one from now on."""
        self._probed[attempt.key] = _Probed(attempt, serve)

    def over(self, key: Key) -> None:
        """It is gone, or told."""
        self._probed.pop(key, None)

    def next_due(self) -> float:
        """When to look again (monotonic); infinity when there is nobody to look at."""
        return min((probed.due for probed in self._probed.values()), default=float("inf"))

    def look(self, now: float) -> list[Serving]:
        """Which of them serve since the last look."""
        found = []
        for key, probed in list(self._probed.items()):
            if now < probed.due:
                continue
            text = self._serves(probed)
            if text is not None:
                found.append(Serving(key, text))
                del self._probed[key]
            else:
                probed.pause_s = min(probed.pause_s * _SLOWER, _SLOWEST_S)
                probed.due = now + probed.pause_s
        return found

    def _serves(self, probed: _Probed) -> str | None:
        serve = probed.serve
        if serve.says:
            return _line_after(serve.says, probed)
        if serve.answers:
            return "" if answers(serve.answers) else None
        return ""


def _line_after(says: str, probed: _Probed) -> str | None:
    """What follows in the first whole line that begins so; None when there is none yet."""
    try:
        fd = os.open(probed.attempt.output.out, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = os.pread(fd, _MOST_BYTES, probed.read)
    except OSError:
        return None
    finally:
        os.close(fd)
    whole = data.rpartition(b"\n")[0]
    for line in whole.split(b"\n"):
        text = line.decode("utf-8", "replace")
        if text.startswith(says):
            return text.removeprefix(says).strip()
    probed.read += len(whole) + 1 if whole else len(data) * (len(data) == _MOST_BYTES)
    return None


def answers(address: str) -> bool:
    """Whether somebody takes a connection there (host:port) within a moment."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    for family, kind, protocol, _, target in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setblocking(False)
            if probe.connect_ex(target) == 0:
                return True
            poll = select.poll()
            poll.register(probe, select.POLLOUT)
            if poll.poll(_CONNECT_MS) and probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                return True
    return False


def with_what_it_needs(serve: Serve, setup: Setup) -> Start:
    """What to start, once its private files are written. Raises OSError when they cannot be."""
    for path, text in serve.private.items():
        _write_private(os.path.join(setup.directory, path), text)
    start = serve.start
    command = start.command
    if command.argv[:1] != (PYTHON,):
        return start
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100
    before = os.fsdecode(setup.env.get(b"PYTHONPATH", b""))
    env = {**command.env, "PYTHONPATH": f"{before}:{package}" if before else package}
    return replace(start, command=replace(command, argv=(sys.executable, *command.argv[1:]), env=env))


def _write_private(path: str, text: str) -> None:
    """Write it whole, for nobody else to read. Several on one file system may write the same."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    beside = f"{path}.{os.getpid()}.new"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    os.rename(beside, path)  # noqa: PTH104
