"""Do attempts stay within the memory that they asked for? Looked at some times a second; loaded when one has a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

from cantle.model.records import Outcome

from . import processes
from .family import Attempt, Family
from .messages import Key

_WATCH_S = 0.25


class Watch:
    """The attempts of a node that have a bound. `end(attempt, outcome, detail, grace_s)` ends those that pass it."""

    def __init__(self, family: Family, grace_s: float, end: Callable[[Attempt, Outcome, str, float], None]) -> None:
        self._family = family
        self._grace_s = grace_s
        self._end = end
        self._watched: dict[Key, Attempt] = {}
        self._next = 0.0

    def add(self, attempt: Attempt) -> None:
        """Look at this one from now on."""
        self._watched[attempt.key] = attempt

    def over(self, key: Key) -> None:
        """It is told."""
        self._watched.pop(key, None)

    def next_due(self) -> float:
        """When to look again (monotonic); infinity when there is nobody to look at."""
        return self._next if self._watched else float("inf")

    def look(self, now: float) -> None:
        """Look at all of them. The more that takes, the more rarely it is done."""
        self._look()
        taken = time.monotonic() - now
        self._next = now + min(max(_WATCH_S, 50 * taken), 4 * _WATCH_S)

    def _look(self) -> None:
        """The parts of one attempt share its bound."""
        together: dict[Key, list[Attempt]] = {}
        for key, attempt in self._watched.items():
            if not attempt.outcome and attempt.status is None:
                together.setdefault(key[:2], []).append(attempt)
        for attempts in together.values():
            members = [self._family.members(attempt) for attempt in attempts]
            used = list(map(processes.resident_mib, members))
            most = attempts[0].memory_mib
            if sum(used) > most:
                used = list(map(processes.proportional_mib, members))
            for attempt, mib in zip(attempts, used, strict=True):
                attempt.peak_mib = max(attempt.peak_mib, mib)
            if sum(used) > most:
                detail = f"used {sum(used):.0f} MiB of memory, asked for {most} MiB"
                for attempt in attempts:
                    self._end(attempt, "memory", detail, min(self._grace_s, 1.0))
