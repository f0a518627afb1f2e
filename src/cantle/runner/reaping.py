"""Which processes below the runner have ended, and when is it looked whether something of theirs is left?

Whose leader has ended passes its place on at once. To conclude it means to look for what it has left, and that can wait for
others where nobody is the worse for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage

from . import clock
from .family import Attempt, Family, send_to_group
from .places import ENOUGH_IN_LINE, Places
from .reports import Reports

_SWEEP_S = 1.0
_LOOK_CHEAP_S = 0.0001
_LOOK_FEW = 8
_LOOK_TOGETHER_S = 0.010
"""So long ends may wait to be concluded together, where few run here and others have the places meanwhile.

To conclude one is little work, but all that it takes has left the core's caches since the last one: that costs more than the
work, and so does what it drives out of them, which the next task must fetch again.
"""
_LOOK_RATIO = 10
"""The kernel's list of children takes microseconds for a few, half a millisecond for hundreds: then it is read at most for
a tenth of the time, and ends are concluded that little later."""


class Reaper:
    """Waits for the children of a runner. `conclude` reports an attempt whose leader has ended, or says that it cannot yet."""

    def __init__(self, family: Family, places: Places, reports: Reports, conclude: Callable[[Attempt], bool]) -> None:
        self._family = family
        self._places = places
        self._reports = reports
        self._conclude = conclude
        self._closing: list[Attempt] = []
        """Their leaders have ended, and they are not concluded."""
        self._floor_kib = 0
        self._next_sweep = 0.0
        self._next_look = 0.0
        self._dear_until = 0.0
        self._look_due = False

    def next_due(self) -> float:
        """When `tick` wants to be called (monotonic)."""
        first = self._next_look if self._look_due else float("inf")
        return min(first, self._next_sweep) if self._family.leaders else first

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._family.leaders and now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_S
            self.reap()
        elif self._look_due and now >= self._next_look:
            self.reap()

    def reap(self) -> None:
        """Wait for all children that have ended, and report the attempts that are over."""
        family = self._family
        ended = self._closing
        looking = True
        while looking:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            cpu_s = usage.ru_utime + usage.ru_stime
            attempt = family.leaders.get(pid)
            if attempt is None or attempt.status is not None:
                family.gone(pid, cpu_s, self._peak_mib(usage.ru_maxrss))
                continue
            attempt.status = status
            attempt.ended_at = clock.now()
            attempt.cpu_s += cpu_s
            attempt.peak_mib = max(attempt.peak_mib, self._peak_mib(usage.ru_maxrss))
            family.alive -= 1
            ended.append(attempt)
            if not attempt.outcome:  # it ended by itself: nothing of it shall stay, and the next in line need not wait
                attempt.alone = not send_to_group(pid, signal.SIGKILL)
                self._places.pass_on(attempt)
            looking = _more_have_ended()
        now = time.monotonic()
        if not self._can_wait(ended, now):
            self._next_look = self._dear_until
        elif not self._look_due:
            self._next_look = max(self._dear_until, now + _LOOK_TOGETHER_S)
        if now < self._next_look:
            self._look_due = True
            return
        family.adopt()
        taken = time.monotonic() - now
        dear = taken > _LOOK_CHEAP_S and family.alive > _LOOK_FEW  # a few cannot be: others had the core meanwhile
        self._dear_until = now + _LOOK_RATIO * taken if dear else 0.0
        self._look_due = False
        if ended:
            self._closing = [attempt for attempt in ended if not self._conclude(attempt)]

    def _can_wait(self, ended: list[Attempt], now: float) -> bool:
        """Whether nobody is the worse for it if these are concluded a little later."""
        if not ended or self._family.alive > _LOOK_FEW:
            return False  # many end together anyway, and each that waits has files open
        for attempt in ended:
            if attempt.status or attempt.outcome or not (attempt.alone and attempt.passed_on):
                return False
            if self._places.in_line(attempt.place) < ENOUGH_IN_LINE:
                return False
            if self._reports.tells_start_before(attempt.key, now + _LOOK_TOGETHER_S):
                return False  # its start would be told meanwhile, as if it took longer
        return True

    def _peak_mib(self, maxrss_kib: int) -> float:
        """A child's peak memory in MiB, 0 when it cannot be told: the kernel counts from the size of the runner itself."""
        if maxrss_kib <= self._floor_kib:
            return 0.0
        self._floor_kib = getrusage(RUSAGE_SELF).ru_maxrss
        return maxrss_kib / 1024 if maxrss_kib > self._floor_kib else 0.0


def _more_have_ended() -> bool:
    """Whether there is a child to wait for. To ask so costs half of what `wait4` takes to say that there is none."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
