"""What does a launcher say while it starts its ranks, or does not? Looked at after some seconds, and then ever more rarely.

Some say nothing at all while they wait: one that runs at two looks, and has no rank on its node at either, waits. Whether it
means anything is not judged here: what is new is told to the conductor, and the whole once more when the attempt has failed,
since the last lines are seldom those that tell why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .family import Attempt
from .messages import Key, Said

_FIRST_S = 5.0
_SLOWER = 1.5
_SLOWEST_S = 60.0
_PART_BYTES = 4096


class _Heeded:
    __slots__ = ("attempt", "begun", "due", "pause_s", "told", "waited")

    def __init__(self, attempt: Attempt, begins_here: bool) -> None:
        self.attempt = attempt
        self.pause_s = _FIRST_S
        self.due = time.monotonic() + _FIRST_S
        self.told = ("", "")
        self.waited = ""
        self.begun = not begins_here


class Heeder:
    """The attempts of a node that launch by a program that is not ours.

    `waiting(attempt)` names the launcher of an attempt that runs and has no rank on this node, "" for none.
    """

    def __init__(self, waiting: Callable[[Attempt], str]) -> None:
        self._waiting = waiting
        self._heeded: dict[Key, _Heeded] = {}

    def add(self, attempt: Attempt, begins_here: bool) -> None:
        """Look at what this attempt says from now on. `begins_here`: all of its launches have ranks on this node."""
        self._heeded[attempt.key] = _Heeded(attempt, begins_here)

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
                news = (said_by(heeded.attempt.output.err), self._waits(heeded))
                if news != heeded.told:
                    heeded.told = news
                    found.append(Said(key, news[0], waits=news[1]))
        return found

    def _waits(self, heeded: _Heeded) -> str:
        if heeded.begun:
            return ""
        before, heeded.waited = heeded.waited, self._waiting(heeded.attempt)
        if before and not heeded.waited:
            heeded.begun = True
        return heeded.waited if before == heeded.waited else ""

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
