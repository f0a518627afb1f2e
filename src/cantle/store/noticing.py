"""Has anything come into a folder since it was looked through last, also where other machines write there?"""

from __future__ import annotations

import os
import time
from pathlib import Path

_QUIET_S = 2.0


class Noticed:
    """One folder, asked again and again; an answer costs a few microseconds."""

    __slots__ = ("_folder", "_seen", "_seen_at", "_sure")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = -1
        self._seen_at = 0.0
        self._sure = False

    def changed(self) -> bool:
        """Whether the folder may hold what we have not seen.

        Two changes within one tick of the file system's clock bear the same time. So a time only means "nothing new"
        after the folder was looked through when that time had stood for a while; the while is measured on our own clock,
        a file server's may be off.
        """
        try:
            # Opened, not only asked for its state: that is when NFS asks the server.
            fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            changed = os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)
        now = time.monotonic()
        if changed != self._seen:
            self._seen, self._seen_at, self._sure = changed, now, False
        if self._sure:
            return False
        self._sure = now - self._seen_at >= _QUIET_S
        return True

    def forget(self) -> None:
        """Look through it again, whatever was seen."""
        self._seen, self._sure = -1, False
