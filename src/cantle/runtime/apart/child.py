"""How is a process begun in which somebody else's functions run, how is it spoken with, and how did it end?

Two pipes lead to it and from it, and frames go over them; what it prints goes where our own output goes. The kernel ends it
when the thread that began it ends, also one that never looks at its pipe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from inspect import unwrap
from math import inf
from threading import Lock
from time import monotonic
from typing import Any

from cantle.allocations.awaiting import can_be_read

MOST_ANSWERED = 4 << 20
"""A frame that it sends is shorter, in bytes."""
_LOOK_S = 0.2
"""So often it is looked whether it still lives while a frame is awaited: what it started may hold its pipe."""
_BEGIN = """\
import sys
inside, parent, questions, answers, said, *sys.path = sys.argv[1:]
from importlib import import_module
import_module(inside).live(int(parent), int(questions), int(answers), said)
"""


class Child:
    """A process that lives in the module `inside`, to which `said` is told. Raises OSError when none can be started.

    Only one thread at a time hears it.
    """

    def __init__(self, inside: str, said: str = "") -> None:
        questions, to_ask = os.pipe2(os.O_CLOEXEC)
        to_hear, answers = os.pipe2(os.O_CLOEXEC)
        words = [sys.executable, "-P", "-c", _BEGIN, inside, str(os.getpid()), str(questions), str(answers), said]
        try:
            self._process = subprocess.Popen(
                [*words, *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=(questions, answers),
                start_new_session=True,  # Ctrl-C is the conductor's to heed
            )
        except BaseException:
            os.close(to_ask)
            os.close(to_hear)
            raise
        finally:
            os.close(questions)
            os.close(answers)
        self._to_ask = to_ask
        self._to_hear = to_hear
        self._telling = Lock()

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet, as far as can be seen."""
        return self._process.poll() is None

    def tell(self, body: bytes) -> None:
        """Send it a frame. From any thread. Raises OSError when it hears nothing any more."""
        data = len(body).to_bytes(4, "big") + body
        with self._telling:
            while data:
                data = data[os.write(self._to_ask, data) :]

    def hear(self, within_s: float = inf) -> bytes:
        """The next frame.

        Raises TimeoutError when none has come by then, EOFError when none comes any more, ValueError for what is none, OSError.
        """
        until = monotonic() + within_s
        size = int.from_bytes(self._read(4, until), "big")
        if size > MOST_ANSWERED:
            raise ValueError("this is no frame")
        return self._read(size, until)

    def end(self, group: bool) -> None:
        """KILL it; with `group`, also what it has started that did not go away. From any thread; waits for nothing."""
        if self._process.returncode is None:
            try:
                (os.killpg if group else os.kill)(self._process.pid, signal.SIGKILL)
            except OSError:
                pass

    def say_no_more(self) -> None:
        """It is told nothing any more, and ends by itself if it listens. From any thread."""
        with self._telling:
            if self._to_ask >= 0:
                os.close(self._to_ask)
                self._to_ask = -1

    def let_go(self) -> None:
        """Of one that has ended, or is about to; waits for that."""
        self._process.wait()
        self.say_no_more()
        if self._to_hear >= 0:
            os.close(self._to_hear)
            self._to_hear = -1

    def how_it_ended(self, group: bool) -> str:
        """In words. What has closed its pipe and lives on is ended, with `group` as `end` does."""
        try:
            status = self._process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            self.end(group)
            self._process.wait()
            return "it closed a descriptor that is not its own"
        if status < 0:
            return f"its process was ended by {_signal(-status)}"
        return f"it ended its process, with exit status {status}"

    def _read(self, size: int, until: float) -> bytes:
        found = b""
        while len(found) < size:
            if not can_be_read(self._to_hear, _LOOK_S):
                if not self.lives:
                    raise EOFError
                if monotonic() > until:
                    raise TimeoutError
                continue
            data = os.read(self._to_hear, size - len(found))
            if not data:
                raise EOFError
            found += data
        return found


def place_of(function: Any) -> str:
    """Where it stands, to be put behind a sentence; "" when nobody can tell."""
    try:
        code = getattr(unwrap(function), "__code__", None) or getattr(type(function).__call__, "__code__", None)
        return "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"
    except Exception:  # noqa: BLE001 - it is somebody else's object
        return ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
