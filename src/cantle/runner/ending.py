"""How is an attempt ended, because somebody wants it or its walltime is over, until nothing of it is left?

TERM, a grace, KILL; and KILL again as long as something is left, up to a bound.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from cantle.model.records import Outcome

from .family import Attempt, Family
from .messages import Key
from .wording import duration

AGAIN_S = 0.1
"""Between one KILL and the next, while something is left."""
KILLS = 50
"""After so many KILLs an attempt is reported although something is left (in an uninterruptible wait)."""


class Ending:
    """Ends the attempts of a node when their time has come.

    `look` waits for children that have ended. `give_up` hears of an attempt of which something cannot be killed.
    """

    def __init__(
        self, family: Family, grace_s: float, look: Callable[[], None], give_up: Callable[[Attempt], None]
    ) -> None:
        self._family = family
        self._grace_s = grace_s
        self._look = look
        self._give_up = give_up
        self._alarms: list[tuple[float, Key, Attempt]] = []

    def next_due(self) -> float:
        """When `tick` wants to be called (monotonic)."""
        return self._alarms[0][0] if self._alarms else float("inf")

    def tick(self, now: float) -> None:
        """Do what is due."""
        while self._alarms and self._alarms[0][0] <= now:
            when, _, attempt = heappop(self._alarms)
            if attempt.due == when and not attempt.reported:
                self._due(attempt, now)

    def bound(self, attempt: Attempt) -> None:
        """End it when its walltime is over, counted from now."""
        self._alarm(attempt, time.monotonic() + attempt.walltime_s)

    def end(self, attempt: Attempt, outcome: Outcome, detail: str, grace_s: float) -> None:
        """TERM now, KILL after the grace. Whoever comes second can only shorten the grace."""
        due = time.monotonic() + grace_s
        if attempt.outcome:
            if due < attempt.due:
                self._alarm(attempt, due)
            return
        if attempt.status is None and os.waitid(os.P_PID, attempt.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return  # it has ended by itself, and the next look at the children tells how
        if attempt.status is None:
            attempt.outcome = outcome
            attempt.detail = detail
            self._family.signal(attempt, signal.SIGTERM)
        self._alarm(attempt, due)

    def end_the_rest(self, attempt: Attempt) -> None:
        """It has ended by itself, and was killed with its group, but something is left."""
        if not attempt.outcome and not attempt.kills:
            attempt.kills = 1
            self._alarm(attempt, time.monotonic() + AGAIN_S)

    def _due(self, attempt: Attempt, now: float) -> None:
        if attempt.status is None and not attempt.outcome:
            self._look()  # it may have ended just in time
            if attempt.status is None:
                detail = f"ran into its walltime of {duration(attempt.walltime_s)}"
                self.end(attempt, "timeout", detail, self._grace_s)
            return
        if not attempt.outcome:
            self._look()  # what was in `exec` when it ended can be told now
            if attempt.reported:
                return
        attempt.kills += 1
        if attempt.kills > KILLS:
            self._give_up(attempt)
            return
        self._family.signal(attempt, signal.SIGKILL)
        self._alarm(attempt, now + AGAIN_S)

    def _alarm(self, attempt: Attempt, when: float) -> None:
        attempt.due = when
        heappush(self._alarms, (when, attempt.key, attempt))
        if len(self._alarms) > 256 + 4 * len(self._family.leaders):
            self._alarms = [alarm for alarm in self._alarms if alarm[2].due == alarm[0] and not alarm[2].reported]
            heapify(self._alarms)
