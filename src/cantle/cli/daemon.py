"""How does a command go on when its terminal has gone, and how does whoever began it learn that all is well?

The process forks twice, in a session of its own, with its output in a file. What it says through its pipe, "ready" or what
went wrong, the process that began it waits for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from cantle.errors import MachineError, RequestError

_READY = b"ready\n"
_ASKED_WRONGLY = b"\x15"
"""Before words about what the user has asked, and not about the machine."""
LAST_LINES = 5
"""So many of its last lines are told of a daemon that ended at once."""


class Herald:
    """The daemon's end: `ready` once, or the error with which it ends; and notes before that."""

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd

    def ready(self) -> None:
        """All is well: whoever began us may go."""
        self._say(_READY)

    def note(self, text: str) -> None:
        """Something that whoever began us should see, before we are ready."""
        print(text, file=sys.stderr, flush=True)
        if self._fd >= 0:
            try:
                os.write(self._fd, text.encode(errors="replace") + b"\n")
            except OSError:  # nobody waits any more
                pass

    def failed(self, why: str, asked_wrongly: bool = False) -> None:
        """Nothing came of it, by the fault of what was asked, or of the machine. Without effect after `ready`."""
        self._say((_ASKED_WRONGLY if asked_wrongly else b"") + why.encode(errors="replace"))

    def _say(self, what: bytes) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.write(fd, what)
                os.close(fd)
            except OSError:  # nobody waits any more
                pass


def go_on_without_terminal(log: Path, life: Callable[[Herald], int]) -> None:
    """Let a daemon live `life`, with its output in `log`, and return when it is ready.

    Raises RequestError or MachineError with its own words when it ended before. Never returns in the daemon itself.
    """
    reading, writing = os.pipe()
    before = log.stat().st_size if log.exists() else 0
    sys.stdout.flush()
    sys.stderr.flush()
    first = os.fork()
    if first == 0:
        os.close(reading)
        os.setsid()
        if os.fork():
            os._exit(0)
        _live(log, Herald(writing), life)
    os.close(writing)
    os.waitpid(first, 0)
    said = b""
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    if said == _READY or said.endswith(b"\n" + _READY):
        sys.stderr.write(said.removesuffix(_READY).decode(errors="replace"))
        sys.stderr.flush()
    elif _ASKED_WRONGLY in said:
        raise RequestError(said.replace(_ASKED_WRONGLY, b"").decode(errors="replace"))
    else:
        raise MachineError(said.decode(errors="replace") or _last_words(log, before))


def _last_words(log: Path, before: int) -> str:
    """What a daemon has said that ended and did not tell why."""
    try:
        lines = log.read_bytes()[before:].decode(errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line for line in lines if line.strip()][-LAST_LINES:]
    return "\n".join(["it ended at once; its last words:", *said]) if said else "it ended at once, and said nothing"


def _live(log: Path, herald: Herald, life: Callable[[Herald], int]) -> None:
    """The daemon's whole life."""
    code = 1
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(fd, target)
        os.close(null)
        os.close(out)
        code = life(herald)
    except BaseException as problem:  # noqa: BLE001 - whoever waits shall hear of it, whatever it is
        import traceback

        traceback.print_exc()
        herald.failed(f"{type(problem).__name__}: {problem}")
    finally:
        sys.stderr.flush()
        os._exit(code)
