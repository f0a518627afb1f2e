"""How are durations, times and phases said to people?"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import TextIO

from cantle.core.phases import Phase
from cantle.errors import printable as printable

WORDS = {
    Phase.WAITING: "waiting",
    Phase.READY: "ready",
    Phase.LAUNCHED: "starting",
    Phase.RUNNING: "running",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
    Phase.TIMEDOUT: "timed out",
    Phase.CANCELED: "canceled",
    Phase.SKIPPED: "skipped",
}

COLOURS = {
    Phase.RUNNING: "36",
    Phase.LAUNCHED: "36",
    Phase.DONE: "32",
    Phase.FAILED: "31",
    Phase.TIMEDOUT: "31",
    Phase.CANCELED: "33",
    Phase.SKIPPED: "33",
}


def duration(seconds: float) -> str:
    """`0.04 s`, `3.2 s`, `45 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 0.995:
        return f"{max(0.0, seconds):.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


@lru_cache(maxsize=1024)
def clock(second: int) -> str:
    """The local date and time of a second since the epoch, as Maestro writes it: `2026-11-29 19:22:16`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


def time_of_day(moment: float) -> str:
    """`19:22:16` today, with its date on another day. Local time."""
    text = clock(int(moment))
    return text[11:] if text[:10] == clock(int(time.time()))[:10] else text


def counted(totals: list[int]) -> str:
    """`812 done, 3 running, 2 failed`: what there is of each phase, nothing of what there is not."""
    order = (
        Phase.DONE,
        Phase.RUNNING,
        Phase.LAUNCHED,
        Phase.READY,
        Phase.WAITING,
        Phase.FAILED,
        Phase.TIMEDOUT,
        Phase.CANCELED,
        Phase.SKIPPED,
    )
    return ", ".join(f"{totals[phase]:,} {WORDS[phase]}" for phase in order if totals[phase]) or "no tasks"


def in_colour(text: str, code: str) -> str:
    """The text in a colour of the terminal."""
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def wants_colour(stream: TextIO) -> bool:
    """Whether what is printed there may be coloured: a terminal, and nobody said NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
