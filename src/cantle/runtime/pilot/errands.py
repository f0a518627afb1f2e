"""How is something done that takes long, while the loop turns on?

By a thread of its own; what has to follow is done in the loop's thread, between two turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from cantle.runtime.inbox import SelectInbox

T = TypeVar("T")


class Errands:
    """Those that are under way, and what is to follow from those that are done. `count`: how many are not followed up."""

    def __init__(self, inbox: SelectInbox) -> None:
        self.count = 0
        self._inbox = inbox
        self._done: deque[Callable[[], None]] = deque()

    def send(self, name: str, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work` in a thread, and then, in the loop, what follows from its result. `work` must not raise."""

        def thread() -> None:
            result = work()
            self._done.append(lambda: then(result))
            self._inbox.wake()

        self.count += 1
        Thread(target=thread, name=f"cantle-{name}", daemon=True).start()

    def follow_up(self) -> None:
        """Do what follows from those that are done. In the loop's thread."""
        while self._done:
            self.count -= 1
            self._done.popleft()()
