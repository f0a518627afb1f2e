"""What time is it, by a clock that nobody sets while a run goes on?

It showed what the machine's clock showed when this process began, or the one that it was forked from, and has counted on
since, also while the machine slept. A conductor and the runners that it has forked share it.
"""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime, time

BASE = time() - clock_gettime(CLOCK_BOOTTIME)
"""What it shows is so many seconds more than have passed since the machine began."""


def now() -> float:
    """Seconds since the epoch."""
    return BASE + clock_gettime(CLOCK_BOOTTIME)
