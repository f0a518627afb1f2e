"""Who reads what goes with an attempt, so that the loop need not wait for a file system?

One thread reads, in the order of the launches; what it has read is handed over in the loop's own thread. An attempt that
follows another one whose files are being read goes the same way, though it may have none: so nobody overtakes whom he follows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from cantle.model.seams import Inbox
from cantle.runner.bell import Bell
from cantle.runner.messages import Key, Staged


class _Errand:
    """What is to be read for one attempt, and who wants it. `node` is where the attempt goes."""

    __slots__ = ("dropped", "found", "key", "node", "read", "then", "why_not")

    def __init__(
        self, key: Key, node: int, read: Callable[[], Staged | None], then: Callable[[Staged | None, str], None]
    ) -> None:
        self.key, self.node, self.read, self.then = key, node, read, then
        self.found: Staged | None = None
        self.why_not = ""
        self.dropped = False


class Porter:
    """Brings what `staged` reads."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._of: dict[int, _Errand] = {}
        """By task: one attempt of it at most is under way."""
        self._todo: SimpleQueue[_Errand | None] = SimpleQueue()
        self._done: deque[_Errand] = deque()
        self._bell = Bell()
        inbox.watch(self._bell.fd, self._deliver)
        threading.Thread(target=self._live, name="porter", daemon=True).start()

    def fetch(
        self, key: Key, node: int, read: Callable[[], Staged | None], then: Callable[[Staged | None, str], None]
    ) -> None:
        """Call `read` in the thread, and `then` from the inbox's wait with what it returned, and why that failed if it did."""
        errand = self._of[key[0]] = _Errand(key, node, read, then)
        self._todo.put(errand)

    def carries_for(self, task: int) -> bool:
        """Whether what goes with the task's attempt is still on its way."""
        return task in self._of

    def drop(self, key: Key) -> bool:
        """The attempt does not begin; False when it was handed over already, or never was here."""
        errand = self._of.get(key[0])
        if errand is None or errand.key != key:
            return False
        errand.dropped = True
        del self._of[key[0]]
        return True

    def node_gone(self, node: int) -> None:
        """Nothing begins there any more."""
        for errand in [each for each in self._of.values() if each.node == node]:
            self.drop(errand.key)

    def close(self) -> None:
        """Hand over nothing more. A thread that hangs in a file system is not waited for."""
        for errand in list(self._of.values()):
            self.drop(errand.key)
        self._todo.put(None)
        self._inbox.unwatch(self._bell.fd)
        self._bell.close()

    def _deliver(self) -> None:
        self._bell.hush()
        while self._done:
            errand = self._done.popleft()
            if not errand.dropped:
                del self._of[errand.key[0]]
                errand.then(errand.found, errand.why_not)

    def _live(self) -> None:
        """The thread."""
        while (errand := self._todo.get()) is not None:
            if errand.dropped:
                continue
            try:
                errand.found = errand.read()
            except Exception as problem:  # noqa: BLE001 - whatever it is, it is this attempt's alone
                errand.why_not = str(problem) or type(problem).__name__
            self._done.append(errand)
            self._bell.ring()
