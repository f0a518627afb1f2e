"""Who brings what goes with an attempt, so that the loop need not wait for a file system?

Threads read; what they have read is handed over in the loop's own thread. An attempt that follows another one whose files are
being read goes the same way, though it may have none, and is read for only when that one is handed over: so nobody overtakes
whom he follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from time import monotonic

from cantle.engines.readers import Errand, Readers, Reading
from cantle.model.records import TaskHindered
from cantle.model.seams import Inbox
from cantle.runner.bell import Bell
from cantle.runner.messages import Key, Staged

TELLS_S = 10.0
"""A file that has been read for so long without an end is told of, and each time when it has been twice as long."""
LOOK_S = 1.0
"""So often it is looked for such files."""

Then = Callable[[Staged | None, str], None]


class _Parcel(Errand):
    """What is to be read for one attempt, and who wants it. `node` is where the attempt goes, `ahead` whom it follows."""

    __slots__ = ("ahead", "followers", "key", "node", "then", "told_s")

    def __init__(self, key: Key, node: int, reading: Reading, then: Then) -> None:
        super().__init__(reading)
        self.key, self.node, self.then = key, node, then
        self.ahead: _Parcel | None = None
        self.followers: list[_Parcel] = []
        self.told_s = 0.0


class Porter:
    """Brings what `reading` reads."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._of: dict[int, _Parcel] = {}
        """By task: one attempt of it at most is under way."""
        self._done: deque[_Parcel] = deque()
        self._bell = Bell()
        self._readers = Readers(self._is_read)
        self._looked_at = monotonic()
        inbox.watch(self._bell.fd, self._deliver)

    def fetch(self, key: Key, node: int, reading: Reading | None, then: Then, behind: int | None = None) -> None:
        """Read in a thread, and call `then` from the inbox's wait with what came of it, and why that failed if it did.

        `behind`: not before the attempt of that task was handed over, if it is still on its way.
        """
        parcel = _Parcel(key, node, nothing() if reading is None else reading, then)
        ahead = self._of.get(behind) if behind is not None else None
        self._of[key[0]] = parcel
        if ahead is not None:
            parcel.ahead = ahead
            ahead.followers.append(parcel)
        else:
            self._readers.read(parcel)

    def carries_for(self, task: int) -> bool:
        """Whether what goes with the task's attempt is still on its way."""
        return task in self._of

    def drop(self, key: Key) -> bool:
        """The attempt does not begin; False when it was handed over already, or never was here."""
        parcel = self._of.get(key[0])
        if parcel is None or parcel.key != key:
            return False
        parcel.dropped = True
        self._is_over(parcel)
        return True

    def node_gone(self, node: int) -> None:
        """Nothing begins there any more."""
        gone = [parcel for parcel in self._of.values() if parcel.node == node]
        for parcel in gone:
            parcel.dropped = True
        for parcel in gone:
            self._is_over(parcel)

    def tick(self) -> None:
        """Tell of attempts for which nothing comes, once in a while. For the loop's thread, now and then."""
        now = monotonic()
        if now < self._looked_at + LOOK_S:
            return
        self._looked_at = now
        hanging = dict(self._readers.hanging(TELLS_S))
        if hanging:
            for parcel in self._of.values():
                self._tell(parcel, hanging)

    def close(self) -> None:
        """Hand over nothing more."""
        for parcel in self._of.values():
            parcel.dropped = True
        self._of.clear()
        self._readers.close()
        self._inbox.unwatch(self._bell.fd)
        self._bell.close()

    def _is_read(self, parcel: Errand) -> None:
        """In whichever thread has read it."""
        assert isinstance(parcel, _Parcel)
        self._done.append(parcel)
        self._bell.ring()

    def _deliver(self) -> None:
        self._bell.hush()
        while self._done:
            parcel = self._done.popleft()
            if not parcel.dropped:
                if parcel.told_s:
                    self._inbox.put(TaskHindered(self._inbox.now(), parcel.key[0], parcel.key[1]))
                parcel.then(parcel.found, parcel.why_not)
                self._is_over(parcel)

    def _is_over(self, parcel: _Parcel) -> None:
        """Handed over, or not wanted any more: who follows is next, or follows now whom this one followed."""
        del self._of[parcel.key[0]]
        ahead = parcel.ahead
        for follower in parcel.followers:
            follower.ahead = ahead
            if follower.dropped:
                continue
            if ahead is not None:
                ahead.followers.append(follower)
            else:
                self._readers.read(follower)

    def _tell(self, parcel: _Parcel, hanging: dict[str, float]) -> None:
        path, others = self._readers.waits_for(parcel)
        longest, for_s = next(iter(hanging.items()))
        if path in hanging:
            for_s = hanging[path]
            why = f"{path} has been read for {for_s:.0f} s without an end"
            if others:
                why += f", and {others}"
        elif others:
            why = f"{path} has not been read yet, since {others}: {longest} for {for_s:.0f} s without an end"
        else:
            return
        if for_s >= 2 * parcel.told_s and not (others and parcel.told_s):
            parcel.told_s = for_s
            told = f"what it stages in does not come: {why}"
            self._inbox.put(TaskHindered(self._inbox.now(), parcel.key[0], parcel.key[1], told))


def nothing() -> Generator[str, None, Staged]:
    """Reads no file, and has nothing to hand over."""
    return None  # type: ignore[return-value]
    yield ""
