"""Where does the output of a worker's calls end, and who gives it back when a call has closed, redirected or replaced it?"""

from __future__ import annotations

import os
import sys
from typing import TextIO

_NAMES = ("stdout", "stderr")


class Speech:
    """The standard streams of this process, as they were when this was made."""

    def __init__(self) -> None:
        self._kept = tuple(os.dup(fd) for fd in (1, 2))
        self._streams: list[TextIO] = [sys.stdout, sys.stderr]
        self._ways = tuple(_way_of(stream) for stream in self._streams)
        self._heard = sys.stdin

    def flushed(self) -> tuple[int, int]:
        """Where the output of a call ends, once all of it is written.

        What the call closed, led elsewhere or put something else in place of is there again afterwards, for the next call.
        """
        sys.stdin = self._heard
        return self._flushed(0), self._flushed(1)

    def _flushed(self, number: int) -> int:
        stream = self._streams[number]
        put = getattr(sys, _NAMES[number], None)
        if put is not stream:
            _flush_strange(put)
            setattr(sys, _NAMES[number], stream)
            del put  # what a stream was wrapped in closes it when it goes
        try:
            stream.flush()
        except (OSError, ValueError):  # the call closed it, or what is below it
            stream = self._anew(number)
        kept = self._kept[number]
        try:
            os.dup2(kept, number + 1)
            return os.lseek(kept, 0, os.SEEK_END)
        except OSError:  # the call closed whatever is open
            return -1

    def _anew(self, number: int) -> TextIO:
        encoding, errors, by_line = self._ways[number]
        try:
            os.dup2(self._kept[number], number + 1)
        except OSError:
            return self._streams[number]
        stream = open(number + 1, "w", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115 (a descriptor)
        stream.reconfigure(line_buffering=by_line)
        self._streams[number] = stream
        setattr(sys, _NAMES[number], stream)
        setattr(sys, f"__{_NAMES[number]}__", stream)
        return stream


def _flush_strange(stream: object) -> None:
    """What a call put in place of a stream may still hold words that belong where the stream leads."""
    try:
        stream.flush()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001, S110 (it is somebody else's, or nothing at all)
        pass


def _way_of(stream: TextIO) -> tuple[str, str, bool]:
    return stream.encoding, stream.errors or "strict", bool(stream.line_buffering)
