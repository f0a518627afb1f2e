"""A call takes its time: when is it looked at, told as started, or ended for its walltime or memory?"""

from __future__ import annotations

from cantle.model.records import Outcome
from cantle.runner import processes
from cantle.runner.family import Family
from cantle.runner.messages import Started
from cantle.runner.wording import duration

from .hiring import Worker
from .keeping import Keeping
from .line import WATCH_S, Lines

_LOOK_S = 0.003
"""So much after a call began, it is looked whether it is over although nobody poked."""
_LONG_S = 0.035
"""A call that has run for so long is told as started, and nobody is sent behind it."""


class Lasting:
    """Watches the calls that the workers of a node are at."""

    def __init__(self, lines: Lines, keeper: Keeping, family: Family, grace_s: float) -> None:
        self._lines = lines
        self._keeper = keeper
        self._family = family
        self._grace_s = grace_s

    def due(self, worker: Worker) -> float:
        """When `look_at` is wanted for the call that the worker is at (monotonic)."""
        start = worker.sent[0]
        due = worker.began_at + (_LOOK_S if len(worker.sent) > 1 else _LONG_S) if not worker.long else float("inf")
        if start.walltime_s > 0 and not worker.attempt.outcome:
            due = min(due, worker.began_at + start.walltime_s)
        if start.memory_mib > 0 and not worker.attempt.outcome:
            due = min(due, worker.next_watch)
        return due

    def look_at(self, worker: Worker, now: float) -> None:
        """Tell of the call that it has started, or end it, if it is time for that."""
        start = worker.sent[0]
        if worker.attempt.outcome or worker.attempt.status is not None:
            return
        if not worker.long and now >= worker.began_at + _LONG_S:
            self._lines.take_back(worker)
            if len(worker.sent) != 1 or worker.sent[0] is not start:  # it is over, or was not even read
                self._lines.feed(worker)
                return
            worker.long = True
            self._keeper.reports.say(Started(start.key, worker.began_wall, worker.attempt.pid))
        if start.walltime_s > 0 and now >= worker.began_at + start.walltime_s:
            self._end_current(
                worker, "timeout", f"ran into its walltime of {duration(start.walltime_s)}", self._grace_s
            )
        elif start.memory_mib > 0 and now >= worker.next_watch:
            worker.next_watch = now + WATCH_S
            members = self._family.members(worker.attempt)
            used = processes.resident_mib(members)
            if used > start.memory_mib:
                used = processes.proportional_mib(members)
            worker.peak_mib = max(worker.peak_mib, used)
            if used > start.memory_mib:
                detail = f"used {used:.0f} MiB of memory, asked for {start.memory_mib} MiB"
                self._end_current(worker, "memory", detail, min(self._grace_s, 1.0))

    def _end_current(self, worker: Worker, outcome: Outcome, detail: str, grace_s: float) -> None:
        key = worker.sent[0].key
        self._lines.hold_back(worker)
        if worker.sent and worker.sent[0].key == key:
            self._keeper.end(worker.attempt, outcome, detail, grace_s)
        else:
            self._lines.feed(worker)
