"""How do records reach the disk itself without the loop waiting for it?

A thread calls fdatasync over and over while it is asked to, and each call covers all that was written before it began
(group commit). The thread starts with the first request: a process that means to fork does so before.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


class Syncer:
    """Syncs one open file; counts are of records. `request` and `finish` are for the writer's thread only.

    After a failed sync nobody knows what is on the disk, and asking again may be answered with a lie. So a failure is kept
    in `failure`, and nothing is reported as synced from then on.
    """

    def __init__(self, fd: int, directories: tuple[Path, ...], interval_s: float) -> None:
        self.synced = 0
        self.failure: OSError | None = None
        self._fd = fd
        self._directories = directories
        self._interval_s = interval_s
        self._wanted = 0
        self._waiting = 0
        self._closing = False
        self._change: threading.Condition
        self._thread: threading.Thread | None = None

    def request(self, count: int) -> None:
        """Let the first `count` records become durable soon. Returns at once."""
        if self._thread is None:
            self._begin()
        with self._change:
            if count > self._wanted:
                self._wanted = count
                self._change.notify_all()

    def wait(self, count: int) -> None:
        """Wait until the first `count` records are durable. Raises OSError when that fails."""
        if self._thread is None:
            self._sync(count)
        else:
            self.request(count)
            with self._change:
                self._waiting += 1
                self._change.notify_all()
                self._change.wait_for(lambda: self.synced >= count or self.failure is not None)
                self._waiting -= 1
        if self.failure is not None and self.synced < count:
            raise self.failure

    def finish(self) -> None:
        """End the thread, and wait for its end."""
        if self._thread is not None:
            with self._change:
                self._closing = True
                self._change.notify_all()
            self._thread.join()

    def _begin(self) -> None:
        import threading  # loaded here: a short run ends without a thread

        self._change = threading.Condition(threading.Lock())
        self._thread = threading.Thread(target=self._work, name="cantle-journal-sync", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        earliest = 0.0
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closing or self._wanted > self.synced)
                # Those who wait are not kept waiting for the sake of others who may come.
                while not (self._closing or self._waiting) and (left := earliest - monotonic()) > 0:
                    self._change.wait(left)
                if self._closing:
                    return
                target = self._wanted
            earliest = monotonic() + self._interval_s
            self._sync(target)
            if self.failure is not None:
                return

    def _sync(self, target: int) -> None:
        """Sync, then say so; what was written before the call is covered by it."""
        if self.failure is not None or target <= self.synced:
            return
        try:
            os.fdatasync(self._fd)
            for directory in self._directories:
                _sync_directory(directory)
            self._directories = ()
        except OSError as error:
            self.failure = error
        if self._thread is None:
            self.synced = target if self.failure is None else self.synced
            return
        with self._change:
            if self.failure is None:
                self.synced = target
            self._change.notify_all()


def _sync_directory(directory: Path) -> None:
    """Make the directory's entries durable where that can be done; some network file systems do it by other means."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        return
    finally:
        os.close(fd)
