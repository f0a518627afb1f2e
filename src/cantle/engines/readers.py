"""Who reads files, so that one that hangs stops only what wants it, or lies where nothing comes any more?

A few threads read. A file is read by one of them at a time, and the files of one file system by a few: so a file that hangs
costs one thread, and a file system that hangs those few, whoever wants it. What waits for a turn waits in the order in which it
came.
"""

from __future__ import annotations

import os.path
from collections import deque
from collections.abc import Callable, Generator
from threading import Condition, Thread
from time import monotonic

from cantle.engines.mounts import mounts, nearest_above
from cantle.runner.messages import Staged

MOST = 16
"""So many threads read at most,"""
MOST_OF_ONE = 4
"""and so many in one file system."""
MOUNTS_S = 1.0
"""What is mounted where is looked up anew after so long."""

Reading = Generator[str, None, Staged]
"""Reads some files. It says which one comes next, and returns them all."""


class Errand:
    """Something to be read. `found` or `why_not` comes of it, unless it is `dropped` before."""

    __slots__ = ("being_read", "dropped", "found", "path", "reading", "volume", "why_not")

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.path = self.volume = ""
        """The file whose turn it is, and on which file system."""
        self.being_read = False
        self.found: Staged | None = None
        self.why_not = ""
        self.dropped = False


class _Volume:
    """A file system: which of its files are being read by whom and since when, and who waits for which."""

    def __init__(self) -> None:
        self.busy: dict[str, float] = {}
        self.waiting: dict[str, deque[Errand]] = {}
        self.next: deque[str] = deque()
        """Files that somebody waits for and that nobody reads."""

    @property
    def full(self) -> bool:
        return len(self.busy) >= MOST_OF_ONE


class Readers:
    """The threads. `over` is called in one of them with each errand that is read, or could not be."""

    def __init__(self, over: Callable[[Errand], None]) -> None:
        self._over = over
        self._changed = Condition()
        self._volumes: dict[str, _Volume] = {}
        self._mounts: dict[str, str] = {}
        self._mounts_at = float("-inf")
        self._threads = 0
        self._idle = 0
        self._closed = False

    def read(self, errand: Errand) -> None:
        """Begin to read, as soon as it is its turn."""
        path = self._next_path(errand)
        if path:
            with self._changed:
                self._let_wait(errand, path)
                if self._idle:
                    self._changed.notify()
                elif self._threads < MOST:
                    self._hire()

    def close(self) -> None:
        """Read nothing more. A thread that hangs in a file system is not waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def hanging(self, seconds: float) -> list[tuple[str, float]]:
        """The files that have been read for longer than that, and for how long each; the longest first."""
        now = monotonic()
        with self._changed:
            found = [(path, now - since) for volume in self._volumes.values() for path, since in volume.busy.items()]
        return sorted((each for each in found if each[1] >= seconds), key=lambda each: (-each[1], each[0]))

    def waits_for(self, errand: Errand) -> tuple[str, str]:
        """Which file's turn it is, and why nobody reads it now: "" when somebody does."""
        with self._changed:
            path, volume = errand.path, self._volumes.get(errand.volume)
            if volume is None or errand.being_read:
                return path, ""
            if path in volume.busy:
                return path, "others wait for it as well"
            if volume.full:
                return path, f"{len(volume.busy)} others of {errand.volume} are being read"
            return path, f"{self._threads} others are being read" if self._threads - self._idle >= MOST else ""

    def _next_path(self, errand: Errand) -> str:
        """Read until a file is wanted; "" when that was all."""
        try:
            return next(errand.reading)
        except StopIteration as over:
            errand.found = over.value
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this errand's alone
            errand.why_not = str(problem) or type(problem).__name__
        self._over(errand)
        return ""

    def _let_wait(self, errand: Errand, path: str) -> None:
        errand.path, errand.volume, errand.being_read = path, self._volume_of(path), False
        volume = self._volumes.get(errand.volume)
        if volume is None:
            volume = self._volumes[errand.volume] = _Volume()
        if path not in volume.waiting:
            volume.waiting[path] = deque()
            if path not in volume.busy:
                volume.next.append(path)
        volume.waiting[path].append(errand)

    def _hire(self) -> None:
        try:
            Thread(target=self._live, name="reader", daemon=True).start()
        except RuntimeError:  # there may be no more threads
            if not self._threads:
                raise
        else:
            self._threads += 1

    def _turn(self) -> Errand | None:
        """Whose turn it is; his file is being read from now on."""
        for volume in self._volumes.values():
            while volume.next and not volume.full:
                path = volume.next.popleft()
                queue = volume.waiting[path]
                while queue and queue[0].dropped:
                    queue.popleft()
                errand = queue.popleft() if queue else None
                if not queue:
                    del volume.waiting[path]
                if errand is not None:
                    volume.busy[path] = monotonic()
                    errand.being_read = True
                    return errand
        return None

    def _live(self) -> None:
        """A thread."""
        while True:
            with self._changed:
                self._idle += 1
                while not self._closed and (errand := self._turn()) is None:
                    self._changed.wait()
                self._idle -= 1
                if self._closed:
                    return
            assert errand is not None
            path, volume = errand.path, self._volumes[errand.volume]
            another = self._next_path(errand)
            with self._changed:
                del volume.busy[path]
                if path in volume.waiting:
                    volume.next.append(path)
                if another:
                    self._let_wait(errand, another)
                self._changed.notify_all()

    def _volume_of(self, path: str) -> str:
        """Where the file system is mounted that the file should be on, by its name alone: to ask it could hang."""
        now = monotonic()
        if now >= self._mounts_at + MOUNTS_S:
            self._mounts, self._mounts_at = mounts(), now
        return nearest_above(os.path.abspath(path), self._mounts)  # noqa: PTH100
