"""Who puts files that have come back where they belong, so that the loop need not wait for a file system?

A thread writes, one attempt's after the other's; that it is done is told in the loop's own thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from cantle.engines import staging
from cantle.model.seams import Inbox
from cantle.runner.bell import Bell
from cantle.runner.staging import Files

Then = Callable[[str], None]


class Intake:
    """Writes files into runs' directories."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._todo: SimpleQueue[tuple[str, Files, Then] | None] = SimpleQueue()
        self._done: deque[tuple[Then, str]] = deque()
        self._bell = Bell()
        self._thread = Thread(target=self._live, name="intake", daemon=True)
        self._thread.start()
        inbox.watch(self._bell.fd, self.turn)

    @property
    def fd(self) -> int:
        """It can be read when `turn` has something to do."""
        return self._bell.fd

    def take_in(self, home: str, files: Files, then: Then) -> None:
        """Write them, and call `then` from the inbox's wait with why that failed, "" if it did not."""
        self._todo.put((home, files, then))

    def turn(self) -> None:
        """Tell what has been written."""
        self._bell.hush()
        while self._done:
            then, why_not = self._done.popleft()
            then(why_not)

    def close(self) -> None:
        """Write no more than what is being written. A thread that hangs in a file system is not waited for."""
        while not self._todo.empty():
            self._todo.get()
        self._todo.put(None)
        self._inbox.unwatch(self._bell.fd)
        self._bell.close()

    def _live(self) -> None:
        while (todo := self._todo.get()) is not None:
            home, files, then = todo
            try:
                staging.take_in(home, files)
                why_not = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this attempt's alone
                why_not = str(error) or type(error).__name__
            self._done.append((then, why_not))
            self._bell.ring()
