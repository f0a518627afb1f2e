"""Who has which cores and GPUs of a node, who stands in line for them, and who may begin there?

A place is handed from one attempt to the next without asking the conductor. What follows another attempt waits until that one
is done, and never begins when it is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .family import Attempt, Family, Place
from .messages import Key, Start
from .reports import Reports

ENOUGH_IN_LINE = 2
"""Where so many stand in line, the conductor may hear of an end a little later: nobody idles meanwhile."""
_NEVER_BEGAN = "it never began, because the task that it was to follow did not succeed"


class Places:
    """The places of one node.

    `begin` starts what has got its place, and says whether it could. Set `place_of_call` where there are calls.
    """

    def __init__(self, family: Family, reports: Reports, begin: Callable[[Start, Place], bool]) -> None:
        self._family = family
        self._reports = reports
        self._begin = begin
        self._lines: dict[Place, deque[Start]] = {}
        """Who stands in line for each place that somebody has."""
        self._in_line: dict[Key, Place] = {}
        self.place_of_call: Callable[[Key], Place | None] = _no_call
        """Where the call of this key is."""

    def of(self, start: Start) -> Place | None:
        """The place that it wants: that of whom it follows. None if that one was not done: then it is told as never begun."""
        after = start.after
        if after is not None:
            ahead = self._family.by_key.get(after)
            found = ahead.place if ahead is not None else self._in_line.get(after) or self.place_of_call(after)
            if found is not None:
                return found
            # Asked about those alone whose end the conductor has not heard of.
            if self._reports.made(after) is None:
                self._reports.never_began(start.key, "interrupted", _NEVER_BEGAN)
                return None
        return (start.cores, start.gpus) if start.cores and start.key[0] >= 0 else ("", str(start.key))

    def in_line(self, place: Place) -> int:
        """How many stand in line there."""
        return len(self._lines.get(place, ()))

    def enter(self, start: Start, place: Place) -> None:
        """Begin it, or let it stand in line, if another attempt is there or the one that it follows is not over."""
        line = self._lines.get(place)
        ahead = self._family.by_key.get(start.after) if start.after is not None else None
        if line is not None or ahead is not None:
            self._in_line[start.key] = place
            if line is not None:
                line.append(start)
            elif ahead is not None:  # its place was passed on, to one that is over by now: it is held for this one
                ahead.passed_on = False
                self._lines[place] = deque((start,))
            return
        self._lines[place] = deque()
        if not self._begin(start, place):
            self.free(place)

    def step_out(self, key: Key) -> Place | None:
        """It shall not begin. Where it stood in line; None when it did not."""
        return self._in_line.pop(key, None)

    def close(self) -> None:
        """What has not begun needs no end: whoever resumes launches it again."""
        self._in_line.clear()

    def let_go(self, key: Key, place: Place) -> None:
        """The attempt was not done: who was to follow it goes back to the conductor, and who was to follow those."""
        if len(key) > 2:  # nobody follows a mere part, and thousands of them may stand in line
            return
        gone = {key}
        for start in self._lines.get(place, ()):
            if start.after in gone and self._in_line.pop(start.key, None) is not None:
                self._reports.never_began(start.key, "interrupted", _NEVER_BEGAN)
                gone.add(start.key)

    def pass_on(self, attempt: Attempt) -> None:
        """The attempt is over: the next in line for its place begins."""
        if not attempt.passed_on and self._lines[attempt.place]:
            attempt.passed_on = True
            self.free(attempt.place)

    def vacate(self, attempt: Attempt) -> None:
        """The attempt is told: its place is free, or the next in line has it."""
        if not attempt.passed_on:
            self.free(attempt.place)

    def free(self, place: Place) -> None:
        """Nobody has this place any more: the next in line for it begins."""
        line = self._lines[place]
        while line:
            start = line[0]
            if start.key in self._in_line:
                if start.after is not None and (ahead := self._family.by_key.get(start.after)) is not None:
                    ahead.passed_on = False  # something of it is left: nobody has its place before that is gone
                    return
                del self._in_line[start.key]
                line.popleft()
                if self._begin(start, place):
                    return
                self.let_go(start.key, place)
            else:
                line.popleft()
        del self._lines[place]


def _no_call(_key: Key) -> Place | None:
    return None
