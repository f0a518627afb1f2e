"""What does a function worker do? It reads calls from its socket, one at a time, calls, and tells what came of it.

A fresh interpreter, started by the runner in a session of its own, with stdout and stderr in the runner's packed files. Only
what every call needs is imported. It ends when the runner has gone, or sends SIGTERM, which unwinds the call under way.
"""

# Paths stay text: pathlib costs start-up time.
# ruff: noqa: PTH103, PTH108, PTH118

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from errno import ENOMEM
from types import CoroutineType
from typing import Any, NoReturn

from cantle.errors import said_by

from . import values, wire
from .room import has_room_for
from .standing import Standing
from .telling import not_made, tail_of, traceback_of

_pid = os.getpid()
_RECENT = 128
"""So many results of its own a worker remembers, for calls that follow in line and take them."""
_LONG_S = 0.001
"""The end of a call that took so long is told at once, whether or not that was asked for."""
_MASK_KIB = 64 << 10
"""By so much the runner may be larger before its size is taken for a mask: asking costs some microseconds a call."""


def _most_kib() -> int:
    """The most memory that this process had since the mark was set back, KiB; 0 when it cannot be told."""
    try:
        with open("/proc/self/status", "rb") as file:
            return int(file.read().partition(b"VmHWM:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return 0


class Ended(BaseException):
    """The runner wants this worker to end: unwinds the call, so that its clean-up is done."""


def main() -> None:
    """The worker's life. Arguments: the socket, the descriptor to poke, the folder for results, and the one to spare."""
    signal.signal(signal.SIGTERM, _end)
    _enable_fault_words()
    extra = os.environ.get("CANTLE_PYTHONPATH", "")
    sys.path += [path for path in extra.split(os.pathsep) if path and path not in sys.path]
    worker = Worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
    sys.argv = ["cantle"]
    try:
        worker.serve()
    except Ended:
        sys.exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _frame: object) -> None:
    if os.getpid() != _pid:  # forked by a call: that one has no clean-up of ours
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    signal.signal(number, signal.SIG_IGN)  # one is enough: clean-up is not to be interrupted
    raise Ended


def _enable_fault_words() -> None:
    """Let a segfault leave a traceback in the call's stderr."""
    import faulthandler

    faulthandler.enable()


class Worker:
    """Serves one socket, whose other end is the runner's."""

    def __init__(self, socket: int, poke: int, folder: str, spare: str) -> None:
        os.set_inheritable(socket, False)
        os.set_inheritable(poke, False)
        self._socket = socket
        self._poke = poke
        self._folder = folder
        self._spare = spare
        self._functions: dict[str, bytes | Callable[..., Any]] = {}
        self._recent: dict[int, tuple[int, bytes | str]] = {}
        self._cpu_s = 0.0
        self._attempt = 0
        self._standing = Standing()
        try:
            self._refs = os.open("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:
            self._refs = -1
        self._floor_kib = 0
        own_kib = _most_kib()
        self._masked = 0 < own_kib < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - _MASK_KIB
        """The runner was larger than this process when it began it, which hides how large this one gets: ask otherwise."""

    def serve(self) -> None:
        """Until the runner has gone."""
        socket, read, write = self._socket, os.read, os.write
        write(socket, wire.encode((wire.READY,)))
        self._poke_runner()
        functions = self._functions
        while data := read(socket, wire.MOST_BYTES):
            message = wire.decode(data)
            if message[0] == wire.CALL:
                began = time.monotonic()
                over = self._call(message)
                write(socket, over)
                if message[4] or time.monotonic() - began > _LONG_S:
                    self._poke_runner()
            else:
                functions.setdefault(message[1], message[2])

    def _poke_runner(self) -> None:
        os.write(self._poke, b"\1\0\0\0\0\0\0\0")

    def _call(self, message: tuple[Any, ...]) -> bytes:
        _, task, attempt, after, _, shown, digest, arguments, given = message
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._standing.begin()
        status = wire.DONE
        detail = ""
        result: bytes | str = b""
        size = 0
        if after is not None and self._recent.get(after[0], (0,))[0] != after[1]:
            return wire.encode((wire.OVER, task, attempt, wire.NEVER_BEGAN, b"", 0, began, began, 0.0, 0.0, 0, 0, ""))
        os.environ["CANTLE_TASK"] = shown
        if attempt != self._attempt:
            self._attempt = attempt
            os.environ["CANTLE_ATTEMPT"] = str(attempt)
        try:
            made = "its function"
            try:
                function = functions_of(self._functions, digest)
                made = "what it takes"
                taken = [self._given(one) for one in given] if given else ()
                made = "its arguments"
                if type(arguments) is str:
                    arguments = values.read_kept(arguments)
                args, kwargs = values.unpack_call(arguments, taken)
                del arguments, taken
            except Exception as error:
                raise not_made(made, error) from error
            value = function(*args, **kwargs)
            if type(value) is CoroutineType:
                value = _awaited(value)
            if (
                os.getpid() != _pid
            ):  # the call has forked, and this is its child: what comes of the call is not its to say
                self._leave_as(SystemExit(0))
            packed = _packed(value)
            del args, kwargs, value
            size = len(packed[0]) if len(packed) == 1 else sum(map(len, packed))
            result = (
                bytes(packed[0])
                if len(packed) == 1 and size <= values.INLINE_BYTES
                else self._keep(f"{task}-{attempt}", packed)
            )
        except Ended:
            raise
        except BaseException as error:  # noqa: BLE001 (also SystemExit and KeyboardInterrupt fail their call, not the worker)
            if os.getpid() != _pid:
                self._leave_as(error)
            status = wire.FAILED
            traceback = traceback_of(error, __file__)
            result = values.pack_error(error, traceback)
            size = len(result)
            detail = tail_of(error, traceback)
        out_at, err_at = self._standing.end()
        ended = time.clock_gettime(time.CLOCK_BOOTTIME)
        if status == wire.DONE:
            self._recent[task] = (attempt, result)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
        cpu_s, peak_mib = self._used()
        return wire.encode(
            (
                wire.OVER,
                task,
                attempt,
                status,
                result,
                size,
                began,
                ended,
                cpu_s,
                peak_mib,
                out_at,
                err_at,
                detail,
            )
        )

    def _leave_as(self, error: BaseException) -> NoReturn:
        """End the child of a call that has forked, as Python would."""
        status = 1
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        self._standing.end()
        os._exit(status & 0xFF)

    def _given(self, one: tuple[int, bytes | str | None]) -> Any:
        task, what = one
        if what is None:
            what = self._recent[task][1]
        return values.unpack(values.read_kept(what) if isinstance(what, str) else what)

    def _keep(self, name: str, packed: values.Packed) -> str:
        """Put a large result into a file: in memory, or if there is little of it in the run's folder. Raises OSError."""
        try:
            if not has_room_for(sum(map(len, packed))):
                raise OSError(ENOMEM, "there is little memory")
            return _write(self._folder, name, packed)
        except OSError as first:
            try:
                return _write(self._spare, name, packed)
            except OSError as error:
                size = sum(map(len, packed))
                raise OSError(
                    error.errno,
                    f"its result of {size / 2**20:.1f} MiB can be kept neither in {self._folder} ({first.strerror}) "
                    f"nor in {self._spare} ({error.strerror})",
                ) from None

    def _used(self) -> tuple[float, float]:
        """CPU seconds and the most memory, MiB, since the last call; 0 for the memory where its mark cannot be set back."""
        own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
        since, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        peak_kib = own.ru_maxrss
        if self._masked:
            peak_kib = _most_kib()
            if self._refs >= 0:
                os.write(self._refs, b"5")
        elif peak_kib > self._floor_kib:
            if self._refs >= 0:
                try:
                    os.write(self._refs, b"5")
                except OSError:
                    os.close(self._refs)
                    self._refs = -1
            self._floor_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        elif self._refs < 0:
            peak_kib = 0
        return since, peak_kib / 1024


def functions_of(functions: dict[str, bytes | Callable[..., Any]], digest: str) -> Callable[..., Any]:
    """The function of this digest, unpickled when it is first called. Raises what unpickling raises."""
    found = functions[digest]
    if isinstance(found, bytes):
        found = functions[digest] = values.unpack(found)
    return found


def _packed(value: object) -> values.Packed:
    try:
        return values.pack(value)
    except Exception as error:  # noqa: BLE001 (user's classes do what they like)
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        if isinstance(error, MemoryError):
            raise MemoryError(f"what it returned, a {kind}, finds no room in memory once more, to be sent") from None
        raise TypeError(f"it returned a {kind}, which cannot be pickled: {said_by(error)}") from None


def _awaited(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def _write(folder: str, name: str, packed: values.Packed) -> str:
    path = os.path.join(folder, name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for part in packed:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(fd, rest) :]
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    return path
