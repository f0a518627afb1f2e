"""How does a program get a result that stayed where it was made, also when it has to be made again first?

Who asks for a result waits until it is here. Where its node has gone, the run makes it again, and
then it is fetched from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import takewhile
from time import monotonic

from cantle.core.phases import FINAL, Phase
from cantle.core.state import State
from cantle.engines.calls import Calls
from cantle.model.records import ResultsLost
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot.sitting import Line
from cantle.runtime.pilot.sitting_messages import Fetched

PATIENCE_S = 2.0
"""So long a result that cannot be had may take to be known for lost. Then it is tried once more, and that is the answer."""
_TRIES = 2


class _Asked:
    """Who asked for which result, by the program's own number and the run's."""

    __slots__ = ("attempt", "line", "own", "problem", "since", "task", "tries")

    def __init__(self, line: Line, own: int, task: int) -> None:
        self.line = line
        self.own = own
        self.task = task
        self.attempt = 0
        """Whose result it was that was tried last."""
        self.tries = 0
        """So often with this attempt."""
        self.problem = ""
        self.since = 0.0


class Fetching:
    """All that is asked for and has not been answered because it could not be had."""

    def __init__(self, state: State, calls: Calls, inbox: SelectInbox) -> None:
        self._state = state
        self._calls = calls
        self._inbox = inbox
        self._waiting: dict[_Asked, None] = {}
        """Those first who have waited longest."""
        self._of: dict[int, dict[_Asked, None]] = {}
        """The same by task."""
        self._due: dict[_Asked, None] = {}

    def ask(self, line: Line, own: int, task: int) -> None:
        """Answer with the result of this task, at once or when it is there."""
        self._try(_Asked(line, own, task))

    def over(self, tasks: Iterable[int]) -> None:
        """These have reached a final phase, perhaps again."""
        if self._of:
            for task in tasks:
                self._due.update(self._of.get(task, ()))

    def step(self) -> None:
        """See to those whose tasks are over, and to those whose patience is. Once a turn: thousands may wait besides."""
        now = monotonic()
        self._due.update(dict.fromkeys(takewhile(lambda asked: now - asked.since > PATIENCE_S, self._waiting)))
        due, self._due = self._due, {}
        for asked in due:
            if asked in self._waiting:
                self._see_to(asked, now)

    def _see_to(self, asked: _Asked, now: float) -> None:
        phase = self._state.phases[asked.task]
        if asked.line.over:
            self._waits_no_more(asked)
        elif phase == Phase.DONE and asked.attempt != self._state.attempts[asked.task]:
            asked.tries = 0
            self._try(asked)
        elif phase not in FINAL:
            self._wait(asked, asked.problem)
        elif phase != Phase.DONE:
            why = self._state.cause_of.get(asked.task, "") or phase.name.lower()
            self._refuse(asked, f"its result was lost, and it could not be made again: {why}")
        elif now - asked.since > PATIENCE_S:
            if asked.tries < _TRIES:
                self._try(asked)
            else:
                self._refuse(asked, asked.problem)

    def _try(self, asked: _Asked) -> None:
        self._waits_no_more(asked)
        asked.tries += 1
        state, task = self._state, asked.task
        asked.attempt = state.attempts[task] if state.phases[task] == Phase.DONE else 0
        if not asked.attempt:
            self._wait(asked, "")
            return
        result = self._calls.result_of(task)
        if result is not None and result.inline is not None:
            asked.line.say([Fetched(asked.own, result.inline)])
        else:
            self._calls.bring(task, lambda path, problem: self._has_come(asked, path, problem))

    def _has_come(self, asked: _Asked, path: str, problem: str) -> None:
        if not problem and os.path.exists(path):  # noqa: PTH110
            asked.line.say([Fetched(asked.own, path=path)])
            return
        if not problem:
            problem = f"{path} is not there any more"
            result = self._calls.result_of(asked.task)
            if result is not None:
                self._inbox.put(ResultsLost(self._inbox.now(), [asked.task], result.node, problem))
        self._wait(asked, problem)

    def _wait(self, asked: _Asked, problem: str) -> None:
        self._waiting.pop(asked, None)
        asked.problem, asked.since = problem, monotonic()
        self._waiting[asked] = None
        self._of.setdefault(asked.task, {})[asked] = None
        phase = self._state.phases[asked.task]
        if phase in FINAL and (phase != Phase.DONE or asked.attempt != self._state.attempts[asked.task]):
            self._due[asked] = None  # it was told that this one is over before anybody waited for that
            self._inbox.wake()

    def _waits_no_more(self, asked: _Asked) -> None:
        self._waiting.pop(asked, None)
        of = self._of.get(asked.task)
        if of is not None:
            of.pop(asked, None)
            if not of:
                del self._of[asked.task]

    def _refuse(self, asked: _Asked, problem: str) -> None:
        self._waits_no_more(asked)
        asked.line.say([Fetched(asked.own, problem=problem)])
