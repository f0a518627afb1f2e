"""How is a scaling function of the user's called so that nothing that it does can end the run, or hold it up?

In a process of its own, which is begun when it is asked first and lives as long as the run. When it dies, the next question
begins another one.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from threading import Lock
from typing import Any

import msgspec

from cantle.core.scaling.snapshot import Snapshot, Wish
from cantle.errors import PluginError
from cantle.runtime.scaling_inside import Answer

MOST_ANSWERED = 4 << 20
"""An answer is shorter, in bytes."""
_LOOK_S = 0.2
"""So often it is looked whether the process still lives while an answer is awaited: what it started may hold its pipe."""
_CLOSE_S = 5.0
"""So long the end of a run waits for somebody who still asks."""
_BEGIN = """\
import sys
name, parent, questions, answers, *sys.path = sys.argv[1:]
from cantle.runtime.scaling_inside import live
live(name, int(parent), int(questions), int(answers))
"""


class Died(PluginError):
    """The process in which the function ran has ended."""


class FunctionProcess:
    """Calls the function of this name, which can be imported. One question at a time, from one thread."""

    def __init__(self, name: str, function: Any) -> None:
        """`function` is only looked at, for where it stands."""
        self._name = name
        self.place = place_of(function)
        self._process: subprocess.Popen[bytes] | None = None
        self._fds = (-1, -1)
        self._beginning = Lock()
        self._asking = Lock()
        self._closed = False

    def ask(self, seen: Snapshot) -> Sequence[Wish]:
        """What it wishes. Raises PluginError with what it did wrong, Died when its process has ended."""
        with self._asking:
            return self._asked(seen)

    def end(self) -> None:
        """KILL the process, and what it has started that did not go away. From any thread; waits for nothing."""
        process = self._process
        if process is not None and process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass

    def close(self) -> None:
        """No more questions come: the process ends, and who waits for an answer gets none."""
        with self._beginning:
            self._closed = True
            self.end()
        if self._asking.acquire(timeout=_CLOSE_S):
            self._let_go()
            self._asking.release()

    def _asked(self, seen: Snapshot) -> Sequence[Wish]:
        process = self._begun()
        body = msgspec.msgpack.encode(seen)
        try:
            _write(self._fds[0], len(body).to_bytes(4, "big") + body)
            size = int.from_bytes(self._read(process, 4), "big")
            if size > MOST_ANSWERED:
                raise ValueError
            answer = msgspec.msgpack.decode(self._read(process, size), type=Answer)
        except (OSError, EOFError):
            raise Died(self._end_of(process)) from None
        except ValueError:  # a DecodeError is one
            self.end()
            raise Died(f"it wrote to a descriptor that is not its own{self.place}") from None
        if answer.problem:
            raise PluginError(answer.problem + (answer.where or self.place))
        return answer.wishes

    def _begun(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and process.poll() is None:
            return process
        self._let_go()
        questions, to_ask = os.pipe2(os.O_CLOEXEC)
        to_hear, answers = os.pipe2(os.O_CLOEXEC)
        words = [sys.executable, "-P", "-c", _BEGIN, self._name, str(os.getpid()), str(questions), str(answers)]
        try:
            with self._beginning:
                if self._closed:
                    raise Died("the run is over")
                self._process = process = subprocess.Popen(
                    [*words, *sys.path],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(questions, answers),
                    start_new_session=True,  # Ctrl-C is the conductor's to heed
                )
        except BaseException as problem:
            os.close(to_ask)
            os.close(to_hear)
            if isinstance(problem, OSError):
                raise Died(f"no process could be started for it: {problem.strerror or problem}") from None
            raise
        finally:
            os.close(questions)
            os.close(answers)
        self._fds = (to_ask, to_hear)
        return process

    def _let_go(self) -> None:
        """Of a process that has ended, or is about to."""
        if self._process is not None:
            self._process.wait()
        for fd in self._fds:
            if fd >= 0:
                os.close(fd)
        self._fds = (-1, -1)

    def _read(self, process: subprocess.Popen[bytes], size: int) -> bytes:
        """So many bytes. Raises EOFError when they do not come any more."""
        found = b""
        poll = select.poll()  # `select` takes no descriptor above 1023
        poll.register(self._fds[1], select.POLLIN)
        while len(found) < size:
            if not poll.poll(_LOOK_S * 1000):
                if process.poll() is not None:
                    raise EOFError
                continue
            data = os.read(self._fds[1], size - len(found))
            if not data:
                raise EOFError
            found += data
        return found

    def _end_of(self, process: subprocess.Popen[bytes]) -> str:
        """How it ended. What has closed its pipe and lives on is ended."""
        try:
            status = process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            self.end()
            process.wait()
            return f"it closed a descriptor that is not its own{self.place}"
        if status < 0:
            return f"its process was ended by {_signal(-status)}{self.place}"
        return f"it ended its process, with exit status {status}{self.place}"


def place_of(function: Any) -> str:
    """Where it stands, to be put behind a sentence; "" when nobody can tell."""
    from inspect import unwrap

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


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
