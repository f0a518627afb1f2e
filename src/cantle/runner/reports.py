"""What is the conductor told of the attempts on a node, when, and what must the runner still remember of it?

Reports go up one frame a turn. That an attempt has started is told when it has run for a moment; if it is over by then, its
end tells both. What the conductor has not written down is kept.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cantle.errors import writable
from cantle.model.records import Outcome

from .channel import RunnersEnd
from .clock import now
from .frames import encode, frame
from .messages import Ack, Ended, Key, Leaving, Started

if TYPE_CHECKING:
    from .messages import Held, Said, Serving, Swept

M = TypeVar("M", bound=Struct)
_HOLD_S = 0.035
"""That an attempt has started is told when it has run for so long. Who is over by then tells both with the end."""
_HOLD_END_S = 0.020
"""How long the news of an end may be held, while others stand in line for its place and nobody idles.

Each message costs its reader, and all through whose hands it goes, more than ten results do.
"""


class Reports:
    """What goes up from one node, over one channel."""

    def __init__(self, channel: RunnersEnd) -> None:
        self._channel = channel
        self._up: list[bytes] = []
        self._urgent = False
        self._hold_until = 0.0
        self._number = 0
        self._starts: dict[Key, tuple[float, Started]] = {}
        """Starts that were not told yet, oldest first, each with the time (monotonic) at which it is told."""
        self._unwritten: deque[Ended] = deque()
        self._kept: dict[int, Ended] = {}
        """By number, results that the conductor has, of attempts of which other parts are not over."""

    def next_due(self) -> float:
        """When `push` has something to send (monotonic); infinity when there is nothing to tell."""
        first = self._hold_until if self._up else float("inf")
        if self._starts:
            first = min(first, next(iter(self._starts.values()))[0])
        return first

    def began(self, key: Key, pid: int) -> None:
        """The attempt has started now: told in a moment."""
        self._starts[key] = (time.monotonic() + _HOLD_S, Started(key, now(), pid))

    def tells_start_before(self, key: Key, when: float) -> bool:
        """Whether the start of this attempt is still to be told, and before then."""
        start = self._starts.get(key)
        return start is not None and start[0] < when

    def untold_start(self, key: Key) -> Started | None:
        """The attempt is over: its start, if it was not told, goes with its end."""
        start = self._starts.pop(key, None)
        return None if start is None else start[1]

    def say(self, *messages: Started | Said | Serving | Held | Swept) -> None:
        """Tell this at once."""
        self._up += [_sound(message)[1] for message in messages]
        self._urgent = True

    def mention(self, message: Said) -> None:
        """Tell this with what comes next."""
        self._up.append(_sound(message)[1])

    def over(self, ended: Ended, urgent: bool = True) -> None:
        """Tell an end, at once if it is urgent."""
        if urgent:
            self._urgent = True
        else:
            soon = time.monotonic() + _HOLD_END_S
            self._hold_until = min(self._hold_until, soon) if self._up else soon
        ended, data = _sound(ended)
        self._unwritten.append(ended)
        self._up.append(data)

    def number(self) -> int:
        """The number of the next result."""
        self._number += 1
        return self._number

    def never_began(self, key: Key, outcome: Outcome, detail: str) -> None:
        """Tell that the attempt is over without having begun."""
        self.over(Ended(self.number(), key, now(), outcome, detail=detail))

    def made(self, key: Key) -> Ended | None:
        """The end of an attempt that was done, of which the conductor may not have heard yet."""
        for ended in reversed(self._unwritten):
            if ended.key == key and ended.outcome == "done":
                return ended
        return None

    def written(self, ack: Ack) -> None:
        """So much of it is written down: it may be forgotten."""
        but = set(ack.but)
        while self._unwritten and self._unwritten[0].number <= ack.number:
            result = self._unwritten.popleft()
            if result.number in but:
                self._kept[result.number] = result
        for number in ack.over:
            self._kept.pop(number, None)

    def unwritten(self) -> list[Ended]:
        """What nobody has written down."""
        return [*self._kept.values(), *self._unwritten]

    def push(self) -> None:
        """Send what there is to tell, if it is time."""
        if self._channel.backlog:
            self._channel.send(b"")  # what the conductor did not take yet, also when there is nothing new to tell
        if not self._up and not self._starts:
            return
        moment = time.monotonic()
        told = []
        while self._starts and (first := next(iter(self._starts.items())))[1][0] <= moment:
            told.append(encode(first[1][1]))
            del self._starts[first[0]]
        if told or (self._up and (self._urgent or moment >= self._hold_until)):
            self._channel.send(frame([*self._up, *told]))  # an end goes before the start of what followed it
            self._up.clear()
            self._urgent = False

    def leave(self, reason: str) -> None:
        """Tell the conductor, if it still listens, that the runner ends by itself."""
        try:
            self._up.append(encode(Leaving(reason)))
            self._channel.send(frame(self._up))
            self._up.clear()
        except OSError:
            pass


def _sound(message: M) -> tuple[M, bytes]:
    """The message and its bytes. What a task or a library says may hold half characters: these are told by their codes."""
    try:
        return message, encode(message)
    except UnicodeEncodeError:
        texts = {name: value for name in message.__struct_fields__ if isinstance(value := getattr(message, name), str)}
        message = replace(message, **{name: writable(text) for name, text in texts.items()})
        return message, encode(message)
