"""What does a launcher say while it starts its ranks, or does not? Looked at after some seconds, and then ever more rarely.

Whether it means anything is not judged here: what is new is told to the conductor, and the whole once more when the attempt
has failed, since the last lines are seldom those that tell why.
"""

from __future__ import annotations

import os
import time

from .family import Attempt
from .messages import Key, Said

_FIRST_S = 5.0
_SLOWER = 1.5
_SLOWEST_S = 60.0
_PART_BYTES = 4096


class _Heeded:
    __slots__ = ("attempt", "due", "pause_s", "told")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.pause_s = _FIRST_S
        self.due = time.monotonic() + _FIRST_S
        self.told = ""


class Heeder:
    """The attempts of a node that launch by a program that is not ours."""

    def __init__(self) -> None:
        self._heeded: dict[Key, _Heeded] = {}

    def add(self, attempt: Attempt) -> None:
        """Look at what this attempt says from now on."""
        self._heeded[attempt.key] = _Heeded(attempt)

    def next_due(self) -> float:
        """When to look again (monotonic); infinity when there is nobody to look at."""
        return min((heeded.due for heeded in self._heeded.values()), default=float("inf"))

    def look(self, now: float) -> list[Said]:
        """What is new."""
        found = []
        for key, heeded in self._heeded.items():
            if now >= heeded.due:
                heeded.pause_s = min(heeded.pause_s * _SLOWER, _SLOWEST_S)
                heeded.due = now + heeded.pause_s
                text = said_by(heeded.attempt.output.err)
                if text != heeded.told:
                    heeded.told = text
                    found.append(Said(key, text))
        return found

    def over(self, key: Key, failed: bool) -> Said | None:
        """The attempt is over: what it said, if it failed."""
        heeded = self._heeded.pop(key, None)
        if heeded is None or not failed:
            return None
        text = said_by(heeded.attempt.output.err)
        return Said(key, text, over=True) if text else None


def said_by(path: str) -> str:
    """The beginning and the end of this file, as text; "" when there is none."""
    if not path:
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, _PART_BYTES, 0)
        if size > _PART_BYTES:
            data += os.pread(fd, _PART_BYTES, max(_PART_BYTES, size - _PART_BYTES))
    except OSError:
        return ""
    finally:
        os.close(fd)
    return data.decode("utf-8", "replace")
