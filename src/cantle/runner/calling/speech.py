"""Where does the output of a worker's calls end, and who gives it back when a call has closed or redirected it?"""

from __future__ import annotations

import os
import sys
from typing import TextIO

_NAMES = ("stdout", "stderr")


class Speech:
    """The standard output and error of this process, as it was when this was made."""

    def __init__(self) -> None:
        self._kept = tuple(os.dup(fd) for fd in (1, 2))
        self._ways = tuple(_way_of(getattr(sys, name)) for name in _NAMES)

    def flushed(self) -> tuple[int, int]:
        """Where the output of a call ends, once all of it is written; -1 where the call took it away.

        What was taken away is there again afterwards, for the next call.
        """
        ends = self._flushed(0), self._flushed(1)
        for number, end in enumerate(ends):
            if end < 0:
                self._give_back(number)
        return ends

    def _flushed(self, number: int) -> int:
        try:
            getattr(sys, _NAMES[number]).flush()
            return os.lseek(number + 1, 0, os.SEEK_END)
        except (OSError, ValueError, AttributeError):  # the call closed it, or put something else there
            return -1

    def _give_back(self, number: int) -> None:
        try:
            os.dup2(self._kept[number], number + 1)
        except OSError:  # the call closed whatever is open
            return
        encoding, errors, by_line = self._ways[number]
        stream = open(number + 1, "w", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115 (a descriptor)
        stream.reconfigure(line_buffering=by_line)
        setattr(sys, _NAMES[number], stream)
        setattr(sys, f"__{_NAMES[number]}__", stream)


def _way_of(stream: TextIO) -> tuple[str, str, bool]:
    return stream.encoding, stream.errors or "strict", bool(stream.line_buffering)
